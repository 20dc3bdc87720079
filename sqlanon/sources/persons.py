"""Find columns whose values identify persons: where such a column repeats, one person has several rows.

A class with k rows of one person gives no protection. The name of a column may reveal such identifiers, as in
``patient_id``. Otherwise its values do: rows with the same value agree in lasting traits (sex, date of birth, usually
the place) far more often than rows with different values. Wards and doctors do not identify patients: such rows differ
in sex and age. A ZIP code or a name determines one trait of a person only. Texts are compared as normalized by
`engines.values.person_id`, and empty texts are missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.dialects.kinds import is_nested
from sqlanon.engines.values import person_id
from sqlanon.hierarchies.parts import ColumnKind, column_kind
from sqlanon.sources.column_figures import approximate_counts_query
from sqlanon.sources.column_kinds import AGE, BIRTH, DATE, NAME, RACE, SEX, YEAR, find_kind, is_person_number
from sqlanon.sources.source import Source, WorkNames
from sqlanon.support.expressions import (
    as_column,
    cast,
    col,
    create_temporary_view,
    fragment,
    select,
    subquery,
    template,
    union_all,
)

MIN_PERSONS = 5
"""A column with fewer distinct values does not identify persons."""

MAX_ROWS_PER_PERSON = 400
"""The greatest average number of rows of a person."""

SAMPLE_ROWS = 20_000
"""The approximate number of rows to compare; the sample has all rows of a value, or none."""

_MIN_AGREEMENT = 0.8
"""Rows with the same value agree in a column from this share on, corrected for chance."""
_MIN_AGE_RATIO = 3
"""Ages in rows of a person, which may be years apart, agree at least this many times as often as by chance."""
_MAX_CHANCE = 1e-3
"""An agreement with at most this probability by chance is significant."""
_TIED = 0.02
"""A coarser key is preferred to a finer one if its rows agree as well, up to this difference."""

_INNATE = (SEX, BIRTH, RACE, AGE)
_TIMES = (DATE, YEAR)
_SHARED_IN_FAMILIES = (
    NAME,
    "geographic subdivisions: a street address",
    "telephone numbers",
    "fax numbers",
    "URLs",
    "IP addresses",
)

RunQuery = Callable[[exp.Query], Sequence[tuple[Any, ...]]]
CountDistinct = Callable[[exp.Expr, Sequence[str]], exp.Query]
SampleValues = Callable[[exp.Expr, int], exp.Expr]


@dataclass(frozen=True)
class KeyColumn:
    """A column that may identify persons."""

    name: str
    type: str
    is_released: bool

    @property
    def is_number(self) -> bool:
        """Whether it is neither a name nor contact data, which families share."""
        kind = find_kind(self.name)
        is_text = column_kind(self.type) is ColumnKind.TEXT
        return not self.is_of_another_kind and (not is_text or kind is None or kind.name not in _SHARED_IN_FAMILIES)

    @property
    def is_of_another_kind(self) -> bool:
        """Whether its name suggests something other than a person, such as a place: then only bodily traits count."""
        kind = find_kind(self.name)
        return kind is not None and kind.role != "identifying"


@dataclass(frozen=True)
class PersonColumn:
    """A column that identifies persons."""

    name: str
    values: int  # rows with a value
    distinct: int  # distinct values; an estimate, if counted in a sample
    rows: int
    is_estimate: bool = False

    @property
    def rows_per_person(self) -> float:
        """The average number of rows of a person."""
        return self.values / max(self.distinct, 1)

    @property
    def missing(self) -> int:
        """The rows without a value."""
        return self.rows - self.values


@dataclass(frozen=True)
class _Agreement:
    """The agreement in a compared column of rows with the same key."""

    name: str
    repeated: int
    alike: float
    by_chance: float
    is_unique: bool  # nearly every key has a different value

    @property
    def share(self) -> float:
        """The agreement corrected for chance: 0 if it is no more than chance, 1 if all rows agree."""
        return (self.alike - self.by_chance) / (1 - self.by_chance) if self.by_chance < 1 else 0.0

    @property
    def kind(self) -> str | None:
        kind = find_kind(self.name)
        return None if kind is None else kind.name

    @property
    def varies(self) -> bool:
        """Whether rows with different keys differ in the column."""
        return self.by_chance < 0.95

    @property
    def is_sufficient(self) -> bool:
        grows = self.kind == AGE and self.alike >= _MIN_AGE_RATIO * self.by_chance
        return self.share >= _MIN_AGREEMENT or grows


def can_number_people(name: str, type_: str) -> bool:
    """Whether a column can identify persons, by its type and its name.

    >>> [can_number_people(*column) for column in (("mrn", "BIGINT"), ("zip", "VARCHAR"), ("sex", "VARCHAR"))]
    [True, True, False]
    """
    if is_nested(type_) or type_ in ("BOOLEAN", "BLOB", "BIT", "GEOMETRY", "JSON"):
        return False
    if type_ != "UUID" and column_kind(type_) in (ColumnKind.DATE, ColumnKind.ZONED, ColumnKind.OTHER):
        return False
    kind = find_kind(name)
    return kind is None or kind.name not in (*_INNATE, *_TIMES)


def is_sampled_by_hash(value: exp.Expr, step: int) -> exp.Expr:
    return fragment("hash(:value) % :step = 0")(value=value, step=step)


def is_sampled_by_md5(value: exp.Expr, step: int) -> exp.Expr:
    """`is_sampled_by_hash` for any engine: all have MD5, which takes several times as long."""
    return fragment("md5(:value) < :bound")(value=value, bound=f"{16**8 // step:08x}")


def find_person_column(
    run_query: RunQuery,
    relation: exp.Expr,
    keys: Sequence[KeyColumn],
    compared: Mapping[str, str],
    rows: int,
    value_counts: Mapping[str, tuple[int, int]] = MappingProxyType({}),
    counts: CountDistinct = approximate_counts_query,
    is_sampled: SampleValues = is_sampled_by_hash,
) -> PersonColumn | None:
    """Find the column that identifies the persons of a table, if some persons have several rows; None otherwise.

    ``run_query`` runs queries that return figures, and ``compared`` has the types of the quasi-identifiers.
    ``value_counts`` has the distinct values of some keys, and their values that are not NULL; ``counts`` makes the
    query for those of the others. ``is_sampled`` makes the condition that one value of several meets.
    """
    if not keys:
        return None
    relation = subquery(select(_normalize_keys(keys, compared), relation.copy()), "ids")
    if uncounted := [key.name for key in keys if key.name not in value_counts]:
        figures = run_query(counts(relation, uncounted))[0]
        pairs = zip(figures[::2], figures[1::2], strict=True)
        value_counts = {**value_counts, **dict(zip(uncounted, pairs, strict=True))}
    candidates: list[tuple[KeyColumn, PersonColumn, float]] = []
    for key in keys:
        distinct, values = value_counts[key.name]
        if not max(MIN_PERSONS, values / MAX_ROWS_PER_PERSON) <= distinct or values < 2 * MIN_PERSONS:
            continue
        traits = {name: type_ for name, type_ in compared.items() if name != key.name and not is_nested(type_)}
        if not traits:
            continue
        step = max(1, values // SAMPLE_ROWS)
        if step > 1 and _disagrees_in_innate_traits(run_query, relation, key, [*traits], step, is_sampled):
            continue
        sample = _sample_query(relation, key.name, [*traits], step, is_sampled)
        agreements, persons, repeated = _measure_agreements(run_query, sample, [*traits])
        if repeated and _identifies_persons(run_query, sample, key, traits, agreements):
            column = PersonColumn(key.name, values, min(persons * step, values), rows, step > 1)
            shares = [agreement.alike for agreement in agreements if agreement.is_sufficient and agreement.kind != AGE]
            candidates.append((key, column, sum(shares) / max(len(shares), 1)))
    return _choose_column(candidates)


def normalize_key(value: exp.Expr, type_: str) -> exp.Expr:
    """A value of a key: texts are normalized."""
    return person_id(value) if type_ == "VARCHAR" else value


def _normalize_keys(keys: Sequence[KeyColumn], compared: Collection[str]) -> list[exp.Expr]:
    """The columns to read."""
    normalized: dict[str, exp.Expr] = {
        key.name: as_column(normalize_key(col(key.name), key.type), key.name) for key in keys
    }
    return [*normalized.values(), *(col(name) for name in compared if name not in normalized)]


def _choose_column(candidates: Sequence[tuple[KeyColumn, PersonColumn, float]]) -> PersonColumn | None:
    """Choose the column of persons.

    Among candidates whose rows agree equally well, it gives each person the most rows (a case belongs to one patient,
    who may have several cases); among these, most rows have a value.
    """
    if not candidates:
        return None
    most_values = max(column.values for _, column, _ in candidates)
    common = [(key, column, share) for key, column, share in candidates if 2 * column.values >= most_values]
    best_share = max(share for _, _, share in common)
    tied = [(key, column) for key, column, share in common if share >= best_share - _TIED]
    columns = [column for key, column in tied if key.is_number] or [column for _, column in tied]
    most_rows = max(column.rows_per_person for column in columns)
    coarse = (column for column in columns if 3 * column.rows_per_person >= 2 * most_rows)
    return max(coarse, key=lambda column: column.values)


def _disagrees_in_innate_traits(
    run_query: RunQuery, relation: exp.Expr, key: KeyColumn, names: Sequence[str], step: int, is_sampled: SampleValues
) -> bool:
    """Whether rows with the same key differ in a trait that no person changes: then other columns are not read."""
    innate = [name for name in names if (kind := find_kind(name)) is not None and kind.name in _INNATE]
    if not innate or is_person_number(key.name):
        return False
    sample = _sample_query(relation, key.name, innate, step, is_sampled)
    agreements, _, repeated = _measure_agreements(run_query, sample, innate)
    return bool(repeated) and any(agreement.varies and not agreement.is_sufficient for agreement in agreements)


def _identifies_persons(
    run_query: RunQuery,
    sample: exp.Select,
    key: KeyColumn,
    compared: Mapping[str, str],
    agreements: Sequence[_Agreement],
) -> bool:
    if is_person_number(key.name):
        return True
    varying = [agreement for agreement in agreements if agreement.varies]
    innate = [agreement for agreement in varying if agreement.kind in _INNATE]
    lasting = [agreement for agreement in varying if agreement in innate or not _is_date_of_visit(agreement, compared)]
    alike = [agreement for agreement in lasting if agreement.is_sufficient]
    is_innate_alike = all(agreement.is_sufficient for agreement in innate)
    if not is_innate_alike or not _is_significant(alike, 2 if len(lasting) > 1 else 1):
        return False
    is_half = 2 * len(alike) >= len(lasting)
    if key.is_of_another_kind:
        return _count_bodily_traits(innate) > 1
    if key.is_number and not key.is_released:
        return bool(innate) or is_half
    if key.is_number and _count_bodily_traits(innate) > 1:
        return True
    return is_half and _has_independent_traits(run_query, sample, [*compared], alike)


def _is_significant(alike: Sequence[_Agreement], least: int) -> bool:
    """Whether rows with the same key agree in enough columns, and would hardly do so by chance."""
    chances = (agreement.by_chance for agreement in alike if agreement.share >= _MIN_AGREEMENT)
    surprise = sum(-math.log(max(chance, 1e-9)) for chance in chances)
    repeated = max((agreement.repeated for agreement in alike), default=0)
    return len(alike) >= least and repeated * surprise >= -math.log(_MAX_CHANCE)


def _count_bodily_traits(innate: Sequence[_Agreement]) -> int:
    """Count the bodily traits among the columns: sex, age and origin."""
    return len({BIRTH if agreement.kind == AGE else agreement.kind for agreement in innate})


def _is_date_of_visit(agreement: _Agreement, compared: Mapping[str, str]) -> bool:
    """Whether a column is a date that may differ between the rows of a person."""
    dates = column_kind(compared[agreement.name]) in (ColumnKind.DATE, ColumnKind.ZONED)
    return agreement.kind == DATE or (dates and agreement.kind != BIRTH)


_TRAITS = template("""
    SELECT
        person,
        attribute,
        min(value) AS value,
        sum(row_count) AS row_count,
        sum(row_count * (row_count - 1)) AS equal_pairs
    FROM (
        SELECT person, attribute, value, count(*)::DOUBLE AS row_count
        FROM :values AS sampled_values
        GROUP BY person, attribute, value
    ) AS person_values
    GROUP BY person, attribute
