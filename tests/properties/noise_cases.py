"""Hypothesis strategies: small tables with attributes that get noise, and a policy; and what a run shows of them."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
from hypothesis import strategies as st

import sqlanon
from oracles.oracle import Hierarchy, Row, Value
from oracles.oracle_noise import Noisy
from properties import random_cases
from support.databases import quote_name

EPOCH = date(1970, 1, 1)
ID, ILL = "id", "ill"
# Names a builder of SQL may have used itself, and one that needs quotes.
NAMES = ("x_0", 'y"0', "class")


@dataclass(frozen=True)
class Column:
    """An attribute with noise: its type, its settings, and its values in the order of the rows."""

    type: str
    noise: Mapping[str, Any]
    values: tuple[Any, ...]

    @property
    def has_unknown(self) -> bool:
        return None in self.values


@dataclass(frozen=True)
class NoiseCase:
    """A table with an ``id`` that no two rows share, an illness, quasi-identifiers, and attributes with noise."""

    rows: list[Row]
    hierarchies: Mapping[str, Hierarchy]
    noisy: Mapping[str, Column]
    illnesses: tuple[str, ...]
    privacy: Mapping[str, Any]
    limit: str
    search: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_unknown(self) -> list[bool]:
        """Whether a row has an attribute that noise cannot be added to, by row."""
        columns = [column.values for column in self.noisy.values()]
        return [any(column[i] is None for column in columns) for i in range(len(self.rows))]


def number(value: Any) -> Fraction:
    """A released value as an exact number; dates as days.

    >>> number(date(1970, 1, 3)), number(Decimal("0.25")), number(-1.5)
    (Fraction(2, 1), Fraction(1, 4), Fraction(-3, 2))
    """
    return Fraction((value - EPOCH).days if isinstance(value, date) else value)


# --- cases ------------------------------------------------------------------------------------------


@st.composite
def pools(draw: st.DrawFn) -> tuple[str, list[Any], list[dict[str, Any]]]:
    """A type, values of it, and possible settings other than ε."""
    kind = draw(st.sampled_from(["small", "whole", "decimal", "date", "float", "odd float"]))
    if kind == "small":
        type_ = draw(st.sampled_from(["TINYINT", "SMALLINT", "INTEGER", "BIGINT"]))
        return type_, [*range(-3, 8)], [{"round": 2}, {"bounds": [-2, 5]}, {"bounds": [-3, 9], "round": 5}]
    if kind == "whole":
        values = draw(st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=12, unique=True))
        return "BIGINT", values, [{"round": 1000}, {"bounds": [-(10**5), 10**5]}]
    if kind == "decimal":
        cents = draw(st.lists(st.integers(-999, 99_999), min_size=2, max_size=12, unique=True))
        return "DECIMAL(9,2)", [Decimal(cent) / 100 for cent in cents], [{"round": 0.05}, {"bounds": [0, 100.5]}]
    if kind == "date":
        days = draw(st.lists(st.integers(0, 20_000), min_size=2, max_size=12, unique=True))
        some = [date(1960, 1, 1) + timedelta(days=day) for day in days]
        return "DATE", some, [{"round": 7}, {"bounds": [date(1965, 1, 1), date(2001, 1, 1)]}]
    if kind == "float":
        return draw(st.sampled_from(["DOUBLE", "FLOAT"])), [n / 8 for n in range(-8, 40, 3)], [{"round": 0.5}]
    floats = st.floats(-1000, 1000, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-3)
    return "DOUBLE", draw(st.lists(floats, min_size=2, max_size=12, unique=True)), [{"bounds": [-10, 900.25]}]


@st.composite
def noisy_columns(draw: st.DrawFn, rows: int, unknown: bool) -> Column:
    type_, pool, options = draw(pools())
    some = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=draw(st.sampled_from([3, 12])), unique=True))
    values = draw(st.lists(st.sampled_from(some), min_size=rows, max_size=rows))
    if unknown and rows:
        values[draw(st.integers(0, rows - 1))] = None
    noise = {"epsilon": draw(st.sampled_from([1.0, 0.3, 0.1, 5.0, 100.0]))}
    return Column(type_, noise | draw(st.sampled_from([{}, {}, *options])), tuple(values))


@st.composite
def noise_cases(draw: st.DrawFn, search: Mapping[str, Any], confidence: bool, unknown: bool = False) -> NoiseCase:
    """1 to 3 quasi-identifiers, 1 to 3 attributes with noise, and k with other requirements at times."""
    names = draw(st.permutations(random_cases.NAMES))[: draw(st.sampled_from([2, 1, 3]))]
    trees = {name: draw(random_cases.hierarchies()) for name in names}
    rows = [
        row
        for row in draw(random_cases.tables(list(trees.values())))
        if all(tree.knows(value) for tree, value in zip(trees.values(), row, strict=True))
    ]
    noisy_names = draw(st.permutations(NAMES))[: draw(st.sampled_from([1, 2, 3]))]
    noisy = {name: draw(noisy_columns(len(rows), unknown)) for name in noisy_names}
    illnesses = draw(st.lists(st.sampled_from(["flu", "gout", "cold"]), min_size=len(rows), max_size=len(rows)))
    privacy: dict[str, Any] = {"k": draw(st.sampled_from([2, 3, 4]))}
    if confidence:
        privacy["confidence"] = draw(st.sampled_from([0.5, 0.9, 0.99, 0.1]))
    # Other requirements are held against the rows themselves: there each row is known by its first value with noise.
    asks_more = not unknown and draw(st.booleans())
    if asks_more and confidence:
        noise = {"epsilon": draw(st.sampled_from([1.0, 5.0, 100.0]))}
        values = draw(st.lists(st.integers(-100, 10**6), min_size=len(rows), max_size=len(rows), unique=True))
        noisy[noisy_names[0]] = Column("BIGINT", noise, tuple(values))
    if asks_more and draw(st.booleans()):
        privacy["l_diversity"] = [{"attribute": ILL, "kind": "distinct", "l": 2}]
    if asks_more and draw(st.booleans()):
        privacy["k_anonymity"] = [{"quasi": [draw(st.sampled_from(names))], "k": draw(st.sampled_from([3, 6]))}]
    limit = draw(st.sampled_from(["0", "0.29", "0.5", "1"] if not confidence else ["0.5", "0.9", "1"]))
    return NoiseCase(rows, trees, noisy, tuple(illnesses), privacy, limit, search)


# --- runs -------------------------------------------------------------------------------------------


def create(connection: duckdb.DuckDBPyConnection, case: NoiseCase) -> None:
    """The source, as table ``t``; its columns stand in another order than the policy's attributes."""
    columns = {ID: ("INTEGER", range(len(case.rows))), ILL: ("VARCHAR", case.illnesses)}
    columns |= {name: (column.type, column.values) for name, column in case.noisy.items()}
    for i, (name, tree) in enumerate(case.hierarchies.items()):
        type_ = "BIGINT" if isinstance(next(iter(tree.paths)), int) else "VARCHAR"
        columns[name] = (type_, [row[i] for row in case.rows])
    names = sorted(columns)
    connection.execute(f"CREATE TABLE t ({', '.join(f'{quote_name(name)} {columns[name][0]}' for name in names)})")
    rows = list(zip(*(columns[name][1] for name in names), strict=True))
    if rows:
        connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(names))})", rows)


