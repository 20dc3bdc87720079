"""Seeded random tables whose columns are independent, or with one planted dependency. Imports nothing of the package.

Each value follows from a hash of the row's number and a salt, so that a table is the same on every run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Attributes = dict[str, dict[str, Any]]


@dataclass
class Table:
    """A table as a query, the roles of its columns, and the columns that a warning should name: none if independent."""

    seed: int
    rows: int
    columns: dict[str, str] = field(default_factory=dict)  # name: SQL over i
    attributes: Attributes = field(default_factory=dict)
    kind: str = "independent"
    planted: str | None = None  # the column that gives a quasi-identifier away
    strategy: str = "optimal"
    k: int = 5
    person: str | None = None

    @property
    def query(self) -> str:
        """The table: columns may name those before them."""
        output = ",\n    ".join(f"{sql} AS {name}" for name, sql in self.columns.items())
        return f"SELECT {output}\nFROM range({self.rows}) AS r(i)"

    @property
    def policy(self) -> dict[str, Any]:
        limit = 1 if self.strategy == "optimal" else 0
        return {
            "source": {"table": "t"} | ({} if self.person is None else {"person": self.person}),
            "attributes": self.attributes,
            "privacy": {"k": self.k, "dependencies": "warn"},
            "search": {"strategy": self.strategy, "suppression_limit": limit / 10},
        }


def uniform(salt: int) -> str:
    """A number from 0 to 1 for each row, independent of those of other salts."""
    return f"(hash(i * 1000003 + {salt})::DOUBLE / 18446744073709551616.0)"


class _Maker:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        rows = round(10 ** self.random.uniform(2.302, 4.699))  # 200 to 50,000
        self.table = Table(seed, rows, k=self.random.choice([2, 5, 10]))
        if rows < 4_000:
            self.table.strategy = self.random.choice(["optimal", "optimal", "mondrian", "local"])

    def salt(self) -> int:
        return self.random.randrange(10**9)

    def number(self, values: int, skew: float | None = None) -> str:
        """A whole number below ``values``; with a skew above 1, the low ones are more frequent."""
        skew = self.random.choice([1.0, 1.0, 1.5, 3.0]) if skew is None else skew
        return f"floor({values} * pow({uniform(self.salt())}, {skew}))::BIGINT"

    def with_nulls(self, sql: str) -> str:
        share = self.random.choice([0, 0, 0, 0.02, 0.2])
        return sql if not share else f"CASE WHEN {uniform(self.salt())} >= {share} THEN {sql} END"

    def add_quasi(self, name: str, values: int | None = None, kind: str | None = None, nulls: bool = True) -> str:
        kind = kind or self.random.choice(["number", "text", "date", "category"])
        values = values or round(10 ** self.random.uniform(0.5, 2.0 if kind in ("number", "category") else 3.0))
        number = self.number(values)
        width = max(1, values // 8)
        sql, hierarchy = {
            "number": (f"({number})::INTEGER", {"intervals": [width, 4 * width]}),
            "text": (f"lpad(({number})::VARCHAR, 4, '0')", {"mask": "right"}),
            "date": (f"DATE '1990-01-01' + ({number})::INTEGER", {"dates": ["month", "year", "decade"]}),
            "category": (f"'c' || ({number})", "suppress"),
        }[kind]
        self.table.columns[name] = self.with_nulls(sql) if nulls else sql
        self.table.attributes[name] = {"role": "quasi", "hierarchy": hierarchy}
        return name

    def add_unchanged(self, name: str, role: str = "insensitive") -> None:
        """An independent column that is released unchanged, with up to half as many values as rows."""
        many = min(self.table.rows // 2, 20_000)
        kind = self.random.choice(["few", "cents", "many", "date", "time", "text", "flag"])
        few, lots = self.random.randint(2, 40), self.random.randint(min(50, many), many)
        self.table.columns[name] = self.with_nulls(
            {
                "few": self.number(few),
                "cents": f"({self.number(lots)} / 100.0)::DECIMAL(12, 2)",
                "many": self.number(lots),
                "date": f"DATE '2015-01-01' + ({self.number(min(lots, 4000))})::INTEGER",
                "time": f"TIMESTAMP '2024-01-01' + to_minutes({self.number(lots)})",
                "text": f"'t' || {self.number(self.random.choice([few, lots]))}",
                "flag": f"{uniform(self.salt())} < {self.random.choice([0.5, 0.1, 0.02])}",
            }[kind]
        )
        self.table.attributes[name] = {"role": role}

    def add_bystanders(self) -> None:
        """Columns that are independent of all others."""
        for j in range(self.random.randint(1, 3)):
            self.add_quasi(f"known{j}")
        for j in range(self.random.randint(1, 4)):
            self.add_unchanged(f"free{j}")
        for j in range(self.random.randint(0, 2)):
            self.add_unchanged(f"secret{j}", "sensitive")

    def add_visits(self) -> None:
        """Several rows a person, which agree in the quasi-identifiers and in half of the other columns."""
        visits = self.random.randint(2, 8)
        for name, sql in self.table.columns.items():
            if self.table.attributes[name]["role"] == "quasi" or self.random.random() < 0.5:
                self.table.columns[name] = sql.replace("hash(i *", f"hash((i // {visits}) *")
        self.table.columns["patient"], self.table.person = f"i // {visits}", "patient"
        self.table.attributes["patient"] = {"role": "identifying"}


def independent(seed: int) -> Table:
    """A table without dependencies; in every third, a person has several rows."""
    maker = _Maker(seed)
    maker.add_bystanders()
    if seed % 3 == 0:
        maker.add_visits()
    return maker.table


def _noisy(maker: _Maker, sql: str, share: float) -> str:
    """The same column with the values of other rows for a share of the rows: values stay, dependencies do not."""
    expression = sql
    for name, column in reversed(maker.table.columns.items()):
        expression = expression.replace(name, f"({column})")
    expression = expression.replace("hash(i *", "hash((i + 7777777) *")
    return f"CASE WHEN {uniform(maker.salt())} < {share} THEN {expression} ELSE {sql} END"


def _zip_codes(maker: _Maker) -> tuple[str, int]:
    """A quasi-identifier of many values, and how many."""
    values = maker.random.randint(30, max(31, min(2_000, maker.table.rows // 10)))
    return maker.add_quasi("place", values, "text", nulls=False), values


def _district(maker: _Maker, noise: float = 0) -> None:
    name, values = _zip_codes(maker)
    size = maker.random.randint(2, max(2, min(12, values // 8)))
    size = 9 if size == 10 else size  # ten are what a masked digit stands for: such a district says no more
    sql = f"'d' || ({name}::INTEGER // {size})"
    maker.table.columns["planted"] = _noisy(maker, sql, noise) if noise else sql


def _noisy_district(maker: _Maker) -> None:
    _district(maker, maker.random.uniform(0.1, 0.3))


def _key(maker: _Maker) -> None:
    """Nearly unique, and begins with the place."""
    name, _ = _zip_codes(maker)
    maker.table.columns["planted"] = f"{name} || '-' || (i * 7919) % {10 * maker.table.rows}"


def _coarser_copy(maker: _Maker, noise: float = 0) -> None:
    """A copy, in few values, of an emptied quasi-identifier."""
    values = maker.random.randint(4, 60)
    name = maker.add_quasi("hidden", values, "number", nulls=False)
    maker.table.attributes[name] = {"role": "quasi", "hierarchy": "suppress", "min_level": 1}
    parts = maker.random.randint(min(values, 4), max(4, min(values, 12)))
    sql = f"({name} * {parts}) // {values}"
    maker.table.columns["planted"] = _noisy(maker, sql, noise) if noise else sql


def _noisy_coarser_copy(maker: _Maker) -> None:
    _coarser_copy(maker, maker.random.uniform(0.1, 0.3))


def _two_valued_copy(maker: _Maker) -> None:
    """A copy with two values, some of them wrong, such as the sex by a title."""
    maker.table.columns["hidden"] = f"CASE WHEN {uniform(maker.salt())} < 0.5 THEN 'f' ELSE 'm' END"
    maker.table.attributes["hidden"] = {"role": "quasi", "hierarchy": "suppress", "min_level": 1}
    titles = "CASE WHEN hidden = 'f' THEN 'Ms' ELSE 'Mr' END"
    maker.table.columns["planted"] = _noisy(maker, titles, maker.random.choice([0, 0.1, 0.2]))


def _finer_number(maker: _Maker) -> None:
    """As the age in days released with the age in years: hardly two rows share a value, but near ones share the
    years."""
    values = maker.random.randint(20, 90)
    name = maker.add_quasi("years", values, "number", nulls=False)
    maker.table.attributes[name] |= {"min_level": 1}
    maker.table.columns["planted"] = f"{name} * 365 + {maker.number(365, 1.0)}"


def _copied_date(maker: _Maker) -> None:
    """A date that a quasi-identifier generalizes, under another name and as a time."""
    name = maker.add_quasi("born", maker.random.randint(200, 20_000), "date", nulls=False)
    maker.table.attributes[name] |= {"min_level": 1}
    maker.table.columns["planted"] = f"{name} + to_hours({maker.number(24, 1.0)})"


def _period(maker: _Maker) -> None:
    """The year of a date that is generalized to decades: hardly two people share a day."""
    name = maker.add_quasi("born", maker.random.randint(8_000, 20_000), "date", nulls=False)
    maker.table.attributes[name] |= {"min_level": maker.random.choice([3, 4])}
    maker.table.columns["planted"] = _noisy(maker, f"year({name})", maker.random.choice([0, 0.1]))


def _two_together(maker: _Maker) -> None:
    """Two columns determine together what neither does alone: the sum of their numbers is the place."""
    values = maker.random.randint(8, 25)
    name = maker.add_quasi("hidden", values, "number", nulls=False)
    maker.table.attributes[name] = {"role": "quasi", "hierarchy": "suppress", "min_level": 1}
    maker.table.columns["key"] = maker.number(values, 1.0)
    maker.table.columns["planted"] = f"({name} + key) % {values}"
    maker.table.attributes["key"] = {"role": "insensitive"}


PLANTED: dict[str, Callable[[_Maker], None]] = {
    "functional": _district,
    "noisy": _noisy_district,
    "key": _key,
    "coarser copy": _coarser_copy,
    "noisy coarser copy": _noisy_coarser_copy,
    "two values": _two_valued_copy,
    "finer number": _finer_number,
    "copied date": _copied_date,
    "period": _period,
    "two together": _two_together,
}
"""The kinds of dependencies, by name."""


def draw_dependency(seed: int, kind: str | None = None) -> Table:
    """A table with one dependency; kinds take turns."""
    maker = _Maker(seed + 1_000_000)
    kind = kind or [*PLANTED][seed % len(PLANTED)]
    PLANTED[kind](maker)
    maker.table.kind, maker.table.planted = kind, "planted"
    maker.table.attributes["planted"] = {"role": maker.random.choice(["insensitive", "insensitive", "sensitive"])}
    maker.add_bystanders()
    if kind == "two together":  # pairs are measured where few columns are released unchanged
        for name in [column for column in maker.table.columns if column.startswith(("free", "secret"))][3:]:
            del maker.table.columns[name], maker.table.attributes[name]
    return maker.table
