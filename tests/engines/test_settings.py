"""Limits of a run: memory and threads, and its folder for spilling; no answer depends on them."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import SourceError
from sqlanon.release import contents
from sqlanon.support.workdir import SPILL_PREFIX, spill_directory
from support.commands import cli
from support.lanes import some
from support.policies import make_policy

pytestmark = pytest.mark.slow

ROWS = 400_000
LITTLE = "50MB"
"""Less than the copy of the big file and a release of it take together."""
ROLES = {"zip": "suppress", "age": {"intervals": [5, 10]}, "note": "sensitive"}
POLICY = """
[source]
files = "big.csv"
[attributes]
zip = { role = "quasi", hierarchy = "suppress" }
age = { role = "quasi", hierarchy = { intervals = [5, 10] } }
note = { role = "sensitive" }
[privacy]
k = 5
[release]
database = "release.duckdb"
table = "people"
"""


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table that does not fit in little memory, and a policy."""
    folder = tmp_path_factory.mktemp("big")
    duckdb.connect().execute(
        "COPY (SELECT hash(i) % 7 AS zip, hash(i + 1) % 50 AS age, md5(i::VARCHAR) || md5((i + 1)::VARCHAR) AS note "
        f"FROM range({ROWS}) AS r(i)) TO '{folder / 'big.csv'}'"
    )
    (folder / "policy.toml").write_text(POLICY)
    return folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's directory for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(folder)  # where an engine would spill to by itself
    return folder


@contextmanager
def watch_sizes(*folders: Path) -> Iterator[dict[Path, int]]:
    """The most bytes that each of the files in the folders had at any time."""
    most: dict[Path, int] = {}
    done = Event()

    def watch() -> None:
        while not done.wait(0.002):
            with suppress(OSError):  # a file or a folder is gone already
                for path in (path for folder in folders for path in folder.rglob("*")):
                    most[path] = max(most.get(path, 0), path.stat().st_size)

    thread = Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def settings(connection: Any) -> tuple[Any, ...]:
    row: tuple[Any, ...] = connection.execute(
        "SELECT current_setting('memory_limit'), current_setting('threads'), current_setting('temp_directory')"
    ).fetchone()
    return row


# The settings


@pytest.mark.parametrize(
    "size", ["lots", "", "2", "2000000000", "GB", "-2GB", "2 PB", "80%", "1e3MB", "none", "２GB", 2, 1.5, True]
)
def test_a_malformed_memory_limit_is_refused(size: Any) -> None:
    with pytest.raises(SourceError, match=r"memory_limit: .* is not a size.*2GB"):
        sqlanon.connect("nowhere.duckdb", memory_limit=size)


def test_a_memory_limit_that_no_machine_has_is_refused() -> None:
    with pytest.raises(SourceError, match=r"memory_limit: 9{20}TB is more than any machine has"):
        sqlanon.connect(memory_limit=f"{'9' * 20}TB")


@pytest.mark.parametrize("size", ["0GB", "10KB", "9.5MB"])
def test_a_memory_limit_that_is_too_little_is_refused(size: str) -> None:
    with pytest.raises(SourceError, match=r"memory_limit: .* is too small"):
        sqlanon.connect(memory_limit=size)


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True, 1025, 10**11])
def test_invalid_thread_counts_are_refused(threads: Any) -> None:
    with pytest.raises(SourceError, match=r"threads: .* from 1 to"):
        sqlanon.connect("nowhere.duckdb", threads=threads)


@pytest.mark.parametrize("configuration", [{"memory_limit": "1GB"}, {"threads": 1}])
def test_the_settings_of_a_live_connection_are_its_own(configuration: dict[str, Any]) -> None:
    with duckdb.connect() as connection:
        before = settings(connection)
        with pytest.raises(SourceError, match=r"live connection has its own settings.*SET"):
            sqlanon.connect(connection, **configuration)
        with sqlanon.connect(connection):
            assert settings(connection) == before


