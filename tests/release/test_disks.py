"""Full disks and unwritable locations: the messages, and the unchanged files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from killed_runs import file_release, make, policy, query_catalog

import sqlanon
from sqlanon.audit.verify import verify_file
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import Limits
from sqlanon.errors import DiskError
from support.lanes import share

pytestmark = pytest.mark.slow

MB = 1_000_000
SIZE = 24 * MB
SIZES = share(list(range(0, 14 * MB, MB)))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A separate small disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source, and places for releases, catalog and temporary files."""
    folder, spill = tmp_path / "work", tmp_path / "spill"
    folder.mkdir()
    spill.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spill))
    with duckdb.connect(folder / "hospital.duckdb") as connection:
        connection.execute(
            "CREATE TABLE patients AS SELECT i AS id, CAST(2130 + hash(i) % 40 AS VARCHAR) AS zip, "
            "CAST(hash(i + 1) % 90 AS INTEGER) AS age, md5(CAST(i AS VARCHAR)) AS illness FROM range(20000) AS r(i)"
        )
    return folder


def leave(disk: Path, free: int) -> None:
    """Fill a disk except for this number of bytes."""
    filler = disk / "filler"
    filler.unlink(missing_ok=True)
    with filler.open("wb") as file:
        file.truncate(0)
        os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(disk).free - free))


def policy_on_disk(work: Path, disk: Path, kind: str) -> Path:
    """A policy with one thing on that disk: its release, or its catalog."""
    for name in ("r.duckdb", "r.parquet", "private.duckdb"):
        (work / name).unlink(missing_ok=True)
    path = policy(work, "p", file_release("r.parquet" if kind == "parquet" else "r.duckdb"))
    if kind == "catalog":
        path.write_text(path.read_text().replace('"private.duckdb"', f'"{disk}/private.duckdb"'))
    else:
        path.write_text(path.read_text().replace('"r.', f'"{disk}/r.'))
    return path


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        pytest.param("database", [2 * MB], marks=pytest.mark.slow),
        *(pytest.param(kind, SIZES, marks=pytest.mark.slow) for kind in ("database", "parquet", "catalog")),
    ],
)
def test_a_full_disk_is_named_and_the_release_stays(work: Path, disk: Path, kind: str, sizes: list[int]) -> None:
    path = policy_on_disk(work, disk, kind)
    _, old = make(path)
    place, failed = old.path, 0
    catalog = disk if kind == "catalog" else work
    for size in [*sizes, SIZE // 2]:
        before, digest = place.read_bytes(), query_catalog(catalog, "SELECT count(*) FROM sqlanon.releases")
        leave(disk, size)
        try:
            make(path)
        except sqlanon.SqlanonError as error:
            failed += 1
            assert f"the disk at {disk}, which" in str(error) or "disk is full" in str(error), (size, str(error))
            assert "\n" not in str(error)
            assert "free space on it" in str(error)
            if kind != "catalog":
                assert "the existing release is unchanged" in str(error)
            if "is published, and the ledger" not in str(error):
                assert place.read_bytes() == before
        (disk / "filler").unlink()
        assert verify_file(place).verified
        assert [path.name for path in place.parent.iterdir() if path.name.startswith(".")] == []
        make(path)
        assert query_catalog(catalog, "SELECT count(*) FROM sqlanon.releases WHERE intended_at IS NOT NULL") == [(0,)]
        standing = query_catalog(catalog, "SELECT digest FROM sqlanon.releases WHERE replaced_at IS NULL")
        assert standing == [(verify_file(place).digest,)], digest
    assert failed


def test_a_source_that_is_removed_while_a_run_is_at_work_is_named(work: Path) -> None:
    source = work / "patients.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT i % 5 AS age, 'a' AS illness FROM range(100) AS r(i)) TO '{source}'")
    requested_policy = sqlanon.Policy(
        source={"files": str(source)},
        attributes={"age": {"role": "quasi", "hierarchy": "suppress"}, "illness": {"role": "sensitive"}},
        privacy={"k": 5},
    )
    with sqlanon.connect() as db:
        result = db.anonymize(requested_policy)
        result.publish(work / "r.duckdb")
        before = (work / "r.duckdb").read_bytes()
        source.unlink()
        with pytest.raises(
            sqlanon.ReleaseError, match=r"the source was removed since it was read: .*patients\.parquet"
        ):
            result.publish(work / "r.duckdb")
    assert (work / "r.duckdb").read_bytes() == before


def test_a_full_disk_for_temporary_files_is_named(disk: Path) -> None:
    spill = disk / "spill"
    spill.mkdir()
    engine = DuckDBEngine.open_private(spill, Limits("60MB", 1))
    leave(disk, 3 * MB)
    with pytest.raises(DiskError) as error:
        engine.script(
            "CREATE TABLE t AS SELECT i, hash(i) AS a, md5(i::VARCHAR) AS b FROM range(3000000) r(i) ORDER BY a"
        )
    engine.close()
    message = f"the disk at {disk}, which {spill} is on, is full ("
    assert str(error.value).startswith(message)
    assert str(error.value).endswith(" MB free): free space on it, or set TMPDIR to a folder on another disk")


@pytest.mark.thorough
def test_full_disk_is_named_in_one_line(work: Path, disk: Path) -> None:
    """A run without room for temporary files, a catalog or a release prints one line and exits with 2, no traceback."""
    path = policy_on_disk(work, disk, "database")
    (disk / "spill").mkdir()
    leave(disk, 0)
    command = [sys.executable, "-m", "sqlanon", "anonymize", str(path)]
    for spill in (disk / "spill", work.parent / "spill"):
        environment = os.environ | {"TMPDIR": str(spill)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert f"the disk at {disk}, which" in done.stderr
        assert "is full (No space left on device, 0.0 MB free): free space on it" in done.stderr


def test_a_disk_that_can_only_be_read(work: Path, disk: Path) -> None:
    path = policy_on_disk(work, disk, "database")
    make(path)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(
        sqlanon.ReleaseError, match=f"the disk at {disk}, .* can only be read .*choose another disk; the"
    ):
        make(path)
    assert verify_file(disk / "r.duckdb").verified


@pytest.mark.thorough
def test_a_limit_of_the_size_of_files_is_named(work: Path, tmp_path: Path) -> None:
    path = policy_on_disk(work, work, "database")
    limited = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "sys.argv = ['sqlanon', 'anonymize', sys.argv[1]]\n"
        "from sqlanon.__main__ import run\n"
        "run()\n"
    )
    done = subprocess.run([sys.executable, "-c", limited, path], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "takes no file as large as that (see ulimit -f)" in done.stderr
    assert "Traceback" not in done.stderr
