"""`compare`: what several strategies find for one policy, on the command line and in Python."""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from sqlglot import parse_one

import sqlanon
from oracles import oracle
from properties import random_cases
from properties.random_cases import Case
from properties.search_checks import arrow_table, policy, thorough
from sqlanon.engines.deadline import interrupt_after
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import OvertimeError
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.strategies.compare import COLUMNS, policies_by_strategy
from support.command_folder import folder, on_a_terminal, prepared_folder, rewrite
from support.commands import cli
from support.hospital import HOSPITAL_POLICY
from support.lanes import draw_tables

__all__ = ["folder", "prepared_folder"]  # fixtures

FEW = "optimal,k_minimal,datafly"


def comparison_rows(relation: Any) -> list[dict[str, Any]]:
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


# The command


@pytest.mark.thorough
def test_json_has_an_object_for_each_strategy(folder: Path) -> None:
    ended = cli("compare", folder / "policy.toml", "--strategies", FEW, "--json")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.count("\n") == 1
    document = json.loads(ended.out)
    assert [entry["strategy"] for entry in document] == FEW.split(",")
    alone = json.loads(cli("anonymize", folder / "policy.toml", "--json").out)
    optimal, k_minimal, datafly = document
    for entry in document:
        assert list(entry) == list(COLUMNS)
        assert entry["error"] is None
        assert entry["seconds"] > 0
        assert entry["loss"] == pytest.approx(entry["score"])
        assert entry["score"] >= optimal["score"] * (1 - oracle.TIE)
    for name in ("score", "classes", "suppressed_rows", "optimal"):
        assert optimal[name] == alone[name], name
    assert optimal["checked"] == alone["lattice"]["checked"]
    assert (k_minimal["optimal"], datafly["optimal"]) == (False, False)


@pytest.mark.thorough
def test_compare_prints_one_row_for_each_strategy(folder: Path) -> None:
    ended = cli("compare", rewrite(folder, "0.1", '0.1\nmeasure = "distinct"'), "--strategies", "optimal, datafly")
    assert (ended.status, ended.err) == (0, "")
    header, *rows = [re.split(r"\s{2,}", line) for line in ended.out.splitlines()]
    assert header == ["strategy", "score", "loss", "classes", "suppressed", "checks", "seconds"]
    (*rows, (measure,)), marks = rows[:-2], rows[-2:]
    assert measure == "score: by the measure distinct"
    assert sorted(marks) == [["* optimal among full-domain generalizations"], ["= the strategy of the policy"]]
    losses = [float(row[2]) for row in rows]
    assert losses == sorted(losses)  # the least loss first
    by_name = {row[0]: row for row in rows}
    assert set(by_name) == {"optimal * =", "datafly"}
    assert by_name["optimal * ="][1] == by_name["optimal * ="][3]
    assert float(by_name["optimal * ="][2]) > 0


@pytest.mark.thorough
def test_no_column_stands_twice_and_the_table_is_narrow(folder: Path) -> None:
    ended = cli("compare", folder / "policy.toml", "--strategies", "samarati-binary,mu-argus")
    assert (ended.status, ended.err) == (0, "")
    header, first, second, mark = ended.out.splitlines()
    assert re.split(r"\s{2,}", header) == ["strategy", "loss", "classes", "suppressed", "checks", "seconds"]
    assert max(map(len, (header, first, second, mark))) <= 80
    assert (first.split()[0], second.split()[:2]) == ("samarati-binary", ["mu-argus", "!"])
    assert mark == "! does not guarantee k-anonymity of all quasi-identifiers together"


@pytest.mark.slow
def test_a_strategy_that_takes_too_long_is_skipped_and_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object) -> None:
        time.sleep(0.05)
        raise sqlanon.SourceError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr("sqlanon.strategies.compare.DEFAULT_SECONDS", 0.01)
        patch.setattr("sqlanon.pipeline.run_search", slow)
        ended = cli("compare", folder / "policy.toml")
    assert ended.status == 1  # nothing was found
    assert "Skipped: optimal (took too long), " in ended.out and "iab (has no end of its own)" in ended.out
    *_, command = ended.out.splitlines()
    assert command.startswith(f"  sqlanon compare {folder / 'policy.toml'} --strategies optimal,")
    # The command that it prints runs, and its strategies are not limited.
    command_line = ["compare", folder / "policy.toml", "--strategies", "optimal,iab", *command.split()[-2:], "--json"]
    optimal, iab = json.loads(cli(*command_line).out)
    assert (optimal["stopped"], optimal["error"], iab["error"]) == (False, None, None)


