"""A hostile reader finds nothing in releases, and finds every planted leak."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from adversary.odd_values import SCALARS, with_odd_floats
from adversary.reader import ascents, findings, of_relation, read
from sqlanon import InfeasibleError, ReleaseError, SqlanonError
from sqlanon.policy.strategies import STRATEGIES
from support.lanes import examples, some
from support.policies import make_policy

GUARANTEE_K = [name for name, strategy in STRATEGIES.items() if not strategy.traits.protects_combinations_only]

SEARCHES: list[dict[str, Any]] = [
    *(
        {"strategy": name} if STRATEGIES[name].traits.terminates else {"strategy": name, "max_checks": 60}
        for name in GUARANTEE_K
    ),
    {"strategy": "mondrian", "summary": "median"},
    {"strategy": "mondrian", "summary": "set", "cuts": "relaxed"},
    {"strategy": "mondrian", "cuts": "relaxed"},
    {"strategy": "k-similar", "summary": "median"},
    {"strategy": "k-similar", "summary": "set"},
    {"suppression": "cells"},
    {"strategy": "ola", "suppression": "cells"},
]
"""All ways to search that guarantee k of all quasi-identifiers together."""


def publish(connection: duckdb.DuckDBPyConnection, policy: sqlanon.Policy, path: Path) -> sqlanon.Result:
    with sqlanon.connect(connection) as db:
        result = db.anonymize(policy)
        result.publish(path, "released")
        assert db.verify(path, policy).verified
    return result


NANS = """
    CREATE TABLE t AS
    SELECT i AS place, 'person ' || i AS name, i % 2 AS flag,
           CASE i // 3 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN 0.0 WHEN 2 THEN 1.5 ELSE 2.5 + i // 6 END AS q
    FROM range(24) AS r(i);
    UPDATE t SET q = {nan} WHERE place = 1;
    UPDATE t SET q = -0.0::DOUBLE WHERE place = 4;
"""
WAYS: list[dict[str, Any]] = [
    {"strategy": "mondrian"},
    {"strategy": "mondrian", "summary": "median"},
    {"strategy": "k-similar"},
    {"strategy": "k-similar", "summary": "median"},
    {"strategy": "local"},
    {"strategy": "subtree"},
    {"suppression": "cells"},
    {"strategy": "optimal"},
]


MADE = ["-('nan'::DOUBLE)", "'inf'::DOUBLE - 'inf'::DOUBLE"]
SIGNS = [
    (search, ("duckdb", "parquet")[(i + j) % 2], MADE[(i // 2 + j) % 2])
    for j in (0, 1)
    for i, search in enumerate(WAYS)
]


@pytest.mark.slow
@pytest.mark.parametrize(("search", "ending", "nan"), some(SIGNS, 16), ids=str)
def test_no_row_is_distinguished_by_a_sign(tmp_path: Path, search: dict[str, str], ending: str, nan: str) -> None:
    path = tmp_path / f"release.{ending}"
    roles = {"place": "insensitive", "name": "identifying", "flag": "insensitive", "q": "suppress"}
    with duckdb.connect() as connection:
        connection.execute(NANS.format(nan=nan))
        assert len(set(of_relation(connection, "t").of("q")[:3])) == 2, "one of three has a sign"
        policy = make_policy(roles, k=3, search={"suppression_limit": 0.2, **search})
        publish(connection, policy, path)
        seen = read(path, "released")
    assert len(seen.rows) >= 20
    assert findings(seen, ["q"], 3, private=["person 7"]) == []


@pytest.mark.thorough
@pytest.mark.parametrize("nan", MADE)
def test_no_row_is_distinguished_by_a_sign_in_a_live_view(nan: str) -> None:
    roles = {"place": "insensitive", "name": "identifying", "flag": "insensitive", "q": "suppress"}
    with duckdb.connect() as connection:
        connection.execute(NANS.format(nan=nan))
        with sqlanon.connect(connection) as db:
            view = db.live(make_policy(roles, k=3, search={"suppression_limit": 0.2})).view
        seen = of_relation(connection, view)
        assert len(seen.rows) >= 20
        assert findings(seen, ["q"], 3) == []


def test_the_reader_finds_planted_leaks(tmp_path: Path) -> None:
    """The reader detects a sign, a small class, a disclosed value, a bound in statistics and an unused entry."""
    path = tmp_path / "bad.parquet"
    with duckdb.connect() as connection:
        connection.execute(NANS.format(nan="-('nan'::DOUBLE)"))
        connection.execute(f"COPY (SELECT * EXCLUDE (name), 'person 7' AS told FROM t) TO '{path}'")
    leaks = findings(read(path, ""), ["q"], 3, {"flag": 2}, ["person 7"])
    assert sum("a class of 1:" in text for text in leaks) == 2 and "'person 7' is in the release" in leaks
    assert any("fewer than 2 values of flag" in leak for leak in leaks)
    seen = read(path, "")
    rises, variance = ascents(seen, ["flag"], "place")
    assert rises > 4 * variance**0.5, "rows of a class stand as in the source"


def drawn_case(draw: random.Random) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A table, attributes, and the other sections of a policy."""
    types = [*SCALARS]
    rows, quasi = draw.randint(24, 70), [f"q{i}" for i in range(draw.randint(1, 3))]
    several = ["FLOAT", "DOUBLE", "INTERVAL"]
    pools: dict[str, list[str]] = {}
    for name in (*quasi, "s", "other"):
        type_ = draw.choice([*types, *several, *several])
        pools[name] = draw.sample(SCALARS[type_], min(len(SCALARS[type_]), draw.randint(2, 6)))
        if name not in ("s", "other") and draw.random() < 0.4:
            pools[name].append("NULL")
    chosen = [[draw.choice(pool) for pool in pools.values()] for _ in range(draw.randint(2, 6))]
    lines = []
    for i in range(rows):
        line = draw.choice(chosen) if draw.random() < 0.8 else [draw.choice(pool) for pool in pools.values()]
        lines.append(f"SELECT {i} AS place, 'person {i} of all' AS name, " + ", ".join(
            f"{value} AS {name}" for name, value in zip(pools, line, strict=True)
        ))  # fmt: skip
    attributes: dict[str, Any] = {
        "place": {"role": "insensitive"},
        "name": {"role": "identifying"},
        **{name: {"role": "quasi", "hierarchy": "suppress"} for name in quasi},
        "s": {"role": "sensitive"},
        "other": {"role": "insensitive"},
    }
    sections: dict[str, Any] = {
        "privacy": {"k": draw.randint(2, 4)},
        "search": {**draw.choice(SEARCHES), "suppression_limit": draw.choice([0, 0.1, 0.3])},
        "release": {"suppressed": draw.choice(["drop", "mask"])},
    }
    if draw.random() < 0.3 and "iab" not in sections["search"].values():
        sections["privacy"]["l_diversity"] = [{"attribute": "s", "kind": "distinct", "l": 2}]
    return f"CREATE TABLE t AS {' UNION ALL '.join(lines)}", attributes, sections


