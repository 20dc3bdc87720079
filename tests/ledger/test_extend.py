"""Growing tables: `extend` adds what can be added, keeps what was released, and lets the rest wait."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp, parse_one

import sqlanon
from sqlanon.errors import AuditError, PolicyError, ReleaseError, SourceError
from sqlanon.ledger.growth import extend as extending
from sqlanon.support.expressions import subquery
from support.commands import cli
from support.databases import change
from support.files import folder_again, folder_and_copy
from support.lanes import examples

pytestmark = pytest.mark.slow

ROWS = [(i, 20 + i % 10, "mf"[i // 10 % 2], f"0213{i % 3}", f"illness {i % 7}") for i in range(60)]


def policy(place: Path, **more: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"database": place / "hospital.duckdb", "table": "patients", "key": ["id"], **more.pop("source", {})},
        attributes={
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10, 20]}},
            "sex": {"role": "quasi", "hierarchy": "suppress"},
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
            "illness": {"role": "sensitive"},
        },
        privacy={"k": 3, **more.pop("privacy", {})},
        search={"suppression_limit": 0.2, **more.pop("search", {})},
        release={"database": place / "release.duckdb", "table": "patients", **more.pop("release", {})},
        catalog={"database": place / "private.duckdb"},
        **more,
    )


def insert(place: Path, *rows: tuple[Any, ...]) -> None:
    with duckdb.connect(str(place / "hospital.duckdb")) as connection:
        connection.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?)", rows)


def released_rows(place: Path) -> Counter[tuple[Any, ...]]:
    with duckdb.connect(str(place / "release.duckdb"), read_only=True) as connection:
        return Counter(connection.execute("SELECT * FROM patients").fetchall())


@pytest.fixture(scope="module")
def hospital_of_before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("hospital")
    change(folder / "hospital.duckdb", "CREATE TABLE patients (id INT, age INT, sex TEXT, zip TEXT, illness TEXT)")
    insert(folder, *ROWS)
    with sqlanon.connect() as db:
        db.anonymize(policy(folder)).publish()
    return folder_and_copy(folder)


@pytest.fixture
def hospital(hospital_of_before: tuple[Path, Path]) -> Path:
    """A hospital with its release."""
    return folder_again(*hospital_of_before)


def extend(place: Path, **more: Any) -> Any:
    with sqlanon.connect() as db:
        extension = db.extend(policy(place, **more))
        return extension, extension.publish()


@pytest.mark.thorough
def test_new_rows_are_added_by_classes_and_the_rest_waits(hospital: Path) -> None:
    before = released_rows(hospital)
    insert(hospital, *((100 + i, 21, "m", "02131", f"new {i}") for i in range(3)), (200, 95, "f", "99999", "alone"))
    extension, release = extend(hospital)
    after = released_rows(hospital)
    assert before <= after
    assert {row[-1] for row in after - before} == {"new 0", "new 1", "new 2"}
    assert (extension.released_before, extension.new_rows, extension.added_rows, extension.waiting_rows) == (
        60,
        4,
        3,
        1,
    )
    assert release.verify().verified
    manifest = release.manifest
    assert (manifest.rows, manifest.released_rows, manifest.suppressed_rows) == (64, 63, 1)


@pytest.mark.thorough
def test_fewer_new_rows_than_k_wait(hospital: Path) -> None:
    insert(hospital, (100, 21, "m", "02131", "first"), (101, 21, "m", "02131", "second"))
    extension, _ = extend(hospital)
    assert (extension.added_rows, extension.waiting_rows) == (0, 2)
    insert(hospital, (102, 21, "m", "02131", "third"))
    extension, _ = extend(hospital)
    assert (extension.added_rows, extension.waiting_rows) == (3, 0)


@pytest.mark.thorough
def test_a_class_of_its_own_is_added_when_it_is_large_enough(hospital: Path) -> None:
    insert(hospital, *((100 + i, 95, "f", "99999", "new") for i in range(3)))
    extension, _ = extend(hospital)
    assert extension.added_rows == 3
    assert sum(row[-1] == "new" for row in released_rows(hospital).elements()) == 3


@pytest.mark.thorough
def test_released_rows_keep_their_values_whatever_becomes_of_the_source(hospital: Path) -> None:
    before = released_rows(hospital)
    with duckdb.connect(str(hospital / "hospital.duckdb")) as connection:
        connection.execute("DELETE FROM patients WHERE id < 5")
        connection.execute("UPDATE patients SET illness = 'changed', age = 90 WHERE id BETWEEN 10 AND 20")
    insert(hospital, *((100 + i, 21, "m", "02131", f"new {i}") for i in range(3)))
    extend(hospital)
    assert before <= released_rows(hospital)
    assert sum((released_rows(hospital) - before).values()) == 3


@pytest.mark.thorough
def test_each_part_meets_all_requirements(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("CREATE TABLE patients (id INT, age INT, sex TEXT, zip TEXT, illness TEXT)")
    insert(tmp_path, *ROWS)
    diverse = {"privacy": {"l_diversity": [{"attribute": "illness", "kind": "distinct", "l": 2}]}}
    with sqlanon.connect() as db:
        db.anonymize(policy(tmp_path, **diverse)).publish()
    insert(tmp_path, *((100 + i, 21, "m", "02131", "the same") for i in range(3)))
    extension, _ = extend(tmp_path, **diverse)
    assert (extension.added_rows, extension.waiting_rows) == (0, 3)
    insert(tmp_path, (110, 21, "m", "02131", "another"))
    extension, _ = extend(tmp_path, **diverse)
    assert (extension.added_rows, extension.waiting_rows) == (4, 0)


@pytest.mark.thorough
def test_new_rows_meet_a_shield_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every zip has enough released rows; the new rows are too few at first."""
    change(tmp_path / "hospital.duckdb", "CREATE TABLE patients (id INT, age INT, sex TEXT, zip TEXT, illness TEXT)")
    insert(tmp_path, *ROWS)
    shield = {"k_anonymity": [{"quasi": ["zip"], "k": 4}]}
    with sqlanon.connect() as db:
        db.anonymize(policy(tmp_path, privacy=shield)).publish()
    insert(tmp_path, *((100 + i, 21, "m", "02131", f"new {i}") for i in range(3)))
    right = extending.suppressed_classes
    with monkeypatch.context() as patch:
        patch.setattr(
            extending, "suppressed_classes", lambda *arguments: right(*arguments).where(exp.false(), copy=False)
        )
        with pytest.raises(AuditError, match=r"new rows: 4-anonymity of zip"):
            extend(tmp_path, privacy=shield)
    extension, _ = extend(tmp_path, privacy=shield)
    assert (extension.added_rows, extension.waiting_rows) == (0, 3)
    insert(tmp_path, (110, 21, "m", "02131", "another"))
    extension, _ = extend(tmp_path, privacy=shield)
    assert (extension.added_rows, extension.waiting_rows) == (4, 0)


