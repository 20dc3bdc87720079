"""Random tables of all types, and policies for them: what has to come out the same in DuckDB and in Spark."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

import sqlanon
from properties.plain_search import WIDE
from sqlanon.measures import MEASURES

Rule: TypeAlias = Any
Searching: TypeAlias = Callable[[random.Random, int], dict[str, Any]]
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Kind:
    """A type of columns: its values, and the rules that make hierarchies of them."""

    type: pa.DataType
    values: Sequence[Any]
    rules: Sequence[Rule]


TEXTS = [
    "Zürich", "zürich", "ZÜRICH", "Zu\u0308rich", "a", "a ", " a", "", " ", "é", "e\u0301", "it's", '"', "`b`",
    "\u65e5\u672c", "\U0001f600", "NULL", "007", "\\n", "%_",
]  # fmt: skip
NUMBERS = [0, 1, 2, 7, 10, 12, 25, 99, 100, 127, -1, -3, -20, -128]
MANY = [*NUMBERS, 2**31 - 1, -(2**31)]
DAYS = [date(1970, 1, 1), date(1969, 12, 31), date(1999, 2, 28), date(2000, 2, 29), date(2024, 12, 30),
        date(1582, 10, 4), date(1582, 10, 15), date(1500, 3, 1), date(2999, 12, 31), date(1000, 1, 1)]  # fmt: skip
TIMES = [
    *(datetime(day.year, day.month, day.day, 3, 4, 5, 600_000) for day in DAYS[:5]),
    datetime(2024, 3, 31, 2, 30),
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(1970, 1, 1),
    datetime(1890, 1, 1),
]
SPANS = ["suppress", {"intervals": [5, 10]}, {"intervals": {"widths": [10, 100], "origin": 3}}, "file"]
CALENDAR = ["suppress", {"dates": ["month", "year"]}, {"dates": ["year", "decade"]}, {"dates": ["day", "week"]}]
OPEN = {"intervals": {"widths": [2, 4], "below": -5, "above": 50}}

KINDS: Mapping[str, Kind] = {
    "text": Kind(pa.string(), TEXTS, ["suppress", {"mask": "right"}, {"mask": "left"}, "file", "file"]),
    "tiny": Kind(pa.int8(), NUMBERS, SPANS),
    "small": Kind(pa.int16(), [*NUMBERS, 32767], [*SPANS, {"mask": "right"}]),
    "whole": Kind(pa.int32(), MANY, [*SPANS, OPEN]),
    "big": Kind(pa.int64(), [*MANY, 2**53 + 1, -(2**62)], ["suppress", "file"]),
    "decimal": Kind(
        pa.decimal128(9, 2),
        [Decimal(number) for number in ("0.00", "-0.01", "1.50", "2.50", "3.49", "-12.25", "99.99", "1000000.00")],
        ["suppress", {"intervals": [5, 20]}, {"intervals": ["0.5", "2.5"]}, {"mask": "right"}],
    ),
    "wide": Kind(pa.decimal128(38, 6), [Decimal("0.000001"), Decimal(10) ** 31, Decimal("-7.5")], ["suppress"]),
    "double": Kind(
        pa.float64(),
        [0.0, -0.0, 0.1, 0.30000000000000004, 2.5, 3.5, -2.5, 1e-300, 1e22, 123456789.125],
        ["suppress", OPEN, {"intervals": [5, 20]}],
    ),
    "odd": Kind(pa.float64(), [0.0, -0.0, NAN, INF, -INF, 1.5, -1.5], ["suppress"]),
    "float": Kind(pa.float32(), [0.0, -0.0, 0.5, 1.25, -2.5, 16777216.0], ["suppress", {"intervals": [1, 4]}]),
    "flag": Kind(pa.bool_(), [True, False], ["suppress"]),
    "day": Kind(pa.date32(), DAYS, [*CALENDAR, {"intervals": [7, 28]}]),
    "time": Kind(pa.timestamp("us"), TIMES, CALENDAR),
    "instant": Kind(
        pa.timestamp("us", tz="UTC"), [time.replace(tzinfo=timezone.utc) for time in TIMES], CALENDAR[:3]
    ),
}  # fmt: skip

NAMES = [
    "b",
    "value",
    "n",
    "quasi_0",
    "known",
    "code_0",
    "größe",
    "select",
    "a b",
    "it's",
    'say "x"',
    "tick`s",
    "sensitive_0",
    "label",
]


@dataclass(frozen=True)
class SparkCase:
    """A table, and a policy's tree for a table of the name ``t``."""

    table: pa.Table
    tree: Mapping[str, Any]

    def policy(self, **source: Any) -> sqlanon.Policy:
        """The policy, with its source at some place."""
        return sqlanon.Policy(**{**self.tree, "source": {"table": "t", **source}})


