"""Folders whose names have characters that mean something to a reader of paths."""

from __future__ import annotations

import glob
from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.attacks import NAMES as NAMES_OF_ATTACKS
from support.lanes import some

pytestmark = pytest.mark.thorough

NAMES = ["*", "[a]", "{a,b}", "[", "a#b", "%41", "a;b", "a'b", 'a"b', "~", "a=b", "x.parquet"]
TREE = "".join(f"x{i};y{i // 2};*\n" for i in range(4))


def policy_in(folder: Path, kind: str) -> sqlanon.Policy:
    """A source of a kind, a hierarchy file and a catalog in a folder."""
    plain = folder.parent / f"plain.{kind}"
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 3 AS ward, 'x' || (i % 4) AS code FROM range(60) AS r(i)")
        if kind == "duckdb":
            connection.execute(f"ATTACH '{plain}' AS o; CREATE TABLE o.t AS FROM t; DETACH o")
        else:
            connection.execute(f"COPY t TO '{plain}'")
    plain.rename(folder / f"s.{kind}")
    (folder / "tree.csv").write_text(TREE)
    path = folder / f"s.{kind}"
    return sqlanon.Policy(
        source={"database": path, "table": "t"} if kind == "duckdb" else {"files": [glob.escape(str(path))]},
        attributes={
            "ward": {"role": "quasi", "hierarchy": "suppress"},
            "code": {"role": "quasi", "hierarchy": {"file": str(folder / "tree.csv")}},
        },
        privacy={"k": 3},
        release={"table": "t"},
        catalog={"database": folder.parent / "catalog.duckdb" if "?" in folder.name else folder / "catalog.duckdb"},
    )


@pytest.mark.parametrize(
    ("name", "kind", "target"),
    [
        pytest.param(name, kind, target, marks=[] if (i, j) in ((0, 1),) else [pytest.mark.slow])
        for i, name in enumerate(NAMES)
        for j, (kind, target) in enumerate([("duckdb", "parquet"), ("parquet", "duckdb"), ("csv", "parquet")])
    ],
)
def test_any_folder_will_do(name: str, kind: str, target: str, tmp_path: Path) -> None:
    """Next to it is one that its name, taken for a pattern, would match."""
    for folder in (f"in {name}", "in a", "in ab"):
        (tmp_path / folder).mkdir()
    for other_folder in ("in a", "in ab"):
        (tmp_path / other_folder / f"s.{kind}").write_text("nothing that can be read")
        (tmp_path / other_folder / f"release.{target}").write_text("nothing that can be read")
    policy, path = policy_in(tmp_path / f"in {name}", kind), tmp_path / f"in {name}" / f"release.{target}"
    for _ in range(2):  # the second replaces the first
        with sqlanon.connect() as db:
            db.anonymize(policy).publish(path)
    with sqlanon.connect() as db:
        assert db.verify(path, policy).verified
    attacks = sqlanon.attack(path, policy)
    assert any(attacks[name].skipped is None for name in NAMES_OF_ATTACKS)


@pytest.mark.parametrize("kind", some(["duckdb", "parquet", "csv"], 3))
def test_paths_with_a_question_mark_that_duckdb_cannot_write_are_refused(kind: str, tmp_path: Path) -> None:
    """The source, the hierarchy file and a release may be there to be read."""
    folder = tmp_path / "what now?"
    folder.mkdir()
    policy = policy_in(folder, kind)
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        for name in ("release.duckdb", "release.parquet"):
            with pytest.raises(sqlanon.ReleaseError, match=r"has '\?' in its path"):
                result.publish(folder / name)
        result.publish(tmp_path / "release.duckdb")
        (tmp_path / "release.duckdb").rename(folder / "release.duckdb")
        assert db.verify(folder / "release.duckdb", policy).verified
        if kind == "duckdb":
            with pytest.raises(sqlanon.SourceError, match=r"has '\?' in its path"):
                db.live(policy)
    assert sorted(path.name for path in folder.iterdir()) == ["release.duckdb", f"s.{kind}", "tree.csv"]
    with pytest.raises(sqlanon.PolicyError) as error:
        sqlanon.Policy(
            **{
                **policy.model_dump(exclude_unset=True),
                "release": {"table": "t", "database": folder / "release.duckdb"},
            }
        )
    assert "release.database: has '?' in its path" in str(error.value)
