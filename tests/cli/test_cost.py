"""Warnings of `anonymize` about emptied columns and the strategy that would keep them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.errors import SourceError
from support.commands import cli
from support.databases import fetch

POLICY = """
[source]
database = "people.duckdb"
table = "people"
[attributes]
age = { role = "quasi", hierarchy = "suppress" }
sex = { role = "quasi", hierarchy = "suppress" }
[privacy]
k = 5
[search]
suppression_limit = 0
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A table of 40 people with different ages: the column has to be suppressed as a whole."""
    with duckdb.connect(tmp_path / "people.duckdb") as connection:
        connection.execute("CREATE TABLE people AS SELECT i AS age, ['f', 'm'][1 + i % 2] AS sex FROM range(40) t(i)")
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path / "policy.toml"


@pytest.mark.thorough
def test_warning_names_the_emptied_column_and_a_remedy(policy: Path) -> None:
    outcome = cli("anonymize", policy, "--dry-run")
    assert (outcome.status, outcome.err) == (0, "")
    *_, first, second, third, last = outcome.out.splitlines()
    assert first == "age is fully suppressed."
    assert second.startswith("`mondrian with sets` would keep it (loss 0.") and " instead of 0.5):" in second
    assert last == f"To compare all strategies: sqlanon compare {policy}"
    # The suggested setting has the announced effect.
    options = third.removeprefix("  add ").split()
    printed = json.loads(cli("anonymize", policy, *options, "-o", policy.with_name("r.duckdb"), "--json").out)
    assert printed["fully_suppressed"] == [] and "alternative" not in printed
    assert fetch(policy.with_name("r.duckdb"), "SELECT count(DISTINCT age) FROM people")[0][0] > 1


@pytest.mark.slow
def test_json_has_the_same(policy: Path) -> None:
    printed = json.loads(cli("anonymize", policy, "--dry-run", "--json").out)
    assert printed["fully_suppressed"] == ["age"]
    alternative = printed["alternative"]
    assert alternative["search"] == {"strategy": "mondrian", "summary": "set"}
    assert (alternative["keeps"], alternative["rows"]) == (["age"], 40)
    assert 0 < alternative["loss"] < printed["score"] == 0.5


@pytest.mark.thorough
def test_sets_are_advised_only_where_they_keep_the_column(policy: Path) -> None:
    with duckdb.connect(policy.with_name("people.duckdb")) as connection:
        connection.execute("CREATE TABLE towns AS SELECT 't' || i // 5 AS age, 'f' AS sex FROM range(40) t(i)")
    settings = ["--set", "source.table=towns", "--set", "privacy.k=10", "--strategy", "mondrian", "--dry-run"]
    settings += ["--set", "search.ends=exact"]  # of each town there are fewer rows than k
    ranges = cli("anonymize", policy, *settings).out
    assert "age is fully suppressed.\n`mondrian with sets` would keep it (loss " in ranges
    assert ranges.splitlines()[-2] == "  add --strategy mondrian --set search.summary=set"
    sets = cli("anonymize", policy, *settings, "--set", "search.summary=set").out
    assert "suppressed." not in sets
    gone = cli("anonymize", policy, *settings, "--set", "search.summary=set", "--set", "privacy.k=40").out
    assert gone.splitlines()[-1] == "age is fully suppressed."


@pytest.mark.slow
def test_each_column_has_its_loss(policy: Path) -> None:
    out = cli("anonymize", policy, "--dry-run", "--strategy", "mondrian").out
    # Five people of one sex span ten ages, of 40: 9 / 39.
    assert re.search(r"^age  +0\.231  at several levels\nsex  +0  unchanged$", out, re.MULTILINE)
    assert "Each group of rows is generalized only as far as it needs.\nA range stands for all values in it." in out
    whole = cli("anonymize", policy, "--dry-run").out
    assert "\nage                  1  level 1 of 1: fully suppressed\nsex                  0  unchanged\n" in whole
    with sqlanon.connect() as db:
        result = db.anonymize(sqlanon.Policy.load(policy))
        assert result.losses == {"age": 1.0, "sex": 0.0}
        assert result.loss == pytest.approx(0.5)


@pytest.mark.thorough
def test_columns_that_no_strategy_keeps_are_only_named(policy: Path) -> None:
    outcome = cli("anonymize", policy, "--dry-run", "--set", "privacy.k=40")
    assert outcome.out.splitlines()[-1] == "age and sex are fully suppressed."


def test_no_remedy_is_searched_without_emptied_columns(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlanon.suggest.trials.try_finer", None)
    outcome = cli("anonymize", policy, "--dry-run", "--set", "privacy.k=1")
    assert outcome.status == 0 and "suppressed." not in outcome.out


@pytest.mark.thorough
def test_a_trial_that_fails_changes_nothing(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise SourceError("gone")

    monkeypatch.setattr("sqlanon.suggest.trials.try_finer", failing)
    outcome = cli("anonymize", policy, "-o", policy.with_name("r.duckdb"))
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.splitlines()[-1] == "age is fully suppressed."
