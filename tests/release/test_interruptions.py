"""Runs that are killed, interrupted, or simultaneous: the source, the old release and the next run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
import sqlanon.pipeline
import sqlanon.publish.targets.file.target as publishing
import sqlanon.recode.stage
from sqlanon.audit.verify import verify_file
from sqlanon.support.workdir import SPILL_PREFIX, private_directory, remove_stale_directories
from support.databases import opened_catalog
from support.lanes import some

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")

ROWS = 2_000
POLICY = """
[source]
database = "hospital.duckdb"
table = "patients"
[attributes]
name = { role = "identifying" }
zip = { role = "quasi", hierarchy = { mask = "right" } }
age = { role = "quasi", hierarchy = { intervals = [5, 10, 20, 40] } }
illness = { role = "sensitive" }
[privacy]
k = 5
[search]
suppression_limit = 0.05
[release]
"""


@dataclass(frozen=True)
class Place:
    """A source, a policy that differs from the one of the old release, the old release, and a place to spill to."""

    folder: Path
    spill: Path
    release: Path
    source: bytes
    old: sqlanon.Release

    @property
    def leftovers(self) -> list[Path]:
        staging = self.folder.glob(f".{self.release.name}.sqlanon-*")
        return sorted([*staging, *self.spill.iterdir()])

    @property
    def policy(self) -> Path:
        return self.folder / "policy.toml"

    def digest(self) -> str:
        """The digest of the present release, which is verified first."""
        verification = verify_file(self.release)
        assert verification.verified, verification.failures
        return verification.manifest.digest

    def check_source(self) -> None:
        assert (self.folder / "hospital.duckdb").read_bytes() == self.source
        assert not (self.folder / "hospital.duckdb.wal").exists()

    def run(self) -> sqlanon.Release:
        """The next run, in this process."""
        with sqlanon.connect() as db:
            return db.anonymize(sqlanon.Policy.load(self.policy)).publish()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, sqlanon.Release]]:
    """A source, and an old release of each kind."""
    folder = tmp_path_factory.mktemp("template")
    with duckdb.connect(folder / "hospital.duckdb") as connection:
        connection.execute(
            "CREATE TABLE patients AS SELECT 'Person ' || i AS name, CAST(2130 + hash(i) % 40 AS VARCHAR) AS zip, "
            f"CAST(hash(i + 1) % 90 AS INTEGER) AS age, 'illness ' || i % 7 AS illness FROM range({ROWS}) AS r(i)"
        )
    policy, releases = folder / "policy.toml", {}
    for name in (DATABASE_FILE, PARQUET_FILE):
        policy.write_text(policy_text(name, 5))
        with sqlanon.connect() as db:
            releases[name] = db.anonymize(sqlanon.Policy.load(policy)).publish()
    return folder, releases


def policy_text(release: str, k: int) -> str:
    key = "file" if release.endswith(".parquet") else "database"
    return POLICY.replace("k = 5", f"k = {k}") + f'{key} = "{release}"\ntable = "patients"\n'


DATABASE_FILE, PARQUET_FILE = "release.duckdb", "release.parquet"


@pytest.fixture(params=[DATABASE_FILE, pytest.param(PARQUET_FILE, marks=pytest.mark.slow)])
def place(
    request: pytest.FixtureRequest,
    template: tuple[Path, dict[str, sqlanon.Release]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Place:
    spill, folder = tmp_path / "spill", tmp_path / "work"
    spill.mkdir()
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spill))
    made_folder, releases = template
    for name in ("hospital.duckdb", "sqlanon.catalog.duckdb", request.param):
        shutil.copy(made_folder / name, folder / name)
    with opened_catalog(folder / "sqlanon.catalog.duckdb", read_only=False) as ledger:  # the releases were made here
        moved = [str(made_folder.resolve()), str(folder.resolve())]
        ledger.execute("UPDATE sqlanon.releases SET path = replace(path, ?, ?)", moved)
        ledger.execute("UPDATE sqlanon.releases SET source = replace(source, ?, ?)", moved)
    # The next release is another one.
    (folder / "policy.toml").write_text(policy_text(request.param, 30))
    source = (folder / "hospital.duckdb").read_bytes()
    return Place(folder, spill, folder / request.param, source, releases[request.param])


# Killed

# The last step of a killed run. It is given a point to die at: before, after, or in the middle of a function.
KILLED = """
import os, signal, sys
from importlib import import_module

