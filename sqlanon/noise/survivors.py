"""Rows that are left when some of a class were suppressed by themselves: are the classes still what they have to be?

The rows stand as those of `frequency.statements.raw_frequency`: ``q0, q1, ...`` (a class's key of each
quasi-identifier, never NULL), ``s0, s1, ...``, ``person`` and ``n``; beside ``record``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.coding import ROWS, code_name
from sqlanon.expressions import aliased, all_of, col, named, number, select, star, subquery
from sqlanon.frequency.distribution import Pairs, value_pairs
from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.statements import PERSON
from sqlanon.frequency.uncoded import distribution, frequency
from sqlanon.requirements import Distribution, Requirements
from sqlanon.requirements.base import CLASS_COUNT, CLASS_SIZE
from sqlanon.search.classes import KEPT, judged


def survivors(
    noisy: exp.Table,
    classes: exp.Table,
    keys: Sequence[int],
    attributes: int,
    sensitive: Sequence[str],
    person: str | None,
    near: exp.Table | None,
    k: int,
) -> exp.Select:
    """The records that are not suppressed by themselves."""
    output: list[exp.Expr] = [col("record", "n")]
    output += [named(col(f"key_{i}", "c") if i in keys else number(0), f"q{i}") for i in range(attributes)]
    output += [named(col(name, "n"), f"s{s}") for s, name in enumerate(sensitive)]
    output += [named(col(person, "n"), PERSON)] if person is not None else []
    query = select([*output, named(number(1), ROWS)], aliased(noisy, "n"))
    same_class = col("class", "n").eq(col("class", "c"))
    query = query.join(aliased(classes, "c"), on=same_class, copy=False)
    if near is not None:
        same_record = col("record", "n").eq(col("record", "l"))
        query = query.join(aliased(near, "l"), on=same_record, copy=False)
        few = exp.Between(this=col("near", "l"), low=number(1), high=number(k - 1))
        query = query.where(~exp.Paren(this=few), copy=False)
    return query


def judged_survivors(
    survivors: exp.Table,
    attributes: int,
    sensitive: Sequence[str],
    asked: Mapping[Distribution, Pairs],
    persons: bool,
    requirements: Requirements,
) -> exp.Select:
    """The classes of the survivors: ``q0, q1, ...``, ``class_size``, ``class_count``, ``kept``."""
    quasi = range(attributes)
    tables = {}
    for one, pairs in asked.items():
        index = sensitive.index(one.attribute)
        inner = [s for s in range(len(sensitive)) if s != index] if one.kind == "joint" else []
        counts = value_pairs(survivors, attributes, index, inner, persons)
        tables[one] = SensitiveTable(
            distribution(counts, pairs.values, attributes, len(inner)), len(inner), pairs.domain
        )
    space = ClassSpace(
        frequency(survivors, quasi, persons), (1,) * attributes, requirements, sensitive=tables, persons=persons
    )
    keys: list[exp.Expr] = [named(col(code_name(i, 0)), f"q{i}") for i in quasi]
    output: list[exp.Expr] = [*(col(f"q{i}") for i in quasi), col(CLASS_SIZE), col(CLASS_COUNT), col(KEPT)]
    return select(output, subquery(judged(space, (0,) * attributes, keys), "j"))


def kept_records(survivors: exp.Table, judged: exp.Table, attributes: int) -> exp.Select:
    """The ``record`` of the survivors whose class is kept."""
    same = [col(f"q{i}", "s").eq(col(f"q{i}", "j")) for i in range(attributes)]
    good = subquery(star(judged.copy()).where(col(KEPT), copy=False), "j")
    query = select([col("record", "s")], aliased(survivors, "s"))
    return query.join(good, on=all_of(same), join_type="semi", copy=False)
