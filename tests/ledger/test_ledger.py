"""The ledger: what it records, what it refuses, and releases that are based on earlier ones."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import AuditError, PolicyError, ReleaseError, SourceError
from sqlanon.ledger import recording
from support.files import folder_again, folder_and_copy
from support.lanes import some
from support.ledger_hospital import FINE_RACE, FINE_ZIP, hospital, make_hospital, policy, publish

__all__ = ["hospital"]  # fixtures

pytestmark = pytest.mark.usefixtures("plain_macros")


COARSE = {"race": 1, "birth": 2, "sex": 0, "zip": 1}


@pytest.fixture(scope="module")
def hospital_of_before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("ledger")
    make_hospital(folder)
    publish(policy(folder, "one", FINE_RACE))
    return folder_and_copy(folder)


@pytest.fixture
def with_one(hospital_of_before: tuple[Path, Path]) -> Path:
    """The hospital, with a release of it: one."""
    return folder_again(*hospital_of_before)


@pytest.mark.thorough
def test_release_that_reveals_more_beside_another_is_refused(with_one: Path) -> None:
    with pytest.raises(AuditError, match=r"together with .*one\.duckdb") as refused:
        publish(policy(with_one, "two", FINE_ZIP))
    assert "complementary release" in str(refused.value)
    message = str(refused.value)
    first, *_ = message.split("\n    You can:\n")  # which one, and why in one sentence, with counts
    assert re.search(
        r"one\.duckdb, table patients, of \d{4}-\d\d-\d\d \d\d:\d\d: joined with it, \d+ combination", first
    )
    for remedy in ('[release] after = "one"', "replace that release: --output", "--draft", "--force"):
        assert remedy in message, remedy
    assert "--force (in Python publish(force=True)): a reader of both releases can then single out the rows" in message
    assert not (with_one / "two.duckdb").exists()
    _, release = publish(policy(with_one, "two", FINE_ZIP), force=True)  # the ledger says so
    assert release.path.exists()
    with duckdb.connect(str(with_one / "private.duckdb"), read_only=True) as connection:
        rows = connection.execute(
            "SELECT path, breaks, after FROM sqlanon.ledger ORDER BY published_at, path"
        ).fetchall()
    assert rows == [
        (str(with_one / "one.duckdb"), [], []),
        (str(with_one / "two.duckdb"), [str(with_one / "one.duckdb")], []),
    ]


@pytest.mark.thorough
def test_a_coarser_release_is_let_through(with_one: Path) -> None:
    publish(policy(with_one, "two", {"race": 1, "birth": 3, "sex": 1, "zip": 5}, release={"after": ["one"]}))
    _, release = publish(policy(with_one, "three", FINE_RACE))
    assert release.path.exists()


@pytest.mark.thorough
def test_the_query_of_a_refusal_shows_the_rows(with_one: Path) -> None:
    with pytest.raises(AuditError) as refused:
        publish(policy(with_one, "two", FINE_ZIP))
    publish(policy(with_one, "two", FINE_ZIP), force=True)
    (query,) = refused.value.queries
    assert query not in str(refused.value)
    with duckdb.connect() as connection:
        rows = connection.execute(query).fetchall()
        columns = [column[0] for column in connection.description or []]
    assert columns == ["rows", "race", "birth", "sex", "zip"]
    assert rows
    assert all(row[0] < 2 for row in rows)


@pytest.mark.slow
def test_after_finds_the_best_that_is_safe(with_one: Path) -> None:
    """No value finer than before; the best of those: found by trying all of them by hand."""
    result, release = publish(policy(with_one, "two", {}, release={"after": ["one"]}))
    assert all(result.generalization[name] >= level for name, level in FINE_RACE.items())
    assert set(result.generalization) == set(FINE_RACE)
    assert release.verify().verified
    with sqlanon.connect() as db:
        assert db.verify(release.path, policy(with_one, "two", {}, release={"after": ["one"]})).verified
    with duckdb.connect(str(with_one / "private.duckdb"), read_only=True) as connection:
        after = connection.execute("SELECT after FROM sqlanon.ledger WHERE path LIKE '%two%'").fetchall()
        first = connection.execute("SELECT run_id FROM sqlanon.ledger WHERE path LIKE '%one%'").fetchall()
        levels = connection.execute("SELECT DISTINCT len(levels) FROM sqlanon.lattice").fetchall()
    assert after == [([first[0][0]],)]
    assert levels == [(4,)]


@pytest.mark.thorough
def test_same_policy_again_is_safe(with_one: Path) -> None:
    publish(policy(with_one, "one", FINE_RACE))
    publish(policy(with_one, "two", FINE_RACE))


@pytest.mark.thorough
def test_added_rows_are_distinguished(with_one: Path) -> None:
    """Sweeney's example 7: rows that were added later are refused, and the remedy leaves them out."""
    with duckdb.connect(str(with_one / "hospital.duckdb")) as connection:
        connection.execute("INSERT INTO patients VALUES ('black', '1965-09-07', 'male', '02139', 'headache')")
    coarse = {"race": 1, "birth": 2, "sex": 0, "zip": 2}
    with pytest.raises(AuditError, match="temporal attack"):
        publish(policy(with_one, "two", coarse))
    result, release = publish(policy(with_one, "two", coarse, release={"after": "all"}))
    assert result.suppressed_rows == 2
    assert {"headache", "hypertension"}.isdisjoint(problems(release.path))  # the one of them was left out before
    with duckdb.connect(str(with_one / "hospital.duckdb")) as connection:
        connection.execute("INSERT INTO patients VALUES ('black', '1965-11-04', 'male', '02139', 'rash')")
    result, release = publish(policy(with_one, "three", coarse, release={"after": ["one", "two"]}))
    assert {"headache", "rash"} <= problems(release.path)
    assert "hypertension" not in problems(release.path)
    assert (result.classes, result.smallest_class) == (2, 4)