@pytest.mark.thorough
def test_the_difference_of_two_versions_has_at_least_k_rows(hospital: Path, tmp_path: Path) -> None:
    """Subtracting the earlier release leaves no rows of a class, or at least k."""
    for step in range(4):
        before = released_rows(hospital)
        insert(
            hospital, *((1000 * (step + 1) + i, 20 + i % 13, "mf"[i % 2], f"0213{i % 3}", f"ill {i}") for i in range(9))
        )
        extension, _ = extend(hospital)
        new = Counter(row[:-1] for row in (released_rows(hospital) - before).elements())
        assert all(count >= 3 for count in new.values())
        assert sum(new.values()) == extension.added_rows
    with duckdb.connect(str(hospital / "private.duckdb"), read_only=True) as connection:
        keys = connection.execute(
            "SELECT count(*), count(DISTINCT key_hash), count(DISTINCT run_id) FROM sqlanon.released_keys"
        )
        assert keys.fetchall() == [(sum(released_rows(hospital).values()),) * 2 + (1,)]


@pytest.mark.thorough
def test_rows_that_come_back_are_added_again(tmp_path: Path) -> None:
    """Four rows are in the first release, are gone for the second, and come back."""
    new = [(100 + i, 21, "m", "02131", f"new {i}") for i in range(4)]
    file = tmp_path / "hospital.duckdb"
    change(file, "CREATE TABLE patients (id INT, age INT, sex TEXT, zip TEXT, illness TEXT)")
    insert(tmp_path, *ROWS, *new)
    with sqlanon.connect() as db:
        db.anonymize(policy(tmp_path, release={"database": tmp_path / "first.duckdb"})).publish()
    change(file, "DELETE FROM patients WHERE id >= 100")
    with sqlanon.connect() as db:
        db.anonymize(policy(tmp_path, release={"after": ["first"]})).publish()
    insert(tmp_path, *new)
    result, _ = extend(tmp_path, release={"after": ["first"]})
    assert (result.added_rows, result.waiting_rows) == (4, 0)


