"""Content of a release file for its readers: the stable view, views that describe it, labels, comments, versions."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from sqlanon.audit.verify import verify_file
from sqlanon.demo.hospital import make_hospital
from support.databases import change, compact_file, fetch
from support.files import folder_again, folder_and_copy
from support.lanes import examples, some
from support.policies import make_policy
from support.verification import failed_alone

pytestmark = pytest.mark.usefixtures("plain_macros")

QUERY = """
    CREATE TABLE patients AS
    SELECT 'P' || i AS name, CAST(2130 + hash(i) % 40 AS VARCHAR) AS zip, CAST(hash(i + 1) % 90 AS INTEGER) AS age,
           DATE '1940-01-01' + CAST(hash(i + 5) % 25000 AS INTEGER) AS birth, 'ill' || i % 7 AS illness, i AS stay
    FROM range(600) AS r(i)
"""
ATTRIBUTES: dict[str, Any] = {
    "name": "identifying",
    "zip": "mask",
    "age": {"intervals": [5, 10, 20, 40]},
    "birth": {"dates": ["month", "year", "decade"]},
    "illness": "sensitive",
    "stay": "insensitive",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("presented")
    with duckdb.connect(folder / "hospital.duckdb") as connection:
        connection.execute(QUERY)
    return folder


def policy(folder: Path, k: int = 3, **release: Any) -> sqlanon.Policy:
    tree = make_policy(
        ATTRIBUTES,
        k=k,
        table=None,
        source={"database": str(folder / "hospital.duckdb"), "table": "patients"},
        search={"suppression_limit": 0.1},
        release={"database": str(folder / "release.duckdb"), "table": "patients", **release},
        catalog={"database": str(folder / f"{Path(release.get('database', 'x')).stem}.private.duckdb")},
    )
    return tree


def publish(requested_policy: sqlanon.Policy, path: Path | None = None, **more: Any) -> sqlanon.Release:
    with sqlanon.connect() as db:
        return db.anonymize(requested_policy).publish(path, **more)


@pytest.fixture(scope="module")
def published_release(folder: Path) -> sqlanon.Release:
    return publish(policy(folder), folder / "published.duckdb")


@pytest.fixture
def copy(published_release: sqlanon.Release, tmp_path: Path) -> Path:
    path = tmp_path / "copy.duckdb"
    path.write_bytes(published_release.path.read_bytes())
    return path


# The stable view, and the table of the version


# Descriptions of a release


@pytest.mark.thorough
def test_class_sizes_and_quality_are_those_of_the_rows(published_release: sqlanon.Release) -> None:
    rows = fetch(published_release.path, "SELECT zip, age, birth FROM patients")
    sizes = Counter(Counter(rows).values())
    expected = [(size, classes, size * classes) for size, classes in sorted(sizes.items())]
    assert fetch(published_release.path, "FROM class_sizes") == expected
    quality = {figure: value for figure, value, _ in fetch(published_release.path, "FROM quality")}
    assert quality["released_rows"] == len(rows)
    assert quality["rows"] == 600
    assert quality["suppressed_share"] == (600 - len(rows)) / 600
    assert quality["classes"] == sum(sizes.values())
    assert quality["smallest_class"] == min(sizes)
    assert quality["average_class"] == pytest.approx(len(rows) / sum(sizes.values()))
    assert quality["optimal"] == 1


@pytest.mark.slow
def test_overview_describes_each_attribute(published_release: sqlanon.Release) -> None:
    overview = {row[0]: row[1:] for row in fetch(published_release.path, "FROM release_overview")}
    assert list(overview) == list(ATTRIBUTES)
    assert overview["name"] == ("identifying", None, None, "left out")
    assert overview["illness"][0], overview["illness"][-1] == ("sensitive", "unchanged")
    levels = published_release.manifest.generalization
    heights = {"zip": 4, "age": 5, "birth": 4}
    for name, height in heights.items():
        role, level, top, description = overview[name]
        assert (role, level, top) == ("quasi", levels[name], height)
        assert description == "unchanged" if level == 0 else description.startswith(f"level {level} of {height}: ")


@pytest.mark.slow
def test_columns_and_tables_have_comments_that_a_tool_shows(published_release: sqlanon.Release) -> None:
    columns = dict(
        fetch(
            published_release.path,
            "SELECT table_name || '.' || column_name, comment FROM duckdb_columns() WHERE comment IS NOT NULL",
        )
    )
    descriptions = {row[0]: row[-1] for row in fetch(published_release.path, "FROM release_overview")}
    for place in ("patients", "patients_v1"):
        assert columns[f"{place}.zip"] == f"quasi-identifier: {descriptions['zip']}"
        assert columns[f"{place}.illness"] == "sensitive attribute: unchanged"
    view = fetch(published_release.path, "SELECT comment FROM duckdb_views() WHERE view_name = 'patients'")[0][0]
    assert "3-anonymous" in view
    assert str(published_release.manifest.released_rows) in view


# Labels


@pytest.mark.thorough
def test_labels_of_suppressed_rows_alone_are_nowhere(tmp_path: Path) -> None:
    """They would reveal that a person with such a value was in the source."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 10 * (i % 3) AS v FROM range(30) AS r(i) UNION ALL SELECT 770")
        with sqlanon.connect(connection) as db:
            requested_policy = make_policy(
                {"v": {"role": "quasi", "hierarchy": {"intervals": [10]}, "min_level": 1, "max_level": 1}},
                k=5,
                search={"suppression_limit": 0.1},
            )
            path = db.anonymize(requested_policy).publish(tmp_path / "r.duckdb").path
    assert [row[0] for row in fetch(path, "FROM v_labels")] == ["000-009", "010-019", "020-029"]


