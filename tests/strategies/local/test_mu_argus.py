"""Strategy mu-argus: the run of a plain one, combinations that are safe, and tables in which all together is not."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_argus import CLASS_LISTS, check

import sqlanon
from properties.local_tasks import LIMITS, SOME_ROWS, Plain
from properties.random_cases import Case
from properties.search_checks import thorough
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.pipeline import prepare
from sqlanon.policy.guarantee import CLASSES, select_combinations
from sqlanon.strategies.local.core.task import prepare_local_task
from sqlanon.strategies.local.mu_argus import mu_argus
from support.databases import insert
from support.lanes import draw_tables
from support.policies import make_policy

# Which combinations


@given(st.lists(st.sampled_from(CLASSES), min_size=1, max_size=6))
def test_the_combinations_have_one_of_each_class(classes: list[str]) -> None:
    identification = {f"a{i}": identification_class for i, identification_class in enumerate(classes)}
    combinations = select_combinations(identification)
    ranks = sorted({CLASSES.index(class_) for class_ in classes})
    first, second = ranks[0], ranks[:2][-1]
    for three in itertools.combinations(identification, min(3, len(classes))):
        least = sorted(CLASSES.index(identification[name]) for name in three)
        as_wanted = len(classes) < 3 or (least[0] == first and least[1] <= second)
        assert (three in combinations) == as_wanted
    assert {name for combination in combinations for name in combination} == set(identification)


def test_three_classes_are_those_of_mu_argus() -> None:
    """One that is most, one that is at least more, and any third: all of them distinct."""
    identification = {"birth": "most", "zip": "more", "job": "more", "sex": "identifying", "race": "identifying"}
    assert set(select_combinations(identification)) == {
        ("birth", "zip", "job"), ("birth", "zip", "sex"), ("birth", "zip", "race"),
        ("birth", "job", "sex"), ("birth", "job", "race"),
    }  # fmt: skip


# Against a plain one


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(10, usual=40))
@given(SOME_ROWS, LIMITS, CLASS_LISTS)
def test_mu_argus_matches_plain_python_on_many_tables(case: Case, limits: list[int], classes: list[str]) -> None:
    check(case, limits, classes)


# Worked examples

# Sweeney 2002: race, birth date, gender and ZIP of twelve patients.
PATIENTS = [
    ("black", "1965", "male", "02141"),
    ("black", "1965", "male", "02141"),
    ("black", "1965", "female", "02138"),
    ("black", "1965", "female", "02138"),
    ("black", "1964", "female", "02138"),
    ("black", "1964", "female", "02138"),
    ("white", "1964", "male", "02138"),
    ("white", "1965", "female", "02139"),
    ("white", "1964", "male", "02139"),
    ("white", "1964", "male", "02139"),
    ("white", "1967", "male", "02138"),
    ("white", "1967", "male", "02138"),
]
NAMES = ("race", "birth", "sex", "zip")


def classes_of(rows: Sequence[tuple[str, ...]], identification: dict[str, str], limit: float) -> Counter[Any]:
    """The released rows, at k = 2."""
    rules: dict[str, Any] = {
        "race": "suppress",
        "birth": {"mask": "right"},
        "sex": "suppress",
        "zip": {"mask": "right"},
    }
    attributes = {
        name: {"role": "quasi", "hierarchy": rule, "identification": identification.get(name, "identifying")}
        for name, rule in rules.items()
    }
    policy = make_policy(attributes, search={"strategy": "mu-argus", "suppression_limit": limit})
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (race VARCHAR, birth VARCHAR, sex VARCHAR, zip VARCHAR)")
        insert(connection, "t", rows)
        with sqlanon.connect(connection) as db, db._workspace.run(policy) as run:
            steps = StatementRunner(run.engine)
            prepared = prepare(steps, policy, run.source, run.work)
            task = prepare_local_task(steps, prepared, lambda open_, checked, best: None)
            plain = Plain(task)
            return plain.sizes(plain.placed(mu_argus(task).assignment))


def smallest(sizes: Counter[Any], names: Sequence[str]) -> int:
    counts: Counter[Any] = Counter()
    for read, n in sizes.items():
        counts[tuple(read[NAMES.index(name)] for name in names)] += n
    return min(counts.values())


@pytest.mark.thorough
def test_combinations_are_safe_and_a_patient_is_alone() -> None:
    """Gender and ZIP are in no combination together, so that a unique pair stays undetected."""
    sizes = classes_of(PATIENTS, {"birth": "most", "race": "more"}, 0.1)
    assert sizes == Counter({
        ("*", "1964", "female", "02138"): 2, ("*", "1965", "female", "02138"): 2, ("*", "1965", "male", "02141"): 2,
        ("*", "1964", "male", "02138"): 1, ("*", "1964", "male", "02139"): 2, ("*", "1967", "male", "02138"): 2,
    })  # fmt: skip
    assert smallest(sizes, ("race", "birth", "sex")) == smallest(sizes, ("race", "birth", "zip")) == 2
    assert smallest(sizes, NAMES) == 1


@pytest.mark.thorough
def test_all_combinations_of_three_are_safe_and_everybody_is_alone() -> None:
    rows = list(itertools.product(("black", "white"), ("1964", "1965"), ("female", "male"), ("02138", "02139")))
    sizes = classes_of(rows, {}, 0)
    assert sizes == Counter(rows)
    assert {smallest(sizes, three) for three in itertools.combinations(NAMES, 3)} == {2}
    assert smallest(sizes, NAMES) == 1


@pytest.mark.thorough
def test_cells_of_a_rare_row_are_blanked() -> None:
    """The cells of two single rows in most unsafe combinations are blanked; then both read alike."""
    sizes = classes_of(PATIENTS, {"birth": "most", "zip": "more"}, 0.2)
    assert sizes["white", "*", "*", "*"] == 2
    assert sum(sizes.values()) == len(PATIENTS)
    assert sum(n for read, n in sizes.items() if "*" not in read) == 10


# The policy


def test_identification_is_for_mu_argus() -> None:
    spec = {"role": "quasi", "hierarchy": "suppress", "identification": "most"}
    with pytest.raises(sqlanon.PolicyError, match=r"identification.*applies to strategy mu-argus, not to optimal"):
        make_policy({"zip": spec})
    with pytest.raises(sqlanon.PolicyError, match=r"identification.*applies to quasi-identifiers"):
        make_policy({"zip": spec, "illness": {"role": "sensitive", "identification": "most"}})
    with pytest.raises(sqlanon.PolicyError, match="identification"):
        make_policy({"zip": spec | {"identification": "much"}}, search={"strategy": "mu-argus"})
    policy = make_policy({"zip": spec}, search={"strategy": "mu-argus"})
    assert sqlanon.Policy.model_validate_json(policy.model_dump_json()).attributes["zip"].identification == "most"
    plain = make_policy({"zip": "suppress"})
    assert "identification" not in plain.model_dump(mode="json")["attributes"]["zip"]


@pytest.mark.slow
def test_manifest_states_the_guarantee_of_mu_argus(tmp_path: Path) -> None:
    attributes = {name: {"role": "quasi", "hierarchy": "suppress"} for name in NAMES}
    rows = list(itertools.product("ab", "cd", "ef", "gh"))
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (race VARCHAR, birth VARCHAR, sex VARCHAR, zip VARCHAR)")
        insert(connection, "t", rows)
        with sqlanon.connect(connection) as db:
            policy = make_policy(attributes, search={"strategy": "mu-argus"})
            result = db.anonymize(policy)
            release = result.publish(tmp_path / "r.duckdb")
            assert (result.score, result.smallest_class, release.manifest.guarantee) == (0, 1, "combinations")
            for verification in (release.verify(), db.verify(release.path, policy)):
                checks = {check.name: check for check in verification.checks}
                assert verification.verified
                assert checks["2-anonymity of race, birth, sex"].passed
                assert checks["2-anonymity"].passed is None
                assert checks["2-anonymity"].message.startswith("not guaranteed: over all quasi-identifiers together")
