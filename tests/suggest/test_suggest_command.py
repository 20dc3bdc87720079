"""`sqlanon suggest -o`: a private file that is never overwritten by accident, of one or several files."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from support import cli

import sqlanon
from sqlanon.policy import Policy
from sqlanon.suggest.policy_text import chosen
from sqlanon.suggest.trials import Trial


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two CSV files of one table, and a folder for policies."""
    (tmp_path / "data").mkdir()
    (tmp_path / "policies").mkdir()
    with duckdb.connect() as connection:
        for i in (0, 1):
            rows = f"range({150 * i}, {150 * (i + 1)}) AS r(i)"
            people = f"SELECT hash(i) % 50 AS age, 'town ' || hash(i + 1) % 9 AS town FROM {rows}"
            connection.execute(f"COPY ({people}) TO '{tmp_path / 'data' / f'people_{i}.csv'}'")
    return tmp_path


def without_trials(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("sqlanon.suggest.trials.SECONDS", 0.0)


def test_a_policy_file_is_private_and_its_paths_are_relative(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names both files from its own folder, and runs from any other."""
    without_trials(monkeypatch)
    target = folder / "policies" / "people.toml"
    done = cli("suggest", "data/people_0.csv", "data/people_1.csv", "-o", "policies/people.toml", cwd=folder)
    assert (done.status, done.err) == (0, "")
    assert "sqlanon anonymize policies/people.toml" in done.out
    assert target.stat().st_mode & 0o777 == 0o600
    assert 'files = ["../data/people_0.csv", "../data/people_1.csv"]' in target.read_text(encoding="utf-8")
    assert not [one for one in target.parent.iterdir() if one != target]
    with sqlanon.connect() as db:
        assert db.anonymize(Policy.load(target)).rows == 300


def test_a_policy_file_that_exists_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_trials(monkeypatch)
    (folder / "p.toml").write_text("mine", encoding="utf-8")
    again = ("suggest", "data/people_*.csv", "-o", "p.toml")
    refused = cli(*again, cwd=folder)
    assert refused.status == 2
    assert "exists already" in refused.err
    assert "--force" in refused.err
    assert (folder / "p.toml").read_text(encoding="utf-8") == "mine"
    assert cli(*again, "--force", cwd=folder).status == 0
    assert 'files = "data/people_*.csv"' in (folder / "p.toml").read_text(encoding="utf-8")
    assert (folder / "p.toml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("output", "message"), [("policies", "is a folder"), ("nowhere/p.toml", "does not exist: create it")]
)
def test_a_place_where_nothing_can_be_written(output: str, message: str, folder: Path) -> None:
    refused = cli("suggest", "data/people_0.csv", "-o", output, cwd=folder)
    assert refused.status == 2
    assert message in refused.err


def test_what_is_neither_a_table_nor_files(folder: Path) -> None:
    refused = cli("suggest", "a.duckdb", "people", "more", cwd=folder)
    assert refused.status == 2
    assert "a database and one of its tables, or data files of one table" in refused.err


def test_files_beside_a_source_are_refused(folder: Path) -> None:
    with (
        sqlanon.connect(folder / "data" / "people_0.csv") as db,
        pytest.raises(sqlanon.SourceError, match="connect without one"),
    ):
        db.suggest(files=[folder / "data" / "people_1.csv"])


@pytest.mark.slow
def test_the_strategy_that_keeps_the_most_is_named_with_the_figures_of_all(folder: Path) -> None:
    done = cli("suggest", "data/people_*.csv", "-o", "p.toml", cwd=folder)
    text, policy = (folder / "p.toml").read_text(encoding="utf-8"), Policy.load(folder / "p.toml")
    assert (done.status, policy.search.strategy, policy.search.summary) == (0, "mondrian", "set")
    for name in ("optimal", "mondrian with sets", "mondrian", "local", "optimal with cells", "subtree"):
        assert re.search(rf"^#   {name}: (loss (at most )?0\.|took more)", text, re.MULTILINE)
    assert "tried on all 300 rows" in text


def test_a_strategy_that_keeps_a_column_is_preferred_to_one_that_loses_less() -> None:
    rough = Trial("rough", {"strategy": "optimal"}, loss=0.1, fully_suppressed=("age",))
    fine = Trial("fine", {"strategy": "mondrian"}, loss=0.2)
    assert chosen([rough, fine]) == fine
    assert chosen([rough, Trial("none", {"strategy": "local"}, error="no")]) == rough
    assert chosen([]) is None


def test_a_policy_never_takes_the_place_of_data(folder: Path) -> None:
    data = folder / "data" / "people_0.csv"
    before = data.read_bytes()
    (folder / "link.toml").symlink_to(data)
    for name in ("data/people_0.csv", "link.toml"):
        told = cli("suggest", data, "-o", name, "--force", cwd=folder)
        assert told.status == 2 and "ends in .toml" in told.err
    assert data.read_bytes() == before
