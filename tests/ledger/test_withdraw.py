"""`withdraw` publishes a release again without the rows that have left its source, held against what readers have."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import pytest
from sqlglot import exp
from visits import CHANGE_A_VALUE, CREATE, DELETE_A_VISIT, GROW, POLICY, WITHDRAW_TWO, K, policy, publish

import sqlanon
import sqlanon.withdrawal
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import AuditError, InfeasibleError, PolicyError, ReleaseError
from sqlanon.ledger.published_release import WithdrawnRows
from sqlanon.publish.draft import ReplacedRelease
from sqlanon.publish.targets.file.target import FileTarget
from sqlanon.release.source_change import SourceChange
from sqlanon.strategies.lattice.input import EarlierReleases
from sqlanon.support.expressions import table
from support.commands import cli
from support.databases import change, fetch, shared_database
from support.files import folder_again, folder_and_copy
from support.verification import failed_checks


@pytest.fixture(scope="module")
def published_before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return folder_and_copy(make(tmp_path_factory.mktemp("visits")))


@pytest.fixture
def visits(published_before: tuple[Path, Path]) -> Path:
    """A source with its release, made with a key and persons."""
    return folder_again(*published_before)


def make(folder: Path, **more: Any) -> Path:
    """A folder with a source and its release."""
    return publish(folder, **{"search": {"suppression_limit": 0.5}, **more})


def policy_of(folder: Path, **more: Any) -> sqlanon.Policy:
    return policy(folder, **{"search": {"suppression_limit": 0.5}, **more})


def withdraw(folder: Path, force: bool = True, **more: Any) -> Any:
    with sqlanon.connect() as db:
        withdrawal = db.withdraw(policy_of(folder, **more))
        withdrawal.publish(force=force)
        return withdrawal


def verify(folder: Path, **more: Any) -> Any:
    with sqlanon.connect() as db:
        return db.verify(folder / "r.duckdb", policy_of(folder, **more))


def released_rows(folder: Path) -> Counter[tuple[Any, ...]]:
    with duckdb.connect(str(folder / "r.duckdb"), read_only=True) as connection:
        return Counter(connection.execute("SELECT * FROM visits").fetchall())


@pytest.mark.thorough
def test_the_new_version_lacks_withdrawn_rows_and_classes_that_are_too_small_without_them(visits: Path) -> None:
    before = released_rows(visits)
    change(visits / "h.duckdb", WITHDRAW_TWO, GROW)
    withdrawal = withdraw(visits)
    after = released_rows(visits)
    assert after <= before  # rows that are new wait for `extend`
    assert (sum(before.values()), sum(after.values())) == (180, 162)  # 6 rows, and 12 of the 4 others in their classes
    assert withdrawal.same_generalization
    assert withdrawal.only_released_rows
    assert vars(withdrawal.withdrawn_rows) == {"rows": 18, "classes": 2, "fewest": 9}
    assert withdrawal.result.smallest_class == K
    assert verify(visits).verified


SAME = SourceChange(datetime(2026, 1, 2), 10, 10, withdrawn_persons=0, missing_rows=0)


@dataclass(frozen=True)
class Prepared:
    """A search input, as far as the test reads it."""

    earlier: EarlierReleases
    policy: Any = None
    search_policy: Any = None
    source: Any = field(default_factory=lambda: SimpleNamespace(relation=None))
    hierarchies: Any = None
    sensitive_hierarchies: Any = None


def test_a_new_version_is_not_based_on_the_release_that_it_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the two would not be compared as two releases are; those that the release was based on still are."""
    earlier = EarlierReleases(("replaced", "base"), frozenset({"replaced", "other"}))
    for name, answer in {
        "prepare_beside_releases": Prepared(earlier),
        "build_search_input": Prepared(EarlierReleases()),
        "select_released_rows": exp.select("1 AS a"),
        "scan_tables": SimpleNamespace(values=None),
        "summarize_values": None,
        "count_frequencies": None,
    }.items():
        monkeypatch.setattr(sqlanon.withdrawal, name, lambda *_, answer=answer: answer)
    publication = SimpleNamespace(run_id="replaced")
    published: Any = SimpleNamespace(policy="policy", publication=publication, base_publications=[], manifest=None)
    with shared_database() as connection:
        run: Any = SimpleNamespace(engine=DuckDBEngine(connection), work=table, source=SimpleNamespace(files=()))
        search_input = sqlanon.withdrawal._prepare_released_rows(cast(Any, None), run, published, True)
    assert search_input.policy == "policy"
    assert (search_input.earlier.run_ids, search_input.earlier.changed_run_ids) == (("base",), frozenset({"other"}))


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (None, "see which values have fewer rows"),
        (WithdrawnRows(0, 0, 0), None),
        (WithdrawnRows(1, 1, 1), "1 row in 1 class, at least 1 in each"),
    ],
)
def test_readers_of_both_versions_learn_nothing_where_no_row_is_gone(rows: Any, note: str | None) -> None:
    published: Any = SimpleNamespace(publication=SimpleNamespace(path=None), manifest=SimpleNamespace(released_rows=9))
    withdrawn = sqlanon.withdrawal.Withdrawal(published, SAME, None)
    withdrawn.withdrawn_rows = rows
    assert withdrawn.to_dict()["withdrawn_rows"] == (None if rows is None else vars(rows))
    sentence = withdrawn.disclosure_note
    assert sentence is None if note is None else sentence is not None and sentence.endswith(note)