def problems(path: Path) -> set[str]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return {row[0] for row in connection.execute("SELECT problem FROM patients").fetchall()}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"search": {"strategy": "mondrian"}}, "no levels"),
        ({"search": {"measure": "discernibility"}}, "counts classes"),
        ({"release": {"after": "all", "suppressed": "mask"}}, "masked rows"),
    ],
)
def test_settings_that_contradict_after_are_refused(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        policy(tmp_path, "one", {}, **({"release": {"after": "all"}} | more))


def test_names_that_are_none_are_refused(with_one: Path) -> None:
    with pytest.raises(PolicyError, match=r"'two' is not in the ledger, which has: one.duckdb"):
        publish(policy(with_one, "three", {}, release={"after": ["two"]}))


@pytest.mark.thorough
def test_a_release_that_is_gone_cannot_be_based_on(with_one: Path) -> None:
    (with_one / "one.duckdb").unlink()
    with pytest.raises(ReleaseError, match=r"one\.duckdb"):
        publish(policy(with_one, "three", {}, release={"after": ["one"]}))
    publish(policy(with_one, "two", FINE_ZIP))


@pytest.mark.thorough
def test_release_may_be_left_out_of_the_ledger(hospital: Path) -> None:
    publish(policy(hospital, "one", FINE_RACE, release={"ledger": False}))
    publish(policy(hospital, "two", FINE_ZIP))
    with duckdb.connect(str(hospital / "private.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM sqlanon.ledger").fetchall() == [(1,)]


def test_the_plan_shows_how_rows_are_marked(hospital: Path) -> None:
    with sqlanon.connect() as db:
        stages = db.plan(policy(hospital, "one", {}, release={"after": "all"})).stages
    (marks,) = (stage for stage in stages if stage.name == "earlier releases")
    with duckdb.connect() as connection:
        assert all(connection.extract_statements(statement) for statement in marks.sql)
    assert "ROW_NUMBER" in marks.sql[-1]


@pytest.mark.thorough
def test_a_release_based_on_a_removed_one_cannot_be_verified_by_its_policy(with_one: Path) -> None:
    requested_policy = policy(with_one, "two", {}, release={"after": ["one"]})
    _, release = publish(requested_policy)
    publish(policy(with_one, "one", FINE_RACE))
    assert release.verify().verified
    with (
        sqlanon.connect() as db,
        pytest.raises(ReleaseError, match=r"1 of the releases .* was replaced"),
    ):
        db.verify(release.path, requested_policy)


@pytest.mark.thorough
def test_a_release_outside_the_ledger_replaces_one_in_it(with_one: Path) -> None:
    publish(policy(with_one, "one", FINE_ZIP, release={"ledger": False}))
    with duckdb.connect(str(with_one / "private.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(replaced_at), count(*) FROM sqlanon.ledger").fetchall() == [(1, 1)]


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["mondrian", "local", "subtree"])
def test_releases_below_the_full_domain_are_compared_with_others(with_one: Path, strategy: str) -> None:
    """The values of the two files decide whether it is refused or accepted, including ranges."""
    local = policy(with_one, "two", {}, search={"strategy": strategy, "suppression_limit": 0.5})
    try:
        _, release = publish(local)
    except AuditError as error:
        assert "together with" in str(error)
        _, release = publish(local, force=True)
        refused = True
    else:
        refused = False
    outcomes = sqlanon.attack(
        [with_one / "one.duckdb", release.path], policy=local, only=["complementary_release", "temporal"]
    )
    assert refused == any(outcome.victims for outcome in outcomes.values())


# --- labels of other hierarchies


def of_places(place: Path, name: str, groups: dict[str, list[str]], low: int = 0, **more: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"database": place / "hospital.duckdb", "table": "p"},
        attributes={
            "country": {"role": "quasi", "hierarchy": {"categories": groups}, "min_level": low, "max_level": low},
            "cost": {"role": "insensitive"},
        },
        privacy={"k": 5},
        release={"database": place / f"{name}.duckdb", "table": "p", **more},
        catalog={"database": place / "private.duckdb"},
    )


@pytest.mark.thorough
def test_hierarchy_files_under_the_same_rule_are_distinguished(tmp_path: Path) -> None:
    """Europe and America in one release, two other groups in the other: joined on the cost, countries stand alone."""
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE p AS SELECT ['DE', 'FR', 'US', 'CA'][i % 4 + 1] country, i AS cost FROM range(12) t(i)"
        )
    publish(of_places(tmp_path, "one", {"EU": ["DE", "FR"], "AM": ["US", "CA"]}, 1))
    groups = {"G1": ["DE", "US"], "G2": ["FR", "CA"]}
    with pytest.raises(AuditError, match="complementary release"):
        publish(of_places(tmp_path, "two", groups, 1))
    with pytest.raises(PolicyError, match="gives other labels than in one"):
        publish(of_places(tmp_path, "two", groups, 1, after="all"))


