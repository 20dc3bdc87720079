"""Minimality and downcoding: what a reader learns from knowing that the release generalizes no more than it must.

Both split the classes of a full-domain release again, by one attribute at a time, one level lower, over the private
rows: who attacks needs them from elsewhere, the data holder has them.

Sources: R. C.-W. Wong, A. W.-C. Fu, K. Wang, J. Pei, Minimality attack in privacy preserving data publishing, VLDB
2007; A. Cohen, Attacks on deidentification's defenses, USENIX Security 2022 (downcoding).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.coding import code_name
from sqlanon.expressions import (
    aliased,
    all_of,
    cast,
    col,
    ident,
    named,
    number,
    same,
    select,
    subquery,
    text,
    union_all,
)
from sqlanon.frequency import distribution as ds
from sqlanon.frequency.uncoded import distribution
from sqlanon.ledger.linked import ROWS, within
from sqlanon.requirements import Requirements
from sqlanon.requirements.base import CLASS_COUNT, CLASS_POPULATION, CLASS_SIZE, Distribution
from sqlanon.search.classes import KEPT, ClassSpace, SensitiveTable, judged

_LABELLED, _PARENTS = "sqlanon labelled", "sqlanon classes"


@dataclass(frozen=True)
class Released:
    """A quasi-identifier of a full-domain release, and of its source.

    Attributes
    ----------
    name, released:
        What it is called, and its column in the release.
    column:
        Its column in the source.
    level:
        Its level in the release.
    hierarchy:
        ``level_0`` to the top.
    lowest:
        The least level that the policy allows; a class is not split below it.
    """

    name: str
    released: str
    column: str
    level: int
    hierarchy: exp.Expr
    lowest: int = 0


def looks_at_rows_alone(requirements: Requirements) -> bool:
    """Whether classes can be judged by their rows and sensitive values: what the attacks here are able to do."""
    plain = all(one.kind in ("values", "joint") for one in requirements.distributions)
    whole = requirements.table or requirements.shields or requirements.population_uniqueness
    columns = [column.name for one in requirements.classes for column in one.condition().find_all(exp.Column)]
    return plain and not whole and CLASS_POPULATION not in columns


def downcoding(
    release: exp.Expr,
    source: exp.Expr,
    quasi: Sequence[Released],
    sensitive: Mapping[str, str],
    requirements: Requirements,
) -> exp.Select:
    """Classes that could be released with one attribute a level lower, all their rows: ``v0`` .., ``by`` (which
    attributes), and ``n``.
    """
    fine = exp.LogicalAnd(this=col(KEPT))
    return _split(release, source, quasi, sensitive, requirements, fine, exp.Sum(this=col(CLASS_SIZE)))


def minimality(
    release: exp.Expr,
    source: exp.Expr,
    quasi: Sequence[Released],
    sensitive: Mapping[str, str],
    requirements: Requirements,
    k: int,
) -> exp.Select:
    """Classes that were not merged for k-anonymity: ``v0`` .., ``by``, and ``n``.

    Split by one attribute a level lower, all parts have k rows, but some break another requirement: that the class is
    whole tells of these. ``by`` has the attributes by which it can be so split; ``n`` are the rows of such parts, by
    the attribute with the most.
    """
    big = exp.LogicalAnd(this=col(CLASS_COUNT) >= number(k))
    broken = ~exp.LogicalAnd(this=col(KEPT))
    several = exp.Count(this=exp.Star()) > 1
    rows = exp.Sum(this=exp.If(this=col(KEPT), true=number(0), false=col(CLASS_SIZE)))
    return _split(release, source, quasi, sensitive, requirements, all_of([big, broken, several]), rows)


def _split(
    release: exp.Expr,
    source: exp.Expr,
    quasi: Sequence[Released],
    sensitive: Mapping[str, str],
    requirements: Requirements,
    condition: exp.Expr,
    rows: exp.Expr,
) -> exp.Select:
    """The released classes whose parts meet a condition, by any attribute."""
    splits: list[exp.Query] = []
    parts: dict[str, exp.Query] = {}
    for i, one in enumerate(quasi):
        if one.level <= one.lowest:
            continue
        space = _space(i, source, sensitive, requirements, parts)
        extra = [named(exp.Min(this=col("class")), "class")]
        each: list[exp.Expr] = [col("class"), named(text(one.name), "by"), named(cast(rows.copy(), "BIGINT"), ROWS)]
        split = select(each, subquery(judged(space, (0,), extra), "j"), [col("class")])
        splits.append(split.having(condition.copy(), copy=False))
    if not splits:
        empty: list[exp.Expr] = [
            named(cast(exp.null(), "BIGINT"), "class"),
            named(text(""), "by"),
            named(number(0), ROWS),
        ]
        splits.append(exp.Select(expressions=empty).where(exp.false()))
    by = exp.GroupConcat(
        this=exp.Order(this=col("by"), expressions=[exp.Ordered(this=col("by"))]), separator=text(", ")
    )
    worst = select(
        [col("class"), named(by, "by"), named(exp.Max(this=col(ROWS)), ROWS)],
        subquery(union_all(*splits), "s"),
        [col("class")],
    )
    labels: list[exp.Expr] = [named(col(f"g{i}", "p"), f"v{i}") for i in range(len(quasi))]
    query = select([*labels, col("by", "w"), col(ROWS, "w")], within(_PARENTS, "p"))
    on = col("class", "p").eq(col("class", "w"))
    query = query.join(subquery(worst, "w"), on=on, copy=False)
    there = all_of(same(col(f"g{i}", "p"), cast(col(one.released, "r"), "VARCHAR")) for i, one in enumerate(quasi))
    query = query.join(aliased(release, "r"), on=there, join_type="semi", copy=False)
    query = query.with_(ident(_LABELLED), as_=_labelled(source, quasi, sensitive), materialized=True, copy=False)
    classes = [col(f"g{i}") for i in range(len(quasi))]
    distinct = exp.Select(expressions=[col("class"), *classes], distinct=exp.Distinct())
    query = query.with_(ident(_PARENTS), as_=distinct.from_(exp.Table(this=ident(_LABELLED)), copy=False), copy=False)
    for name, part in parts.items():
        query = query.with_(ident(name), as_=part, materialized=True, copy=False)
    return query


def _labelled(source: exp.Expr, quasi: Sequence[Released], sensitive: Mapping[str, str]) -> exp.Select:
    """The source's combinations: ``g0`` .. (labels as released), ``class`` (their number), ``part0`` .. (the number of
    the part, by each attribute), ``s0`` .. and ``n``. Rows with values that a hierarchy lacks are not released.
    """
    raw: list[exp.Expr] = [named(col(one.column, "r"), f"q{i}") for i, one in enumerate(quasi)]
    raw += [named(col(name, "r"), f"s{j}") for j, name in enumerate(sensitive.values())]
    columns = dict.fromkeys([*(one.column for one in quasi), *sensitive.values()])
    counted = select(
        [*raw, named(exp.Count(this=exp.Star()), ROWS)], aliased(source, "r"), [col(name, "r") for name in columns]
    )
    query = exp.Select().from_(subquery(counted, "c"), copy=False)
    output: list[exp.Expr] = []
    for i, one in enumerate(quasi):
        on = same(col(f"q{i}", "c"), col("level_0", f"h{i}"))
        query = query.join(aliased(one.hierarchy, f"h{i}"), on=on, copy=False)
        output.append(named(cast(col(f"level_{one.level}", f"h{i}"), "VARCHAR"), f"g{i}"))
        lower = max(one.level - 1, 0)
        output.append(named(cast(col(f"level_{lower}", f"h{i}"), "VARCHAR"), f"f{i}"))
    output += [col(f"s{j}", "c") for j in range(len(sensitive))]
    query.set("expressions", [*output, col(ROWS, "c")])
    labels = [col(f"g{i}") for i in range(len(quasi))]
    numbers: list[exp.Expr] = [named(_number_of(labels), "class")]
    numbers += [
        named(_number_of([*labels, col(f"f{i}")]), f"part{i}") for i, one in enumerate(quasi) if one.level > one.lowest
    ]
    kept: list[exp.Expr] = [*labels, *(col(f"s{j}") for j in range(len(sensitive))), col(ROWS)]
    return select([*kept, *numbers], subquery(query, "l"))


def at_level(source: exp.Expr, column: str, hierarchy: exp.Expr, level: int, others: Sequence[str]) -> exp.Subquery:
    """The rows of a source: ``label`` and ``ground`` of an attribute, released at a level, and other columns."""
    label = named(cast(col(f"level_{level}", "h"), "VARCHAR"), "label")
    output: list[exp.Expr] = [label, named(col(column, "r"), "ground"), *(col(name, "r") for name in others)]
    on = same(col(column, "r"), col("level_0", "h"))
    return subquery(select(output, aliased(source, "r")).join(aliased(hierarchy, "h"), on=on, copy=False), "r")


def _number_of(columns: Sequence[exp.Expr]) -> exp.Window:
    order = exp.Order(expressions=[exp.Ordered(this=column.copy()) for column in columns])
    return exp.Window(this=exp.Anonymous(this="DENSE_RANK"), order=order)


def _space(
    i: int, source: exp.Expr, sensitive: Mapping[str, str], requirements: Requirements, parts: dict[str, exp.Query]
) -> ClassSpace:
    """The parts of classes by an attribute, as classes of one generalization; adds what it needs to ``parts``."""
    frequency: list[exp.Expr] = [named(col(f"part{i}"), code_name(0, 0)), col("class"), col(ROWS)]
    tables: Mapping[Distribution, SensitiveTable] = {
        one: _sensitive(i, one, source, sensitive, parts) for one in requirements.distributions
    }
    return ClassSpace(
        subquery(select(frequency, exp.Table(this=ident(_LABELLED))), "frequency"), (1,), requirements, sensitive=tables
    )


def _sensitive(
    i: int, one: Distribution, source: exp.Expr, sensitive: Mapping[str, str], parts: dict[str, exp.Query]
) -> SensitiveTable:
    """The counts of a sensitive attribute's values in the parts; its values and their order are the source's."""
    j = list(sensitive).index(one.attribute)
    values, domain = f"sqlanon values {j}", f"sqlanon domain {j}"
    if values not in parts:
        column = col(sensitive[one.attribute], "r")
        counted: list[exp.Expr] = [named(column, "value"), named(exp.Count(this=exp.Star()), ROWS)]
        counts = select(counted, aliased(source, "r"), [column.copy()])
        parts[values] = ds.sensitive_values(subquery(counts, "c"), moving=False)
        parts[domain] = ds.domain(exp.Table(this=ident(values)))
    inner = [other for other in range(len(sensitive)) if other != j] if one.kind == "joint" else []
    rows: list[exp.Expr] = [named(col(f"part{i}"), "q0"), *(col(f"s{other}") for other in range(len(sensitive)))]
    numbered = select([*rows, col(ROWS)], exp.Table(this=ident(_LABELLED)))
    pairs = ds.value_pairs(subquery(numbered, "n"), 1, j, inner)
    told = distribution(pairs, exp.Table(this=ident(values)), 1, len(inner))
    return SensitiveTable(told, len(inner), exp.Table(this=ident(domain)) if one.kind == "values" else None)
