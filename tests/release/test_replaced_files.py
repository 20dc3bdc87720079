"""Publishing to a file that exists: which versions stay, and which files are never replaced."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import OvertakenError, ReleaseError
from sqlanon.publish.draft import ReleaseDraft
from sqlanon.publish.stage import NoLedger, publish
from sqlanon.publish.targets.file import target as file_target
from sqlanon.publish.targets.file.target import FileTarget, target_for
from support.policies import make_policy

pytestmark = pytest.mark.usefixtures("plain_macros")


@pytest.fixture(scope="module")
def draft() -> Iterator[ReleaseDraft]:
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        connection.execute("CREATE TABLE t AS SELECT i % 2 AS ward FROM range(6) AS r(i)")
        yield db.anonymize(make_policy({"ward": "suppress"}))._draft


@pytest.fixture(scope="module")
def twice(draft: ReleaseDraft, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with two versions of table t."""
    path = tmp_path_factory.mktemp("twice") / "r.duckdb"
    assert publish(FileTarget(path, "t"), draft, NoLedger()).manifest.version == 1
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE t_v2 AS FROM t_v1")
        connection.execute("INSERT INTO sqlanon.manifest SELECT * REPLACE (2 AS version) FROM sqlanon.manifest")
    return path


@pytest.fixture
def path(twice: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(twice, tmp_path / "r.duckdb"))


def stage_versions(
    path: Path, draft: ReleaseDraft, keep: int = 1, name: str = "t"
) -> tuple[int | None, list[int | None]]:
    """The version that would be published, and those that would stay."""
    with FileTarget(path, name, keep).stage(draft) as staging:
        return staging.version, [manifest.version for manifest in staging.kept_manifests]


@pytest.mark.thorough
@pytest.mark.parametrize(("keep", "versions"), [(2, [2]), (3, [2, 1])])
def test_the_newest_versions_stay(keep: int, versions: list[int], path: Path, draft: ReleaseDraft) -> None:
    before = path.read_bytes()
    assert stage_versions(path, draft, keep) == (3, versions)
    assert path.read_bytes() == before and [*path.parent.iterdir()] == [path]


@pytest.mark.slow
@pytest.mark.parametrize(("drafts", "versions"), [([2], [1]), ([1, 2], [])])
def test_drafts_do_not_stay(drafts: list[int], versions: list[int], path: Path, draft: ReleaseDraft) -> None:
    with duckdb.connect(path) as connection:
        (policy,) = connection.execute("SELECT policy FROM sqlanon.manifest LIMIT 1").fetchone() or ("",)
        marked = json.dumps(json.loads(policy) | {"draft": True}, ensure_ascii=False)
        connection.execute("UPDATE sqlanon.manifest SET policy = ? WHERE list_contains(?, version)", [marked, drafts])
    assert stage_versions(path, draft, keep=3) == (3, versions)


@pytest.mark.thorough
def test_a_new_file_has_version_1_and_a_parquet_file_none(draft: ReleaseDraft, tmp_path: Path) -> None:
    assert stage_versions(tmp_path / "new.duckdb", draft, 3) == (1, [])
    assert stage_versions(tmp_path / "new.parquet", draft) == (None, [])


def refusal(path: Path, draft: ReleaseDraft, **options: Any) -> str:
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(ReleaseError) as refused:
        stage_versions(path, draft, **options)
    assert (path.read_bytes() if path.exists() else None) == before
    return str(refused.value)


@pytest.mark.slow
def test_only_a_release_of_the_same_table_is_replaced(path: Path, draft: ReleaseDraft) -> None:
    assert "holds a release of table 't', not of 'u'" in refusal(path, draft, name="u")
    assert "is a published release, which a draft does not replace" in refusal(path, replace(draft, is_draft=True))
    assert "does not exist: create it first" in refusal(path.parent / "missing" / "r.duckdb", draft)
    log = path.with_name("r.duckdb.wal")
    log.write_bytes(b"")
    assert "has uncommitted changes next to it" in refusal(path, draft)
    log.unlink()
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE notes (x INTEGER)")
    assert "has additions: table main.notes" in refusal(path, draft)
    for content in (b"", b"some text"):
        path.write_bytes(content)
        assert "exists and is not a release of sqlanon" in refusal(path, draft)