# Suppressed rows


def plain_suppression(source: list[Any], released: list[Any], k: int) -> list[tuple[Any, int, int]]:
    """Labels of one attribute that may be listed, in plain Python: all of at least k, if a reader who knows the
    rule, the sum and the labels could still believe for each unlisted label that none of its rows is missing."""
    before, after = Counter(source), Counter(released)
    suppressed_counts = [(label, before[label] - after[label], after[label]) for label in after]
    suppressed_counts = [row for row in suppressed_counts if row[1] >= k and row[2] >= k]
    remaining = len(source) - len(released) - sum(row[1] for row in suppressed_counts)
    untold = len(after) - len(suppressed_counts)
    possible = [some for some in product(range(k), repeat=untold) if sum(some) == remaining]
    sure = any(all(some[i] for some in possible) for i in range(untold))
    return suppressed_counts if remaining == 0 or (remaining >= k and possible and not sure) else []


SUPPRESSED: dict[str, st.SearchStrategy[Any]] = {
    "rows": st.lists(
        st.tuples(st.sampled_from(["a1", "a2", "b1", "b2", None]), st.sampled_from(["x1", "x2", "y1"])),
        min_size=12,
        max_size=60,
    ),
    "k": st.integers(2, 4),
}


@pytest.mark.thorough
@settings(max_examples=examples(200))
@given(**SUPPRESSED)
def test_published_suppression_counts_at_least_k_rows(
    rows: list[tuple[Any, ...]], k: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check_suppressed(rows, k, tmp_path_factory)


def check_suppressed(rows: list[tuple[Any, ...]], k: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("suppressed") / "r.duckdb"
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (a VARCHAR, b VARCHAR)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
        with sqlanon.connect(connection) as db:
            requested_policy = make_policy(
                {"a": "mask", "b": "mask"}, k=k, search={"suppression_limit": 0.5, "measure": "height"}
            )
            result = db.anonymize(requested_policy)
            result.publish(path)
    assert verify_file(path).verified
    levels = list(result.generalization.values())
    heights = [max((len(row[i]) for row in rows if row[i] is not None), default=0) for i in range(2)]

    def label(value: str | None, level: int, height: int) -> str | None:
        if level == height:
            return "*"
        return None if value is None else value[: height - level] + "*" * level

    below = [i for i in range(2) if levels[i] < heights[i]]
    listed_rows = fetch(path, "FROM suppression_by")
    if not below:
        assert listed_rows == []
        return
    i = below[0]  # one attribute alone: two could be held against one another
    labelled = [label(row[i], levels[i], heights[i]) for row in rows]
    expected = plain_suppression(labelled, [row[i] for row in fetch(path, "FROM t")], k)
    assert Counter(listed_rows) == Counter(("ab"[i], *row) for row in expected)


def suppressed_counts(tmp_path: Path, values: str, columns: list[str], k: int = 5) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        names = ", ".join(columns)
        source = f"(VALUES {values}) AS r({names}, n), range(n)"
        connection.execute(f"CREATE TABLE t AS SELECT {names} FROM {source}")
        with sqlanon.connect(connection) as db:
            requested_policy = make_policy(dict.fromkeys(columns, "suppress"), k=k, search={"suppression_limit": 0.08})
            path = db.anonymize(requested_policy).publish(tmp_path / "r.duckdb").path
    assert verify_file(path).verified
    return fetch(path, "FROM suppression_by")


@pytest.mark.thorough
def test_with_the_policy_they_are_counted_again(folder: Path, copy: Path, published_release: sqlanon.Release) -> None:
    requested_policy = policy(folder)
    assert fetch(copy, "FROM suppression_by")
    with sqlanon.connect() as db:
        assert db.verify(published_release.path, requested_policy).verified
        change(copy, "DELETE FROM sqlanon.suppression")
        compact_file(copy)
        assert verify_file(copy).verified  # the file alone does not reveal it
        failures = db.verify(copy, requested_policy).failures
    assert any("suppression by value" in failure for failure in failures)


# Versions


def keeping_two(place: Path) -> sqlanon.Policy:
    return policy(place, database=str(place / "two.duckdb"), keep=2)


@pytest.fixture(scope="module")
def versions_of_before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("versions")
    change(place / "hospital.duckdb", QUERY)
    path = publish(keeping_two(place)).path
    rows = fetch(path, "FROM patients_v1")
    publish(keeping_two(place))
    assert fetch(path, "FROM patients_v1") == rows
    return folder_and_copy(place)


@pytest.fixture
def versions(versions_of_before: tuple[Path, Path]) -> Path:
    """A folder in which a file has two versions."""
    return folder_again(*versions_of_before)


@pytest.mark.thorough
def test_versions_are_kept_and_pruned(versions: Path) -> None:
    requested_policy = keeping_two(versions)
    path = publish(requested_policy).path
    tables = fetch(path, "SELECT table_name FROM duckdb_tables() WHERE table_name ^@ 'patients' ORDER BY ALL")
    assert tables == [("patients_v2",), ("patients_v3",)]
    verification = verify_file(path)
    assert verification.verified
    assert {"version 2", "view"} <= {check.name for check in verification.checks}
    assert verification.manifest.version == 3
    with duckdb.connect(versions / "two.private.duckdb", read_only=True) as connection:
        standing = connection.execute(
            "SELECT version, replaced_at IS NULL FROM sqlanon.releases WHERE path = ? ORDER BY version", [str(path)]
        ).fetchall()
    assert standing == [(1, False), (2, True), (3, True)]
    with sqlanon.connect() as db:
        assert db.verify(path, requested_policy).verified


@pytest.mark.thorough
@pytest.mark.parametrize(
    "statement",
    some(["UPDATE patients_v1 SET illness = 'x' WHERE stay < 5", "DELETE FROM patients_v1 WHERE stay < 5"], 2),
)
def test_a_kept_version_that_was_changed_is_found_and_not_carried_on(statement: str, versions: Path) -> None:
    path = versions / "two.duckdb"
    change(path, statement)
    assert "version 1" in failed_alone(path)
    with pytest.raises(sqlanon.AuditError, match="version 1"):
        publish(policy(versions, database=str(path), keep=3))


@pytest.mark.thorough
def test_kept_versions_are_compared_with_one_another(folder: Path) -> None:
    """With another generalization the two reveal more together than each of them: the one is not a version in addition
    to the other. Where only the newest is kept, a warning says so."""
    path = folder / "four.duckdb"
    at: dict[str, Any] = {"database": str(path)}

    def levels(zip_level: int, age_level: int, keep: int) -> sqlanon.Policy:
        tree = policy(folder, keep=keep, **at).model_dump(mode="json")
        for name, level in (("zip", zip_level), ("age", age_level), ("birth", 4)):
            tree["attributes"][name] |= {"min_level": level, "max_level": level}
        tree["search"]["suppression_limit"] = 0.5
        return sqlanon.Policy.model_validate(tree)

    publish(levels(0, 4, keep=2))
    with pytest.raises(sqlanon.AuditError, match="complementary release"):
        publish(levels(2, 1, keep=2))
    assert verify_file(path).manifest.version == 1
    with sqlanon.connect() as db:
        result = db.anonymize(levels(2, 1, keep=1))
        result.publish()
        assert any("replaces the release of" in warning for warning in result.warnings)


@pytest.mark.thorough
def test_suppression_is_not_published_beside_a_base_publication(folder: Path) -> None:
    """The rows of that one, subtracted from the sums, would reveal the omitted ones."""
    first = policy(folder, database=str(folder / "five.duckdb"))
    assert fetch(publish(first).path, "FROM suppression_by")
    tree = policy(folder, database=str(folder / "six.duckdb"), after=["five"]).model_dump(mode="json")
    tree["catalog"] = first.model_dump(mode="json")["catalog"]
    requested_policy = sqlanon.Policy.model_validate(tree)
    path = publish(requested_policy).path
    assert fetch(path, "SELECT suppressed_rows > 0 FROM sqlanon.manifest") == [(True,)]
    assert fetch(path, "FROM suppression_by") == []
    with sqlanon.connect() as db:
        assert db.verify(path, requested_policy).verified


def test_keep_needs_a_file_that_can_have_versions_and_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(sqlanon.PolicyError) as caught:
        make_policy({"zip": "mask"}, release={"file": str(tmp_path / "r.parquet"), "keep": 2, "ledger": False})
    message = str(caught.value)
    assert "a Parquet file holds one version" in message
    assert "leave ledger = false out" in message


# Hostile names


@pytest.mark.thorough
def test_odd_names_in_all_of_it(tmp_path: Path) -> None:
    names = ['my "zip', "class_size", "rows", "value", "select", "ÄÖ ü"]
    with duckdb.connect() as connection:
        columns = ", ".join(
            f"'{i}' || (i % 2) AS \"{name.replace(chr(34), chr(34) * 2)}\"" for i, name in enumerate(names)
        )
        connection.execute(f'CREATE TABLE "a ""table" AS SELECT {columns} FROM range(40) AS r(i)')
        with sqlanon.connect(connection) as db:
            requested_policy = make_policy(
                {name: {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 1} for name in names},
                table='"a ""table"',
            )
            path = db.anonymize(requested_policy).publish(tmp_path / "r.duckdb").path
    assert verify_file(path).verified
    assert fetch(path, "FROM class_sizes") == [(40, 1, 40)]
    assert fetch(path, 'SELECT "my ""zip_order" FROM "my ""zip_labels"') == [(1,)]
    assert len(fetch(path, 'FROM "a ""table"')) == 40
    assert fetch(path, "FROM class_sizes") == [(40, 1, 40)]


# docs/reference/release.md


@pytest.mark.thorough
def test_the_page_on_releases_is_true(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "release.md").read_text(encoding="utf-8")
    make_hospital(tmp_path / "hospital.duckdb", 3_000)
    requested_policy = make_policy(
        {
            "name": "identifying",
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 1},
            "birth_date": {"role": "quasi", "hierarchy": {"dates": ["year", "decade"]}, "min_level": 1},
            "sex": "suppress",
            "diagnosis": "sensitive",
        },
        k=5,
        table=None,
        source={"database": str(tmp_path / "hospital.duckdb"), "table": "patients", "undeclared": "drop"},
        search={"suppression_limit": 0.05},
    )
    path = publish(requested_policy, tmp_path / "release.duckdb").path
    statements = [
        line for block in re.findall(r"```sql\n(.*?)```", page, re.DOTALL) for line in block.splitlines() if line
    ]
    assert len(statements) == 10
    with duckdb.connect(path, read_only=True) as connection:
        for line in statements:
            statement, _, comment = line.partition(" --")
            connection.execute(statement)
            if ", " in comment:
                assert [column[0] for column in connection.description] == comment.strip().split(", ")
            assert connection.fetchall(), statement
