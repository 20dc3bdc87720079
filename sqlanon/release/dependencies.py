"""Dependencies: released columns that narrow a generalized quasi-identifier beyond its released label.

If ZIP codes are generalized, districts are released unchanged, and a district has four ZIP codes, a reader knows more
of a ZIP code than its label says. Source: L. Sweeney, "Achieving k-anonymity privacy protection using generalization
and suppression" (2002), section 2.2.

Two rows with the same label share their ground value with some probability. Among rows that also agree in another
released column, the probability is greater if the column narrows the value. Both are estimated without bias from the
pairs of rows in groups of any size, and from samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

from sqlglot import exp

from sqlanon.coding import Column
from sqlanon.engines.base import Engine, WorkEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.expressions import (
    Namer,
    col,
    ident,
    named,
    number,
    star,
    subquery,
    table,
    template,
    union_all,
)
from sqlanon.policy import SourceSection
from sqlanon.recode.full_domain import ByClass
from sqlanon.records import dataclass
from sqlanon.release.words import listed
from sqlanon.search.input import SearchInput
from sqlanon.sources import NOT_THERE
from sqlanon.sources.column_figures import KEY, NEARLY, nearly_unique, some_rows
from sqlanon.sources.columns import quoted
from sqlanon.sources.duckdb import named_table

_LABELLED = "sqlanon narrowing"

_GROUPS = template("""
    SELECT label, :names, sum(n) AS n, count(*) AS ground_values, sum(n * (n - 1)) / (sum(n) * (sum(n) - 1)) AS alike
    FROM :counted
    GROUP BY label, :names
    HAVING sum(n) > 1
""")

_LABELS = template("""
    SELECT label, count(*) AS ground_values, sum(n * (n - 1)) / (sum(n) * (sum(n) - 1)) AS alike
    FROM (SELECT label, ground, sum(n) AS n FROM :counted GROUP BY label, ground) AS v
    GROUP BY label
    HAVING count(*) > 1
""")

_NARROWING = template("""
    SELECT
        coalesce(sum(g.n), 0)::BIGINT AS rows,
        (sum(g.n * l.ground_values) / sum(g.n))::DOUBLE AS before,
        (sum(g.n * g.ground_values) / sum(g.n))::DOUBLE AS after,
        (sum(g.n * l.alike) / sum(g.n))::DOUBLE AS alike_before,
        (sum(g.n * g.alike) / sum(g.n))::DOUBLE AS alike_after,
        coalesce(sum(g.n) FILTER (
            WHERE g.ground_values = 1 AND g.n / 2 * ln(greatest(l.alike, 1e-300)) < ln(:by_chance)
        ), 0)::BIGINT AS pinned
    FROM :groups AS g
    JOIN :labels AS l ON g.label IS NOT DISTINCT FROM l.label
""")

_PINNED = template("""
    SELECT g.label AS v0, g.c0 AS v1, g.n::BIGINT AS n
    FROM :groups AS g
    JOIN :labels AS l ON g.label IS NOT DISTINCT FROM l.label
    WHERE g.ground_values = 1 AND g.n / 2 * ln(greatest(l.alike, 1e-300)) < ln(:by_chance)
""")

_COUNTED = template("""
    SELECT :label AS label, :ground AS ground, :columns, count(*)::DOUBLE AS n
    FROM :rows
    GROUP BY :places
""")

_SMALLEST = template("""
    SELECT coalesce(min(n), 0)::BIGINT AS smallest
    FROM (SELECT count(*) AS n FROM :rows GROUP BY :keys) AS c
""")

_VALUES_LEFT = template("""
    SELECT :columns, count(DISTINCT :ground) AS values_left, count(*) AS rows
    FROM :source
    GROUP BY :columns
    ORDER BY values_left, rows DESC