def masked_policy(place: Path, name: str, **more: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"database": place / "hospital.duckdb", "table": "p", "key": ["id"]},
        attributes={
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 1, "max_level": 1},
            "cost": {"role": "insensitive"},
        },
        privacy={"k": 5},
        search={"suppression_limit": 0.5},
        release={"database": place / f"{name}.duckdb", "table": "p", **more},
        catalog={"database": place / "private.duckdb"},
    )


@pytest.mark.thorough
def test_masks_that_have_become_longer_are_distinguished(tmp_path: Path) -> None:
    """0213* becomes 0213**: under the same rule the same rows have other labels, and one more is among them."""
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("CREATE TABLE p AS SELECT i id, '0213' || i % 2 zip, i % 7 AS cost FROM range(40) t(i)")
    publish(masked_policy(tmp_path, "one"))
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("INSERT INTO p VALUES (100, '02130', 3), (101, '0213000', 99)")
    with pytest.raises(AuditError, match="together with"):
        publish(masked_policy(tmp_path, "two"))
    with sqlanon.connect() as db:  # what is not published changes nothing of what is known of what is
        db.anonymize(masked_policy(tmp_path, "one"))
        with pytest.raises(SourceError, match="another label"):
            db.extend(masked_policy(tmp_path, "one"))


@pytest.mark.thorough
def test_persons_are_counted_where_the_policy_counts_them(tmp_path: Path) -> None:
    """One who came has three rows, which is more than k rows and fewer than k persons."""
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("CREATE TABLE p AS SELECT i // 3 who, i % 2 sex, i % 5 AS cost FROM range(60) t(i)")

    def policy_of(name: str) -> sqlanon.Policy:
        return sqlanon.Policy(
            source={"database": tmp_path / "hospital.duckdb", "table": "p", "person": "who"},
            attributes={"sex": {"role": "quasi", "hierarchy": "suppress"}, "cost": {"role": "insensitive"}},
            privacy={"k": 2},
            release={"database": tmp_path / f"{name}.duckdb", "table": "p"},
            catalog={"database": tmp_path / "private.duckdb"},
        )

    publish(policy_of("one"))
    publish(policy_of("same"))
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("INSERT INTO p VALUES (100, 1, 77), (100, 1, 78), (100, 1, 79)")
    with pytest.raises(AuditError, match="temporal attack"):
        publish(policy_of("two"))