def policy_of(case: NoiseCase, directory: Path, noise: bool = True) -> sqlanon.Policy:
    """The policy; without noise, its attributes are declared insensitive."""
    attributes: dict[str, Any] = {ID: {"role": "insensitive"}, ILL: {"role": "sensitive"}}
    for i, (name, tree) in enumerate(case.hierarchies.items()):
        path = directory / f"hierarchy_{i}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=";", lineterminator="\n").writerows(tree.paths.values())
        attributes[name] = {"role": "quasi", "hierarchy": {"file": str(path)}}
    for name, column in case.noisy.items():
        attributes[name] = {"role": "quasi", "noise": dict(column.noise)} if noise else {"role": "insensitive"}
        if noise and column.has_unknown:
            attributes[name]["on_unknown"] = "suppress"
    privacy = {name: value for name, value in case.privacy.items() if noise or name != "confidence"}
    if noise and sum(column.noise["epsilon"] for column in case.noisy.values()) > 10:
        privacy["linkable_noise"] = True
    return sqlanon.Policy(
        source={"table": "t"},
        attributes=attributes,
        privacy=privacy,
        search={"suppression_limit": float(case.limit), **case.search},
        release={"table": "released"},
    )


@contextmanager
def open_database(case: NoiseCase) -> Iterator[tuple[sqlanon.Database, Path]]:
    """A database with the table, and a directory to publish to."""
    with TemporaryDirectory() as directory, duckdb.connect() as connection:
        create(connection, case)
        with sqlanon.connect(connection) as db:
            yield db, Path(directory)