""")
_AGREEMENT = template("""
    WITH
        sample AS MATERIALIZED (SELECT * FROM :sample AS s),
        traits AS MATERIALIZED (SELECT * FROM :traits AS t),
        repeated AS (
            SELECT
                attribute,
                count(*) AS persons,
                sum(row_count) AS row_count,
                sum(equal_pairs / (row_count - 1)) AS equal_pairs
            FROM traits
            WHERE row_count > 1
            GROUP BY attribute
        ),
        chance AS (
            SELECT
                attribute,
                sum(person_count) AS persons,
                count(*) AS different,
                sum(person_count * (person_count - 1)) AS equal_pairs
            FROM (
                SELECT attribute, value, count(*)::DOUBLE AS person_count FROM traits GROUP BY attribute, value
            ) AS value_counts
            GROUP BY attribute
        )
    SELECT
        chance.attribute AS attribute,
        chance.persons::BIGINT AS persons,
        coalesce(repeated.persons, 0) AS repeated,
        -- how likely two rows of one value of the key agree, a mean over these rows
        coalesce(repeated.equal_pairs / repeated.row_count, 0)::DOUBLE AS alike,
        -- how likely two values of the key agree
        (chance.equal_pairs / greatest(chance.persons * (chance.persons - 1), 1))::DOUBLE AS by_chance,
        chance.different AS different
    FROM chance
    LEFT JOIN repeated ON repeated.attribute = chance.attribute