@pytest.mark.thorough
def test_a_release_with_parts_of_k_persons_is_published_after_an_earlier_one(tmp_path: Path) -> None:
    """One person has seven rows: parts of two persons may have fewer than eight. One person alone is not a part."""
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("CREATE TABLE p AS SELECT greatest(i - 6, 0) who, i id, 0 sex, 0 AS cost FROM range(9) t(i)")

    def policy_of(name: str, **more: Any) -> sqlanon.Policy:
        return sqlanon.Policy(
            source={"database": tmp_path / "hospital.duckdb", "table": "p", "person": "who", "key": ["id"]},
            attributes={
                "sex": {"role": "quasi", "hierarchy": "suppress", "max_level": 0},
                "cost": {"role": "insensitive"},
            },
            privacy={"k": 2},
            search={"suppression_limit": 0.5},
            release={"database": tmp_path / f"{name}.duckdb", "table": "p", **more},
            catalog={"database": tmp_path / "private.duckdb"},
        )

    publish(policy_of("one"))
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("INSERT INTO p VALUES (10, 10, 0, 0), (10, 11, 0, 0), (10, 12, 0, 0)")
    with sqlanon.connect() as db:
        assert db.anonymize(policy_of("two", after=["one"])).suppressed_rows == 3
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("INSERT INTO p VALUES (11, 13, 0, 0)")
    result, release = publish(policy_of("two", after=["one"]))
    assert (result.suppressed_rows, result.warnings) == (0, ())
    assert release.verify().verified


@pytest.mark.thorough
def test_release_is_infeasible_beside_an_earlier_one_with_unique_ages(tmp_path: Path) -> None:
    """The first release shows each age in one row. Joined on the cost, this row has the illness of the second."""
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE p AS SELECT i % 2 sex, i age, i % 3 AS cost, i % 4 illness FROM range(24) t(i)"
        )

    def policy_of(name: str, age: Any, illness: str, **more: Any) -> sqlanon.Policy:
        return sqlanon.Policy(
            source={"database": tmp_path / "hospital.duckdb", "table": "p", "undeclared": "drop"},
            attributes={
                "sex": {"role": "quasi", "hierarchy": "suppress", "max_level": 0},
                "age": age,
                "cost": {"role": "insensitive"},
                "illness": {"role": illness},
            },
            privacy={"k": 2},
            release={"database": tmp_path / f"{name}.duckdb", "table": "p", **more},
            catalog={"database": tmp_path / "private.duckdb"},
        )

    publish(policy_of("one", {"role": "insensitive"}, "identifying"))
    quasi = {"role": "quasi", "hierarchy": {"intervals": [4, 12]}}
    with pytest.raises(AuditError, match=r"(?s)24 combinations.*no generalization hides these rows"):
        publish(policy_of("two", quasi, "sensitive", after=["one"]))


# --- what a review found


@pytest.mark.thorough
def test_the_greater_promise_of_several_earlier_releases_counts(tmp_path: Path) -> None:
    """One promises 2, the other 5: three who came are too few for the second."""
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("CREATE TABLE p AS SELECT i id, '0213' || i % 2 zip, i AS cost FROM range(40) t(i)")

    def policy_of(name: str, k: int, **more: Any) -> sqlanon.Policy:
        return masked_policy(tmp_path, name, **more).model_copy(
            update={
                "privacy": sqlanon.Policy(
                    attributes={"x": {"role": "quasi", "hierarchy": "suppress"}}, privacy={"k": k}
                ).privacy
            }
        )

    publish(policy_of("one", 2))
    publish(policy_of("two", 5))
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("INSERT INTO p SELECT 100 + i, '02130', 1000 + i FROM range(3) t(i)")
    result, _ = publish(policy_of("three", 5, after=["all"]))
    assert result.suppressed_rows == 3
    assert not any("together" in warning for warning in result.warnings)


