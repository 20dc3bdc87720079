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

from sqlanon.engines.dialects.canonical_text import HEX_FROM
from sqlanon.sources import SamplingRelation
from sqlanon.sources.run import Run
from sqlanon.support.expressions import (
    aliased,
    all_of,
    anonymous,
    as_column,
    cast,
    col,
    cols,
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

parse_hash = fragment("('0x' || :digits)::UBIGINT")
"""The number of a hash in hexadecimal digits."""

HASHES = "hashes"

# Independent of the type of a column: equal for 1, 1.0 and '1', a date and its midnight, a word in upper or lower ASCII
# case, or between spaces. Engines differ on the case of other letters.
_TEXT = fragment("""
    coalesce(
        TRY_CAST(:value AS DOUBLE)::VARCHAR,
        TRY_CAST(:value AS TIMESTAMP)::VARCHAR,
        CASE WHEN strlen(:value) = length(:value) THEN lower(:trimmed) ELSE translate(:trimmed, :upper, :lower) END
    )
""")
# A sampled value that the source lacks would compare as NULL.
_MATCHES = template("""
    SELECT
        coalesce(sum(s.sampled_rows)::BIGINT, 0),
        coalesce(sum(s.sampled_rows) FILTER (WHERE x.row_count = 1)::BIGINT, 0),
        count(*) FILTER (WHERE x.row_count IS NULL),
        count(*) FILTER (WHERE x.row_count = 1),
        count(*) FILTER (WHERE x.row_count = 2)
    FROM (SELECT :hashes, count(*) AS sampled_rows FROM :sampled GROUP BY :by) AS s
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
    _values: dict[str, tuple[exp.Table, int, bool]] = field(default_factory=dict)

    @abstractmethod
    def sample(self, rows: int) -> exp.Query:
        """Hashes of random rows, a list for each row with a hash for each column (`HASHES`)."""

    @abstractmethod
    def count_matches(self, sampled: exp.Table, pairs: Mapping[int, str]) -> Counts:
        """Count the matches of a sample in these rows; columns are paired by their position in the sample."""

    @abstractmethod
    def hash_values(self, target: exp.Table, column: str) -> tuple[int, bool]:
        """Make a table of the hashes, ``hash``, of the values of a column, or of the least ones; returns the number of
        values, and whether the table has all."""

    def values_of(self, column: str) -> exp.Table:
        return self._hash_column(column)[0].copy()

    def match_values(self, sampled: exp.Table, place: int, column: str) -> tuple[float, int]:
        """The share of the values of a sampled column that a column contains, and the number of its values."""
        values, value_count, has_all = self._hash_column(column)
        query = template("""
            SELECT count(s.hash), count(v.hash)
            FROM (SELECT DISTINCT :hash AS hash FROM :sampled) AS s
            LEFT JOIN :values AS v ON s.hash = v.hash
        """)(hash=sampled_hash(place), sampled=sampled, values=values)
        if not has_all:  # greater sampled hashes do not count
            query = query.where(fragment("s.hash <= (SELECT max(hash) FROM :values)")(values=values), copy=False)
        hashes, known_hashes = self.run.engine.rows(query)[0]
        return (known_hashes / hashes if hashes else 0.0), value_count

    def _hash_column(self, column: str) -> tuple[exp.Table, int, bool]:
        if column not in self._values:
            target = self.run.work(f"source_values_{len(self._values)}")
            self._values[column] = target, *self.hash_values(target.copy(), column)
        return self._values[column]

    def drop(self) -> None:
        for target, *_ in self._values.values():
            self.run.engine.execute(drop_table(target))


@dataclass
class DuckDBRows(SampledRows):
    """The rows of a source that DuckDB reads."""

    _combinations: dict[tuple[str, ...], exp.Table] = field(default_factory=dict)

    def sample(self, rows: int) -> exp.Query:
        texts = [as_column(_text_of(name), f"c{i}") for i, name in enumerate(self.columns)]
        taken = select([*texts], self.run.source.relation.copy())
        taken.set("sample", exp.TableSample(method=exp.Var(this="RESERVOIR"), size=number(rows)))
        hashes = exp.array(*(_hash(col(f"c{i}"), self.key) for i in range(len(self.columns))))
        return template("SELECT :hashes AS hashes FROM :taken AS s")(hashes=hashes, taken=taken)

    def count_matches(self, sampled: exp.Table, pairs: Mapping[int, str]) -> Counts:
        engine, combinations = self.run.engine, self._count_combinations(tuple(pairs.values()))
        frequencies = template("""
            SELECT
                coalesce(sum(row_count)::BIGINT, 0),
                count(*) FILTER (WHERE row_count = 1),
                count(*) FILTER (WHERE row_count = 2)
            FROM :combinations
        """)(combinations=combinations)
        rows, once, twice = engine.rows(frequencies)[0]
        hashes = [sampled_hash(place) for place in pairs]
        query = _MATCHES(
            hashes=[as_column(hashed, f"h{i}") for i, hashed in enumerate(hashes)], sampled=sampled, by=hashes
        )
        same = list[exp.Expr]()
        for i, column in enumerate(pairs.values()):
            on = col(f"h{i}", "s").eq(col("hash", f"v{i}"))
            query = query.join(aliased(self.values_of(column), f"v{i}"), on=on, join_type="left", copy=False)
            same += [null_safe_equal(col("value", f"v{i}"), col(f"c{i}", "x")), is_not_null(col("hash", f"v{i}"))]
        query = query.join(aliased(combinations, "x"), on=all_of(same), join_type="left", copy=False)
        return rows, once, twice, *engine.rows(query)[0]

    def hash_values(self, target: exp.Table, column: str) -> tuple[int, bool]:
        self.run.engine.execute(create_table(target, values_of(self.run.source.relation, column, self.key)))
        return int(self.run.engine.rows(row_count(rows=target))[0][0]), True

    def drop(self) -> None:
        super().drop()
        for target in self._combinations.values():
            self.run.engine.execute(drop_table(target))

    def _count_combinations(self, columns: tuple[str, ...]) -> exp.Table:
        """The combinations of values of some columns, ``c0`` .., with their ``row_count``."""
        if columns not in self._combinations:
            target = self.run.work(f"source_combinations_{len(self._combinations)}")
            query = template("""
                SELECT :columns, count(*) AS row_count
                FROM (SELECT :texts FROM :relation) AS t
                GROUP BY :columns
            """)(
                columns=cols(f"c{i}" for i in range(len(columns))),
                texts=[as_column(_text_of(name), f"c{i}") for i, name in enumerate(columns)],
                relation=self.run.source.relation,
            )
            self.run.engine.execute(create_table(target.copy(), query))
            self._combinations[columns] = target
        return self._combinations[columns].copy()


def _text_of(column: str) -> exp.Expr:
    """A value as text."""
    value = cast(col(column), "VARCHAR")
    return _TEXT(value=value, trimmed=anonymous("trim", value), upper=ascii_uppercase, lower=ascii_lowercase)


def _hash(value: exp.Expr, secret: str) -> exp.Expr:
    """64 bits of a value in its text form. NULL counts as a value."""
    return fragment("('0x' || substr(md5(:secret || coalesce(':' || :value, 'NULL')), :hex_from))::UBIGINT")(
        secret=secret, value=value, hex_from=HEX_FROM
    )


def values_of(relation: exp.Expr, column: str, secret: str) -> exp.Select:
    """The values of a column in their text form, ``value``, and their hashes, ``hash``."""
    return template("SELECT value, :hash AS hash FROM (SELECT DISTINCT :value AS value FROM :relation) AS v")(
        hash=_hash(col("value"), secret), value=_text_of(column), relation=relation
    )


def sampled_hash(place: int) -> exp.Expr:
    return exp.Bracket(this=col(HASHES), expressions=[number(place)], offset=0)