def test_a_statement_without_end_is_interrupted() -> None:
    with duckdb.connect() as connection:
        engine = DuckDBEngine(connection)
        with pytest.raises(OvertimeError, match=r"took more than 0\.1 seconds"), interrupt_after(0.1, [engine]):
            engine.rows(parse_one("SELECT sum(i) FROM range(1000000000000) t(i)", dialect="duckdb"))
        for seconds in (60, 1e30):  # the second is more than a thread can wait for
            with interrupt_after(seconds, [engine]):  # what is quick is left alone, and so is what comes later
                assert engine.rows(parse_one("SELECT 1")) == [(1,)]
            assert engine.rows(parse_one("SELECT 1")) == [(1,)]
        with pytest.raises(ZeroDivisionError), interrupt_after(60, [engine]):
            raise ZeroDivisionError


@pytest.mark.thorough
def test_stopped_search_shows_its_best_result_and_is_marked(folder: Path) -> None:
    more = ("--set", "search.time_limit=0.000001", "--strategies", "optimal,datafly")
    ended = cli("compare", folder / "policy.toml", *more)
    assert ended.status == 0
    assert re.search(r"^optimal \+ = +[01]\.\d", ended.out, re.MULTILINE)
    assert "+ stopped by a time limit: with more time it may find better" in ended.out


@pytest.mark.thorough
def test_compare_publishes_and_records_nothing(folder: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    assert cli("compare", folder / "policy.toml", "--strategies", "optimal").status == 0
    assert {path.name for path in folder.iterdir()} == before == {"hospital.duckdb", "policy.toml"}


@pytest.mark.slow
def test_limits_of_the_machine_are_taken(folder: Path) -> None:
    limits = ("--memory-limit", "1GB", "--threads", "1")
    assert cli("compare", folder / "policy.toml", "--strategies", "optimal", *limits).status == 0
    assert cli("compare", folder / "policy.toml", "--threads", "0").status == 2


@pytest.mark.parametrize("names", ["optimal,fastest", "", "optimal,"])
def test_an_unknown_strategy_is_an_error_that_lists_the_names(folder: Path, names: str) -> None:
    ended = cli("compare", folder / "policy.toml", "--strategies", names, "--json")
    assert (ended.status, ended.out) == (2, "")
    assert "--strategies: must be one of " in ended.err
    assert all(name in ended.err for name in STRATEGIES)


@pytest.mark.slow
def test_an_unsuitable_strategy_does_not_stop_the_comparison(folder: Path) -> None:
    path = rewrite(folder, "k = 5", "k = 5\naverage_risk = 0.1")
    ended = cli("compare", path, "--strategies", "iab,optimal", "--json")
    assert (ended.status, ended.err) == (0, "")
    iab, optimal = json.loads(ended.out)
    assert iab["error"].startswith("privacy.average_risk: strategy iab ")
    assert iab == {**dict.fromkeys(COLUMNS), "strategy": "iab", "seconds": 0.0, "error": iab["error"]}
    assert optimal["error"] is None
    outcome = cli("compare", path, "--strategies", "iab,optimal")
    assert outcome.err.startswith("iab: privacy.average_risk: ")
    assert cli("compare", path, "--strategies", "iab").status == 1


@pytest.mark.slow
def test_compare_without_results_exits_with_1(folder: Path) -> None:
    path = rewrite(folder, "k = 5", "k = 401")
    ended = cli("compare", path, "--strategies", "optimal,datafly", "--json")
    assert ended.status == 1
    for entry in json.loads(ended.out):
        assert entry["error"]
        assert entry["score"] is None
        assert entry["seconds"] > 0


@pytest.mark.slow
def test_a_missing_source_is_an_error(folder: Path) -> None:
    ended = cli("compare", rewrite(folder, '"patients"', '"visitors"'), "--strategies", "optimal,datafly")
    assert (ended.status, ended.out) == (2, "")
    assert "visitors" in ended.err


@pytest.mark.thorough
def test_a_bar_is_shown_on_a_terminal_and_the_result_stays_clean(folder: Path) -> None:
    status, out, terminal_output = on_a_terminal("compare", folder / "policy.toml", "--strategies", FEW, "--json")
    assert status == 0
    assert len(json.loads(out)) == 3
    assert b"starting" in terminal_output
    assert re.search(rb"[0-2]/3 \w+", terminal_output)
    assert b"Traceback" not in terminal_output


# In Python


@pytest.mark.thorough
def test_compare_returns_a_relation_in_python(folder: Path) -> None:
    policy_ = sqlanon.Policy.load(folder / "policy.toml")
    states: list[tuple[Any, ...]] = []
    with sqlanon.connect() as db:
        relation = db.compare(policy_, ("datafly", "optimal", "datafly"), lambda *state: states.append(state))
        assert dict(zip(relation.columns, map(str, relation.types), strict=True)) == COLUMNS
        assert [row[0] for row in relation.fetchall()] == ["datafly", "optimal"]
        (best,) = relation.aggregate("min(loss)").fetchall()
        assert best == (db.anonymize(policy_).score,)
        with pytest.raises(sqlanon.PolicyError, match=r"search\.strategy: name at least one of optimal, "):
            db.compare(policy_, ())
    assert list(dict.fromkeys(state[0] for state in states)) == ["datafly", "optimal"]
    assert states[0] == ("datafly", 0, 0, None)
    assert states[-1][2] > 0


def test_by_default_every_suitable_strategy_is_compared() -> None:
    attributes = {"zip": {"role": "quasi", "hierarchy": "suppress"}, "illness": {"role": "sensitive"}}
    sections = {"source": {"table": "t"}, "attributes": attributes, "privacy": {"k": 2}}
    alone = policies_by_strategy(sqlanon.Policy(**sections), None)
    # Nothing bounds what the one looks at, and the other needs a key.
    assert list(alone) == [name for name in STRATEGIES if name not in ("iab", "forest")]
    limited = sqlanon.Policy(**{**sections, "source": {"table": "t", "key": "id"}}, search={"time_limit": 5})
    assert list(policies_by_strategy(limited, None)) == list(STRATEGIES)
    of_all = policies_by_strategy(sqlanon.Policy(**{**sections, "privacy": {"k": 2, "average_risk": 0.1}}), None)
    assert not {"iab", "mu-argus", "mondrian", "k-similar", "forest", "subtree", "local"} & of_all.keys()
    assert {"optimal", "samarati", "incognito", "ola", "flash", "datafly"} <= of_all.keys()


def test_settings_of_other_strategies_are_left_out() -> None:
    attributes = {"zip": {"role": "quasi", "hierarchy": "suppress"}}
    sections = {"attributes": attributes, "privacy": {"k": 2}}
    relaxed = sqlanon.Policy(**sections, search={"strategy": "mondrian", "cuts": "relaxed", "summary": "median"})
    policies = policies_by_strategy(relaxed, ("optimal", "mondrian"))
    assert policies["mondrian"] == relaxed
    assert policies["optimal"] == sqlanon.Policy(**sections)
    cells = sqlanon.Policy(**sections, search={"suppression": "cells"})
    policies = policies_by_strategy(cells, ("local", "optimal"))
    assert policies["optimal"] == cells
    assert isinstance(policies["local"], sqlanon.Policy)


def loss_of(case: Case, levels: oracle.Levels) -> float:
    table = oracle.Table.of(case.rows, case.hierarchies)
    return oracle.score(oracle.Release(table, levels, case.k), "loss", "mean", case.weights)


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(20, usual=20))
@given(case=random_cases.cases())
def test_compare_reports_the_loss_for_every_measure_on_many_tables(case: Case) -> None:
    check_loss(case)