class Order:
    """The deviation of the order in many releases from a random order."""

    rises = 0.0
    variance = 0.0
    released = 0


def check_case(seed: int, directory: Path, order: Order) -> None:
    draw = random.Random(seed)
    statement, attributes, sections = drawn_case(draw)
    quasi = [name for name, its in attributes.items() if its["role"] == "quasi"]
    ending = draw.choice(["duckdb", "parquet"])
    path = directory / f"{seed}.{ending}"
    try:
        policy = sqlanon.Policy(attributes=attributes, source={"table": "t", "key": "name"}, **sections)
    except SqlanonError:  # what does not go together
        return
    with with_odd_floats(duckdb.connect()) as connection:
        try:
            connection.execute(statement)
        except duckdb.Error:  # an older DuckDB has not all of these
            return
        try:
            publish(connection, policy, path)
        except InfeasibleError:
            return
        except ReleaseError as error:
            assert "Parquet cannot hold" in str(error), (seed, error)
            path = path.with_suffix(".duckdb")
            publish(connection, policy, path)
    seen = read(path, "released")
    diverse = {"s": 2} if "l_diversity" in sections["privacy"] else {}
    leaks = findings(seen, quasi, policy.privacy.k or 1, diverse, ["person 3 of all"])
    assert leaks == [], (seed, sections, leaks)
    rises, variance = ascents(seen, quasi, "place")
    order.rises += rises
    order.variance += variance
    order.released += 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("first", "count"), [(0, 3), *(pytest.param(1000 * i, examples(50), marks=pytest.mark.slow) for i in range(1, 7))]
)
def test_releases_of_all_strategies_targets_and_types_pass_the_reader(tmp_path: Path, first: int, count: int) -> None:
    order = Order()
    for seed in range(first, first + count):
        check_case(seed, tmp_path, order)
    assert order.released >= count / 3
    assert abs(order.rises) <= 6 * order.variance**0.5, (
        "rows of a class stand in the order of the source, or against it"
    )
