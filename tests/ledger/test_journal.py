"""The ledger has what is out: after each publication, however it ends, its records are those of a plain model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import OvertakenError, ReleaseError
from sqlanon.ledger import catalog, recording
from sqlanon.ledger.recording import UNRECORDED, read_ledger
from sqlanon.linked.publish.ledger import LinkedLedger
from sqlanon.publish.targets.base import Reach
from sqlanon.support.expressions import template
from sqlanon.support.resources import read_sql_file

PLACES = [Path("one.duckdb"), Path("two.duckdb")]


@dataclass(frozen=True)
class Version:
    run: str
    number: int
    is_draft: bool


@dataclass
class Model:
    """The versions at each place, the newest first, with the runs that published them."""

    places: dict[Path, list[Version]] = field(default_factory=lambda: {place: [] for place in PLACES})
    unreadable: set[Path] = field(default_factory=set)

    def read_manifests(self, place: Path) -> list[Any] | None:
        def manifest(version: Version) -> Any:
            return SimpleNamespace(fingerprint=lambda: f"manifest of {version.run}", version=version.number)

        return None if place in self.unreadable else [manifest(version) for version in self.places[place]]

    def after(self, place: Path, run: str, keep: int, is_draft: bool) -> list[Version]:
        """The versions at a place after a run has published there: its own, and earlier releases that stay."""
        versions = self.places[place]
        number = 1 + max((version.number for version in versions), default=0)
        published = [version for version in versions if not version.is_draft]
        return [Version(run, number, is_draft), *published[: keep - 1]]

    def recorded(self) -> set[tuple[Path, str, int, bool]]:
        """The versions that the ledger must record: all but those that policies keep out of it."""
        return {
            (place, version.run, version.number, version.is_draft)
            for place, versions in self.places.items()
            for version in versions
            if version.run != UNRECORDED
        }


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBEngine]:
    """An engine with an open catalog in memory: opening files takes most of the time of these tests."""
    with closing(DuckDBEngine(duckdb.connect())) as engine:
        engine.connection.execute(f"ATTACH ':memory:' AS {catalog.ATTACHED}")
        with engine.using(catalog.ATTACHED):
            engine.script(read_sql_file("catalog.sql"))
        monkeypatch.setattr(catalog, "open_catalog", lambda engine, _: engine.transaction())
        yield engine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file that the catalog would be in."""
    (path := tmp_path / "catalog.duckdb").touch()
    return path


def record_of(place: Path, version: Version, **fields: Any) -> dict[str, Any]:
    return {
        "run_id": version.run,
        "published_at": datetime.now(timezone.utc).replace(tzinfo=None),
        "path": str(place),
        "table_name": "t",
        "released_rows": 1,
        "digest": version.run,
        "manifest_hash": f"manifest of {version.run}",
        "version": version.number,
        "draft": version.is_draft,
        "source": "here",
        "epsilon": None,
        **fields,
    }