def check_loss(case: Case) -> None:
    """Each strategy's figures are those that it finds alone; the loss is the oracle's."""
    names = ("optimal", "k_minimal")
    with tempfile.TemporaryDirectory() as directory, sqlanon.connect(arrow_table(case)) as db:
        if not case.rows:
            return
        comparison = comparison_rows(db.compare(policy(case, "datafly", Path(directory)), names))
        for row in comparison:
            expected = (oracle.solve if row["strategy"] == "optimal" else oracle.k_minimal)(**case.arguments)
            if expected is None:
                assert row["score"] is None
                assert "meets the policy" in row["error"]
                continue
            assert math.isclose(row["score"], expected.score, rel_tol=oracle.TIE)
            assert math.isclose(row["loss"], loss_of(case, expected.levels), rel_tol=1e-9, abs_tol=1e-12)
            assert (row["classes"], row["suppressed_rows"]) == (expected.classes, expected.suppressed_rows)


@pytest.mark.thorough
def test_the_loss_of_local_recoding_does_not_depend_on_the_measure(folder: Path) -> None:
    """The loss does not depend on the measure of the search."""
    losses = []
    for measure in ("loss", "distinct"):
        path = rewrite(folder, "[release]", f'measure = "{measure}"\n[release]')
        (row,) = json.loads(cli("compare", path, "--strategies", "iab", "--json").out)
        losses.append(row["loss"])
        path.write_text(HOSPITAL_POLICY)
    assert losses[0] == losses[1] > 0