@dataclass(frozen=True)
class Drafted:
    prepared: str
    replaces: Any = None


@pytest.mark.parametrize(
    ("only_its_rows", "is_fixed", "levels", "prepared"),
    [
        (True, True, {"age": 1}, "_prepare_released_rows"),
        (True, False, {"age": 1}, "_prepare_released_rows"),
        (False, True, {"age": 1}, "_prepare_at_levels"),
        (False, True, None, "prepare_with_earlier_releases"),  # a local result has no level to keep
        (False, False, {"age": 1}, "prepare_with_earlier_releases"),
    ],
)
def test_the_levels_of_the_release_are_kept_if_they_are_feasible(
    only_its_rows: bool, is_fixed: bool, levels: Any, prepared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_prepare_released_rows", "_prepare_at_levels", "prepare_with_earlier_releases"):
        monkeypatch.setattr(sqlanon.withdrawal, name, lambda *_, name=name: name)
    monkeypatch.setattr(
        sqlanon.withdrawal,
        "draft",
        lambda runner, run, policy, progress, timer, prepare_input: Drafted(prepare_input(runner, run, policy)),
    )
    run = SimpleNamespace(engine=None, source=SimpleNamespace(persons=None))
    workspace: Any = SimpleNamespace(run=lambda policy, counted: run)
    published: Any = SimpleNamespace(
        policy=None,
        levels=levels,
        publication=SimpleNamespace(run_id="replaced"),
        can_republish_released_rows=lambda source: only_its_rows,
    )
    nothing: Any = None
    drafted: Any = sqlanon.withdrawal._draft_withdrawal(workspace, published, is_fixed, nothing, nothing)
    assert drafted == Drafted(prepared, ReplacedRelease("replaced", only_its_rows))


def test_figures_of_the_withdrawal_stand_beside_those_of_the_new_version() -> None:
    published: Any = SimpleNamespace(publication=SimpleNamespace(path=None), manifest=SimpleNamespace(released_rows=9))
    withdrawn = sqlanon.withdrawal.Withdrawal(published, replace(SAME, withdrawn_persons=2), None)
    withdrawn.result = cast(Any, SimpleNamespace(to_dict=lambda: {"released_rows": 7, "source_change": None}))
    figures = withdrawn.to_dict()
    assert [figures[name] for name in ("released_before", "released_rows", "withdrawn_persons")] == [9, 7, 2]
    assert figures["source_change"]["withdrawn_persons"] == 2


@pytest.mark.parametrize(
    ("change", "drafts"),
    [
        (SAME, []),
        (replace(SAME, missing_rows=8), [True, False]),  # at the levels of the release, then at others
        (replace(SAME, missing_rows=9), None),
        (replace(SAME, missing_rows=9, deleted_rows=8), [True, False]),  # one of them has only changed
        (replace(SAME, missing_rows=0, deleted_rows=9), None),
    ],
)
def test_a_release_keeps_a_row_or_is_to_be_removed(
    change: SourceChange, drafts: list[bool] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release of nine rows; the remaining rows are infeasible at all of its levels."""
    manifest = SimpleNamespace(released_rows=9)
    published = SimpleNamespace(publication=SimpleNamespace(path=Path("r"), table_name="r"), manifest=manifest)
    drafted = list[bool]()

    def draft_withdrawal(workspace: Any, published: Any, is_fixed: bool, *_: Any) -> None:
        drafted.append(is_fixed)
        raise InfeasibleError("no generalization", {}, 0, 0)

    for name, answer in {
        "find_published_release": published,
        "count_source_rows": 10,
        "recorded_location": None,
        "measure_source_change": change,
    }.items():
        monkeypatch.setattr(sqlanon.withdrawal, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(sqlanon.withdrawal, "_draft_withdrawal", draft_withdrawal)
    run = SimpleNamespace(source=None)
    workspace: Any = SimpleNamespace(run=lambda policy, counted: nullcontext(run))

    def withdraw_released() -> None:
        assert sqlanon.withdrawal.withdraw(workspace, cast(Any, None), lambda *_: None).result is None

    if drafts is None:
        with pytest.raises(ReleaseError, match="none of its rows is in the source any more"):
            withdraw_released()
    elif drafts:
        with pytest.raises(InfeasibleError):
            withdraw_released()
    else:
        withdraw_released()
    assert drafted == (drafts or [])


@pytest.mark.thorough
def test_a_new_version_verifies_and_grows(visits: Path) -> None:
    change(visits / "h.duckdb", WITHDRAW_TWO)
    withdraw(visits)
    verification = verify(visits)
    assert verification.verified, verification.failures
    change(
        visits / "h.duckdb", "INSERT INTO visits SELECT 2000 + i, 'n' || i, 25, 'f', 'illness 1' FROM range(4) AS r(i)"
    )
    with sqlanon.connect() as db:
        more = db.extend(policy_of(visits))
        more.publish()
    assert more.added_rows == 4
    assert verify(visits).verified


@pytest.mark.thorough
def test_removal_that_singles_out_a_person_is_refused_with_its_cost(visits: Path) -> None:
    before = (visits / "r.duckdb").read_bytes()
    change(visits / "h.duckdb", DELETE_A_VISIT)
    with pytest.raises(AuditError, match="1 row is gone, fewer than 7 in one class") as error:
        withdraw(visits, force=False)
    message = str(error.value)
    assert "withdraw them later, together with others of their classes" in message
    assert "--force" in message
    assert "readers who kept the earlier release find the rows that are gone" in message
    assert "after" not in message.split("You can:")[1]
    assert (visits / "r.duckdb").read_bytes() == before


@pytest.mark.thorough
def test_whole_classes_are_withdrawn_without_force(visits: Path) -> None:
    """Nine rows of three persons are gone: which of them is whose does not show."""
    change(visits / "h.duckdb", "DELETE FROM visits WHERE pid IN ('p1', 'p21', 'p41')")
    withdrawal = withdraw(visits, force=False)
    assert (withdrawal.source_change.withdrawn_persons, withdrawal.result.suppressed_rows) == (3, 0)
    assert verify(visits).verified


@pytest.mark.thorough
def test_changed_rows_are_published_as_they_are_now(visits: Path) -> None:
    change(visits / "h.duckdb", WITHDRAW_TWO, CHANGE_A_VALUE)
    withdraw(visits)
    assert sum(count for row, count in released_rows(visits).items() if row[-1] == "other") == 1
    assert verify(visits).verified


@pytest.mark.slow
def test_withdraw_without_departed_rows_changes_nothing(visits: Path) -> None:
    change(visits / "h.duckdb", GROW, CHANGE_A_VALUE)
    with sqlanon.connect() as db:
        withdrawal = db.withdraw(policy_of(visits))
        assert withdrawal.result is None
        with pytest.raises(ReleaseError, match="no row of it has left the source"):
            withdrawal.publish()
    assert withdrawal.to_dict()["withdrawn_persons"] == 0


@pytest.mark.thorough
def test_a_coarser_generalization_is_found_where_the_old_one_does_not_hold(tmp_path: Path) -> None:
    """No row may be suppressed, so the classes that are too small without the withdrawn persons are merged."""
    strict = {"search": {"suppression_limit": 0.0}}
    folder = make(tmp_path, **strict)
    change(folder / "h.duckdb", WITHDRAW_TWO)
    withdrawal = withdraw(folder, **strict)
    assert not withdrawal.same_generalization
    assert (withdrawal.result.suppressed_rows, withdrawal.result.released_rows) == (0, 174)
    assert withdrawal.withdrawn_rows is None
    assert "compare the two" in withdrawal.disclosure_note
    assert verify(folder, **strict).verified


@pytest.mark.thorough
@pytest.mark.parametrize("person", ["pid", False])
def test_rows_are_withdrawn_without_a_key(tmp_path: Path, person: Any) -> None:
    """Rows that read alike are matched by their values."""
    options = {"key": False, "person": person}
    folder = make(tmp_path, **options)
    before = released_rows(folder)
    change(folder / "h.duckdb", WITHDRAW_TWO)
    withdraw(folder, **options)
    after = released_rows(folder)
    assert after <= before
    assert sum((before - after).values()) >= 6
    assert verify(folder, **options).verified


@pytest.mark.thorough
def test_ranges_are_searched_again_in_the_whole_source(tmp_path: Path) -> None:
    local = {"search": {"strategy": "mondrian"}}
    folder = make(tmp_path, **local)
    change(folder / "h.duckdb", WITHDRAW_TWO, GROW)
    withdrawal = withdraw(folder, **local)
    assert not withdrawal.only_released_rows
    assert sum(released_rows(folder).values()) == 178
    assert verify(folder, **local).verified


@pytest.mark.thorough
def test_a_measure_of_classes_keeps_the_levels_and_takes_the_whole_source(tmp_path: Path) -> None:
    measured = {"search": {"measure": "discernibility", "suppression_limit": 0.5}}
    folder = make(tmp_path, **measured)
    change(folder / "h.duckdb", WITHDRAW_TWO, GROW)
    withdrawal = withdraw(folder, **measured)
    assert (withdrawal.only_released_rows, withdrawal.same_generalization) == (False, True)
    withdrawal = verify(folder, **measured)
    assert withdrawal.verified, withdrawal.failures


@pytest.mark.slow
def test_suppressed_rows_are_not_shown_by_label_beside_the_old_version(tmp_path: Path) -> None:
    """Readers of both versions would distinguish withdrawn persons from suppressed ones."""
    options = {"person": False, "search": {"measure": "discernibility", "suppression_limit": 0.5}}
    change(tmp_path / "h.duckdb", CREATE.replace("180", "177"))
    with sqlanon.connect() as db:
        db.anonymize(policy_of(tmp_path, **options)).publish()
    change(
        tmp_path / "h.duckdb", "DELETE FROM visits WHERE age = 21 AND id <> 1", "DELETE FROM visits WHERE id % 20 = 2"
    )
    withdraw(tmp_path, **options)
    verification = verify(tmp_path, **options)
    assert verification.verified, verification.failures
    assert not verification.suppressed


@pytest.mark.thorough
def test_a_result_that_others_have_overtaken_is_not_published(visits: Path) -> None:
    change(visits / "h.duckdb", WITHDRAW_TWO)
    with sqlanon.connect() as db:
        withdrawal = db.withdraw(policy_of(visits))
        withdrawal.publish(force=True)
        with pytest.raises(ReleaseError, match="was replaced in the meantime"):
            withdrawal.publish(force=True)


@pytest.mark.slow
def test_release_without_remaining_rows_must_be_removed(visits: Path) -> None:
    change(visits / "h.duckdb", "DELETE FROM visits", GROW)
    with sqlanon.connect() as db, pytest.raises(ReleaseError, match=r"none of its rows is in the source any more"):
        db.withdraw(policy_of(visits))


@pytest.mark.thorough
def test_closeness_is_compared_with_the_whole_source(tmp_path: Path) -> None:
    close = {"privacy": {"k": K, "t_closeness": [{"attribute": "illness", "distance": "equal", "t": 0.9}]}}
    folder = make(tmp_path, **close)
    change(folder / "h.duckdb", WITHDRAW_TWO, GROW)
    assert not withdraw(folder, **close).only_released_rows
    assert verify(folder, **close).verified


@pytest.mark.thorough
def test_earlier_versions_do_not_stay_in_the_file(tmp_path: Path) -> None:
    retained_versions = {"release": {"keep": 2}}
    folder = make(tmp_path, **retained_versions)
    change(folder / "h.duckdb", WITHDRAW_TWO)
    withdraw(folder, **retained_versions)
    names = fetch(folder / "r.duckdb", "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main'")
    assert len(names) == 1
    assert verify(folder, **retained_versions).verified


@pytest.mark.thorough
def test_a_release_beside_others_stays_safe_beside_them(tmp_path: Path) -> None:
    """The second release is based on the first one, which is withdrawn from later."""
    first = {"release": {"database": tmp_path / "first.duckdb"}}
    folder = make(tmp_path, **first)
    with sqlanon.connect() as db:
        second = policy_of(folder, release={"after": ["first"]})
        db.anonymize(second).publish()
    change(folder / "h.duckdb", WITHDRAW_TWO)
    withdrawal = withdraw(folder, release={"after": ["first"]})
    assert withdrawal.result.smallest_class >= K
    assert verify(folder, release={"after": ["first"]}).verified


@pytest.mark.slow
def test_longer_texts_under_a_mask_are_refused(tmp_path: Path) -> None:
    """The person who left had the longest text: all labels are others without it."""
    masked = {
        "source": {"database": tmp_path / "h.duckdb", "table": "t", "key": ["id"]},
        "attributes": {
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 1},
            "illness": {"role": "sensitive"},
        },
        "privacy": {"k": 2},
        "search": {"suppression_limit": 0.5},
        "release": {"database": tmp_path / "r.duckdb", "table": "t"},
        "catalog": {"database": tmp_path / "c.duckdb"},
    }
    change(
        tmp_path / "h.duckdb",
        "CREATE TABLE t AS SELECT i AS id, '1' || i // 3 AS zip, 'ill' AS illness FROM range(12) AS r(i)",
        "INSERT INTO t VALUES (100, '12345', 'ill'), (101, '12346', 'ill')",
    )
    with sqlanon.connect() as db:
        db.anonymize(sqlanon.Policy.model_validate(masked)).publish()
    change(tmp_path / "h.duckdb", "DELETE FROM t WHERE id >= 100")
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match=r"zip: .* values have another label"):
        db.withdraw(sqlanon.Policy.model_validate(masked))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"catalog": None}, PolicyError, "catalog is missing|catalog: missing: withdraw needs"),
        ({"privacy": {"k": 2}}, ReleaseError, "was made by another policy"),
        ({"release": {"database": "elsewhere.duckdb"}}, ReleaseError, "has no release of this source"),
    ],
)
def test_impossible_withdrawals_are_refused(
    visits: Path, more: dict[str, Any], error: type[Exception], message: str
) -> None:
    change(visits / "h.duckdb", WITHDRAW_TWO)
    parts = policy_of(visits).model_dump(mode="json", exclude_none=True)
    parts = {name: part for name, part in (parts | more).items() if part is not None}
    with sqlanon.connect() as db, pytest.raises(error, match=message):
        db.withdraw(sqlanon.Policy.model_validate(parts))


def test_a_changed_release_is_not_published_again(visits: Path) -> None:
    change(visits / "h.duckdb", WITHDRAW_TWO)
    change(visits / "r.duckdb", "CREATE TABLE other AS SELECT 1 AS x")
    with sqlanon.connect() as db, pytest.raises(ReleaseError, match="were changed"):
        db.withdraw(policy_of(visits))


@pytest.mark.thorough
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interruption_leaves_the_old_version_or_the_new_one(
    visits: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A run that ends at the last step: the ledger names its release, and the next run continues from it."""
    commit = FileTarget.commit

    def interrupt_run(*arguments: Any) -> Any:
        if when == "after":
            commit(*arguments)
        raise KeyboardInterrupt

    before = (visits / "r.duckdb").read_bytes()
    change(visits / "h.duckdb", WITHDRAW_TWO)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FileTarget, "commit", interrupt_run)
        withdraw(visits)
    assert ((visits / "r.duckdb").read_bytes() == before) == (when == "before")
    query = "SELECT count(*), count(withdraws) FROM sqlanon.releases WHERE replaced_at IS NULL AND intended_at IS NULL"
    assert fetch(visits / "c.duckdb", query) == [(1, 0 if when == "before" else 1)]
    if when == "before":
        assert failed_checks(verify(visits)) == {"against the source: unchanged source"}
        withdraw(visits)
    assert verify(visits).verified


def check_ledger(catalog: Path, release: Path, run_id: str) -> None:
    """The ledger knows that the version of a run was replaced, and which one replaced it."""
    query = "SELECT replaced_at IS NULL, withdraws, breaks, intended_at FROM sqlanon.ledger ORDER BY published_at"
    old, new = fetch(catalog, query)
    assert old[:2] == (False, None)
    assert new == (True, run_id, [str(release)], None)
    assert fetch(catalog, f"SELECT count(*) FROM sqlanon.released_keys WHERE run_id = '{run_id}'") == [(0,)]


@pytest.mark.slow
def test_the_command_line_shows_and_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    change(tmp_path / "h.duckdb", CREATE)
    (tmp_path / "policy.toml").write_text(POLICY.format(person='"pid"') + "[search]\nsuppression_limit = 0.5\n")
    assert cli("anonymize", "policy.toml").status == 0
    catalog = tmp_path / "sqlanon.catalog.duckdb"
    ((run_id,),) = fetch(catalog, "SELECT run_id FROM sqlanon.releases")
    assert cli("withdraw", "policy.toml").status == 0
    assert "nothing to withdraw" in capsys.readouterr().out
    change(tmp_path / "h.duckdb", WITHDRAW_TWO, DELETE_A_VISIT)
    before = (tmp_path / "r.duckdb").read_bytes()
    assert cli("withdraw", "policy.toml", "--dry-run", "--sql").status == 0
    out = capsys.readouterr().out
    assert "since the release: 2 persons are withdrawn; 7 released rows were deleted" in out
    assert "What this reveals: readers who kept the earlier version see which rows are gone" in out
    assert "19 rows in 3 classes, at least 1 in each" in out
    assert "SELECT" in out
    assert cli("withdraw", "policy.toml").status == 1
    assert (tmp_path / "r.duckdb").read_bytes() == before
    assert "--force" in capsys.readouterr().err
    assert cli("withdraw", "policy.toml", "--force", "--json").status == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["withdrawn_persons"], document["released_before"], document["released_rows"]) == (2, 180, 161)
    assert document["withdrawn_rows"] == {"rows": 19, "classes": 3, "fewest": 1}
    assert document["release"] == str(tmp_path / "r.duckdb")
    check_ledger(catalog, tmp_path / "r.duckdb", run_id)
    assert cli("verify", "r.duckdb", "--policy", "policy.toml").status == 0