def known_releases(engine: DuckDBEngine, path: Path) -> set[tuple[Path, str, int | None, bool]]:
    history = read_ledger(engine, path, Reach())
    return {
        (publication.path, publication.run_id, publication.version, publication.draft)
        for publication in (*history.publications, *history.drafts)
    }


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", [2, 3])
def test_the_ledger_has_what_is_out(
    seed: int, engine: DuckDBEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases and drafts with retained versions at two places; runs that fail, or are killed before or after their
    release is out; and places that cannot be read for a while."""
    draw, model = random.Random(seed), Model()

    def location(place: Path, *_: Any) -> Any:
        return SimpleNamespace(read_manifests=lambda _: model.read_manifests(place))

    monkeypatch.setattr(recording, "recorded_location", location)
    for step in range(14):
        place, end = draw.choice(PLACES), draw.choice(["out", "out", "out", "fails", "killed before", "killed after"])
        has_release = any(not version.is_draft for version in model.places[place])
        is_draft = not has_release and draw.random() < 0.5
        run = draw.choice([UNRECORDED, f"run {step}", f"run {step}", f"run {step}"])
        keep = 1 if is_draft or run == UNRECORDED else draw.choice([1, 2, 3])
        versions = model.after(place, run, keep, is_draft)
        row = record_of(place, versions[0])
        with monkeypatch.context() as patch, suppress(OSError):
            if end.startswith("killed"):
                patch.setattr(recording, "_complete_or_settle", lambda *_: nullcontext())
            with recording.recording(engine, path, Reach(), row, keep, (), None):
                if end == "fails":
                    raise OSError
                if end != "killed before":
                    model.places[place] = versions
        if end.startswith("killed") and draw.random() < 0.3:
            model.unreadable = {place}
            assert (place, run, versions[0].number, is_draft) in known_releases(engine, path)
            model.unreadable = set()
        assert known_releases(engine, path) == model.recorded(), f"step {step}: {end}"


@pytest.mark.parametrize(
    ("changes", "is_overtaken"),
    [
        ({}, True),  # another release of the source elsewhere
        ({"source": "there"}, False),
        ({"run_id": "compared"}, False),
        ({"draft": True}, False),
        ({"path": "new.duckdb"}, False),  # the one that is replaced
        ({"path": "new.duckdb", "version": 2}, True),  # one that is retained: versions 2 and 3 of 4
        ({"path": "new.duckdb", "version": 3}, True),
        ({"path": "new.duckdb", "version": 1}, False),
    ],
)
def test_a_release_that_was_published_meanwhile_and_stays_is_noticed(
    changes: dict[str, Any], is_overtaken: bool, engine: DuckDBEngine, path: Path
) -> None:
    with catalog.open_catalog(engine, path):
        row = record_of(Path("old.duckdb"), Version("other", 1, is_draft=False)) | changes
        catalog.insert_records(engine, "releases", row)
    compared = {("compared", Path("old.duckdb"))}
    row = record_of(Path("new.duckdb"), Version("run", 4, is_draft=False))
    details = recording.RecordedDetails((), None, None, None)
    expected = pytest.raises(OvertakenError) if is_overtaken else nullcontext()
    with expected, recording.recording(engine, path, Reach(), row, 3, compared, details):
        pass


class Ledger(LinkedLedger):
    """The ledger of two tables."""

    def _record_rows(self, manifest: Any, sha256: str | None, now: datetime) -> list[dict[str, Any]]:
        return [
            record_of(self.location, Version(run, 1, is_draft=False), linked=True, intended_at=now)
            for run in self.run_ids.values()
        ]


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (None, [("a", False), ("b", False)]),
        (ReleaseError("no"), []),
        (OSError("the disk is full"), []),
        (KeyboardInterrupt(), [("a", True), ("b", True)]),  # the next run finds out
    ],
)
def test_the_records_of_several_tables_are_completed_or_removed(
    error: BaseException | None, left: list[tuple[str, bool]], engine: DuckDBEngine, path: Path
) -> None:
    records: Any = SimpleNamespace(tables=[SimpleNamespace(run=SimpleNamespace(engine=engine))])
    ledger = Ledger(records, path, Path("new.duckdb"), run_ids={"p": "a", "v": "b"})
    ledger.details = {name: recording.RecordedDetails((), None, None, None) for name in ledger.run_ids}
    manifest: Any = None
    with nullcontext() if error is None else pytest.raises(type(error)), ledger.recording(manifest, None):
        if error is not None:
            raise error
    with catalog.open_catalog(engine, path):
        query = template("""
            SELECT run_id, NOT intended_at IS NULL FROM sqlanon_catalog.sqlanon.releases ORDER BY run_id
        """)
        assert engine.rows(query()) == left


def test_the_hash_of_a_place_is_that_of_its_newest_file(
    engine: DuckDBEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hash is missing if an interrupted run may have published; replaced files do not count."""
    monkeypatch.setattr(catalog, "open_read_only", lambda *_: nullcontext(True))
    now = datetime(2026, 1, 2)
    for place, number, sha256, fields in (
        ("one", 2, "b", {}),
        ("one", 3, "c", {}),
        ("one", 1, "a", {}),
        ("one", 4, "d", {"replaced_at": now}),
        ("interrupted", 1, "a", {}),
        ("interrupted", 2, "b", {"intended_at": now}),
        ("interrupted before", 1, "a", {"intended_at": now}),
        ("interrupted before", 2, "b", {}),
        ("parquet", None, "p", {}),
        ("gone", 1, "a", {"replaced_at": now}),
    ):
        row = record_of(Path(place), Version("run", 1, is_draft=False), sha256=sha256, **fields)
        catalog.insert_records(engine, "releases", row | {"version": number})
    expected = {"one": "c", "interrupted": None, "interrupted before": None, "parquet": "p", "gone": None}
    assert {place: catalog.read_recorded_sha256(engine, path, place) for place in expected} == expected


@pytest.mark.parametrize(
    ("drafts", "withdraws", "is_draft", "is_withdrawal"),
    [
        ([], [], False, False),
        ([True], [None], True, False),
        ([True, True], [None, None], True, False),
        ([True, False], [None, None], False, False),
        ([False], ["other"], False, True),
        ([False, False], [None, "other"], False, True),
    ],
)
def test_rows_that_only_drafts_have_are_those_of_a_draft(
    drafts: list[bool],
    withdraws: list[str | None],
    is_draft: bool,
    is_withdrawal: bool,
    engine: DuckDBEngine,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog, "open_read_only", lambda *_: nullcontext(True))
    foreign_record = record_of(Path("other"), Version("other", 1, is_draft=True), withdraws="another")
    catalog.insert_records(engine, "releases", foreign_record)
    for i, draft in enumerate(drafts):
        row = record_of(Path("place"), Version(f"run {i}", 1, draft), withdraws=withdraws[i], digest="rows")
        catalog.insert_records(engine, "releases", row)
    assert catalog.is_recorded_draft(engine, path, "rows") is is_draft
    assert catalog.is_recorded_withdrawal(engine, path, "rows") is is_withdrawal


def test_details_of_replaced_releases_are_deleted(engine: DuckDBEngine) -> None:
    """Details of a run with a release that stays are kept, and so are samples of sources that noise was spent on."""
    now, run = datetime(2026, 1, 2), engine.connection.execute
    for name, fields in (
        ("stays", {}),
        ("replaced", {"replaced_at": now}),
        ("replaced noise", {"replaced_at": now, "epsilon": 0.5}),
        ("noise", {"epsilon": 0.5}),
        ("at two places", {"replaced_at": now}),
        ("at two places", {}),
    ):
        catalog.insert_records(engine, "releases", record_of(Path("p"), Version(name, 1, is_draft=False), **fields))
    runs = ["stays", "replaced", "replaced noise", "noise", "at two places"]
    details = {
        "released_keys": "?, gen_random_uuid()",
        "source_people": "?, 'id', true, true, 1, 1, NULL, [], 1, []",
        "released_people": "?, 1",
        "released_noise": "?, 'age', [], 0, 1, NULL",
        "source_samples": "?, 1, [], []",
    }
    schema = f"{catalog.ATTACHED}.sqlanon"
    for i, name in enumerate(runs):
        for target, values in details.items():
            run(f"INSERT INTO {schema}.{target} VALUES ({values})", [name])
        run(f"CREATE TABLE {schema}.h{i} AS SELECT 1 AS level_0")
        run(f"INSERT INTO {schema}.released_hierarchies VALUES (?, 'age', 1, 'h{i}')", [name])
    recording.delete_replaced_details(engine)
    left = ["at two places", "noise", "stays"]
    for target in (*details, "released_hierarchies"):
        kept = [*left, "replaced noise"] if target == "source_samples" else left
        assert run(f"SELECT run_id FROM {schema}.{target} ORDER BY run_id").fetchall() == [(r,) for r in sorted(kept)]
    tables = run(f"SELECT table_name FROM duckdb_tables() WHERE database_name = '{catalog.ATTACHED}'").fetchall()
    assert {name for (name,) in tables if name in ("h0", "h1", "h2", "h3", "h4")} == {"h0", "h3", "h4"}
