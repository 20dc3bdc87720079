"""Samples of the rows of a source, each value as a hash with a secret, and the matches of a sample in another source.

Values are compared in a text form, whatever their types. Columns are paired by name, or else by the sampled values that
they contain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase, ascii_uppercase
from typing import TypeAlias

from sqlglot import exp

from sqlanon.sources import SamplingRelation
from sqlanon.sources.run import Run
from sqlanon.support.expressions import (
    aliased,
    all_of,
    anonymous,
    as_column,
    cast,
    col,
    create_table,
    drop_table,
    fragment,
    is_not_null,
    null_safe_equal,
    number,
    row_count,
    select,
    template,
)

HASHES = "hashes"

HEX_FROM = 17
"""The position of the first MD5 digit of the 64 bits that are kept."""

# Independent of the type of a column: equal for 1, 1.0 and '1', a date and its midnight, a word in upper or lower ASCII
# case, or between spaces. Engines differ on the case of other letters.
_TEXT = fragment("""
    coalesce(
        TRY_CAST(:value AS DOUBLE)::VARCHAR,
        TRY_CAST(:value AS TIMESTAMP)::VARCHAR,
        CASE WHEN strlen(:value) = length(:value) THEN lower(:trimmed) ELSE translate(:trimmed, :upper, :lower) END
    )
""")
# NULL counts as a value.
_HASH = fragment("('0x' || substr(md5(:secret || coalesce(':' || :value, 'NULL')), :hex_from))::UBIGINT")

_VALUES = template("""
    SELECT v, :hash AS h
    FROM (SELECT DISTINCT :value AS v FROM :relation) AS d
""")
count_known_values = template("""
    SELECT count(s.h), count(o.h)
    FROM (SELECT DISTINCT :value AS h FROM :sampled) AS s
    LEFT JOIN :values AS o ON s.h = o.h
""")
"""One row: the hashes of a sampled column, and the number of them that a column contains."""
_COMBINATIONS = template("""
    SELECT :columns, count(*) AS n
    FROM (SELECT :texts FROM :relation) AS t
    GROUP BY :columns
""")
_FREQUENCIES = template("""
    SELECT sum(n)::BIGINT, count(*) FILTER (WHERE n = 1), count(*) FILTER (WHERE n = 2)
    FROM :combined
""")
_MATCHES = template("""
    SELECT
        sum(s.m)::BIGINT,
        coalesce(sum(s.m) FILTER (WHERE x.n = 1)::BIGINT, 0),
        count(*) FILTER (WHERE x.n IS NULL),
        count(*) FILTER (WHERE x.n = 1),
        count(*) FILTER (WHERE x.n = 2)
    FROM (SELECT :hashes, count(*) AS m FROM :sampled GROUP BY :by) AS s