module, name, moment = sys.argv[1:4]
owner = import_module(module)
*outer, name = name.split(".")
for part in outer:
    owner = getattr(owner, part)
real = getattr(owner, name)

def dying(*arguments, **named):
    if moment == "after":
        real(*arguments, **named)
    setattr(owner, name, real)  # what cleans up may call it
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, name, dying)
sys.argv = ["sqlanon", "anonymize", sys.argv[4]]
from sqlanon.cli import main
main()
"""
PUBLISH, PIPELINE = "sqlanon.publish.targets.file.target", "sqlanon.pipeline"
# Where it dies, whether it leaves its directory for spilling, and the one for staging. The ledger is written to before
# the release is swapped in, and commits after it.
STAGES = [
    ("sqlanon.sources.duckdb", "bind_source", "after", True, False),
    (PIPELINE, "prepare_with_earlier_releases", "after", True, False),
    ("sqlanon.recode.stage", "recode_at", "after", True, False),
    ("sqlanon.ledger.catalog", "insert_records", "before", True, False),
    ("sqlanon.ledger.catalog", "store_hierarchies", "after", True, False),
    (PUBLISH, "_read_replaceable_manifests", "after", True, False),
    (PUBLISH, "write_rows", "before", True, True),
    (PUBLISH, "write_rows", "after", True, True),
    (PUBLISH, "_write_manifests", "after", True, True),
    (PUBLISH, "_write_and_verify", "after", True, True),
    (PUBLISH, "swap_in", "before", True, True),
    (PUBLISH, "_copy_permissions", "after", True, True),
    ("os", "fsync", "after", True, True),
    (PUBLISH, "swap_in", "after", True, True),
    ("sqlanon.ledger.publication", "LedgerEntry.recording", "before", True, True),
    ("sqlanon.ledger.recording", "store_released_hierarchies", "after", True, True),
    ("sqlanon.ledger.recording", "complete_intent", "before", True, True),
    ("sqlanon.ledger.recording", "complete_intent", "after", True, True),
    (PIPELINE, "publish", "after", True, False),
]
PUBLISHED = {("swap_in", "after"), ("complete_intent", "before"), ("complete_intent", "after"), ("publish", "after")}
RECORDED = {("publish", "after")}
QUICK = {("swap_in", "after")}
# Where it matters what kind of file it is.
OF_A_FILE = {
    ("_write_manifests", "after"),
    ("_write_and_verify", "after"),
    ("swap_in", "before"),
    ("swap_in", "after"),
}


def start(place: Place, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=os.environ | {"TMPDIR": str(place.spill)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check_after_a_kill(place: Place, published: bool | None) -> None:
    """The source is unchanged, the release is the old or the new one, whole, and the next run cleans up."""
    place.check_source()
    new = place.digest() != place.old.manifest.digest
    assert published is None or new is published
    for path in place.leftovers:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    place.run()
    place.check_source()
    assert place.digest() != place.old.manifest.digest
    assert place.leftovers == []
    expected = {"hospital.duckdb", "policy.toml", "sqlanon.catalog.duckdb", place.release.name}
    assert {path.name for path in place.folder.iterdir()} == expected


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("module", "name", "moment", "spills", "stages", "place"),
    [
        pytest.param(
            *stage, release, id=f"{stage[2]} {stage[1]}, {release}",
            marks=() if stage[1:3] in QUICK and release == DATABASE_FILE else pytest.mark.slow,
        )
        for release in (DATABASE_FILE, PARQUET_FILE)
        for stage in STAGES
        if release == DATABASE_FILE or stage[1:3] in OF_A_FILE
    ],
    indirect=["place"],
)  # fmt: skip
def test_a_run_that_is_killed(module: str, name: str, moment: str, spills: bool, stages: bool, place: Place) -> None:
    process = start(place, "-c", KILLED, module, name, moment, place.policy)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (-signal.SIGKILL, "")
    left = [path.name for path in place.leftovers]
    assert any(name.startswith(SPILL_PREFIX) for name in left) is spills
    assert any(name.startswith(f".{place.release.name}.sqlanon-") for name in left) is stages
    with opened_catalog(place.folder / "sqlanon.catalog.duckdb") as catalog:
        query = "SELECT digest FROM sqlanon.releases WHERE intended_at IS NULL"
        digests = {digest for (digest,) in catalog.execute(query).fetchall()}
    assert len(digests) == 1 + ((name, moment) in RECORDED)
    assert (place.digest() in digests) is ((name, moment) not in PUBLISHED - RECORDED)
    check_after_a_kill(place, published=(name, moment) in PUBLISHED)


ENDED = (
    KILLED.partition("sys.argv = [")[0]
    + """