""")
_JOINT_AGREEMENT = template("""
    WITH
        sample AS MATERIALIZED (SELECT * FROM :sample AS s),
        traits AS MATERIALIZED (SELECT * FROM :traits AS t),
        pairs AS (
            SELECT
                x.attribute AS first_attribute,
                x.value AS first_value,
                y.attribute AS second_attribute,
                y.value AS second_value,
                count(*)::DOUBLE AS person_count
            FROM traits AS x
            JOIN traits AS y ON x.person = y.person
            WHERE x.attribute IN (:attributes) AND y.attribute IN (:attributes) AND x.attribute <> y.attribute
            GROUP BY x.attribute, x.value, y.attribute, y.value
        ),
        sharing AS (
            SELECT
                first_attribute,
                first_value,
                second_attribute,
                sum(person_count) AS person_count,
                sum(person_count * (person_count - 1)) AS equal_pairs
            FROM pairs
            GROUP BY first_attribute, first_value, second_attribute
            HAVING sum(person_count) > 1
        )
    SELECT
        first_attribute,
        second_attribute,
        (sum(equal_pairs / (person_count - 1)) / sum(person_count))::DOUBLE AS alike
    FROM sharing
    GROUP BY first_attribute, second_attribute
""")


def _sample_query(
    relation: exp.Expr, key: str, columns: Sequence[str], step: int, is_sampled: SampleValues
) -> exp.Select:
    """A query of the rows of some values of a key, with columns ``person`` and ``v0``, ``v1``, ..."""
    query = template("SELECT :key AS person, :columns FROM :source WHERE :key IS NOT NULL AND :is_sampled")
    value = cast(col(key), "VARCHAR")
    output: list[exp.Expr] = [as_column(col(name), f"v{i}") for i, name in enumerate(columns)]
    condition = is_sampled(value, step) if step > 1 else exp.true()
    return query(key=value, columns=output, source=relation, is_sampled=condition)


def _traits_query(count: int) -> exp.Subquery:
    """For each person in the sample and compared column: one value, the number of rows, and the pairs that agree."""
    query = template("SELECT person, :attribute AS attribute, :value AS value FROM sample")
    values = [query(attribute=i, value=cast(col(f"v{i}"), "VARCHAR")) for i in range(count)]
    return subquery(_TRAITS(values=subquery(union_all(*values))))


def _measure_agreements(
    run_query: RunQuery, sample: exp.Select, names: Sequence[str]
) -> tuple[list[_Agreement], int, int]:
    """Measure the agreement in each compared column; with the number of keys, and of those with several rows."""
    rows = run_query(_AGREEMENT(sample=subquery(sample.copy()), traits=_traits_query(len(names))))
    agreements = [
        _Agreement(names[attribute], repeated, alike, by_chance, different >= 0.9 * persons)
        for attribute, persons, repeated, alike, by_chance, different in rows
    ]
    return agreements, max((row[1] for row in rows), default=0), max((row[2] for row in rows), default=0)


def _has_independent_traits(
    run_query: RunQuery, sample: exp.Select, names: Sequence[str], alike: Sequence[_Agreement]
) -> bool:
    """Whether two columns determined by the key do not determine each other, as with several traits of a person."""
    if _count_bodily_traits([agreement for agreement in alike if agreement.kind in _INNATE]) > 1:
        return True
    by_position = {
        names.index(agreement.name): agreement
        for agreement in alike
        if not agreement.is_unique or agreement.kind in _INNATE
    }
    if len(by_position) < 2:
        return False
    query = _JOINT_AGREEMENT(
        sample=subquery(sample.copy()), traits=_traits_query(len(names)), attributes=[*by_position]
    )
    shares = {
        (first, second): (value - by_position[second].by_chance) / (1 - by_position[second].by_chance)
        for first, second, value in run_query(query)
    }
    return any(
        max(shares.get((first, second), 0.0), shares.get((second, first), 0.0)) < 0.5
        for first in by_position
        for second in by_position
        if first < second and ((first, second) in shares or (second, first) in shares)
    )


def trim_person_ids(engine: Engine, source: Source, work_names: WorkNames, person: str | None) -> Source:
    """Normalize the person column of a source: ``"A12 "`` and ``"A12"`` are equal, and ``""`` is missing."""
    names = {name.lower(): name for name in source.columns}
    name = names.get((person or "").lower())
    if name is None or source.access != "rows" or source.columns[name] != "VARCHAR":
        return source
    view = work_names.view("persons")
    columns: list[exp.Expr] = [
        as_column(person_id(col(column)), column) if column == name else col(column)
        for column in engine.columns(source.relation)
    ]
    engine.execute(create_temporary_view(view, select(columns, source.relation.copy())))
    return replace(source, relation=view)


def small_classes_query(released: exp.Query, keys: Sequence[str], least: int) -> exp.Select:
    """One row: the number of classes with fewer than ``least`` persons, and of their rows. Rows without a value of
    ``person`` count as one person."""
    id_ = person_id(cast(col("person"), "VARCHAR"))
    return template("""
        SELECT count(*) AS classes, coalesce(sum(rows), 0)::BIGINT AS rows
        FROM (
            SELECT
                count(*) AS rows,
                count(DISTINCT :id) + max((:id IS NULL)::INTEGER) AS persons
            FROM :released
            GROUP BY :keys
        ) AS classes
        WHERE persons < :least
    """)(released=subquery(released, "r"), keys=[col(name) for name in keys], least=least, id=id_)
