"""The attack on linked tables counts the persons who match known child rows, as an oracle does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from oracles.oracle_linked import Known, LinkedDatabase, State, View, evaluate, fewest_matches
from properties.linked_cases import LinkedCase, make_linked_case, small_cases
from sqlanon.database import connect
from sqlanon.errors import InfeasibleError, PolicyError, ReleaseError
from sqlanon.linked.attacks.attack import LinkedAttack, attack_linked
from sqlanon.linked.attacks.matching import Matches
from sqlanon.linked.publish.targets.file import FileLocation
from sqlanon.policy.linked import LinkedPolicy
from support.commands import cli
from support.lanes import draw_tables
from support.linked_hospital import POLICY


@pytest.fixture(scope="module")
def attack(hospital: Path) -> LinkedAttack:
    return attack_linked(FileLocation(hospital / "release.duckdb"), LinkedPolicy.load(hospital / "policy.toml"))


@pytest.fixture(scope="module")
def printed_figures(hospital: Path) -> dict[str, Any]:
    """The JSON of the attack on the release alone."""
    figures: dict[str, Any] = json.loads(cli("attack", hospital / "release.duckdb", "--json").out)["known_rows"]
    return figures


# Comparison with the oracle


def release_case(case: LinkedCase, folder: Path) -> tuple[LinkedAttack, LinkedAttack, tuple[int, ...]] | None:
    """The attacks on a case's release with and without its policy, and its levels; None if nothing meets the policy."""
    database = folder / "source.duckdb"
    with duckdb.connect(str(database)) as connection:
        case.fill(connection)
    policy = LinkedPolicy(**case.policy(source={"database": database}))
    with connect() as db:
        try:
            result = db.anonymize(policy)
        except InfeasibleError:
            return None
        path = result.publish(folder / "release.duckdb").path
        levels = result.levels
    return attack_linked(FileLocation(path), policy), attack_linked(FileLocation(path)), levels


def expected_matches(
    database: LinkedDatabase, levels: Sequence[int], states: tuple[State, State], knowledge: Sequence[Known]
) -> Iterator[tuple[int, ...]]:
    """For each number of known rows: the attacked persons, the matched, the unique ones, and the fewest matches."""
    view = View(database, tuple(levels))
    for known in knowledge:
        fewest = fewest_matches(view, *states, known)
        matches = [count for count in fewest.values() if count is not None]
        yield len(fewest), len(matches), matches.count(1), min(matches, default=0)


def figures(matches: Sequence[Matches]) -> list[tuple[int, ...]]:
    return [
        (
            known_matches.persons,
            known_matches.matched_persons,
            known_matches.unique_persons,
            known_matches.fewest_matches or 0,
        )
        for known_matches in matches
    ]


def check_case(case: LinkedCase, folder: Path) -> None:
    released = release_case(case, folder)
    if released is None:
        return
    attack, alone, levels = released
    database, knowledge = case.database, [matches.known for matches in attack.after]
    everybody, nothing = database.everything, (0,) * len(levels)
    state = evaluate(database, levels, case.k, case.known, case.weights).state
    assert attack.before is not None
    assert figures(attack.before) == [*expected_matches(database, nothing, (everybody, everybody), knowledge)]
    assert figures(attack.after) == [*expected_matches(database, levels, (everybody, state), knowledge)]
    assert figures(alone.after) == [*expected_matches(database, levels, (state, state), knowledge)]
    for matches in attack.after:
        if case.known == "all" or (matches.known != "all" and matches.known <= case.known):
            assert matches.fewest_matches is None or matches.fewest_matches >= case.k


