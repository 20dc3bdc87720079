"""`sqlanon suggest -o`: a private file that is never overwritten by accident, of one or several files."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.policy import Policy
from sqlanon.suggest.policy_text import Findings, policy_text
from sqlanon.suggest.trials import Trial, choose_trial, explain_choice
from sqlanon.support.resources import POLICY_SCHEMA
from support.commands import cli


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


@pytest.mark.thorough
def test_a_policy_file_is_private_and_its_paths_are_relative(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy names both files relative to its own folder, and runs from any other."""
    without_trials(monkeypatch)
    target = folder / "policies" / "people.toml"
    done = cli("suggest", "data/people_0.csv", "data/people_1.csv", "-o", "policies/people.toml", cwd=folder)
    assert (done.status, done.err) == (0, "")
    assert "sqlanon anonymize policies/people.toml" in done.out
    assert target.stat().st_mode & 0o777 == 0o600
    assert 'files = ["../data/people_0.csv", "../data/people_1.csv"]' in target.read_text(encoding="utf-8")
    assert {path.name for path in target.parent.iterdir()} == {"people.toml", "sqlanon.schema.json"}
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


@pytest.mark.thorough
def test_the_schema_that_a_policy_names_is_beside_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that differs is kept without --force; a policy that is printed names none."""
    without_trials(monkeypatch)
    schema, ours = folder / "sqlanon.schema.json", POLICY_SCHEMA.read_bytes()
    first = cli("suggest", "data/people_0.csv", "-o", "p.toml", cwd=folder)
    assert "sqlanon.schema.json: with it, editors complete" in first.out
    assert (folder / "p.toml").read_text(encoding="utf-8").startswith("#:schema ./sqlanon.schema.json\n")
    assert schema.read_bytes() == ours
    second = cli("suggest", "data/people_1.csv", "-o", "q.toml", cwd=folder)
    assert "schema" not in second.out
    schema.write_text("{}")
    third = cli("suggest", "data/people_1.csv", "-o", "r.toml", cwd=folder)
    assert (third.status, schema.read_text()) == (0, "{}")
    assert "is kept; --force replaces it" in third.out
    assert cli("suggest", "data/people_1.csv", "-o", "r.toml", "--force", cwd=folder).status == 0
    assert schema.read_bytes() == ours
    assert "#:schema" not in cli("suggest", "data/people_0.csv", cwd=folder).out


@pytest.mark.slow
def test_suggest_refuses_empty_files_and_asks_for_a_table(folder: Path) -> None:
    (folder / "empty.csv").write_text("")
    refused = cli("suggest", "empty.csv", cwd=folder)
    assert (refused.status, "empty.csv is empty" in refused.err) == (2, True)
    with duckdb.connect(str(folder / "people.duckdb")) as connection:
        connection.execute("CREATE TABLE people AS SELECT 1 AS age")
    refused = cli("suggest", "people.duckdb", cwd=folder)
    assert refused.status == 2
    assert "name a table, as in `sqlanon suggest people.duckdb people`; its tables: people" in refused.err


@pytest.mark.parametrize(
    ("output", "message"), [("policies", "is a folder"), ("nowhere/p.toml", "does not exist: create it")]
)
def test_a_place_where_nothing_can_be_written(output: str, message: str, folder: Path) -> None:
    refused = cli("suggest", "data/people_0.csv", "-o", output, cwd=folder)
    assert refused.status == 2
    assert message in refused.err


def test_arguments_that_are_neither_a_table_nor_files_are_refused(folder: Path) -> None:
    refused = cli("suggest", "a.duckdb", "people", "more", cwd=folder)
    assert refused.status == 2
    assert "a database and one of its tables, or data files of one table" in refused.err


def test_files_beside_a_source_are_refused(folder: Path) -> None:
    with (
        sqlanon.connect(folder / "data" / "people_0.csv") as db,
        pytest.raises(sqlanon.SourceError, match="connect without one"),
    ):
        db.suggest(files=[folder / "data" / "people_1.csv"])


@pytest.mark.thorough
def test_the_strategy_that_keeps_the_most_is_named_with_the_figures_of_all(folder: Path) -> None:
    done = cli("suggest", "data/people_*.csv", "-o", "p.toml", cwd=folder)
    text, policy = (folder / "p.toml").read_text(encoding="utf-8"), Policy.load(folder / "p.toml")
    assert (done.status, policy.search.strategy, policy.search.summary) == (0, "mondrian", "set")
    for name in ("optimal", "mondrian with sets", "mondrian", "local", "optimal with cells", "subtree"):
        figures = r"0\.\d+ +\d\S* % +(under )?\d\S* %"
        assert re.search(rf"^#   {name} +({figures}$|- )", text, re.MULTILINE)
    assert "tried on all 300 rows" in text and '"mondrian"  # counts from it are ' in text
    assert "`extend` and `live` need a full-domain strategy" in text
    assert max(map(len, text.splitlines())) <= 100


def trial(
    name: str,
    loss: float,
    *,
    stopped: bool = False,
    gone: tuple[str, ...] = (),
    counts: float | None = None,
    **search: str,
) -> Trial:
    """A trial, from whose release counts are off as the loss is, or by another share."""
    error = loss if counts is None else counts
    return Trial(name, {"strategy": "mondrian", **search}, loss, gone, 100, 0, stopped=stopped, count_error=error)


def test_a_strategy_that_can_do_more_is_preferred_to_one_that_is_about_as_good() -> None:
    sets, full = trial("sets", 0.1, summary="set"), trial("full", 0.119, strategy="optimal")
    assert choose_trial([sets, full]) == full
    assert choose_trial([sets, trial("cells", 0.119, strategy="optimal", suppression="cells")]) == sets
    assert choose_trial([sets, trial("full", 0.121, strategy="optimal")]) == sets
    much_finer = trial("sets", 0.02, summary="set")
    assert choose_trial([much_finer, trial("full", 0.035, strategy="optimal")]) == much_finer


def test_counts_decide_unless_they_are_about_as_good() -> None:
    sets, ranges = trial("sets", 0.1, counts=0.05, summary="set"), trial("ranges", 0.3, counts=0.04)
    assert choose_trial([sets, ranges]) == sets
    assert (
        explain_choice(sets, [sets, ranges]) == "counts from it are about as good as the best, and it loses the least"
    )
    better = trial("better", 0.3, counts=0.02)
    assert choose_trial([sets, better]) == better
    assert explain_choice(better, [sets, better]) == "counts from it are off the least"
    rough = trial("rough", 0.05, gone=("age",))
    assert explain_choice(sets, [sets, rough]) == "it keeps the most columns, and counts from it are off the least"
    full = trial("full", 0.11, counts=0.06, strategy="optimal")
    assert choose_trial([sets, full]) == full
    assert explain_choice(full, [sets, full]) == (
        "counts from it are about as good as the best, and its releases can be extended"
    )


def test_where_no_strategy_ends_in_time_the_finest_is_proposed() -> None:
    late = Trial(
        "mondrian with sets", {"strategy": "mondrian", "summary": "set"}, seconds=9, stopped=True, error="late"
    )
    unused = Trial("optimal", {"strategy": "optimal"}, stopped=True, error="no time was left to try it")
    text = policy_text({}, {}, [], Findings(900, 1, [], [], [late, unused], []))
    assert 'strategy = "mondrian"  # it usually keeps the most\nsummary = "set"\n' in text
    assert "within the time limit" in text
    assert "strategy" not in policy_text({}, {}, [], Findings(900, 1, [], [], [unused], [])).split("[search]")[1]


def test_a_search_that_was_stopped_is_chosen_only_where_it_is_far_better() -> None:
    """The result until then depends on the machine."""
    ended = trial("ended", 0.4)
    assert choose_trial([ended, trial("stopped", 0.21, stopped=True)]) == ended
    far_better = trial("stopped", 0.19, stopped=True)
    assert choose_trial([ended, far_better]) == far_better
    assert choose_trial([trial("rough", 0.1, gone=("age",)), far_better]) == far_better


def test_a_strategy_that_keeps_a_column_is_preferred_to_one_whose_counts_are_better() -> None:
    rough, fine = trial("rough", 0.1, gone=("age",)), trial("fine", 0.2)
    assert choose_trial([rough, fine]) == fine
    assert choose_trial([rough, Trial("none", {"strategy": "local"}, error="no")]) == rough
    assert choose_trial([]) is None


def test_a_policy_never_takes_the_place_of_data(folder: Path) -> None:
    data = folder / "data" / "people_0.csv"
    before = data.read_bytes()
    (folder / "link.toml").symlink_to(data)
    for name in ("data/people_0.csv", "link.toml"):
        outcome = cli("suggest", data, "-o", name, "--force", cwd=folder)
        assert outcome.status == 2 and "must end in .toml" in outcome.err
    assert data.read_bytes() == before
