"""Decoys: invented rows in classes that are too small, compared with a slow and obvious count in plain Python."""

from __future__ import annotations

import datetime
import functools
import math
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sqlanon
from oracles import oracle
from oracles.oracle import Hierarchy, Release, Row, Table
from properties import random_cases
from properties.random_cases import Case
from properties.search_checks import arrow_table, policy
from sqlanon.audit.decoys import DecoyCheck
from sqlanon.audit.verify import verify_file
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import InfeasibleError, PolicyError
from sqlanon.support.expressions import table
from support.databases import compact_file, fetch
from support.lanes import SEARCHING, examples

quick = settings(max_examples=examples(1), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
thorough = settings(quick, derandomize=not SEARCHING, max_examples=examples(25), print_blob=True)

OWN = {"value_0": pa.string(), 'my "col': pa.date32(), "quasi_0": pa.decimal128(9, 2)}
"""Columns released unchanged, under names that queries use themselves."""

VALUES: Mapping[str, Sequence[Any]] = {
    "value_0": ("a", "A", "it's", None),
    'my "col': (datetime.date(2020, 1, 2), datetime.date(1969, 12, 31), None),
    "quasi_0": (Decimal("0.00"), Decimal("-1.50"), Decimal("7.25")),
}


# --- the oracle -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """Expected content of a release with decoys: real rows, number of decoys by class, and their possible values."""

    real: Counter[Row]
    decoys: Mapping[Row, int]
    smallest: int
    donors: Mapping[Row, Sequence[Row]]


def expected_release(case: Case, values: Sequence[Row], levels: oracle.Levels) -> Expected:
    """Count it all, row by row."""
    table, trees = Table.of(case.rows, case.hierarchies), list(case.hierarchies.values())
    rows = [
        (row, more)
        for row, more in zip(case.rows, values, strict=True)
        if all(tree.knows(value) for tree, value in zip(trees, row, strict=True))
    ]

    def at(row: Row, up: int) -> Row:
        return table.generalize(
            row, tuple(min(level + up, tree.height) for level, tree in zip(levels, trees, strict=True))
        )

    sizes = Counter(at(row, 0) for row, _ in rows)
    retained = [(row, more) for row, more in rows if sizes[at(row, 0)] >= case.k]
    donors: dict[Row, list[Row]] = {}
    for row, _ in rows:
        if sizes[at(row, 0)] < case.k:
            above = ([more for candidate, more in retained if at(candidate, up) == at(row, up)] for up in range(1, 10))
            donors[at(row, 0)] = next(donor_rows for donor_rows in above if len(donor_rows) >= case.k)
    return Expected(
        real=Counter((*at(row, 0), *more) for row, more in rows),
        decoys={labels: case.k - sizes[labels] for labels in donors},
        smallest=min(sizes.values()),
        donors=donors,
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Case, list[Row]]:
    """A table and a policy under which classes stay too small, and the unchanged columns, row by row."""
    case = draw(random_cases.cases())
    case = replace(case, k=max(case.k, 2), limit=draw(st.sampled_from(["0.29", "0.5", "0.9", "0.1"])))
    row = st.tuples(*(st.sampled_from(values) for values in VALUES.values()))
    return case, [draw(row) for _ in case.rows]


def with_own(case: Case, values: Sequence[Row]) -> pa.Table:
    table = arrow_table(case)
    for j, (name, type_) in enumerate(OWN.items()):
        table = table.append_column(name, pa.array([row[j] for row in values], type=type_))
    return table


def asking(case: Case, folder: Path) -> sqlanon.Policy:
    tree = policy(case, "optimal", folder).model_dump(mode="json", exclude_none=True)
    tree["attributes"] |= {name: {"role": role} for name, role in zip(OWN, ROLES, strict=True)}
    tree["release"] = {"decoys": True, "table": "released"}
    tree["catalog"] = {"database": str(folder / "private.duckdb")}
    return sqlanon.Policy(**tree)


ROLES = ("sensitive", "insensitive", "sensitive")
ONE_TREE = {"b": Hierarchy({"v0": ("v0", "g0", "*"), "v1": ("v1", "g0", "*"), "v2": ("v2", "g1", "*")})}
# v1 is short, and so is everything in g1; the donors of NULL, which is a value of its own, are all kept rows.
SHORT = Case(
    rows=[("v0",)] * 5 + [("v1",)] * 2 + [("v2",)] + [(None,)] * 3,
    hierarchies=ONE_TREE,
    k=4,
    limit="0.9",
    measure="loss",
)
SHORT_OWN: list[Row] = [
    ("a" if i < 5 else "secret", datetime.date(2020, 1, 1 + i), Decimal(i)) for i in range(len(SHORT.rows))
]


def columns(names: Iterable[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def check(case: Case, values: list[Row]) -> None:
    solution = oracle.solve(**case.arguments)
    with tempfile.TemporaryDirectory() as name, sqlanon.connect(with_own(case, values)) as db:
        requested_policy = asking(case, Path(name))
        if solution is None:
            with pytest.raises(InfeasibleError):
                db.anonymize(requested_policy)
            return
        result = db.anonymize(requested_policy)
        assert tuple(result.generalization.values()) == solution.levels
        released = [
            Counter(
                fetch(
                    result.publish(Path(name) / f"{i}.duckdb").path,
                    f"SELECT {columns(asked_names(case))} FROM released",
                )
            )
            for i in range(2)
        ]
        check_rows(case, expected_release(case, values, solution.levels), result, released)
        check_figures(case, expected_release(case, values, solution.levels), result, solution)
        verification = db.verify(Path(name) / "1.duckdb", requested_policy)
        assert verification.verified, verification.failures
        recorded = [check.passed for check in verification.checks if check.name.endswith("decoys in the catalog")]
        assert recorded == ([True] if result.decoys.rows else [])


def asked_names(case: Case) -> list[str]:
    return [*case.hierarchies, *OWN]


def check_rows(case: Case, right: Expected, result: Any, released: list[Counter[Row]]) -> None:
    assert released[0] == released[1]  # drawn once
    rows, width = released[0], len(case.hierarchies)
    assert not right.real - rows
    remaining = rows - right.real
    assert Counter(row[:width] for row in remaining.elements()) == right.decoys
    classes = Counter(row[:width] for row in rows.elements())
    assert all(size >= case.k for size in classes.values())
    assert all(classes[labels] == case.k for labels in right.decoys)
    for row in remaining:  # attribute by attribute, of the smallest class above that has k kept rows
        for j, value in enumerate(row[width:]):
            assert value in [donor[j] for donor in right.donors[row[:width]]]
    relation = result.decoy_rows
    names = columns(asked_names(case))
    assert remaining == Counter([] if relation is None else relation.select(names).fetchall())


def check_figures(case: Case, right: Expected, result: Any, solution: oracle.Solution) -> None:
    table = Table.of(case.rows, case.hierarchies)
    everybody = Release(table, solution.levels, 1)
    count = sum(right.decoys.values())
    assert result.decoys.to_dict() == {
        "rows": count,
        "classes": len(right.decoys),
        "smallest_class_without": right.smallest,
    }
    assert result.released_rows == right.real.total() + count
    assert result.suppressed_rows == everybody.suppressed == len(case.rows) - right.real.total()
    assert (result.classes, result.smallest_class) == (len(everybody.kept), max(right.smallest, case.k))
    score = oracle.score(everybody, case.measure, case.aggregate, case.weights)
    assert math.isclose(result.score, score, rel_tol=oracle.TIE, abs_tol=oracle.TIE)
    assert math.isclose(result.score_without_decoys, solution.score, rel_tol=oracle.TIE)
    assert result.optimal
    assert result.gap < 1e-9


@pytest.mark.slow
@thorough
@given(cases())
def test_decoys_match_the_oracle_on_many_tables(drawn: tuple[Case, list[Row]]) -> None:
    check(*drawn)


def test_the_oracle_gives_decoys_computed_by_hand() -> None:
    """k = 4 at level 0: two rows of v1 (donors: v0's, one level up), one of v2 and three of NULL (donors: all)."""
    expectation = expected_release(SHORT, SHORT_OWN, (0,))
    assert expectation.decoys == {("v1",): 2, ("v2",): 3, (None,): 1}
    assert (expectation.smallest, expectation.real.total()) == (1, 11)
    assert {len(donors) for donors in expectation.donors.values()} == {5}


# --- what is drawn ----------------------------------------------------------------------------------


def chi_square_tail(x: float, degrees: int) -> float:
    """P(χ² > x), for an even number of degrees of freedom."""
    assert degrees % 2 == 0
    terms, term = [], 1.0
    for i in range(degrees // 2):
        term = 1.0 if i == 0 else term * (x / 2) / i
        terms.append(term)
    return math.exp(-x / 2) * math.fsum(terms)


def statistic(pairs: Iterable[tuple[str, str]], shares: Mapping[str, float]) -> float:
    """χ² of pairs against independent draws from the shares."""
    counts = Counter(pairs)
    total = counts.total()
    assert set(counts) <= {(a, b) for a in shares for b in shares}
    return math.fsum(
        (counts[a, b] - total * shares[a] * shares[b]) ** 2 / (total * shares[a] * shares[b])
        for a in shares
        for b in shares
    )


@pytest.mark.thorough
def test_drawn_decoys_follow_the_distribution_of_donors() -> None:
    """Each attribute as the donors have it, and independent of the others.

    χ² over 25 pairs, with the shares known: 24 degrees of freedom. It raises a false alarm in about one of 10^9 runs in
    each of the two halves.
    """
    limit = 1e-9
    shares = {"a": 0.4, "b": 0.3, "c": 0.1, "d": 0.1, "e": 0.1}
    connection = duckdb.connect()
    # Two areas; both have a large class with each value twice (s and t alike), and 300 single persons.
    connection.execute(
        """
        CREATE TABLE t AS
        WITH kept AS (SELECT unnest(['a', 'a', 'a', 'a', 'b', 'b', 'b', 'c', 'd', 'e']) AS s, unnest(range(10)) AS i)
        SELECT area || 'large' AS place, area || s AS s, area || s AS t
        FROM kept, (VALUES ('x'), ('y')) AS v(area), range(10)
        UNION ALL
        SELECT area || i, 'private', 'private' FROM range(300) AS r(i), (VALUES ('x'), ('y')) AS v(area)
        """
    )
    connection.execute("CREATE TABLE tree AS SELECT DISTINCT place, place[1] AS area, '*' AS top FROM t")
    requested_policy = sqlanon.Policy(
        source={"table": "t"},
        attributes={
            "place": {"role": "quasi", "hierarchy": {"table": "tree"}},
            "s": {"role": "sensitive"},
            "t": {"role": "insensitive"},
        },
        privacy={"k": 11},
        search={"suppression_limit": 1, "measure": "height"},
        release={"decoys": True},
    )
    with sqlanon.connect(connection) as db:
        result = db.anonymize(requested_policy)
        assert result.decoys.to_dict() == {"rows": 6000, "classes": 600, "smallest_class_without": 1}
        rows = result.decoy_rows.fetchall()
    for area in "xy":
        pairs = [(s[1:], t[1:]) for place, s, t in rows if place[0] == area]
        assert len(pairs) == 3000
        # Donors are of the same area: nothing comes from the other, nor from a class that was too small.
        assert {s[0] + t[0] for place, s, t in rows if place[0] == area} == {area + area}
        assert chi_square_tail(statistic(pairs, shares), 24) > limit
    # The test would see it if a decoy had both values of one donor, or if all values were as likely.
    assert chi_square_tail(statistic([(s, s) for s, _ in pairs], shares), 24) < limit
    assert chi_square_tail(statistic([(a, b) for a in shares for b in shares] * 120, shares), 24) < limit


@pytest.mark.slow
def test_decoys_stand_anywhere_in_their_class(tmp_path: Path) -> None:
    """The mean position, 0 to 4, of three decoys in each of 100 classes of five: within 7 standard deviations of the
    middle (false alarm: about 1 of 10^11 runs)."""
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT CASE WHEN i < 500 THEN 'many' ELSE 'p' || i // 5 END AS place, i AS own "
        "FROM range(1000) AS r(i) WHERE i < 500 OR i % 5 > 2"
    )
    with sqlanon.connect(connection) as db:
        result = db.anonymize(plain_policy({"place": "quasi", "own": "insensitive"}, k=5))
        assert (result.decoys.rows, result.decoys.classes, result.released_rows) == (300, 100, 1000)
        path = result.publish(tmp_path / "r.duckdb").path
        drawn = Counter(result.decoy_rows.fetchall())
    query = "SELECT row_number() OVER (PARTITION BY place ORDER BY rowid) - 1, * FROM t_v1 WHERE place <> 'many'"
    positions = [row[0] for row in fetch(path, query) if drawn[row[1:]]]
    assert len(positions) == 300
    # Three of five places have a mean of variance 1/3.
    assert abs(sum(positions) / 300 - 2) < 7 * math.sqrt(1 / 3 / 100)


# --- what it says -----------------------------------------------------------------------------------

LITTLE = """
    CREATE TABLE t AS
    SELECT 'p' || i % 4 AS place, i % 2 AS "class", 'd' || i % 3 AS illness,
           DATE '2020-01-01' + i::INTEGER AS "my ""day"
    FROM range(40) AS r(i)
    UNION ALL SELECT 'quasi_0', 0, 'private-q7', DATE '1999-01-01' FROM range(2)
    UNION ALL SELECT NULL, 1, 'd1', NULL
"""
LITTLE_ROLES = {"place": "quasi", "class": "quasi", "illness": "sensitive", 'my "day': "insensitive"}
"""43 rows, 3 of them in two classes of two rows and one."""


def plain_policy(roles: Mapping[str, Any], k: int = 4, **sections: Any) -> sqlanon.Policy:
    attributes = {
        name: {"role": "quasi", "hierarchy": "suppress"}
        if role == "quasi"
        else {"role": role}
        if isinstance(role, str)
        else role
        for name, role in roles.items()
    }
    tree: dict[str, Any] = {
        "source": {"table": "t"},
        "attributes": attributes,
        "privacy": {"k": k},
        "search": {"suppression_limit": 0.5, "measure": "height"},
        "release": {"decoys": True, "table": "t"},
    }
    return sqlanon.Policy(**{**tree, **sections})


@pytest.fixture
def little(tmp_path: Path) -> Path:
    with duckdb.connect(tmp_path / "source.duckdb") as connection:
        connection.execute(LITTLE)
    return tmp_path


def policy_with_catalog(little: Path, **sections: Any) -> sqlanon.Policy:
    """A policy of the table in a file, with a catalog."""
    defaults = {
        "source": {"database": str(little / "source.duckdb"), "table": "t"},
        "catalog": {"database": str(little / "private.duckdb")},
    }
    return plain_policy(LITTLE_ROLES, **{**defaults, **sections})


@pytest.mark.thorough
@pytest.mark.parametrize("ending", ["duckdb", pytest.param("parquet", marks=pytest.mark.slow)])
def test_manifest_states_that_k_counts_decoys(little: Path, ending: str) -> None:
    requested_policy = policy_with_catalog(little)
    path = little / f"release.{ending}"
    with sqlanon.connect() as db:
        result = db.anonymize(requested_policy)
        release = result.publish(path)
        verified = db.verify(path, requested_policy)
    assert verified.verified
    message = (
        "5 of the released rows are decoys, in 2 classes. k counts them; without them, the smallest class has 1 of"
    )
    assert [warning for warning in result.warnings if message in warning]
    manifest = release.manifest
    assert manifest.decoys == 5
    assert (manifest.rows, manifest.released_rows, manifest.suppressed_rows) == (43, 48, 0)
    assert (manifest.classes, manifest.smallest_class) == (6, 4)
    assert manifest.policy["decoys"] is True
    assert "private-q7" not in manifest.to_json()
    messages = {check.name: check.message for check in verify_file(path).checks}
    assert messages["4-anonymity"].endswith("k counts 5 decoys, which are invented rows")
    against_source = {check.name: check.message for check in verified.checks}["against the source: 4-anonymity"]
    assert against_source.endswith("k counts 5 decoys, which are invented rows")
    assert messages["decoys"] == "5 decoys in some of the 2 classes of 4 rows; the release does not show which"
    assert result.proof == "optimal among full-domain generalizations, before decoys"
    assert {"decoys": {"rows": 5, "classes": 2, "smallest_class_without": 1}}.items() <= result.to_dict().items()


@pytest.mark.thorough
def test_release_does_not_reveal_decoys(little: Path) -> None:
    _, path, _ = publish_and_read(little)
    with duckdb.connect(path, read_only=True) as connection:
        tables = connection.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall()
        assert sorted(tables) == [
            ("main", "t_v1"),
            *(("sqlanon", name) for name in ("attributes", "figures", "label_levels", "manifest", "suppression")),
        ]
        described = connection.execute("DESCRIBE t").fetchall()
    assert [row[:2] for row in described] == [
        ("place", "VARCHAR"),
        ("class", "BIGINT"),
        ("illness", "VARCHAR"),
        ('my "day', "DATE"),
    ]


@pytest.mark.thorough
def test_only_the_catalog_identifies_decoys(little: Path) -> None:
    requested_policy = policy_with_catalog(little)
    with sqlanon.connect() as db:
        result = db.anonymize(requested_policy)
        path = result.publish(little / "release.duckdb").path
        drawn = result.decoy_rows.fetchall()
        result_of_another_run = db.anonymize(requested_policy)
    private = little / "private.duckdb"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    rows = fetch(private, "SELECT run_id, table_name, rows FROM sqlanon.decoys ORDER BY made_at, run_id")
    names = {run: name for run, name, count in rows if count == 5}
    assert names.keys() == {result.run_id, result_of_another_run.run_id}
    assert Counter(fetch(private, f'FROM sqlanon."{names[result.run_id]}"')) == Counter(drawn)
    # As docs/explanation/decoys.md says: with it, the holder takes them out again.
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS release (READ_ONLY)")
        connection.execute(f"ATTACH '{private}' AS private (READ_ONLY)")
        left = connection.execute(f'FROM release.t EXCEPT ALL FROM private.sqlanon."{names[result.run_id]}"').fetchall()
    assert Counter(left) == Counter(fetch(little / "source.duckdb", "FROM t"))


@pytest.mark.thorough
def test_decoys_without_a_catalog_warn(little: Path) -> None:
    requested_policy = plain_policy(LITTLE_ROLES)
    with sqlanon.connect(little / "source.duckdb") as db:
        assert any("without a catalog" in warning for warning in db.anonymize(requested_policy).warnings)


@pytest.mark.thorough
def test_every_class_with_decoys_reaches_k(little: Path) -> None:
    """The manifest states zero decoys, which differs from a policy without decoys."""
    requested_policy = policy_with_catalog(little, search={"suppression_limit": 0, "measure": "height"})
    with sqlanon.connect() as db:
        result = db.anonymize(requested_policy)
        release = result.publish(little / "release.duckdb")
        assert db.verify(release.path, requested_policy).verified
    assert result.decoys.to_dict() == {"rows": 0, "classes": 0, "smallest_class_without": result.smallest_class}
    assert result.decoy_rows is None
    assert release.manifest.decoys == 0
    assert result.proof == "optimal among full-domain generalizations"
    assert not [warning for warning in result.warnings if "decoy" in warning]
    assert not [check for check in release.verify().checks if "k counts" in check.message]
    assert fetch(little / "private.duckdb", "FROM sqlanon.decoys") == []


@pytest.mark.slow
def test_rows_with_unknown_values_stay_suppressed() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT unnest(['a', 'a', 'a', 'a', 'b', 'unknown', 'unknown']) AS place")
    connection.execute("CREATE TABLE tree AS FROM (VALUES ('a', '*'), ('b', '*')) AS v")
    attribute = {"role": "quasi", "hierarchy": {"table": "tree"}, "on_unknown": "suppress"}
    with sqlanon.connect(connection) as db:
        result = db.anonymize(plain_policy({"place": attribute}))
    assert (result.decoys.rows, result.decoys.classes, result.suppressed_rows) == (3, 1, 2)
    assert (result.released_rows, result.classes, result.smallest_class) == (8, 2, 4)


@pytest.mark.thorough
def test_values_of_any_type_can_be_drawn(tmp_path: Path) -> None:
    connection = duckdb.connect()
    connection.execute(
        """
        CREATE TABLE t AS
        SELECT CASE WHEN i < 9 THEN 'many' ELSE 'one' END AS place, [i, NULL] AS list, {'a': i} AS struct,
               MAP {'k': i} AS map, CASE WHEN i % 2 = 0 THEN 'nan'::DOUBLE ELSE -0.0 END AS double,
               i::VARCHAR::BLOB AS blob, INTERVAL (i) DAY AS interval,
               CAST('2020-01-01 00:00:00+00' AS TIMESTAMPTZ) AS stamp,
               CAST('x' AS ENUM ('x', 'never there')) AS enum, i::UTINYINT AS tiny, i::HUGEINT AS huge
        FROM range(10) AS r(i)
        """
    )
    names = [row[0] for row in connection.execute("DESCRIBE t").fetchall()]
    requested_policy = plain_policy({name: "quasi" if name == "place" else "insensitive" for name in names})
    with sqlanon.connect(connection) as db:
        result = db.anonymize(requested_policy)
        path = result.publish(tmp_path / "r.duckdb").path
        assert result.decoys.rows == 3
        verification = db.verify(path, requested_policy)
    assert verification.verified, verification.failures


# --- what does not go together ----------------------------------------------------------------------


DIVERSE = {"attribute": "s", "kind": "distinct", "l": 2}


@pytest.mark.parametrize(
    ("sections", "place", "message"),
    [
        ({"privacy": {"k": 1}}, "privacy.k", "up to k rows"),
        ({"privacy": {"l_diversity": [DIVERSE]}}, "privacy.k", "up to k rows"),
        ({"privacy": {"k": 2, "l_diversity": [DIVERSE]}}, "release.decoys", "privacy.l_diversity"),
        ({"privacy": {"k": 2, "k_anonymity": [{"quasi": ["q"], "k": 3}]}}, "release.decoys", "privacy.k_anonymity"),
        ({"privacy": {"k": 2, "average_risk": 0.1}}, "release.decoys", "privacy.average_risk"),
        ({"search": {"strategy": "mondrian"}}, "release.decoys", "strategy mondrian"),
        ({"search": {"suppression": "cells"}}, "release.decoys", 'suppression = "cells"'),
        ({"source": {"table": "t", "person": "id"}}, "release.decoys", "source.person"),
        ({"release": {"decoys": True, "suppressed": "mask"}}, "release.decoys", "drop"),
        ({"release": {"decoys": True, "after": "all"}}, "release.decoys", "earlier release"),
        ({"privacy": {"k": 2, "k_map": 2}, "population": {"table": "p"}}, "release.decoys", "population"),
    ],
)
def test_incompatible_sections_are_refused_beside_decoys(sections: dict[str, Any], place: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        plain_policy({"q": "quasi", "s": "sensitive"}, **sections)
    assert [problem for problem in caught.value.problems if problem.place == place and message in problem.message]


def test_decoys_with_noise_are_refused() -> None:
    roles = {"q": "quasi", "x": {"role": "quasi", "noise": {"epsilon": 1.0}}}
    with pytest.raises(PolicyError, match=r"release\.decoys: noise"):
        plain_policy(roles)


@pytest.mark.slow
def test_compare_knows_of_no_decoys(little: Path) -> None:
    with sqlanon.connect() as db:
        rows = db.compare(policy_with_catalog(little), ["optimal", "mondrian"]).fetchall()
    assert [(row[0], row[4]) for row in rows] == [("optimal", 3), ("mondrian", None)]


# --- what is tampered with, and what fails ----------------------------------------------------------


@functools.cache
def make_release() -> tuple[tempfile.TemporaryDirectory[str], list[Row]]:
    """A release of the little table, its catalog and its decoys; tests tamper with copies."""
    folder = tempfile.TemporaryDirectory()
    with duckdb.connect(Path(folder.name) / "source.duckdb") as connection:
        connection.execute(LITTLE)
    with sqlanon.connect() as db:
        result = db.anonymize(policy_with_catalog(Path(folder.name)))
        result.publish(Path(folder.name) / "release.duckdb")
        return folder, result.decoy_rows.fetchall()


def publish_and_read(little: Path) -> tuple[sqlanon.Policy, Path, list[Row]]:
    folder, drawn = make_release()
    for name in ("release.duckdb", "private.duckdb"):
        shutil.copy(Path(folder.name) / name, little / name)
    return policy_with_catalog(little), little / "release.duckdb", drawn


def rewrite(path: Path, *statements: str) -> None:
    """Change a release, and its digest with it."""
    with duckdb.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute("UPDATE sqlanon.manifest SET digest = (SELECT digest FROM sqlanon.digest('t'))")


def failed_checks(requested_policy: sqlanon.Policy, path: Path) -> set[str]:
    with sqlanon.connect() as db:
        verification = db.verify(path, requested_policy)
    return {check.name.removeprefix("against the source: ") for check in verification.checks if check.passed is False}


@pytest.mark.slow
def test_a_changed_real_row_fails_verification(little: Path) -> None:
    requested_policy, path, _ = publish_and_read(little)
    rewrite(path, "UPDATE t_v1 SET illness = 'd0' WHERE illness = 'private-q7'")
    assert {"recoded source", "invented rows"} <= failed_checks(requested_policy, path)


@pytest.mark.thorough
def test_values_that_are_equal_and_look_different(tmp_path: Path) -> None:
    """30 days are equal to 1 month: in real rows of a class that was filled, in its decoys, and in its labels."""
    with duckdb.connect(tmp_path / "source.duckdb") as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT to_months(1 + if(i < 40, i % 4, 4)::INTEGER) AS stay, "
            "to_months(1 + if(i < 40, i // 4 % 2, 0)::INTEGER) AS rest FROM range(42) AS r(i)"
        )
    tree = plain_policy({"stay": "quasi", "rest": "insensitive"}).model_dump(mode="json", exclude_none=True)
    requested_policy = sqlanon.Policy(**{**tree, "source": {"database": str(tmp_path / "source.duckdb"), "table": "t"}})
    with sqlanon.connect() as db:
        db.anonymize(requested_policy).publish(tmp_path / "release.duckdb")
    place = "SELECT rowid FROM t_v1 WHERE stay = INTERVAL 5 MONTH ORDER BY rest DESC LIMIT"  # decoys first
    elsewhere = {"recoded source", "invented rows"}
    changes = {
        ("rest", "30 days", 4): elsewhere | {"values of decoys"},
        ("rest", "30 days", 2): {"values of decoys"},
        ("stay", "150 days", 4): elsewhere | {"filled classes"},
        ("stay", "150 days", 2): elsewhere | {"filled classes"},
    }
    assert failed_checks(requested_policy, tmp_path / "release.duckdb") == set()
    for (name, value, rows), failures in changes.items():
        path = Path(shutil.copy(tmp_path / "release.duckdb", tmp_path / f"{name}_{rows}.duckdb"))
        changed = f"if(rowid IN ({place} {rows}), INTERVAL '{value}', {name})"
        rewrite(  # neither an UPDATE nor compression distinguishes equal values
            path,
            "SET force_compression = 'uncompressed'",
            f"CREATE TEMP TABLE changed AS SELECT * REPLACE ({changed} AS {name}) FROM t_v1",
            "DELETE FROM t_v1",
            "INSERT INTO t_v1 FROM changed",
        )
        compact_file(path, "uncompressed")
        assert verify_file(path).verified
        assert failed_checks(requested_policy, path) == failures, (name, rows)


@pytest.mark.parametrize(("recorded", "passed"), [([1, 2], True), ([1], False), ([1, 2, 2], False), ([1, 3], False)])
def test_the_decoys_of_the_catalog_are_those_that_are_found(recorded: list[int], passed: bool) -> None:
    """Each as often: one more in the catalog is one that is not there."""
    manifest: Any = SimpleNamespace(types={"x": "INTEGER"})
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE audited_decoys AS SELECT unnest([1, 2]) AS x")
        connection.execute(f"CREATE TABLE recorded AS SELECT unnest({recorded}) AS x")
        steps = StatementRunner(DuckDBEngine(connection))
        check = DecoyCheck(steps, table, manifest, table("real"), table("released"))
        assert check.check_recorded(table("recorded")).passed is passed


@pytest.mark.slow
def test_a_release_with_decoys_verifies_without_its_catalog(little: Path) -> None:
    requested_policy, path, _ = publish_and_read(little)
    (little / "private.duckdb").unlink()
    with sqlanon.connect() as db:
        verification = db.verify(path, requested_policy)
    assert verification.verified
    decoys_check = {check.name: (check.passed, check.message) for check in verification.checks}[
        "against the source: decoys in the catalog"
    ]
    assert decoys_check == (None, "the catalog has no decoys of this release, or cannot be read")


@pytest.mark.thorough
def test_another_source_than_it_was_made_of(little: Path) -> None:
    requested_policy, path, _ = publish_and_read(little)
    with duckdb.connect(little / "source.duckdb") as connection:
        connection.execute("UPDATE t SET illness = 'other' WHERE place = 'p1'")
    assert failed_checks(requested_policy, path) == {"unchanged source"}
    (little / "private.duckdb").unlink()  # without the ledger, the published form is unknown
    assert "recoded source" in failed_checks(requested_policy, path)


@pytest.mark.thorough
def test_the_statement_and_the_plan_can_be_run(little: Path) -> None:
    connection = duckdb.connect()
    connection.execute(LITTLE)
    with sqlanon.connect(connection) as db:
        requested_policy = plain_policy(LITTLE_ROLES)
        result = db.anonymize(requested_policy)
        assert len(connection.execute(result.sql()).fetchall()) == result.released_rows == 48
        stages = {stage.name: stage for stage in db.plan(requested_policy).stages}
        for name in ("scan", "hierarchies", "frequency set", "decoys"):
            for statement in stages[name].sql:
                connection.execute(statement)
        assert connection.execute(stages["recode and suppress"].sql[-1]).fetchall()


def test_work_tables_do_not_pile_up(little: Path) -> None:
    """Only the work tables of the decoys remain."""
    with sqlanon.connect() as db:
        result = db.anonymize(policy_with_catalog(little, catalog=None))
        assert any("without a catalog" in warning for warning in result.warnings)
        rows = result._run.engine.connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'sqlanon_work'"
        ).fetchall()
    names = {name for (name,) in rows if name.startswith("decoy")}
    assert names == {"decoys"}


# --- with the ledger --------------------------------------------------------------------------------


@pytest.mark.thorough
def test_other_decoys_beside_the_first_are_refused(little: Path) -> None:
    """Rows that two publications share must be real: the ledger refuses the second, unless it is the same result."""
    requested_policy = policy_with_catalog(little)
    with sqlanon.connect() as db:
        first, second = db.anonymize(requested_policy), db.anonymize(requested_policy)
        for name in ("first.duckdb", "again.duckdb"):
            first.publish(little / name)
        assert Counter(first.decoy_rows.fetchall()) != Counter(second.decoy_rows.fetchall())
        with pytest.raises(sqlanon.AuditError):
            second.publish(little / "second.duckdb")
    assert not (little / "second.duckdb").exists()


@pytest.mark.slow
def test_no_release_is_based_on_one_with_decoys(little: Path) -> None:
    publish_and_read(little)
    with sqlanon.connect() as db, pytest.raises(PolicyError, match=r"release\.after: release\.duckdb has decoys"):
        db.anonymize(policy_with_catalog(little, release={"table": "t", "after": ["release"]}))


@pytest.mark.thorough
def test_decoys_have_no_keys(tmp_path: Path) -> None:
    """The keys of a release are those of its real rows."""
    with duckdb.connect(tmp_path / "source.duckdb") as connection:
        connection.execute(LITTLE.replace("SELECT", "SELECT random() AS id,"))
    source = {"database": str(tmp_path / "source.duckdb"), "table": "t", "key": ["id"]}
    requested_policy = policy_with_catalog(tmp_path, source=source)
    with sqlanon.connect() as db:
        result = db.anonymize(requested_policy)
        result.publish(tmp_path / "release.duckdb")
    assert (result.released_rows, result.decoys.rows) == (48, 5)
    assert fetch(
        tmp_path / "private.duckdb", "SELECT count(DISTINCT key_hash), count(*) FROM sqlanon.released_keys"
    ) == [(43, 43)]


@pytest.mark.thorough
def test_names_that_queries_have_themselves(tmp_path: Path) -> None:
    """Quasi-identifiers under each other's names, and columns under those of codes, counts and steps."""
    connection = duckdb.connect()
    connection.execute(
        """
        CREATE TABLE t AS
        SELECT i % 3 AS quasi_1, CASE WHEN i < 30 THEN 'a' WHEN i < 32 THEN 'b' END AS quasi_0,
               i % 2 AS "class", i AS "size",
               i % 5 AS "first", DATE '2020-01-01' + i::INTEGER AS "rank", 'x' || i AS "a""; DROP TABLE t", i % 7 AS "p"
        FROM range(33) AS r(i)
        """
    )
    roles = dict.fromkeys(("quasi_1", "quasi_0", "class"), "quasi") | dict.fromkeys(
        ("size", "first", "rank", 'a"; DROP TABLE t', "p"), "insensitive"
    )
    requested_policy = plain_policy(roles, search={"suppression_limit": 0.5, "measure": "distinct"})
    with sqlanon.connect(connection) as db:
        result = db.anonymize(requested_policy)
        path = result.publish(tmp_path / "r.duckdb").path
        verification = db.verify(path, requested_policy)
    assert verification.verified, verification.failures
    assert result.decoys.rows > 0
    sizes = [n for (n,) in fetch(path, 'SELECT count(*) FROM t GROUP BY quasi_1, quasi_0, "class"')]
    assert min(sizes) == 4
    assert len(sizes) == result.classes
