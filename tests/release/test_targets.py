"""The seam of release targets: one in memory publishes, is audited, verified and recorded as the built-in ones are."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp

import sqlanon
from sqlanon.audit.verification import Verification
from sqlanon.audit.verify import verify_release
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import AuditError
from sqlanon.publish.targets import kinds as seam
from sqlanon.publish.targets.base import Draft, Reach, ReleaseTarget, Staged
from sqlanon.publish.targets.file.target import FileTarget, StagedFile
from sqlanon.publish.targets.kinds import TargetKind
from sqlanon.publish.targets.postgres.target import PostgresTarget, StagedPostgres
from sqlanon.publish.targets.spark.target import SparkTarget, StagedSpark
from sqlanon.release.manifest import Facts, Manifest
from sqlanon.release.reader import SUBJECT, CachedQueries, OpenRelease
from sqlanon.requirements.macros import call_digest, call_k_anonymity
from sqlanon.support.resources import RELEASE_MACROS, macro_script
from support.ledger_hospital import FINE_RACE, FINE_ZIP, hospital
from support.ledger_hospital import policy as of_hospital

__all__ = ["hospital"]

OUT: dict[str, MemoryRelease] = {}
"""What readers see."""
LOST, BROKEN = list[int](), list[Exception]()
"""Faults of this place: rows that it loses, and what stops it at the last moment."""


@contextmanager
def counting(rows: pa.Table) -> Iterator[DuckDBEngine]:
    """An engine that has the rows as the checks name them, and nothing else."""
    with closing(DuckDBEngine.open_private(Path())) as engine:
        engine.script(macro_script(RELEASE_MACROS))
        engine.copy_arrow(SUBJECT.copy(), rows)
        yield engine


@dataclass(frozen=True)
class MemoryRelease:
    path: Path
    manifest: Manifest
    rows: pa.Table
    sha256: ClassVar[None] = None

    def verify(self) -> Verification:
        with counting(self.rows) as engine:
            release = OpenRelease(engine, CachedQueries(engine), self.manifest)
            return verify_release(self.path, release, fresh=False)


@dataclass(frozen=True)
class MemoryTarget:
    path: Path
    table_name: str

    @contextmanager
    def stage(self, draft: Draft) -> Iterator[StagedInMemory]:
        with draft.rows() as query, draft.run.engine.stream(query) as reader:
            rows = reader.read_all()
        yield StagedInMemory(self, draft, rows.slice(sum(LOST)))

    def facts(self, staged: StagedInMemory) -> Facts:
        with counting(staged.table) as engine:
            smallest, classes, rows, _ = engine.rows(call_k_anonymity(SUBJECT.name, staged.draft.quasi_identifiers))[0]
            return Facts(rows, classes, smallest, engine.rows(call_digest(SUBJECT.name))[0][1])

    def commit(self, staged: StagedInMemory, manifest: Manifest) -> MemoryRelease:
        for error in BROKEN:
            raise error
        OUT[self.path.name] = release = MemoryRelease(self.path, manifest, staged.table)
        return release


@dataclass(frozen=True)
class StagedInMemory:
    target: MemoryTarget
    draft: Draft
    table: pa.Table = field(repr=False)
    sha256: ClassVar[None] = None
    kept_manifests: ClassVar[tuple[Manifest, ...]] = ()

    def rows(self) -> AbstractContextManager[exp.Table]:
        return self.draft.run.engine.register_arrow(self.table)

    def complete(self, manifest: Manifest, suppressed: Any) -> Verification:
        return MemoryRelease(self.target.path, manifest, self.table).verify()

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass(frozen=True)
class MemoryPlace:
    path: Path

    def verify(self, limits: Any = None, sha256: str | None = None) -> Verification:
        return OUT[self.path.name].verify()

    def read_manifests(self, limits: Any) -> list[Manifest]:
        return [release.manifest for name, release in OUT.items() if name == self.path.name]

    def rows(self, engine: DuckDBEngine, manifest: Manifest, alias: str = "") -> AbstractContextManager[exp.Table]:
        return engine.register_arrow(OUT[self.path.name].rows)

    @contextmanager
    def open_verified(self, limits: Any, sha256: str | None = None) -> Iterator[OpenedInMemory]:
        yield OpenedInMemory(self, self.verify())

    @contextmanager
    def open_version(
        self, limits: Any, version: int | None, sha256: str | None, trusted: bool
    ) -> Iterator[OpenedInMemory]:
        yield OpenedInMemory(self, self.verify())


@dataclass(frozen=True)
class OpenedInMemory:
    place: MemoryPlace
    verification: Verification
    is_changed: ClassVar[bool] = False

    def rows(self, engine: DuckDBEngine, manifest: Manifest, alias: str = "") -> AbstractContextManager[exp.Table]:
        return self.place.rows(engine, manifest)

    def sha256(self) -> None:
        """Return None: releases in memory have no hash."""


def release_location(place: str, table_name: str | None) -> MemoryPlace:
    return MemoryPlace(Path(place))


def recorded_location(path: Path, table_name: str, reach: Reach) -> MemoryPlace:
    return MemoryPlace(path)


def target_for(draft: Draft, place: str, table_name: str | None) -> ReleaseTarget[StagedInMemory, MemoryRelease]:
    return MemoryTarget(Path(place), table_name or "release")


def is_memory(place: Any) -> bool:
    return str(place).startswith("memory:")


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    kind = TargetKind("memory", __name__, lambda place, policy: is_memory(place), is_memory, is_memory)
    seam.register(kind)
    yield
    seam.unregister(kind)
    for state in (OUT, LOST, BROKEN):
        state.clear()


@pytest.fixture
def policy(tmp_path: Path) -> sqlanon.Policy:
    with duckdb.connect(tmp_path / "clinic.duckdb") as connection:
        connection.execute(
            "CREATE TABLE people AS "
            "SELECT i % 4 AS ward, i % 37 AS age, 'illness ' || i % 5 AS illness FROM range(400) r(i)"
        )
    return sqlanon.Policy(
        source={"database": tmp_path / "clinic.duckdb", "table": "people"},
        attributes={
            "ward": {"role": "quasi", "hierarchy": "suppress"},
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 20]}},
            "illness": {"role": "sensitive"},
        },
        # Closeness is checked with the source, at publishing.
        privacy={"k": 5, "t_closeness": [{"attribute": "illness", "distance": "equal", "t": 0.3}]},
        catalog={"database": tmp_path / "private.duckdb"},
    )


def recorded_runs(policy: sqlanon.Policy) -> list[tuple[Any, ...]]:
    assert policy.catalog is not None
    with duckdb.connect(policy.catalog.database, read_only=True) as catalog:
        query = "SELECT path, digest, manifest_hash, intended_at IS NULL FROM sqlanon.releases"
        return catalog.execute(query).fetchall()


@pytest.mark.slow
def test_a_target_in_one_file_publishes_as_the_others_do(policy: sqlanon.Policy, tmp_path: Path) -> None:
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        release: Any = result.publish("memory:clinic", "people")
        assert db.verify("memory:clinic", policy).verified
        file = result.publish(tmp_path / "people.duckdb", "people")
    assert release is OUT["memory:clinic"]
    assert release.manifest.released_rows == release.rows.num_rows == result.released_rows
    assert release.manifest.digest == file.manifest.digest
    verification = release.verify()
    assert verification.verified, verification.failures
    assert {check.name for check in verification.checks} >= {
        "5-anonymity",
        "content digest",
        "equal 0.3-closeness of illness",
    }
    expected = [
        (str(path), target.manifest.digest, target.manifest.fingerprint(), True)
        for path, target in (("memory:clinic", release), (file.path, file))
    ]
    assert recorded_runs(policy) == expected
    assert result.held_against == ("memory:clinic",) and not [
        warning for warning in result.warnings if "looked" in warning
    ]


@pytest.mark.thorough
def test_a_release_is_compared_with_one_in_memory(hospital: Path) -> None:
    with sqlanon.connect() as db:
        db.anonymize(of_hospital(hospital, "one", FINE_RACE)).publish("memory:one")
        with pytest.raises(AuditError, match="together with memory:one") as refused:
            db.anonymize(of_hospital(hospital, "two", FINE_ZIP)).publish()
    (query,) = refused.value.queries
    assert "joined with it" in str(refused.value) and "-- earlier: a copy of memory:one" in query


@pytest.mark.thorough
def test_releases_of_a_custom_target_are_audited(policy: sqlanon.Policy) -> None:
    LOST.append(1)
    with sqlanon.connect() as db, pytest.raises(AuditError, match=r"399 rows are in the release \(expected: 400\)"):
        db.anonymize(policy).publish("memory:clinic")
    assert OUT == {} and recorded_runs(policy) == []


@pytest.mark.thorough
def test_a_run_stopped_at_the_last_moment_leaves_no_release_in_the_ledger(policy: sqlanon.Policy) -> None:
    BROKEN.append(OSError("the memory is full"))
    with sqlanon.connect() as db, pytest.raises(OSError, match="the memory is full"):
        db.anonymize(policy).publish("memory:clinic")
    assert OUT == {} and recorded_runs(policy) == []


def signatures(kind: type, protocol: type) -> dict[str, list[str]]:
    names = [
        name for name in vars(protocol) if not name.startswith("_") and inspect.isfunction(getattr(protocol, name))
    ]
    return {name: list(inspect.signature(getattr(kind, name)).parameters) for name in names}


@pytest.mark.parametrize(
    ("target", "staged"),
    [
        (FileTarget, StagedFile),
        (PostgresTarget, StagedPostgres),
        (SparkTarget, StagedSpark),
        (MemoryTarget, StagedInMemory),
    ],
)
def test_all_targets_satisfy_the_protocol(target: Any, staged: Any) -> None:
    for kind, protocol in ((target, ReleaseTarget), (staged, Staged)):
        assert signatures(kind, protocol) == signatures(protocol, protocol)
        members = {name for name in vars(protocol) if not name.startswith("_")}
        assert members <= {*dir(kind), *get_type_hints(kind)}


def test_a_kind_of_place_is_loaded_when_it_is_used() -> None:
    assert list(seam.KINDS) == ["file", "postgres", "spark", "folder", "memory"]
    assert all(kind.module == f"sqlanon.publish.targets.{name}.target" for name, kind in list(seam.KINDS.items())[:3])