@pytest.mark.slow
def test_a_file_that_another_run_has_replaced_is_not_replaced(path: Path, draft: ReleaseDraft) -> None:
    with FileTarget(path, "t").stage(draft) as staging:
        with staging.lock():
            pass
        path.touch()
        with pytest.raises(OvertakenError), staging.lock():
            pass
        path.unlink()
        with pytest.raises(OvertakenError), staging.lock():
            pass


@dataclass
class BusyTarget:
    """A target to which other runs publish a number of times in the meantime."""

    overtaken: int
    staged: int = 0
    table_name: str = "t"

    @contextmanager
    def stage(self, draft: Any) -> Iterator[Any]:
        self.staged += 1
        if self.staged <= self.overtaken:
            raise OvertakenError("another run")
        yield SimpleNamespace(
            kept_manifests=(),
            rows=lambda: nullcontext(None),
            complete=lambda manifest, _: SimpleNamespace(checks=(), manifest=manifest, failures=()),
            lock=nullcontext,
            sha256=None,
        )


@pytest.mark.parametrize(("overtaken", "attempts"), [(0, 1), (1, 2), (2, 3), (3, 3)])
def test_a_publication_that_is_overtaken_is_tried_again(overtaken: int, attempts: int) -> None:
    """At most three times here."""
    target: Any = BusyTarget(overtaken)
    with pytest.raises((OvertakenError, AttributeError)):
        publish(target, None, NoLedger(), attempts=3)  # type: ignore[arg-type]  # a target that stages has no facts
    assert target.staged == attempts


@pytest.mark.parametrize("name", ["catalog.duckdb", "linked.duckdb", "source.csv"])
def test_source_and_catalog_are_never_replaced(name: str, draft: ReleaseDraft, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.duckdb"
    catalog.write_bytes(b"")
    (tmp_path / "linked.duckdb").symlink_to(catalog)
    policy = draft.search_input.policy.model_copy(update={"catalog": SimpleNamespace(database=catalog)})
    source = SimpleNamespace(files=[tmp_path / "source.csv"])
    search_input: Any = SimpleNamespace(policy=policy, source=source)
    other_draft: Any = SimpleNamespace(search_input=search_input, run=draft.run, retained_versions=1)
    with pytest.raises(ReleaseError):
        target_for(other_draft, tmp_path / name, None)
    chosen = target_for(other_draft, tmp_path / "release.duckdb", None)
    assert (chosen.path, chosen.table_name, chosen.keep) == (tmp_path.resolve() / "release.duckdb", "t", 1)


@pytest.mark.parametrize(
    ("mode", "group", "chowns", "new_mode"),
    [
        (0o640, 7, [], 0o640),  # nothing to change
        (0o640, 8, [True], 0o640),
        (0o640, 8, [False, True], 0o640),  # only root may change the owner
        (0o640, 8, [False, False], 0o600),  # this group gets what others get
        (0o664, 8, [False, False], 0o644),
        (0o606, 8, [False, False], 0o666),
    ],
)
def test_a_group_gains_no_permission_where_a_file_is_replaced(
    mode: int, group: int, chowns: list[bool], new_mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The staged file belongs to user 5 and group 7, the other to the same user; ``chowns`` are the calls that
    succeed."""
    calls, modes = list[tuple[int, int]](), list[int]()

    def chown(_: Any, user: int, group: int) -> None:
        calls.append((user, group))
        if not chowns[len(calls) - 1]:
            raise PermissionError

    monkeypatch.setattr(file_target.os, "chown", chown)
    path: Any = SimpleNamespace(stat=lambda: SimpleNamespace(st_mode=0o100000 | mode, st_uid=5, st_gid=group))
    staged: Any = SimpleNamespace(
        stat=lambda: SimpleNamespace(st_mode=0o100600, st_uid=5, st_gid=7), chmod=modes.append
    )
    file_target._copy_permissions(staged, path)
    assert modes == [new_mode]
    assert calls == [(5, 8), (-1, 8)][: len(chowns)]