@pytest.mark.thorough
@pytest.mark.parametrize("size", ["300MB", "300 mb", "0.3GB"])
def test_settings_reach_every_engine_that_reads(size: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        with duckdb.connect(tmp_path / f"{name}.duckdb") as connection:
            connection.execute("CREATE TABLE t AS SELECT i % 2 AS x FROM range(8) AS r(i)")
    with sqlanon.connect(memory_limit=size, threads=3) as db:
        for name in ("one", "two"):
            database = str(tmp_path / f"{name}.duckdb")
            db.anonymize(make_policy({"x": "suppress"}, source={"database": database, "table": "t"}))
        space = db._workspace
        values = {settings(engine.connection) for engine in (space.engine, *space._readers.values())}
        assert len(space._readers) == 2
        ((memory, threads, spill),) = values
        assert (memory, threads) == ("286.1 MiB", 3)
        assert Path(spill).name.startswith(SPILL_PREFIX)
        assert space.engine.limits == Limits("286.1 MiB", 3)


@pytest.mark.thorough
@pytest.mark.parametrize("name", some(["release.duckdb", "release.parquet"], 2))
def test_settings_reach_every_engine_that_writes_and_verifies(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a private directory to spill to, too."""
    (tmp_path / "s.csv").write_text("x\n" + "1\n" * 4)
    contents._library_statements(
        contents.library_files([])
    )  # reads the macro library once a process, in an engine of its own without data
    seen = []
    real = duckdb.connect

    def connect(*arguments: Any, **keywords: Any) -> duckdb.DuckDBPyConnection:
        connection = real(*arguments, **keywords)
        memory, threads, spill = settings(connection)
        assert stat.S_IMODE(Path(spill).stat().st_mode) == 0o700
        seen.append((memory, threads))
        return connection

    monkeypatch.setattr(duckdb, "connect", connect)
    with sqlanon.connect(tmp_path / "s.csv", memory_limit="512MiB", threads=3) as db:
        policy = make_policy({"x": "suppress"}, table=None)
        db.anonymize(policy).publish(tmp_path / name)
        db.anonymize(policy).publish(tmp_path / name)  # replaces what is there
        db.verify(tmp_path / name, policy)
    assert len(seen) > 3
    assert set(seen) == {("512.0 MiB", 3)}


@pytest.mark.thorough
def test_the_command_line_has_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.csv").write_text("x\n" + "1\n" * 4)
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'source.files = "s.csv"\nprivacy.k = 2\nattributes.x = { role = "quasi", hierarchy = "suppress" }\n'
        'release.database = "r.duckdb"\n'
    )
    seen = []
    real = DuckDBEngine.open_private

    def private(spill: Path, limits: Limits = NO_LIMITS, *more: Any) -> DuckDBEngine:
        seen.append(limits)
        return real(spill, limits, *more)

    monkeypatch.setattr(DuckDBEngine, "open_private", private)
    commands: list[list[Any]] = [
        ["anonymize", policy],
        ["risk", policy],
        ["verify", tmp_path / "r.duckdb", "--policy", policy],
        ["verify", tmp_path / "r.duckdb"],
    ]
    for arguments in commands:
        seen.clear()
        assert cli(*arguments, "--memory-limit", "256MB", "--threads", "2").status == 0
        # Engines without limits list the names in a file, or load the macro library: they read no rows.
        assert next(limits for limits in seen if limits != NO_LIMITS) == Limits("256MB", 2)
        for options, message in (
            (["--memory-limit", "lots"], "Invalid value for '--memory-limit': 'lots' is not a size"),
            (["--threads", "0"], "Invalid value for '--threads': must be an integer from 1 to 1,024, not '0'"),
        ):
            done = cli(*arguments, *options)
            assert done.status == 2
            assert message in done.err


@pytest.mark.thorough
def test_too_little_memory_is_reported_and_not_blamed_on_the_source(big: Path) -> None:
    with (
        sqlanon.connect(big / "big.csv", memory_limit="10MB", threads=1) as db,
        pytest.raises(SourceError, match=r"needs more memory.*memory_limit"),
    ):
        db.anonymize(make_policy(ROLES, table=None))


# Where it spills to


@pytest.mark.thorough
def test_an_engine_spills_to_its_private_directory_and_nowhere_else(temporary: Path) -> None:
    with watch_sizes(temporary) as most, spill_directory() as spill:
        engine = DuckDBEngine.open_private(spill, Limits("30MB", 1))
        engine.script(
            "CREATE TABLE t AS SELECT md5(i::VARCHAR) || md5((i + 1)::VARCHAR) AS x FROM range(500000) AS r(i)"
        )
        assert stat.S_IMODE(spill.stat().st_mode) == 0o700
        assert sum(path.stat().st_size for path in spill.iterdir()) > 1_000_000
        engine.close()
    assert {path for path in most if spill not in (path, path.parent)} == set()
    assert list(temporary.iterdir()) == []


def answer(big: Path, release: Path, **limits: Any) -> tuple[Any, ...]:
    with sqlanon.connect(big / "big.csv", **limits) as db:
        result = db.anonymize(make_policy(ROLES, k=1_200, table=None, search={"suppression_limit": 0.1}))
        digest = result.publish(release, "people").manifest.digest
        return result.generalization, result.score, result.suppressed_rows, result.classes, digest


@pytest.mark.thorough
def test_an_answer_depends_on_neither_threads_nor_spilling(big: Path, temporary: Path, tmp_path: Path) -> None:
    """A run that spills uses its own directory only, and removes it."""
    with watch_sizes(temporary, big) as most:
        spilled = answer(big, tmp_path / "spilled.duckdb", memory_limit=LITTLE, threads=1)
    files = [path for path in most if path.parent.name.startswith(SPILL_PREFIX)]
    assert sum(most[path] for path in files) > 1_000_000
    assert {path.parent for path in most if path not in files} == {big, temporary}
    assert all(path.name.startswith(SPILL_PREFIX) for path in most if path.parent == temporary)
    assert list(temporary.iterdir()) == []
    assert answer(big, tmp_path / "plain.duckdb", threads=2) == spilled


@pytest.mark.thorough
@pytest.mark.parametrize("limits", [{"threads": 1}, {"threads": 3}, {"memory_limit": "120MB", "threads": 3}], ids=str)
def test_an_answer_is_the_same_with_other_settings(limits: dict[str, Any], big: Path, tmp_path: Path) -> None:
    assert answer(big, tmp_path / "a.duckdb", **limits) == answer(big, tmp_path / "b.duckdb", threads=2)


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_spilled_files_of_a_killed_run_are_removed_by_the_next(big: Path, temporary: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sqlanon", "anonymize", big / "policy.toml", "--memory-limit", LITTLE, "--threads", "1"],
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    try:
        end = time.monotonic() + 600
        while not any(path.stat().st_size for path in temporary.glob(f"{SPILL_PREFIX}*/*.tmp")):
            assert process.poll() is None, "it ended without spilling"
            assert time.monotonic() < end
            time.sleep(0.002)
    finally:
        process.kill()
        process.wait()
    (left,) = temporary.iterdir()
    assert stat.S_IMODE(left.stat().st_mode) == 0o700
    assert any(path.stat().st_size for path in left.iterdir())
    with sqlanon.connect():
        assert left not in temporary.iterdir()
    assert list(temporary.iterdir()) == []