sys.argv = ["sqlanon", "anonymize", sys.argv[4]]
from sqlanon.__main__ import run
run()
"""
)
ENDING = [
    (signal_, *point)
    for point in (
        (PUBLISH, "_write_manifests", "before"),
        ("sqlanon.recode.stage", "recode_at", "before"),
        (PUBLISH, "swap_in", "before"),
        (PUBLISH, "swap_in", "after"),
        ("sqlanon.ledger.recording", "complete_intent", "after"),
        ("sqlanon.ledger.recording", "store_released_hierarchies", "after"),
    )
    for signal_ in ("SIGTERM", "SIGHUP", "SIGINT")
]


@pytest.mark.thorough
@pytest.mark.parametrize(("signal_", "module", "name", "moment"), some(ENDING, 20, 2))
def test_a_signal_ends_a_run_at_once_and_leaves_nothing(
    signal_: str, module: str, name: str, moment: str, place: Place
) -> None:
    """Twice: a second one does not break off the cleaning."""
    if signal_ == "SIGHUP" and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        pytest.skip("this process ignores it, and so do those that it starts")
    end = "; os.kill(os.getpid(), signal.SIGTERM)" * 2 + "; import time; time.sleep(9)"
    twice = "signal.SIGKILL)", f"signal.{signal_}){end}"
    process = start(place, "-c", ENDED.replace(*twice), module, name, moment, place.policy)
    _, errors = process.communicate()
    assert (process.returncode, errors.strip()) in [
        (128 + getattr(signal, signal_), message) for message in ("", "Aborted!")
    ]
    assert place.leftovers == []
    expected = {"hospital.duckdb", "policy.toml", "sqlanon.catalog.duckdb", place.release.name}
    assert {path.name for path in place.folder.iterdir()} == expected
    with opened_catalog(place.folder / "sqlanon.catalog.duckdb") as catalog:
        query = "SELECT digest, intended_at IS NULL FROM sqlanon.releases WHERE path = ? AND replaced_at IS NULL"
        rows = catalog.execute(query, [str(place.release)]).fetchall()
        is_new = place.digest() != place.old.manifest.digest
        assert rows == [(place.digest(), True)]
        assert is_new is ((name, moment) in PUBLISHED)
    check_after_a_kill(place, published=None)


LONG = """
import sys
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.publish.targets.file import target as publish
from sqlglot import parse_one

def long(draft, *_, **options):
    print("here", flush=True)
    rows = "range(10000000)"
    draft.run.engine.execute(parse_one(f"SELECT count(*) FROM {rows} a, {rows} b WHERE hash(a.range * b.range) = 1"))

publish.write_rows = long
sys.argv = ["sqlanon", "anonymize", sys.argv[1]]
from sqlanon.__main__ import run
run()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_ends_a_statement_that_would_take_hours(name: str, place: Place) -> None:
    if name == "SIGHUP" and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        pytest.skip("this process ignores it, and so do those that it starts")
    process = start(place, "-c", LONG, place.policy)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    time.sleep(0.2)
    process.send_signal(getattr(signal, name))
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 128 + getattr(signal, name), errors
    assert "Traceback" not in errors
    assert place.leftovers == []
    assert place.digest() == place.old.manifest.digest


# Interrupted from within


# Until it is published: after `Path.replace` it is.
POINTS: list[tuple[Any, str]] = [
    (sqlanon.pipeline, "prepare_with_earlier_releases"),
    (sqlanon.recode.stage, "recode_at"),
    (publishing, "write_rows"),
    (publishing, "_write_manifests"),
    (publishing, "_write_and_verify"),
    (publishing, "_copy_permissions"),
    (publishing.os, "fsync"),
    (Path, "replace"),
]
QUICK_POINTS = {("write_rows", "after")}
OTHER_ERRORS = (MemoryError, OSError(28, "No space left on device"))


def interruptions() -> Iterator[Any]:
    """Ctrl-C at each point of a run that makes a database, and other errors, in turns, where it is a Parquet file."""
    points = [(*point, moment) for moment in ("before", "after") for point in POINTS]
    for i, (owner, name, moment) in enumerate(points):
        if (owner, moment) == (Path, "after"):
            continue
        marks = () if (name, moment) in QUICK_POINTS else pytest.mark.slow
        yield pytest.param(owner, name, moment, KeyboardInterrupt, DATABASE_FILE, id=f"{moment} {name}", marks=marks)
        error = OTHER_ERRORS[(i + (moment == "after")) % 2]
        error_name = getattr(error, "__name__", error)
        yield pytest.param(
            owner, name, moment, error, PARQUET_FILE, id=f"{moment} {name}, {error_name}", marks=pytest.mark.slow
        )


