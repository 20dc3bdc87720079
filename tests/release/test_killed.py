"""Runs that are killed while they publish, and runs at the same time: what readers have, and what the ledger knows."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from killed_runs import file_release, folder, killed_at, make, policy, query_catalog, source

import sqlanon
import sqlanon.publish.targets.file.target as publishing
from sqlanon.ledger import Publication, read_ledger, recording
from sqlanon.publish.targets.base import Reach, release_location
from sqlanon.publish.targets.postgres.reader import PostgresLocation
from sqlanon.support.workdir import BusyError, exclusive_lock, new_file_mode, private_files
from support.lanes import EXAMPLES, share
from support.ledger_hospital import FINE_RACE, FINE_ZIP, hospital
from support.ledger_hospital import policy as of_hospital
from support.servers.postgres import VARIABLE, Server
from support.thresholds import PATIENCE

__all__ = ["folder", "hospital", "source"]  # fixtures

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")

KILLED = Path(__file__).with_name("killed.py")
END = 100_000
"""No run takes this number of steps."""


def start(*arguments: str | Path | int) -> subprocess.Popen[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments: str | Path | int) -> tuple[int, str]:
    process = start(*arguments)
    out, errors = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), errors
    return process.returncode, out


@dataclass(frozen=True)
class Target:
    """A release location: its names in policies and in the ledger, and what readers find there."""

    section: str
    place: str
    claims: Callable[[], Any]


def file_target(folder: Path, name: str) -> Target:
    path = folder / name
    return Target(file_release(name), str(path), lambda: release_location(path, None).verify())


def check_ledger(folder: Path, target: Target, publications: int) -> None:
    """The ledger records the location as readers have it, with its keys and hierarchies, and no other release."""
    claims = target.claims()
    assert claims.verified, claims.failures
    rows = query_catalog(
        folder,
        "SELECT run_id, digest, manifest_hash FROM sqlanon.releases "
        "WHERE path = ? AND replaced_at IS NULL AND intended_at IS NULL",
        target.place,
    )
    assert [row[1:] for row in rows] == [(claims.digest, claims.manifest.fingerprint())]
    assert query_catalog(folder, "SELECT count(*) FROM sqlanon.releases WHERE intended_at IS NOT NULL") == [(0,)]
    assert query_catalog(folder, "SELECT count(*) FROM sqlanon.releases WHERE path = ?", target.place) == [
        (publications,)
    ]
    keys = query_catalog(
        folder, "SELECT count(*), count(DISTINCT key_hash) FROM sqlanon.released_keys WHERE run_id = ?", rows[0][0]
    )
    assert keys == [(claims.manifest.released_rows,) * 2]
    trees = "SELECT attribute, table_name FROM sqlanon.released_hierarchies WHERE run_id = ? ORDER BY ALL"
    attributes = query_catalog(folder, trees, rows[0][0])
    assert [name for name, _ in attributes] == ["age", "zip"]
    for _, name in attributes:
        assert query_catalog(folder, f'SELECT count(*) > 0 FROM sqlanon."{name}"') == [(True,)]
    standing = "SELECT run_id FROM sqlanon.releases WHERE replaced_at IS NULL"
    for table in ("released_keys", "released_hierarchies"):
        assert query_catalog(folder, f"SELECT run_id FROM sqlanon.{table} WHERE run_id NOT IN ({standing})") == []


def opened_ledger(path: Path) -> list[Publication]:
    """First step of a publishing run: it reads the ledger."""
    document = sqlanon.Policy.load(path)
    assert document.catalog is not None
    with sqlanon.connect() as db:
        return read_ledger(db._workspace.engine, document.catalog.database, Reach(document)).publications


def check_each_step(folder: Path, target: Target, begin: str, names: tuple[str, ...] = ()) -> None:
    """Kill a run at each step from a function on, or before the steps of some names, and have the next one look."""
    policies = [policy(folder, f"k{k}", target.section, k) for k in (5, 30)]
    status, steps = run(KILLED, policies[0], END, begin)
    assert status == 0
    matching = [i for i, name in enumerate(steps.splitlines()) if name in names]
    # With few examples, a sample of many steps; every step of a few.
    chosen: Iterable[int] = share(matching, 8) if names else itertools.count(0, max(1, round(1 / EXAMPLES)))
    expected, turn = 1, 0
    for at in chosen:
        before = target.claims().digest
        turn += target.claims().manifest.policy["privacy"]["k"] == (5, 30)[turn % 2]  # another one than is there
        status, _ = run(KILLED, policies[turn % 2], at, begin)
        after = target.claims()
        assert after.verified, (at, after.failures)
        expected += after.digest != before
        opened_ledger(policies[0])
        check_ledger(folder, target, expected)
        if status == 0:
            assert at > len(steps.splitlines()) - 10
            break
    # The next one publishes elsewhere, and is held against what there is; and what was left goes with the one after it.
    result, _ = make(policy(folder, "other", file_release("other.duckdb"), 50), force=True)
    assert [Path(path).name for path in result.held_against] == [Path(target.place).name]
    make(policies[0], force=True)
    check_ledger(folder, target, expected + 1)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.thorough
def test_killed_without_the_ledger_it_leaves_no_release_that_is_gone(folder: Path) -> None:
    """The replaced release is not a release any more; and the ledger does not know the new one."""
    target = file_target(folder, "r.duckdb")
    unrecorded = policy(folder, "unrecorded", f"{target.section}ledger = false\n", 30)
    make(policy(folder, "first", target.section))
    status, steps = run(KILLED, unrecorded, END, "publish")
    (renamed,) = [i for i, name in enumerate(steps.splitlines()) if name == "replace"]
    assert status == 0 and query_catalog(folder, "SELECT count(*), count(replaced_at) FROM sqlanon.releases") == [
        (1, 1)
    ]
    for at, is_out in ((renamed, False), (renamed + 1, True)):
        make(policy(folder, "first", target.section), force=True)
        assert run(KILLED, unrecorded, at, "publish")[0] == -signal.SIGKILL
        assert (target.claims().manifest.policy["privacy"]["k"] == 30) == is_out
        assert query_catalog(folder, "SELECT count(*) FROM sqlanon.releases WHERE intended_at IS NOT NULL") == [(1,)]
        standing = opened_ledger(unrecorded)
        assert [release.path.name for release in standing] == ([] if is_out else ["r.duckdb"])
        assert query_catalog(folder, "SELECT count(*) FROM sqlanon.releases WHERE run_id = ''") == [(0,)]
    make(policy(folder, "other", file_release("other.duckdb"), 50))  # held against nothing that is gone


@pytest.mark.parametrize(
    ("name", "names"),
    [
        pytest.param("r.duckdb", ("fsync",), marks=pytest.mark.slow),
        pytest.param("r.duckdb", (), marks=pytest.mark.slow),
        pytest.param("r.parquet", (), marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_killed_at_any_step_of_putting_a_file_in_its_place(
    folder: Path, name: str, names: tuple[str, ...]
) -> None:
    check_each_step(folder, file_target(folder, name), "recording" if names else "_flush", names)


@pytest.mark.thorough
def test_a_run_that_is_killed_before_it_has_anything_to_put_in_a_place(folder: Path) -> None:
    target = file_target(folder, "r.duckdb")
    check_each_step(
        folder, target, "_publish_once", ("call duckdb.script", "chmod", "mkdir", "return duckdb.transaction")
    )


@pytest.mark.thorough
def test_a_run_that_is_killed_at_any_step_of_publishing_in_postgres(folder: Path, postgres: Server) -> None:
    """Also right after COMMIT."""
    postgres.run("DROP SCHEMA IF EXISTS killed CASCADE", "CREATE SCHEMA killed")
    address = f"env:{VARIABLE}"
    place = str(PostgresLocation.parse(address, "killed.r").path)
    section = f'postgres = "{address}"\ntable = "killed.r"\n'
    check_each_step(folder, Target(section, place, lambda: release_location(address, "killed.r").verify()), "recording")


@pytest.mark.slow
def test_new_release_is_compared_with_publications_of_killed_runs(folder: Path) -> None:
    """Its place cannot be read: it counts as out. Then it can, and the ledger has it, or forgets it."""
    (folder / "there").mkdir()
    first, second = policy(folder, "one", file_release("r.duckdb")), policy(folder, "two", file_release("two.duckdb"))
    first.write_text(first.read_text().replace('"r.duckdb"', '"there/r.duckdb"'))
    for is_out in (True, False):
        with killed_at(*((recording, "complete_intent") if is_out else (publishing, "swap_in"))):
            make(first)
        (folder / "there").rename(folder / "gone")
        with pytest.raises(sqlanon.AuditError, match="an interrupted run may have published it") as error:
            make(second)
        assert str(folder / "there" / "r.duckdb") in str(error.value)
        assert query_catalog(folder, "SELECT count(*) FROM sqlanon.releases WHERE intended_at IS NOT NULL") == [(1,)]
        if is_out:
            assert not (folder / "two.duckdb").exists()
        (folder / "gone").rename(folder / "there")
        make(second)
        states = query_catalog(
            folder, "SELECT intended_at IS NULL FROM sqlanon.releases WHERE path LIKE '%/there/r.duckdb'"
        )
        assert states == [(True,)]  # the second was not put there
        (folder / "two.duckdb").unlink()


@pytest.mark.slow
def test_a_crash_between_the_rename_and_the_ledger_does_not_let_the_complementary_release_out(
    hospital: Path,
) -> None:
    with killed_at(recording, "complete_intent"), sqlanon.connect() as db:
        db.anonymize(of_hospital(hospital, "one", FINE_RACE)).publish()
    assert (hospital / "one.duckdb").exists()
    with sqlanon.connect() as db, pytest.raises(sqlanon.AuditError, match="complementary release"):
        db.anonymize(of_hospital(hospital, "two", FINE_ZIP)).publish()
    assert not (hospital / "two.duckdb").exists()


# At the same time

# However busy the machine is, the others wait until one is done.
PATIENT = "from sqlanon.ledger import catalog; catalog.PATIENCE = 600; from sqlanon.cli import main; main()"


@pytest.mark.slow
def test_two_runs_at_once_of_releases_that_are_not_safe_together_publish_one(
    hospital: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PATIENCE, 600)
    done: list[BaseException | None] = []
    ready = threading.Barrier(2)

    def publish(name: str, levels: dict[str, int]) -> None:
        with sqlanon.connect() as db:
            result = db.anonymize(of_hospital(hospital, name, levels))
            ready.wait()
            try:
                result.publish()
            except sqlanon.SqlanonError as error:
                done.append(error)
            else:
                done.append(None)

    threads = [
        threading.Thread(target=publish, args=arguments) for arguments in (("one", FINE_RACE), ("two", FINE_ZIP))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(error).__name__ for error in done) in (["AuditError", "NoneType"], ["NoneType", "SourceError"])
    assert [(hospital / f"{name}.duckdb").exists() for name in ("one", "two")].count(True) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_runs_at_once_that_keep_versions_lose_none(folder: Path, shared: bool) -> None:
    """They share a catalog. With one each, only the first is published: others do not know the versions to keep."""
    number = 3
    policies = [policy(folder, f"p{i}", file_release("r.duckdb", keep=number)) for i in range(number)]
    if not shared:
        for path in policies:
            path.write_text(path.read_text().replace('"private.duckdb"', f'"private_{path.stem}.duckdb"'))
    processes = [start("-c", PATIENT, "anonymize", path) for path in policies]
    errors = [process.communicate()[1] for process in processes]
    codes = [process.returncode for process in processes]
    versions = [1, 2, 3] if shared else [1]
    assert sorted(codes) == ([0] * number if shared else [0, 2, 2]), errors
    refused = [error for code, error in zip(codes, errors, strict=True) if code]
    assert all("it was not compared with this release" in str(error) for error in refused), errors
    with duckdb.connect(folder / "r.duckdb", read_only=True) as release:
        rows = release.execute("SELECT version, digest FROM sqlanon.manifest ORDER BY version").fetchall()
        assert [version for version, _ in rows] == versions
        for i in versions:
            assert release.execute(f"SELECT count(*) > 0 FROM patients_v{i}").fetchone() == (True,)
    if shared:
        standing = "SELECT version, digest FROM sqlanon.releases WHERE replaced_at IS NULL ORDER BY version"
        assert query_catalog(folder, standing) == rows
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


# Locks and modes


def test_a_lock_is_had_by_one_and_leaves_nothing(tmp_path: Path) -> None:
    place, inside, seen = tmp_path / "r.duckdb", 0, []

    def work() -> None:
        nonlocal inside
        for _ in range(50):
            with exclusive_lock(place):
                inside += 1
                seen.append(inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 200
    assert list(tmp_path.iterdir()) == []
    with exclusive_lock(place), pytest.raises(BusyError), exclusive_lock(place, timeout=0.05):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.slow
@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("name", ["r.duckdb", pytest.param("r.parquet", marks=pytest.mark.slow)])
def test_a_release_with_a_catalog_has_the_mode_of_a_new_file_or_of_the_one_before(folder: Path, name: str) -> None:
    path = policy(folder, "p", file_release(name))
    with private_files():  # of another thread
        make(path)
    assert os.umask(0o022) == 0o022
    release = folder / name
    assert stat.S_IMODE(release.stat().st_mode) == 0o644
    assert stat.S_IMODE((folder / "private.duckdb").stat().st_mode) == 0o600
    release.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(release, 65534, 65534)
    owner = release.stat().st_uid, release.stat().st_gid
    make(path)
    assert stat.S_IMODE(release.stat().st_mode) == 0o640
    assert (release.stat().st_uid, release.stat().st_gid) == owner


@pytest.mark.slow
@pytest.mark.usefixtures("umask")
def test_a_group_that_cannot_be_kept_gets_no_more_than_everybody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = policy(folder, "p", file_release("r.duckdb"))
    make(path)
    release = folder / "r.duckdb"
    release.chmod(0o664)
    real = Path.stat

    def of_another_group(self: Path, **more: Any) -> os.stat_result:
        status = real(self, **more)
        return (
            os.stat_result([*status[:5], status.st_gid + (self == release), *status[6:10]])
            if self == release
            else status
        )

    def refuse_change(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", refuse_change)
    staged = folder / "staged"
    staged.write_text("")
    monkeypatch.setattr(Path, "stat", of_another_group)
    publishing._copy_permissions(staged, release)
    monkeypatch.undo()
    assert stat.S_IMODE(staged.stat().st_mode) == 0o644


@pytest.mark.usefixtures("umask")
def test_threads_with_private_files_give_the_mask_back() -> None:
    ready = threading.Barrier(2)

    def hold_private_files() -> None:
        with private_files():
            ready.wait()  # the first is inside
            ready.wait()  # and has left
            assert new_file_mode() == 0o644

    thread = threading.Thread(target=hold_private_files)
    with private_files():
        thread.start()
        ready.wait()
    ready.wait()
    thread.join()
    assert os.umask(0o022) == 0o022