@pytest.mark.parametrize("number", range(2))
def test_matches_are_those_of_the_oracle(number: int, tmp_path: Path) -> None:
    check_case(make_linked_case(number), tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("case", small_cases(16, draw_tables(8, 200), first=2))
def test_matches_of_more_cases_are_those_of_the_oracle(case: LinkedCase, tmp_path: Path) -> None:
    check_case(case, tmp_path)


# Attacks on a hospital


@pytest.mark.thorough
def test_visits_identify_patients_in_the_source_and_not_in_the_release(attack: LinkedAttack) -> None:
    assert attack.before is not None
    assert [matches.known for matches in attack.after] == [0, 1, 2, "all"]
    assert attack.before[0].unique_persons == 0
    assert attack.before[2].unique_persons > 30
    assert attack.after[2].unique_persons == 0
    assert attack.after[2].fewest_matches == attack.manifest.smallest_group


def test_the_statements_show_the_victims(printed_figures: dict[str, Any]) -> None:
    for finding in printed_figures["findings"]:
        with duckdb.connect() as connection:
            rows = connection.execute(finding["sql"]).fetchall()
        assert len({row[-1] for row in rows}) == finding["victims"]
    assert printed_figures["findings"][-1]["victims"] > 0


@pytest.mark.thorough
def test_a_sample_is_attacked_if_there_are_many_persons(hospital: Path) -> None:
    path, policy = hospital / "release.duckdb", LinkedPolicy.load(hospital / "policy.toml")
    attacks = [attack_linked(FileLocation(path), policy, most_attacked=20) for _ in range(2)]
    assert attacks[0].after == attacks[1].after
    assert (attacks[0].after[0].persons, attacks[0].persons, attacks[0].is_sample) == (20, 60, True)


@pytest.mark.thorough
def test_moved_dates_are_attacked_as_they_are_released(hospital: Path, tmp_path: Path) -> None:
    text = POLICY.replace('["month", "year"]', '["month", "year"], shift = 30')
    text = text.replace("hospital.duckdb", str(hospital / "hospital.duckdb"))
    (tmp_path / "policy.toml").write_text(text, encoding="utf-8")
    assert cli("anonymize", tmp_path / "policy.toml").status == 0
    attack = attack_linked(FileLocation(tmp_path / "release.duckdb"), LinkedPolicy.load(tmp_path / "policy.toml"))
    assert attack.persons == attack.manifest.released_persons
    assert attack.before is not None and attack.before[0].persons == 60


# The command


def test_the_command_prints_the_matches_in_the_source_and_in_the_release(hospital: Path) -> None:
    ended = cli("attack", hospital / "release.duckdb", "--policy", hospital / "policy.toml")
    assert ended.status == 0
    assert "attacked: 60 persons of the source" in ended.out
    assert "unique in the source  unique in the release" in ended.out
    assert "protects against an attacker who knows 2 child rows: 3 persons or more match" in ended.out


@pytest.mark.slow
def test_json_has_the_keys_of_the_attacks_on_one_table(hospital: Path, printed_figures: dict[str, Any]) -> None:
    assert printed_figures.keys() >= {"releases", "victims", "share", "sql", "findings", "known", "persons"}
    assert [finding["known"] for finding in printed_figures["findings"]] == [0, 1, 2, "all"]
    assert "before" not in printed_figures
    with_policy = json.loads(
        cli("attack", hospital / "release.duckdb", "--policy", hospital / "policy.toml", "--json").out
    )["known_rows"]
    assert with_policy["findings"][1]["before"]["share"] > 0.5


@pytest.mark.slow
def test_options_for_one_table_and_other_policies_are_refused(hospital: Path, tmp_path: Path) -> None:
    path = hospital / "release.duckdb"
    for arguments, message in (
        (("--known", "2"), "--known: is for one table"),
        (("--only", "linking"), "--only: is for one table"),
        ((str(path),), "RELEASE: is for one table"),
    ):
        ended = cli("attack", path, *arguments)
        assert (ended.status, message in ended.err) == (2, True), ended.err
    other_policy = tmp_path / "other.toml"
    other_policy.write_text(POLICY.replace('"suppress"', '{ mask = "left" }', 1), encoding="utf-8")
    with pytest.raises(PolicyError, match="other tables, quasi-identifiers or hierarchies"):
        attack_linked(FileLocation(path), LinkedPolicy.load(other_policy))
    with pytest.raises(ReleaseError, match="does not exist"):
        attack_linked(FileLocation(tmp_path / "none.duckdb"))