@pytest.mark.thorough
def test_another_release_is_not_broken(hospital: Path) -> None:
    """A second release that has some of the rows already: those that it does not have would be few."""
    insert(hospital, *((100 + i, 21, "m", "02131", f"new {i}") for i in range(4)))
    with sqlanon.connect() as db:
        other_policy = policy(hospital, release={"database": hospital / "other.duckdb"})
        db.anonymize(other_policy).publish(force=True)
    insert(hospital, (104, 21, "m", "02131", "new 4"))
    with pytest.raises(AuditError, match="temporal attack"):
        extend(hospital)
    assert sum(released_rows(hospital).values()) == 60


# The extension and the release that it extends are not joined: these are what the audit refuses in its place.


def test_an_extension_with_other_values_in_released_rows_is_refused(
    hospital: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(hospital, *((100 + i, 21, "m", "02131", f"new {i}") for i in range(3)))
    before, right = released_rows(hospital), extending._union_rows

    def with_two_swapped(columns: list[str], rows: exp.Expr, added: exp.Expr) -> exp.Select:
        swapped = parse_one(
            "SELECT * REPLACE (CASE illness WHEN 'illness 1' THEN 'illness 2' ELSE illness END AS illness)"
        )
        return right(columns, subquery(swapped.from_(rows), "swapped"), added)

    monkeypatch.setattr(extending, "_union_rows", with_two_swapped)
    with pytest.raises(AuditError, match="not those of the release that is extended, with the new ones"):
        extend(hospital)
    assert released_rows(hospital) == before


@pytest.mark.thorough
def test_an_extension_with_few_new_rows_in_a_class_is_refused(hospital: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    insert(hospital, *((100 + i, 21, "m", "02131", f"new {i}") for i in range(3)), (200, 21, "f", "02131", "alone"))
    right = extending.suppressed_classes
    monkeypatch.setattr(
        extending, "suppressed_classes", lambda *arguments: right(*arguments).where(exp.false(), copy=False)
    )
    with pytest.raises(AuditError, match=r"new rows: 3-anonymity: .*1"):
        extend(hospital)
    assert sum(released_rows(hospital).values()) == 60


@pytest.mark.thorough
def test_an_extension_whose_new_rows_do_not_meet_the_policy_by_themselves_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together with the released rows their class has enough values."""
    change(tmp_path / "hospital.duckdb", "CREATE TABLE patients (id INT, age INT, sex TEXT, zip TEXT, illness TEXT)")
    insert(tmp_path, *ROWS)
    diverse = {"l_diversity": [{"attribute": "illness", "kind": "distinct", "l": 3}]}
    with sqlanon.connect() as db:
        db.anonymize(policy(tmp_path, privacy=diverse)).publish()
    before = released_rows(tmp_path)
    insert(tmp_path, *((100 + i, 21, "m", "02131", "illness 1") for i in range(4)))
    right = extending.suppressed_classes
    with monkeypatch.context() as patch:
        patch.setattr(
            extending, "suppressed_classes", lambda *arguments: right(*arguments).where(exp.false(), copy=False)
        )
        with pytest.raises(AuditError, match=r"new rows: .*3-diversity"):
            extend(tmp_path, privacy=diverse)
    assert released_rows(tmp_path) == before
    extension, _ = extend(tmp_path, privacy=diverse)
    assert (extension.added_rows, extension.waiting_rows) == (0, 4)


@pytest.mark.thorough
def test_a_release_that_was_changed_is_not_extended(hospital: Path) -> None:
    with sqlanon.connect() as db:
        extension = db.extend(policy(hospital))
        change(hospital / "release.duckdb", "UPDATE patients_v1 SET illness = 'other' WHERE illness = 'illness 1'")
        with pytest.raises(ReleaseError, match="is not the release that the ledger recorded"):
            extension.publish()
        with pytest.raises(ReleaseError, match="is not the release that the ledger recorded"):
            db.extend(policy(hospital))


@pytest.mark.thorough
def test_ledger_records_the_extended_release(hospital: Path) -> None:
    insert(hospital, *((100 + i, 21, "m", "02131", f"new {i}") for i in range(3)))
    extend(hospital)
    with duckdb.connect(str(hospital / "private.duckdb"), read_only=True) as connection:
        rows = connection.execute(
            "SELECT strategy, extends IS NULL, replaced_at IS NULL, released_rows FROM sqlanon.ledger ORDER BY ALL"
        ).fetchall()
    assert rows == [("extend", False, True, 63), ("optimal", True, False, 60)]


@pytest.mark.thorough
def test_verify_with_the_policy(hospital: Path) -> None:
    insert(
        hospital,
        *((100 + i, 21, "m", "02131", f"new {i}") for i in range(3)),
        (200, 95, "f", "99999", "alone"),
        (201, 28, "f", "02131", "few"),
    )
    _, release = extend(hospital)
    assert release.manifest.suppressed_rows == 2
    with sqlanon.connect() as db:
        verification = db.verify(release.path, policy(hospital))
    assert verification.verified, verification.failures


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"source": {"key": []}}, "source.key"),
        ({"search": {"strategy": "mondrian"}}, "search.strategy"),
        ({"release": {"suppressed": "mask"}}, "release.suppressed"),
    ],
)
def test_policies_that_cannot_be_extended_are_refused(hospital: Path, more: dict[str, Any], words: str) -> None:
    if "key" in more.get("source", {}):
        requested_policy = policy(hospital).model_copy(
            update={"source": policy(hospital).source.model_copy(update={"key": ()})}
        )
    else:
        requested_policy = policy(hospital, **more)
    with sqlanon.connect() as db, pytest.raises(PolicyError, match=words):
        db.extend(requested_policy)


def test_extension_keys_must_be_unique(hospital: Path) -> None:
    insert(hospital, (None, 21, "m", "02131", "none"))
    with (
        sqlanon.connect() as db,
        pytest.raises(SourceError, match="0 keys belong to several rows, and 1 rows have no key"),
    ):
        db.extend(policy(hospital))
    insert(hospital, (0, 21, "m", "02131", "again"))
    with (
        sqlanon.connect() as db,
        pytest.raises(SourceError, match="1 keys belong to several rows, and 1 rows have no key"),
    ):
        db.extend(policy(hospital))


def test_a_number_with_more_digits_gives_the_others_another_label(hospital: Path) -> None:
    insert(hospital, (100, 105, "m", "02131", "old"))
    with sqlanon.connect() as db, pytest.raises(SourceError, match=r"attributes\.age: 10 values have another label"):
        db.extend(policy(hospital))


def test_extending_needs_a_release_of_this_policy(hospital: Path, tmp_path: Path) -> None:
    with sqlanon.connect() as db, pytest.raises(ReleaseError, match="another policy"):
        db.extend(policy(hospital, privacy={"k": 4}))
    with sqlanon.connect() as db, pytest.raises(ReleaseError, match="publish one first"):
        db.extend(policy(hospital, release={"database": tmp_path / "none.duckdb"}))


def test_the_command_line(hospital: Path) -> None:
    file = hospital / "policy.toml"
    file.write_text(
        """
[source]
database = "hospital.duckdb"
table = "patients"
key = ["id"]
[attributes]
age = { role = "quasi", hierarchy = { intervals = [5, 10, 20] } }
sex = { role = "quasi", hierarchy = "suppress" }
zip = { role = "quasi", hierarchy = { mask = "right" } }
illness = { role = "sensitive" }
[privacy]
k = 3
[release]
database = "by_file.duckdb"
""",
        encoding="utf-8",
    )
    assert cli("anonymize", file, "--json").status == 0
    extended = cli("extend", file, "--json")
    assert extended.status == 0
    figures = json.loads(extended.out)
    assert figures["released_before"] == figures["released_rows"] == 60
    assert (figures["new_rows"], figures["added_rows"], figures["waiting_rows"]) == (0, 0, 0)


# --- against the obvious way, on random small tables


Patient = tuple[int, int, "str | None", str]
ages, sexes, illnesses = st.integers(10, 29), st.sampled_from(["m", "f", None]), st.sampled_from("abc")
arrivals = st.lists(st.tuples(ages, sexes, illnesses), max_size=14)


def class_of(patient: Patient, levels: dict[str, int]) -> tuple[Any, ...]:
    _, age, sex, _ = patient
    width = (1, 5, 10)
    return (
        age // width[levels["age"]] if levels["age"] < 3 else "*",
        sex if levels["sex"] == 0 else "*",
    )


@pytest.mark.thorough
def test_the_largest_safe_set_of_new_rows_is_added(tmp_path_factory: pytest.TempPathFactory) -> None:
    @settings(
        max_examples=examples(10),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(
        start=st.lists(st.tuples(ages, sexes, illnesses), min_size=4, max_size=30),
        later=st.lists(arrivals, min_size=1, max_size=3),
        k=st.integers(1, 4),
        diverse=st.integers(1, 2),
    )
    def check(start: list[Any], later: list[list[Any]], k: int, diverse: int) -> None:
        folder = tmp_path_factory.mktemp("extend")
        requested_policy = sqlanon.Policy(
            source={"database": folder / "h.duckdb", "table": "t", "key": ["id"]},
            attributes={
                "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10]}},
                "sex": {"role": "quasi", "hierarchy": "suppress"},
                "ill": {"role": "sensitive"},
            },
            privacy={"k": k, "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": diverse}]},
            search={"suppression_limit": 0.4},
            release={"database": folder / "r.duckdb", "table": "t"},
            catalog={"database": folder / "c.duckdb"},
        )
        waiting = [(i, *row) for i, row in enumerate(start)]
        with duckdb.connect(str(folder / "h.duckdb")) as connection:
            connection.execute("CREATE TABLE t (id INT, age INT, sex TEXT, ill TEXT)")
            connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", waiting)
        with sqlanon.connect() as db:
            try:
                result = db.anonymize(requested_policy)
            except sqlanon.InfeasibleError:
                return
            result.publish()
        levels = {name: level or 0 for name, level in result.generalization.items()}
        count = 0
        for number, batch in enumerate([[], *later]):
            new = [(1000 * number + i, *row) for i, row in enumerate(batch)]
            waiting += new
            if new:
                with duckdb.connect(str(folder / "h.duckdb")) as connection:
                    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", new)
            parts: dict[Any, list[Patient]] = {}
            for patient in waiting:
                parts.setdefault(class_of(patient, levels), []).append(patient)
            good = [part for part in parts.values() if len(part) >= k and len({row[-1] for row in part}) >= diverse]
            added = {patient for part in good for patient in part}
            if number:
                with sqlanon.connect() as db:
                    extension = db.extend(requested_policy)
                    release = extension.publish()
                assert (extension.added_rows, extension.waiting_rows) == (len(added), len(waiting) - len(added))
                assert release.verify().verified
            count += len(added)
            waiting = [patient for patient in waiting if patient not in added]
            with duckdb.connect(str(folder / "r.duckdb"), read_only=True) as connection:
                assert connection.execute("SELECT count(*) FROM t").fetchall() == [(count,)]
        with sqlanon.connect() as db:
            verified = db.verify(folder / "r.duckdb", requested_policy)
        assert verified.verified, verified.failures

    check()