# --- what a run shows -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shown:
    """A release: by ``id`` its quasi-identifiers, its other values, and the values with noise."""

    labels: Mapping[int, Row]
    rest: Mapping[int, Row]
    noisy: Mapping[int, tuple[Any, ...]]

    def classes(self) -> Counter[Value]:
        """The classes by their members, whatever their names: the sets of ``id``."""
        members: dict[Row, list[int]] = defaultdict(list)
        for i, labels in self.labels.items():
            members[labels].append(i)
        return Counter(frozenset(some) for some in members.values())


def fetch_release(query: Callable[[str], list[Any]], case: NoiseCase) -> Shown:
    """A release whose rows are identified by their ``id``, which occurs once each.

    Parameters
    ----------
    query:
        What gives the rows of the release, for names of its columns.
    """

    def fetch(names: list[str]) -> dict[int, Row]:
        rows = query(", ".join(quote_name(name) for name in [ID, *names]))
        rows_by_id = {row[0]: tuple(row[1:]) for row in rows}
        assert len(rows_by_id) == len(rows)
        return rows_by_id

    return Shown(fetch(list(case.hierarchies)), fetch([ILL]), fetch(list(case.noisy)))


def shown_by(result: sqlanon.Result, case: NoiseCase) -> Shown:
    """Rows of the statement of a result: the published ones."""
    connection = result._run.engine.connection
    return fetch_release(
        lambda names: connection.execute(f"SELECT {names} FROM ({result.sql()}) AS s").fetchall(), case
    )


def shown_in(path: Path, case: NoiseCase) -> Shown:
    """Content of a file."""
    with duckdb.connect(str(path), read_only=True) as connection:
        return fetch_release(lambda names: connection.execute(f"SELECT {names} FROM released").fetchall(), case)


@dataclass(frozen=True)
class Seen:
    """`result.noisy`: the records that got noise, in any order, and which of them are suppressed."""

    records: list[Noisy]
    suppressed: list[bool]

    @property
    def released(self) -> list[int]:
        return [i for i, gone in enumerate(self.suppressed) if not gone]


def read_columns(result: sqlanon.Result, attributes: int) -> Seen:
    """Its columns are found by their names; others are ignored, such as a number of the record."""
    relation = result.noisy
    assert relation is not None
    rows = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    records = []
    for row in rows:
        xs, ys, vs = (tuple(row[f"{letter}_{j}"] for j in range(attributes)) for letter in "xyv")
        assert all(type(value) is float for value in (*xs, *ys, *vs))
        records.append(Noisy(row["class"], xs, ys, vs))
    assert f"x_{attributes}" not in relation.columns
    return Seen(records, [not row["released"] for row in rows])