""")


Counts: TypeAlias = "tuple[int, int, int, int, int, int, int, int]"
"""The rows of a source, its combinations with one row and with two rows; the rows of a sample, and those whose
combination one row of the source has; the combinations of the sample that no row, one row, and two rows have."""


@dataclass
class SampledRows(ABC):
    """The rows of a source, with an engine that hashes their values."""

    run: Run
    columns: Sequence[str]
    key: str
    sampled: SamplingRelation
    _values: dict[str, tuple[exp.Table, int]] = field(default_factory=dict)

    @abstractmethod
    def sample(self, rows: int) -> exp.Query:
        """Random rows as `HASHES`, one for each column."""

    @abstractmethod
    def match_values(self, sampled: exp.Table, place: int, column: str) -> tuple[float, int]:
        """The share of the values of a sampled column that a column contains, and the number of its values."""

    @abstractmethod
    def count_rows(self, columns: Sequence[str]) -> int:
        """The number of rows; they are counted by these columns."""

    @abstractmethod
    def count_matches(self, sampled: exp.Table, pairs: Mapping[int, str]) -> Counts:
        """Count the matches of a sample in these rows; columns are paired by their position in the sample."""

    @abstractmethod
    def hash_values(self, target: exp.Table, column: str) -> int:
        """Make a table of the hashes, ``h``, of all or some values of a column; returns the number of its values."""

    def values_of(self, column: str) -> tuple[exp.Table, int]:
        if column not in self._values:
            target = self.run.work(f"source_values_{len(self._values)}")
            self._values[column] = target, self.hash_values(target.copy(), column)
        target, value_count = self._values[column]
        return target.copy(), value_count

    def drop(self) -> None:
        for target, _ in self._values.values():
            self.run.engine.execute(drop_table(target))


@dataclass
class DuckDBRows(SampledRows):
    """The rows of a source that DuckDB reads."""

    _counts: dict[tuple[str, ...], tuple[exp.Table, tuple[int, int, int]]] = field(default_factory=dict)

    def sample(self, rows: int) -> exp.Query:
        texts = [as_column(_text_of(name), f"c{i}") for i, name in enumerate(self.columns)]
        taken = select([*texts], self.run.source.relation.copy())
        taken.set("sample", exp.TableSample(method=exp.Var(this="RESERVOIR"), size=number(rows)))
        hashes = exp.array(*(_hash(col(f"c{i}"), self.key) for i in range(len(self.columns))))
        return template("SELECT :hashes AS hashes FROM :taken AS s")(hashes=hashes, taken=taken)

    def match_values(self, sampled: exp.Table, place: int, column: str) -> tuple[float, int]:
        values, value_count = self.values_of(column)
        hashes, known_hashes = self.run.engine.rows(
            count_known_values(value=sampled_hash(place), sampled=sampled, values=values)
        )[0]
        return (known_hashes / hashes if hashes else 0.0), value_count

    def count_rows(self, columns: Sequence[str]) -> int:
        return self._count_combinations(columns)[1][0]

    def count_matches(self, sampled: exp.Table, pairs: Mapping[int, str]) -> Counts:
        combined, frequencies = self._count_combinations([*pairs.values()])
        values = [self.values_of(column)[0] for column in pairs.values()]
        taken, alone, in_none, in_one, in_two = self.run.engine.rows(
            _matches_query(sampled, [*pairs], values, combined)
        )[0]
        return *frequencies, taken or 0, alone, in_none, in_one, in_two

    def hash_values(self, target: exp.Table, column: str) -> int:
        self.run.engine.execute(create_table(target, values_of(self.run.source.relation, column, self.key)))
        return int(self.run.engine.rows(row_count(rows=target))[0][0])

    def drop(self) -> None:
        super().drop()
        for target, _ in self._counts.values():
            self.run.engine.execute(drop_table(target))

    def _count_combinations(self, columns: Sequence[str]) -> tuple[exp.Table, tuple[int, int, int]]:
        """The combinations of values of some columns, ``c0`` .., with their row counts ``n``; and their `Counts`."""
        key = tuple(columns)
        if key not in self._counts:
            engine, target = self.run.engine, self.run.work(f"source_combinations_{len(self._counts)}")
            query = _COMBINATIONS(
                columns=[col(f"c{i}") for i in range(len(columns))],
                texts=[as_column(_text_of(name), f"c{i}") for i, name in enumerate(columns)],
                relation=self.run.source.relation,
            )
            engine.execute(create_table(target.copy(), query))
            rows, once, twice = engine.rows(_FREQUENCIES(combined=target))[0]
            self._counts[key] = target, (rows or 0, once, twice)
        return self._counts[key]


def _text_of(column: str) -> exp.Expr:
    """A value as text."""
    value = cast(col(column), "VARCHAR")
    return _TEXT(value=value, trimmed=anonymous("trim", value), upper=ascii_uppercase, lower=ascii_lowercase)


def _hash(value: exp.Expr, secret: str) -> exp.Expr:
    """64 bits of a value in its text form."""
    return _HASH(secret=secret, value=value, hex_from=HEX_FROM)


def values_of(relation: exp.Expr, column: str, secret: str) -> exp.Select:
    """The values of a column in their text form, ``v``, and their hashes, ``h``."""
    return _VALUES(hash=_hash(col("v"), secret), value=_text_of(column), relation=relation)


def sampled_hash(place: int) -> exp.Expr:
    return exp.Bracket(this=col(HASHES), expressions=[number(place)], offset=0)


def _matches_query(
    sampled: exp.Expr, places: Sequence[int], values: Sequence[exp.Expr], combined: exp.Expr
) -> exp.Select:
    """One row: the rows of a sample, and those whose combination exactly one row has; the combinations of the sample
    that no row, one row, and two rows have.
    """
    hashes = [sampled_hash(place) for place in places]
    query = _MATCHES(hashes=[as_column(hashed, f"h{i}") for i, hashed in enumerate(hashes)], sampled=sampled, by=hashes)
    for i, column_values in enumerate(values):
        on = col(f"h{i}", "s").eq(col("h", f"v{i}"))
        query = query.join(aliased(column_values, f"v{i}"), on=on, join_type="left", copy=False)
    paired = [null_safe_equal(col("v", f"v{i}"), col(f"c{i}", "x")) for i in range(len(places))]
    # A sampled value that the source lacks would compare as NULL.
    is_known = [is_not_null(col("h", f"v{i}")) for i in range(len(places))]
    return query.join(aliased(combined, "x"), on=all_of([*paired, *is_known]), join_type="left", copy=False)