@pytest.mark.thorough
@pytest.mark.parametrize(("owner", "name", "moment", "error", "place"), list(interruptions()), indirect=["place"])
def test_an_exception_leaves_nothing_behind(
    owner: Any, name: str, moment: str, error: Any, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(owner, name)

    def failing(*arguments: Any, **keywords: Any) -> Any:
        if moment == "after":
            real(*arguments, **keywords)
        raise error

    before = place.release.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing)
        with pytest.raises((KeyboardInterrupt, MemoryError, OSError, sqlanon.ReleaseError)):
            place.run()
    assert place.leftovers == []
    assert place.release.read_bytes() == before
    place.check_source()
    place.run()
    assert place.digest() != place.old.manifest.digest


@pytest.mark.thorough
def test_a_failed_publish_can_be_tried_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine has let go of the staged file: the same result publishes the second time."""

    def failing(*_: Any) -> None:
        raise KeyboardInterrupt

    with sqlanon.connect() as db:
        result = db.anonymize(sqlanon.Policy.load(place.policy))
        for name in ("_write_manifests", "swap_in"):
            with monkeypatch.context() as patch:
                patch.setattr(publishing, name, failing)
                with pytest.raises(KeyboardInterrupt):
                    result.publish()
        with monkeypatch.context() as patch:
            execute = publishing.DuckDBEngine.execute

            def full(engine: Any, statement: Any, *more: Any) -> None:
                execute(engine, statement, *more)
                if statement.key == "insert":
                    raise OSError(28, "No space left on device")

            patch.setattr(publishing.DuckDBEngine, "execute", full)
            with pytest.raises(
                sqlanon.ReleaseError, match=r"No space left.*: free space on it; the existing release is unchanged"
            ):
                result.publish()
        result.publish()
    assert place.digest() != place.old.manifest.digest
    assert place.leftovers == []


# Simultaneous runs


@pytest.mark.thorough
@pytest.mark.parametrize("number", some([2, 3], 2))
def test_runs_beside_one_another_all_publish(number: int, place: Place) -> None:
    """One policy each, with a catalog each, for one release: the last one stays."""
    (place.folder / "sqlanon.catalog.duckdb").unlink()  # it would be noticed
    policies = []
    for i in range(number):
        policy = place.folder / f"policy{i}.toml"
        catalog = f'\n[catalog]\ndatabase = "policy{i}.private.duckdb"\n'
        policy.write_text(policy_text(place.release.name, 10 * 3**i) + catalog)
        policies.append(policy)
    processes = [start(place, "-m", "sqlanon", "anonymize", policy, "--json") for policy in policies]
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * number, outputs
    digests = set()
    for policy, (out, errors) in zip(policies, outputs, strict=True):
        assert errors == ""
        assert json.loads(out)["release"] == str(place.release)
        with duckdb.connect(policy.with_suffix(".private.duckdb"), read_only=True) as connection:
            digests.add(connection.execute("SELECT digest FROM sqlanon.releases").fetchall()[0][0])
    assert len(digests) == number
    assert place.digest() in digests
    assert place.leftovers == []
    place.check_source()


@pytest.mark.thorough
def test_a_run_leaves_the_directories_of_a_living_one_alone(place: Place) -> None:
    """A run in another process that stops in the middle of its work."""
    waiting = KILLED.replace("os.kill(os.getpid(), signal.SIGKILL)", "print('here', flush=True); sys.stdin.read()")
    with subprocess.Popen(
        [sys.executable, "-c", waiting, PUBLISH, "_write_manifests", "before", place.policy],
        env=os.environ | {"TMPDIR": str(place.spill)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        alive = place.leftovers
        assert len(alive) == 2
        place.run()
        place.run()
        assert place.leftovers == alive
        assert all(list(path.iterdir()) for path in alive if path.parent == place.folder)
        process.kill()
        process.communicate()
    place.run()
    assert place.leftovers == []


# The private directories themselves

PREFIX = ".test-"


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert list(tmp_path.glob(PREFIX + "*")) == []


def test_a_directory_is_private_and_gone_at_the_end(parent: Path) -> None:
    before = os.umask(0)
    try:
        with private_directory(parent, PREFIX) as directory:
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
            (directory / "nested").mkdir()
            (directory / "nested" / "value").write_text("private")
            for _ in range(3):
                remove_stale_directories(parent, PREFIX)
            assert (directory / "nested" / "value").read_text() == "private"
    finally:
        os.umask(before)


def test_directories_side_by_side_live_as_long_as_their_runs(parent: Path) -> None:
    with private_directory(parent, PREFIX) as first:
        with private_directory(parent, PREFIX) as second:
            assert first != second
            assert first.is_dir()
        assert first.is_dir()
        assert not second.exists()


MAKE_AND_DIE = """
import os, sys
from pathlib import Path
from sqlanon.support.workdir import private_directory
with private_directory(Path(sys.argv[1]), sys.argv[2]) as directory:
    (directory / "value").write_text("private")
    os._exit(1)