def random_case(seed: int, folder: Path, searching: Searching | None = None) -> SparkCase:
    """A table and a policy, which are the same for the same seed.

    DuckDB finds a result of two classes at least; for every sixth seed it finds none.

    Parameters
    ----------
    seed:
        Requirements, measures and strategies are taken in turn.
    folder:
        For files of hierarchies, and a population.
    searching:
        Draws the policy's ``[search]``; by default that of the full domain.
    """
    searching, feasible = searching or full_domain, has_result(seed)
    kinds = WANTED if searching is full_domain else WANTED_BELOW
    for attempt in range(TRIES):
        draw = random.Random(f"{searching.__name__} {seed} {attempt}")
        # The next one in its place, where the strategy does not take it.
        wanted = kinds[(turn(seed) + attempt // 20) % len(kinds)] if feasible else draw.choice(kinds)
        number = turn(seed) if feasible else draw.randrange(1000)
        case = drawn_case(draw, wanted, number, attempt % 20 if feasible else 0, folder, searching)
        if case is None or bool(case.table) == (seed % 12 == 5):  # few are without rows
            continue
        if found_classes(case) >= 2 if feasible else found_classes(case) == 0:
            return case
    raise AssertionError(f"no case for seed {seed}")


TRIES = 200
"""So many times a case is drawn: most that are random have no result, or one of a single class."""


def has_result(seed: int) -> bool:
    """Whether a case is one with a result."""
    return seed % 6 != 5


def turn(seed: int) -> int:
    """Whose turn it is: cases without a result are passed over."""
    return seed - (seed + 1) // 6


def drawn_case(
    draw: random.Random, wanted: str, number: int, attempt: int, folder: Path, searching: Searching
) -> SparkCase | None:
    """A table and a policy with a requirement, if possible; the later the attempt, the easier."""
    names = draw.sample(NAMES, 6)
    quasi = {name: draw.choice(list(KINDS)) for name in names[: draw.choice([1, 2, 2, 3])]}
    sensitive = {name: draw.choice(list(KINDS)) for name in names[3 : draw.choice([3, 4, 5])]}
    insensitive = {name: draw.choice(list(KINDS)) for name in names[5:]}
    columns = {**quasi, **sensitive, **insensitive}
    table = random_table(draw, columns, list(quasi), 12 + attempt)
    attributes: dict[str, Any] = {name: quasi_attribute(draw, name, quasi[name], folder) for name in quasi}
    attributes |= {name: sensitive_attribute(draw, name, kind, folder) for name, kind in sensitive.items()}
    attributes |= {name: {"role": "insensitive"} for name in insensitive}
    privacy = random_privacy(draw, list(quasi), attributes, wanted, 3 if attempt < 5 else 1)
    if not asks_for(privacy, wanted):
        return None
    tree: dict[str, Any] = {"attributes": attributes, "privacy": privacy}
    tree["search"] = searching(draw, number)
    if "measure" in tree["search"] and tree["search"]["measure"] in ("loss", "precision") and draw.random() < 0.3:
        attributes[next(iter(quasi))]["weight"] = 2.5
        tree["search"]["aggregate"] = "sum"
    suppressed = draw.choice(["drop", "drop", "mask"])
    if searching is below_full_domain and not {"double", "odd", "float"}.isdisjoint(quasi.values()):
        suppressed = "drop"  # in Spark masks among such numbers are refused
    tree["release"] = {"table": "r", "suppressed": suppressed}
    if not {"k_map", "delta_presence"}.isdisjoint(privacy):
        tree["population"] = {"database": str(folder / "population.duckdb"), "table": "people"}
        write_population(draw, table.select(list(quasi)), columns, folder / "population.duckdb")
    case = SparkCase(table, tree)
    try:
        case.policy()
    except sqlanon.PolicyError:  # not all can be combined
        return None
    return case


def asks_for(privacy: Mapping[str, Any], wanted: str) -> bool:
    """Whether the case has a requirement of a kind."""
    kind, _, variant = wanted.partition(" ")
    if not variant:
        return kind in privacy
    return any(
        variant in (entry.get("kind"), entry.get("distance"), entry.get("joint") and "joint")
        for entry in privacy.get(kind, ())
    )


def in_duckdb(table: pa.Table) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register("arrow_table", table)
    connection.execute("CREATE TABLE t AS FROM arrow_table")
    connection.unregister("arrow_table")
    return connection


def found_classes(case: SparkCase) -> int:
    """The number of classes in the result of DuckDB; 0 without a result."""
    try:
        with in_duckdb(case.table) as connection, sqlanon.connect(connection) as db:
            return db.anonymize(case.policy()).classes
    except sqlanon.SqlanonError:
        return 0


def random_table(draw: random.Random, columns: Mapping[str, str], quasi: Sequence[str], most: int) -> pa.Table:
    """Up to 8 combinations of the quasi-identifiers, each with a limited number of rows, and a few others. NULLs in
    most columns, few values in each."""
    pools = {}
    for name, kind in columns.items():
        some = draw.sample(list(KINDS[kind].values), min(len(KINDS[kind].values), draw.choice([1, 2, 3, 5, 8])))
        pools[name] = [*some, *([None] if draw.random() < 0.7 else [])]

    def row() -> dict[str, Any]:
        return {name: draw.choice(pool) for name, pool in pools.items()}

    rows: list[dict[str, Any]] = []
    for _ in range(draw.choice([0, 2, 4, 6, 6, 8, 8]) if draw.random() < 0.9 else 0):
        values = row()
        rows += [{**row(), **{name: values[name] for name in quasi}} for _ in range(draw.randint(1, most))]
    if rows:
        rows += [row() for _ in range(draw.choice([0, 0, 1, 3]))]
    draw.shuffle(rows)
    return pa.table({name: pa.array([record[name] for record in rows], KINDS[columns[name]].type) for name in columns})


def write_population(draw: random.Random, sample: pa.Table, columns: Mapping[str, str], path: Path) -> None:
    """The rows of the table, some of them several times or not at all, and a few others."""
    indexes = [i for i in range(sample.num_rows) for _ in range(draw.choice([0, 1, 1, 2, 3]))]
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.register("arrow_table", sample.take(pa.array(indexes, pa.int64())))
        connection.execute("CREATE TABLE people AS FROM arrow_table")


def quasi_attribute(draw: random.Random, name: str, kind: str, folder: Path) -> dict[str, Any]:
    rule = draw.choice(list(KINDS[kind].rules))
    attribute: dict[str, Any] = {"role": "quasi", "hierarchy": rule}
    if rule == "file":
        missing = draw.random() < 0.3
        attribute["hierarchy"] = {
            "file": str(write_hierarchy(draw, kind, folder / f"{NAMES.index(name)}.csv", missing))
        }
        attribute |= {"on_unknown": "suppress"} if missing or draw.random() < 0.3 else {}
    if draw.random() < 0.1:
        attribute["max_level"] = 0 if draw.random() < 0.3 else 1
    elif draw.random() < 0.1:
        attribute["min_level"] = 1
    if kind == "text" and rule == "suppress" and draw.random() < 0.2:
        attribute["forbidden"] = ["Zürich"]
    return attribute


def write_hierarchy(draw: random.Random, kind: str, path: Path, missing: bool) -> Path:
    """Two levels of groups over the values."""
    values = [value for value in KINDS[kind].values if "\n" not in str(value)]
    lines = [f'"{str(value).replace(chr(34), chr(34) * 2)}";g{i % 3};*' for i, value in enumerate(values)]
    path.write_text("\n".join(lines[: -2 if missing else None]) + "\n", encoding="utf-8")
    return path


def sensitive_attribute(draw: random.Random, name: str, kind: str, folder: Path) -> dict[str, Any]:
    if kind in ("text", "tiny", "small", "whole", "big") and draw.random() < 0.5:
        path = write_hierarchy(draw, kind, folder / f"{NAMES.index(name)}.csv", False)
        return {"role": "sensitive", "hierarchy": {"file": str(path)}}
    return {"role": "sensitive"}


def random_privacy(
    draw: random.Random, quasi: Sequence[str], attributes: Mapping[str, Any], wanted: str, most: int
) -> dict[str, Any]:
    """A limited number of requirements; one of a wanted kind among them, if possible."""
    sensitive = [name for name, spec in attributes.items() if spec["role"] == "sensitive"]
    sections: dict[str, Any] = {}
    can = [*SINGLE, *(LISTED if sensitive else []), "k_anonymity"]
    first, _, variant = wanted.partition(" ")
    for i in range(draw.randint(1, most)):
        kind = first if not i and first in can else draw.choice(can)
        if kind in SINGLE:
            sections[kind] = SINGLE[kind](draw)
        elif kind == "k_anonymity":
            sections.setdefault(kind, []).append({"quasi": draw.sample(quasi, draw.randint(1, len(quasi))), "k": 3})
        else:
            name = draw.choice(sensitive)
            requirement = LISTED[kind](draw, attributes[name], sensitive, variant if not i else "")
            sections.setdefault(kind, []).append({"attribute": name, **requirement})
    return sections


def diversity(
    draw: random.Random, attribute: Mapping[str, Any], sensitive: Sequence[str], variant: str
) -> dict[str, Any]:
    drawn = draw.choice(["distinct", "entropy", "recursive"])
    kind = drawn if variant in ("", "joint") else variant
    requirement: dict[str, Any] = {"kind": kind, "l": draw.choice([1.2, 2, 1.5] if kind == "entropy" else [2, 2, 3])}
    requirement |= {"c": draw.choice([1.1, 2, 4])} if kind == "recursive" else {}
    joint = variant == "joint" or draw.random() < 0.3
    return requirement | ({"joint": True} if len(sensitive) > 1 and joint else {})


def closeness(
    draw: random.Random, attribute: Mapping[str, Any], sensitive: Sequence[str], variant: str
) -> dict[str, Any]:
    distances = ["equal", "ordered", *(["hierarchical"] * 2 if "hierarchy" in attribute else [])]
    drawn = draw.choice(distances)
    return {"distance": variant if variant in distances else drawn, "t": draw.choice([0.1, 0.2, 0.3, 0.5])}


def likeness(
    draw: random.Random, attribute: Mapping[str, Any], sensitive: Sequence[str], variant: str
) -> dict[str, Any]:
    return {"beta": draw.choice([0.5, 1, 2]), "kind": variant or draw.choice(["basic", "enhanced"])}


LISTED: Mapping[str, Callable[[random.Random, Mapping[str, Any], Sequence[str], str], dict[str, Any]]] = {
    "l_diversity": diversity,
    "t_closeness": closeness,
    "delta_disclosure": lambda draw, *_: {"delta": draw.choice([0.7, 1.5, 2.0])},
    "beta_likeness": likeness,
    "alpha_k": lambda draw, *_: {"alpha": draw.choice([0.5, 0.75, 1])},
}
SINGLE: Mapping[str, Callable[[random.Random], Any]] = {
    "k": lambda draw: draw.choice([2, 3, 4, 1]),
    "k_map": lambda draw: draw.choice([2, 3]),
    "average_risk": lambda draw: draw.choice([0.5, 0.3, 0.2]),
    "sample_uniqueness": lambda draw: draw.choice([0.1, 0, 0.05]),
    "population_uniqueness": lambda draw: {
        "limit": draw.choice([0.05, 0.2]),
        "sampling_fraction": draw.choice([0.1, 0.5]),
        "estimator": draw.choice(["dankar", "pitman", "zayatz", "snb"]),
    },
    "delta_presence": lambda draw: {"max": draw.choice([1, 0.8, 2.0]), "min": draw.choice([0, 0, 0.1])},
}


WANTED = [
    *SINGLE, "k_anonymity", *(f"l_diversity {kind}" for kind in ("distinct", "entropy", "recursive", "joint")),
    *(f"t_closeness {distance}" for distance in ("equal", "ordered", "hierarchical")), "delta_disclosure",
    "beta_likeness basic", "beta_likeness enhanced", "alpha_k",
]  # fmt: skip
"""The kinds of requirements."""
WANTED_BELOW = [name for name in WANTED if name == "k" or name.partition(" ")[0] in LISTED]
"""Those that strategies take which place rows one by one."""


def full_domain(draw: random.Random, number: int) -> dict[str, Any]:
    """A strategy of the full domain, and a measure."""
    return {
        "strategy": WIDE[number % len(WIDE)],
        "measure": [*MEASURES][number % len(MEASURES)],
        "suppression_limit": draw.choice([0, 0.1, 0.29, 0.5, 0.7]),
    }


BELOW = ["mondrian", "k-similar", "subtree", "local", "mu-argus", "cells"]
"""Strategies that assign rows one by one; ``cells`` is not the name of a strategy."""

FULL_DOMAIN, BELOW_IT = 29, 14
"""Number of cases in which each requirement, measure and strategy comes in turn."""


def below_full_domain(draw: random.Random, number: int) -> dict[str, Any]:
    """A strategy that places rows one by one."""
    strategy = BELOW[number % len(BELOW)]
    search: dict[str, Any] = {"suppression_limit": draw.choice([0, 0.1, 0.3])}
    search |= {"suppression": "cells"} if strategy == "cells" else {"strategy": strategy}
    if strategy in ("mondrian", "k-similar") and draw.random() < 0.7:
        search["summary"] = draw.choice(["range", "median", "set"])
    if strategy == "mondrian" and draw.random() < 0.5:
        search["cuts"] = "relaxed"
    return search