@pytest.mark.thorough
def test_a_release_whose_rows_or_claims_were_changed_is_not_looked_past(with_one: Path) -> None:
    for statement in ("UPDATE patients_v1 SET problem = 'x'", "UPDATE sqlanon.manifest SET smallest_class = 1"):
        saved = (with_one / "one.duckdb").read_bytes()
        with duckdb.connect(str(with_one / "one.duckdb")) as connection:
            connection.execute(statement)
        with pytest.raises(
            AuditError, match=r"cannot be compared[\s\S]*--force .*: the risk to rows .* is then unknown"
        ):
            publish(policy(with_one, "two", FINE_ZIP))
        publish(policy(with_one, "two", FINE_ZIP), force=True)
        with duckdb.connect(str(with_one / "private.duckdb"), read_only=True) as connection:
            query = "SELECT breaks FROM sqlanon.ledger WHERE path LIKE '%two.duckdb' AND replaced_at IS NULL"
            assert connection.execute(query).fetchall() == [([str(with_one / "one.duckdb")],)]
        (with_one / "one.duckdb").write_bytes(saved)


@pytest.mark.thorough
@pytest.mark.parametrize("type_", ["DOUBLE", "DECIMAL(10,2)", "BIGINT", "VARCHAR"])
def test_columns_of_other_types_link_all_the_same(tmp_path: Path, type_: str) -> None:
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        countries = "['DE', 'FR', 'US', 'CA'][i % 4 + 1]"
        connection.execute(f"CREATE TABLE p AS SELECT {countries} country, i::INTEGER cost FROM range(12) t(i)")
    publish(of_places(tmp_path, "one", {"EU": ["DE", "FR"], "AM": ["US", "CA"]}, 1))
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute(f"ALTER TABLE p ALTER cost TYPE {type_}")
    with pytest.raises(AuditError, match="complementary release"):
        publish(of_places(tmp_path, "two", {"G1": ["DE", "US"], "G2": ["FR", "CA"]}, 1))