"""


def dead(parent: Path) -> Path:
    """A directory that a run left behind."""
    done = subprocess.run([sys.executable, "-c", MAKE_AND_DIE, parent, PREFIX], check=False)
    assert done.returncode == 1
    (directory,) = parent.glob(PREFIX + "*")
    assert (directory / "value").read_text() == "private"
    return directory


def test_the_directory_of_a_dead_run_is_removed_by_the_next(parent: Path) -> None:
    left = dead(parent)
    with private_directory(parent, PREFIX) as directory:
        assert not left.exists()
        assert directory.is_dir()


@pytest.mark.slow
def test_leftovers_of_a_killed_removal_are_removed(parent: Path) -> None:
    """The order in which a tree is removed is undefined: the lock may be removed before a private value."""
    left = dead(parent)
    (left / "lock").unlink(missing_ok=True)
    with private_directory(parent, PREFIX):
        assert not left.exists()


def test_an_empty_directory_of_a_run_that_was_killed_at_once_is_removed(parent: Path) -> None:
    left = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    with private_directory(parent, PREFIX):
        assert not left.exists()


DIE_AFTER = """
import importlib, os, signal, sys
from pathlib import Path
from sqlanon.support.workdir import private_directory

owner, name = importlib.import_module(sys.argv[3]), sys.argv[4]
real = getattr(owner, name)

def dying(*arguments, **named):
    real(*arguments, **named)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, name, dying)
with private_directory(Path(sys.argv[1]), sys.argv[2]):
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), [("tempfile", "mkdtemp"), ("os", "open"), ("fcntl", "flock")])
def test_a_run_that_is_killed_while_it_makes_its_directory(module: str, name: str, parent: Path) -> None:
    done = subprocess.run([sys.executable, "-c", DIE_AFTER, parent, PREFIX, module, name], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(parent.iterdir())) == 1
    with private_directory(parent, PREFIX) as directory:
        assert list(parent.iterdir()) == [directory]


def test_nothing_else_is_ever_removed(tmp_path: Path) -> None:
    """Links, files, and directories of other names stay, and so do the targets of links."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "lock").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(target)
    (tmp_path / f"{PREFIX}file").write_text("a file")
    (tmp_path / "other").mkdir()
    with private_directory(tmp_path, PREFIX):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"target", f"{PREFIX}link", f"{PREFIX}file", "other"}
    assert (target / "lock").exists()


@pytest.mark.parametrize("moment", ["mkdtemp", "open", "lock"])
def test_a_directory_that_is_being_made_is_not_taken_for_a_dead_one(
    moment: str, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run cleans up while a directory is made: the run then has a separate directory that is still in use."""
    fcntl = pytest.importorskip("fcntl")
    cleaned = False

    def cleaning(real: Callable[..., Any], first: bool) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            nonlocal cleaned
            if cleaned:
                return real(*arguments, **keywords)
            cleaned = True
            if first:
                remove_stale_directories(parent, PREFIX)
            result = real(*arguments, **keywords)
            if not first:
                remove_stale_directories(parent, PREFIX)
            return result

        return call

    owner, name, first = {
        "mkdtemp": (tempfile, "mkdtemp", False),
        "open": (os, "open", False),
        "lock": (fcntl, "flock", True),
    }[moment]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, cleaning(getattr(owner, name), first))
        with private_directory(parent, PREFIX) as directory:
            assert cleaned
            assert directory.is_dir()
            (directory / "value").write_text("private")
            remove_stale_directories(parent, PREFIX)
            assert (directory / "value").read_text() == "private"