""")

BY_CHANCE = 1e-6
"""A group of one ground value gives it away, unless a column that says nothing would show such a group so often."""


def narrowing(rows: exp.Expr, label: exp.Expr, ground: exp.Expr, columns: Sequence[exp.Expr]) -> exp.Select:
    """One row of figures of the rows in groups of two or more, all with one label and the same values of some columns.

    Columns: ``rows``; ``before`` and ``after``, the ground values that are left by the label, and by the group;
    ``alike_before`` and ``alike_after``, the probability that two of their rows share the ground value; ``pinned``, the
    rows whose ground value the group gives away.
    """
    return _of_groups(_NARROWING, rows, label, ground, columns)


def pinned_groups(rows: exp.Expr, label: exp.Expr, ground: exp.Expr, column: exp.Expr) -> exp.Select:
    """The groups of one label and one value of a column that leave one ground value of several, and not by chance:
    ``v0`` (the label), ``v1`` (the column's value), ``n`` (rows)."""
    return _of_groups(_PINNED, rows, label, ground, [column])


def _of_groups(
    build: Callable[..., exp.Select],
    rows: exp.Expr,
    label: exp.Expr,
    ground: exp.Expr,
    columns: Sequence[exp.Expr],
) -> exp.Select:
    names = [col(f"c{i}") for i in range(len(columns))]
    output = [named(column, name.name) for column, name in zip(columns, names, strict=True)]
    places = [number(place + 1) for place in range(2 + len(output))]
    counted = _COUNTED(label=label, ground=ground, columns=output, rows=rows, places=places)
    groups = _GROUPS(names=names, counted=table(_LABELLED))
    labels = _LABELS(counted=table(_LABELLED))
    query = build(groups=groups, labels=labels, by_chance=BY_CHANCE)
    return query.with_(ident(_LABELLED), as_=counted, materialized=True, copy=False)


def smallest_group(rows: exp.Expr, keys: Sequence[exp.Expr]) -> exp.Select:
    return _SMALLEST(rows=rows, keys=list(keys))


def narrowing_query(source: exp.Expr, ground: str, columns: Sequence[str]) -> exp.Select:
    """What a data holder runs to see it: the values that are left of a column by those of others, the fewest first."""
    return _VALUES_LEFT(columns=[col(name) for name in columns], ground=col(ground), source=source)


def positional(query: exp.Query, count: int) -> exp.Subquery:
    """A query's rows with columns ``r0``, ``r1``, ...: names of columns may be there twice."""
    columns = [ident(f"r{i}") for i in range(count)]
    part = subquery(query)
    part.set("alias", exp.TableAlias(this=ident("r"), columns=columns))
    return part


FACTOR = 2.0
"""The factor from which a column narrows: how much likelier two people share the ground value if it is known."""

PINNED = 0.05
"""The share of rows with a revealed ground value from which a column narrows."""

ENOUGH = 20_000
"""The approximate number of rows in the sample of a larger table."""

PAIRS = 6
"""The greatest number of columns whose pairs are measured."""


_Ask: TypeAlias = "Callable[[exp.Select], Sequence[tuple[Any, ...]]]"
"""Answers a query."""

_SURE = 5.0  # standard deviations
_FEWEST = 10.0  # pairs of rows that share a value, beyond those expected


@dataclass(frozen=True)
class Narrowing:
    """A released column, or two, that narrow a generalized quasi-identifier.

    Attributes
    ----------
    columns, quasi:
        The column or columns, and the quasi-identifier.
    before, after:
        The number of ground values under a released label, and of those left if the columns are known: means over the
        rows.
    alike_before, alike_after:
        The probability that two people with the same label have the same ground value; and if they also agree in the
        columns.
    pinned:
        The share of the rows whose ground value the columns reveal.
    smallest_group:
        The size of the smallest group that agrees in all released quasi-identifiers and the columns. None for a sample,
        and for a source that is not generalized.
    query:
        A query on the source that shows the values left, the fewest first.
    """

    columns: tuple[str, ...]
    quasi: str
    before: float
    after: float
    alike_before: float
    alike_after: float
    pinned: float
    smallest_group: int | None
    query: str

    @property
    def factor(self) -> float:
        """``alike_after / alike_before``."""
        return self.alike_after / self.alike_before

    @property
    def message(self) -> str:
        names, size, one = listed([*map(repr, self.columns)]), self.smallest_group, len(self.columns) == 1
        verb, are, them = ("narrows", "is", "it") if one else ("narrow", "are", "them")
        smallest = "" if size is None else f"; with {names}, the smallest group has {size:,} rows"
        return (
            f"{names} {verb} {self.quasi!r}: a released label stands for {self.before:,.1f} values of it on average, "
            f"and for {self.after:,.1f} if {names} {are} known{smallest}; make {them} quasi or leave {them} out. "
            f"To see the values left: {self.query}"
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"columns": list(self.columns), "factor": self.factor}


class _Candidate(NamedTuple):
    """The numbers of some columns, and of a quasi-identifier: where its label is (nowhere: all rows have one), and its
    value."""

    columns: tuple[int, ...]
    quasi: int
    label: str
    ground: str


@dataclass(frozen=True)
class Dependencies:
    """The narrowing columns, why the policy refuses them, and warnings."""

    narrowing: tuple[Narrowing, ...]
    refusals: tuple[str, ...]
    warnings: tuple[str, ...]


def measure_dependencies(
    engine: WorkEngine,
    steps: StatementRunner,
    prepared: SearchInput,
    recoding: ByClass,
    levels: Mapping[str, int | None],
) -> Dependencies:
    """The stage dependencies: whether unchanged columns reveal generalized values."""
    narrowing, warnings = narrowing_columns(engine, steps, prepared, recoding, levels)
    return Dependencies(narrowing, refused(steps, prepared, levels, narrowing), warnings)


def narrowing_columns(
    engine: WorkEngine,
    steps: StatementRunner,
    prepared: SearchInput,
    recoding: ByClass,
    levels: Mapping[str, int | None],
) -> tuple[tuple[Narrowing, ...], tuple[str, ...]]:
    """The released columns that narrow the quasi-identifiers of a version of a source, and what to warn of.

    A source in PostgreSQL is measured there. Other sources need ``narrowing_sample`` and ``narrowing_rows`` in the work
    schema, which are dropped. A dry run shows the query for the first column and quasi-identifier.
    """
    released, rows, source = recoding.columns, prepared.marginals.rows, prepared.source
    others, quasi = _measurable(prepared, released, levels)
    if not others or not quasi:
        return (), ()
    if steps.dry:
        _show_measurement(steps, prepared, recoding, others, quasi)
        return (), ()
    if (why := source.why_not_measured()) is not None:
        message = f"whether released columns narrow generalized quasi-identifiers was not measured: {why}"
        if prepared.policy.privacy.dependencies == "error":
            raise SourceError(f'{message}; privacy.dependencies = "error" requires it')
        return (), (f"{message}; docs/explanation/dependencies.md has a query that shows it",)
    own, candidates, sampled = steps.on(engine), _candidates(others, _shown(recoding, quasi)), rows > 2 * ENOUGH
    labels = [f"r{j}" for j, one in enumerate(released) if one.quasi is not None]
    if source.access == "rows":
        if sampled:
            columns = [*(one.name for one in released), *prepared.columns.generalized, *prepared.columns.key]
            needed = list(dict.fromkeys(columns))
            sample = some_rows(source.relation, needed, rows // ENOUGH)
            recoding = recoding.of_rows(own.make(prepared.work("narrowing_sample"), sample))
        relation = own.make(prepared.work("narrowing_rows"), _rows(recoding, quasi))
        found = _measured(own.engine.rows, relation, candidates, labels, sampled)
        own.drop_all_but(())
    else:
        share = ENOUGH / rows if sampled else None
        with source.temporary_rows(engine, _rows(recoding, quasi), share) as (there, relation):
            found = _measured(there, relation, candidates, labels, sampled)
    narrow = tuple(
        _narrowing([released[one].name for one in some], released[j].name, figures, smallest, prepared.policy.source)
        for some, j, figures, smallest in found
    )
    return narrow, tuple(one.message for one in narrow)


def _show_measurement(
    steps: StatementRunner, prepared: SearchInput, recoding: ByClass, others: Sequence[int], quasi: Sequence[int]
) -> None:
    source, candidates, rows = prepared.source, _candidates(others, _shown(recoding, quasi))[:1], _rows(recoding, quasi)
    if not source.measures:
        return
    if source.access == "rows":
        steps.show(_queries(steps.make(prepared.work("narrowing_rows"), rows), candidates)[0])
    else:
        relation, making = source.temporary_rows_shown(steps.engine, rows)
        steps.show_text(*making, source.shown(steps.engine, _queries(relation, candidates)[0]))
    each = "a query like this for each generalized attribute and each unchanged column, and for pairs of columns "
    each += f"if there are at most {PAIRS}; more than {2 * ENOUGH:,} rows are sampled"
    steps.finish("dependencies", each)


def refused(
    steps: StatementRunner, prepared: SearchInput, levels: Mapping[str, int | None], found: Sequence[Narrowing]
) -> tuple[str, ...]:
    """Why the policy refuses a version of the source: columns that narrow, and those that are keys.

    A column with many unique values is a key: another table with it and a quasi-identifier reveals the value of each
    such row. Unique values have no pairs of rows, so their dependence cannot be measured.
    """
    _, quasi = _measurable(prepared, prepared.released, levels)
    if prepared.policy.privacy.dependencies != "error" or not quasi or steps.dry:
        return ()
    names = listed([repr(prepared.released[j].name) for j in quasi])
    keys = (
        f"{name!r} is nearly a key: it has at least half as many distinct values as rows. Another table with it and "
        f"{names} reveals their values, and whether it depends on them cannot be measured. Make it identifying or "
        "quasi, round it, or leave it out"
        for name in unique_columns(steps.engine, prepared, KEY)
    )
    return tuple(f"dependencies: {one}" for one in (*(each.message for each in found), *keys))


def warn_of_unique_columns(steps: StatementRunner, prepared: SearchInput) -> tuple[str, ...]:
    """Warn of unchanged columns that identify people by themselves."""
    return () if steps.dry else unique_warnings(prepared, unique_columns(steps.engine, prepared))


def unique_columns(engine: Engine, prepared: SearchInput, share: float = NEARLY) -> list[str]:
    """The unchanged columns that are nearly unique, among those whose values are known."""
    names = [name for name in _as_they_are(prepared) if prepared.source.columns[name] != NOT_THERE]
    return nearly_unique(names, prepared.source.distinct_counts(engine, names), share) if names else []


def unique_warnings(prepared: SearchInput, unique: Sequence[str]) -> tuple[str, ...]:
    """Warnings of unchanged columns that identify people by themselves."""
    not_there = [name for name in _as_they_are(prepared) if prepared.source.columns[name] == NOT_THERE]
    warnings: tuple[str, ...] = ()
    if not_there:
        message = f"not known here whether the values of {quoted(not_there)} identify people by themselves"
        warnings = (f"{message}: audit.sql of the export counts them in the warehouse",)
    return warnings + tuple(
        f"column {name!r} is nearly unique: its values identify people by themselves; make it identifying "
        "or a quasi-identifier"
        for name in unique
    )


def _as_they_are(prepared: SearchInput) -> list[str]:
    noisy = prepared.columns.noisy
    return [column.name for column in prepared.released if column.quasi is None and column.name not in noisy]


def _measurable(
    prepared: SearchInput, released: Sequence[Column], levels: Mapping[str, int | None]
) -> tuple[list[int], list[int]]:
    """The numbers of the released columns that may narrow, and of the quasi-identifiers that are generalized."""
    columns, attributes = prepared.columns, prepared.attributes
    names = {column: name for name, column in columns.by_attribute.items()}
    known = {name.lower(): level for name, level in levels.items()}

    def is_generalized(column: Column) -> bool:
        if column.quasi is None:
            return False
        return known.get(names[column.name].lower()) != 0 or attributes[column.quasi].open_ends

    others = [j for j, one in enumerate(released) if one.quasi is None and one.name not in columns.noisy]
    return others, [j for j, one in enumerate(released) if is_generalized(one)]


def _rows(recoding: ByClass, quasi: Sequence[int]) -> exp.Select:
    """The rows of a version, ``r0`` and so on, and behind them the values of the quasi-identifiers in the source."""
    count = len(recoding.columns) + len(quasi)
    for j in quasi:
        recoding = recoding.with_column(Column(recoding.columns[j].name))
    return star(positional(recoding.select(shuffled=False), count))


def _shown(recoding: ByClass, quasi: Sequence[int]) -> list[tuple[int, str, str]]:
    """Quasi-identifiers, and where `_rows` has their labels and values."""
    return [(j, f"r{j}", f"r{len(recoding.columns) + i}") for i, j in enumerate(quasi)]


def _measured(
    ask: _Ask,
    relation: exp.Table,
    candidates: Sequence[_Candidate],
    labels: Sequence[str],
    sampled: bool,
) -> list[tuple[tuple[int, ...], int, Mapping[str, Any], int | None]]:
    found = []
    for some, j, figures in _found(candidates, _answers(ask, _queries(relation, candidates))):
        keys = [col(name) for name in (*labels, *(f"r{one}" for one in some))]
        found.append((some, j, figures, None if sampled else ask(smallest_group(relation, keys))[0][0]))
    return found


def narrowing_columns_of_source(
    steps: StatementRunner,
    work: Namer,
    relation: exp.Table,
    rows: int,
    columns: Sequence[str],
    quasi: Sequence[str],
    at: SourceSection,
) -> tuple[Narrowing, ...]:
    """What narrows the quasi-identifiers of a source as it stands, if nothing else is known of them.

    Makes ``narrowing_rows`` in the work schema.
    """
    if not columns or not quasi:
        return ()
    step = rows // ENOUGH if rows > 2 * ENOUGH else 1
    names = [*columns, *quasi]
    sampled = positional(some_rows(relation, names, step), len(names))
    sample = steps.make(work("narrowing_rows"), star(sampled))
    candidates = _candidates(range(len(columns)), [(j, "", f"r{j}") for j in range(len(columns), len(names))])
    answers = _answers(lambda query: steps.ask(query, []), _queries(sample, candidates))
    return tuple(
        _narrowing([columns[one] for one in some], names[j], figures, None, at)
        for some, j, figures in _found(candidates, answers)
    )


def _candidates(others: Sequence[int], quasi: Sequence[tuple[int, str, str]]) -> list[_Candidate]:
    sets: list[tuple[int, ...]] = [(one,) for one in others]
    sets += combinations(others, 2) if len(others) <= PAIRS else []
    return [_Candidate(some, *one) for one in quasi for some in sets]


def _queries(rows: exp.Table, candidates: Sequence[_Candidate]) -> list[exp.Select]:
    return [
        narrowing(
            rows, col(one.label) if one.label else exp.null(), col(one.ground), [col(f"r{j}") for j in one.columns]
        )
        for one in candidates
    ]


def _answers(ask: _Ask, queries: Sequence[exp.Select]) -> list[dict[str, Any]]:
    names = queries[0].named_selects
    union = star(subquery(union_all(*(star(subquery(one, "q")) for one in queries)), "u"))
    return [dict(zip(names, row, strict=True)) for row in ask(union)]


def _found(
    candidates: Sequence[_Candidate], answers: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[tuple[int, ...], int, Mapping[str, Any]]]:
    """The columns that narrow a quasi-identifier; by their numbers, with figures.

    Two are reported where they say clearly more than the better of them alone.
    """
    alone: dict[tuple[int, int], float] = {}
    for one, figures in zip(candidates, answers, strict=False):  # there are none where they are only shown
        some, j = one.columns, one.quasi
        if not _is_sure(figures):
            continue
        factor = figures["alike_after"] / figures["alike_before"]
        if len(some) == 1:
            alone[some[0], j] = factor
        best = max((alone.get((one, j), 1.0) for one in some), default=1.0) if len(some) > 1 else 1.0
        pinned = figures["pinned"] >= PINNED * figures["rows"] and len(some) == 1
        if factor >= FACTOR * best or (pinned and factor > 1):
            yield some, j, figures


def _is_sure(figures: Mapping[str, Any]) -> bool:
    pairs = figures["rows"] / 2
    if not pairs or not figures["alike_before"]:
        return False
    expected = figures["alike_before"] * pairs
    return bool(figures["alike_after"] * pairs > expected + _SURE * math.sqrt(expected) + _FEWEST)


def _narrowing(
    columns: Sequence[str], quasi: str, figures: Mapping[str, Any], smallest: int | None, source: SourceSection
) -> Narrowing:
    return Narrowing(
        tuple(columns),
        quasi,
        figures["before"],
        figures["after"],
        figures["alike_before"],
        figures["alike_after"],
        figures["pinned"] / figures["rows"],
        smallest,
        narrowing_query(_source(source), quasi, columns).sql("duckdb"),
    )


def _source(section: SourceSection) -> exp.Expr:
    if section.files:
        return table(section.files[0])
    return named_table(section.table or "source")