@pytest.mark.thorough
def test_risk_settings_do_not_prevent_extending(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("CREATE TABLE p AS SELECT i id, 1 w, '0213' || i % 2 zip, i % 7 AS cost FROM range(40) t(i)")

    def policy_of(name: str, **more: Any) -> sqlanon.Policy:
        tree = masked_policy(tmp_path, name, **more).model_dump(exclude_none=True)
        return sqlanon.Policy(**tree, risk={"weights": "w"})

    publish(policy_of("one"))
    publish(policy_of("two", after=["all"]))
    with sqlanon.connect() as db:
        assert db.extend(policy_of("one")).new_rows == 0


@pytest.mark.thorough
def test_a_release_published_meanwhile_is_compared_too(hospital: Path) -> None:
    """Both were compared with the releases from before either."""
    with sqlanon.connect() as db, sqlanon.connect() as second_db:
        first = db.anonymize(policy(hospital, "one", FINE_RACE))
        second = second_db.anonymize(policy(hospital, "two", FINE_ZIP))
        audited = recording.recording
        published = []

        def overtake(*arguments: Any, **more: Any) -> Any:
            if not published:
                published.append(True)
                second.publish()
            return audited(*arguments, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sqlanon.ledger.publication.recording", overtake)
            with pytest.raises(AuditError, match="complementary release"):
                first.publish()
    assert not (hospital / "one.duckdb").exists()
    assert (hospital / "two.duckdb").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("place", some(["one.catalog.duckdb", "ledger.db", "elsewhere/history"], 3))
def test_releases_in_another_catalog_of_any_name_are_reported(hospital: Path, place: str) -> None:
    """In the folders of the catalog, of the source and of the release."""
    (hospital / "elsewhere").mkdir()
    for name, database in (("one", place), ("two", "elsewhere/two.duckdb")):
        requested_policy = policy(hospital, name, FINE_RACE if name == "one" else FINE_ZIP)
        section = requested_policy.catalog
        assert section is not None
        catalog = section.model_copy(update={"database": hospital / database})
        result, _ = publish(requested_policy.model_copy(update={"catalog": catalog}))
        warnings = [warning for warning in result.warnings if "point the policies to the same" in warning]
        assert warnings == [warning for warning in warnings if str(hospital / place) in warning]
        assert len(warnings) == (name == "two")


@pytest.mark.thorough
def test_other_files_are_ignored_as_catalogs(hospital: Path) -> None:
    """Views of that name, broken files, pipes, broken links: they are ignored without waiting."""
    with duckdb.connect(hospital / "strange.catalog.duckdb") as connection:
        connection.execute("CREATE SCHEMA sqlanon")
        connection.execute("CREATE VIEW sqlanon.releases AS SELECT error('it was read') AS source")
    (hospital / "broken.catalog.duckdb").write_bytes(b"12345678DUCK and no more")
    (hospital / "link.catalog.duckdb").symlink_to(hospital / "nowhere")
    os.mkfifo(hospital / "pipe.catalog.duckdb")
    result, _ = publish(policy(hospital, "one", FINE_RACE))
    assert not result.warnings


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("before", "is_kept"),
    [
        ({"catalog": None}, False),
        ({"catalog": "old.duckdb"}, False),
        ({"release": {"ledger": False}}, False),
        ({}, True),
    ],
)
def test_versions_that_the_catalog_does_not_know_are_not_kept(
    hospital: Path, before: dict[str, Any], is_kept: bool
) -> None:
    """The two versions in one file would differ by one person, without a word."""
    first = policy(hospital, "one", COARSE, release=before.get("release", {}))
    database = before.get("catalog", "private.duckdb")
    catalog = None if database is None else first.catalog.model_copy(update={"database": hospital / database})
    publish(first.model_copy(update={"catalog": catalog}))
    second = policy(hospital, "one", COARSE, release={"keep": 2})
    if is_kept:
        publish(second)
        return
    with pytest.raises(
        ReleaseError, match=r"has patients_v1, which release\.keep = 2 would keep and the catalog"
    ) as no:
        publish(second, force=True)
    for remedy in ("the catalog that recorded it", "--output", "keep = 1"):
        assert remedy in str(no.value), remedy
    with duckdb.connect(str(hospital / "one.duckdb"), read_only=True) as connection:
        assert "patients_v2" not in {
            name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        }
    publish(policy(hospital, "one", COARSE))  # keep = 1
    publish(second)


@pytest.mark.slow
def test_a_version_that_is_not_the_recorded_one_is_not_kept(hospital: Path) -> None:
    """The same number, in a file that another catalog has since published to."""
    publish(policy(hospital, "one", COARSE))
    (hospital / "one.duckdb").unlink()
    other_policy = policy(hospital, "one", FINE_RACE)
    publish(
        other_policy.model_copy(
            update={"catalog": other_policy.catalog.model_copy(update={"database": hospital / "b.duckdb"})}
        )
    )
    with pytest.raises(ReleaseError, match=r"patients_v1.* it was not compared"):
        publish(policy(hospital, "one", COARSE, release={"keep": 2}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "sections", "loss"),
    [
        ("release.after", {"release": {"after": "all"}}, "needs the ledger, which is in the catalog"),
        (
            "release.keep",
            {"release": {"keep": 2}},
            "two versions can single out persons who joined or left",
        ),
        ("privacy.epsilon_total", {"privacy": {"k": 2, "epsilon_total": 1}}, "readers of several releases can average"),
    ],
)
def test_settings_that_need_a_ledger_are_refused_without_one(place: str, sections: dict[str, Any], loss: str) -> None:
    """They are refused before the search, and accepted with a catalog that records the release."""
    noise = {"noise": {"epsilon": 1.0, "bounds": [0, 9]}} if "epsilon_total" in place else {"hierarchy": "suppress"}
    sections.setdefault("release", {})["table"] = "r"
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        connection.execute("CREATE TABLE t AS SELECT i % 3 AS q, i % 7 AS x FROM range(30) AS r(i)")
        policy = sqlanon.Policy(
            **{"source": {"table": "t"}, "privacy": {"k": 2}, **sections},
            attributes={"q": {"role": "quasi", "hierarchy": "suppress"}, "x": {"role": "quasi", **noise}},
        )
        with pytest.raises(sqlanon.PolicyError, match=loss) as refused:
            db.anonymize(policy)
    assert {problem.place for problem in refused.value.problems} == {place}
