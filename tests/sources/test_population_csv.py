"""``[population.csv]`` says how a population that is a CSV file is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sqlanon
from sqlanon.errors import PolicyError, SourceError
from support.policies import make_policy

KEYS = {"encoding": "utf-16-le", "delimiter": "|", "skip": 1, "on_bad_line": "drop"}


@pytest.fixture
def policy_of(tmp_path: Path) -> Any:
    (tmp_path / "people.csv").write_text("town,dx\n" + "Köln,flu\nOslo,cold\n" * 3)
    text = "register, 2026\ntown|party\n" + "Köln|a\nOslo|b\n" * 9 + "Rom\n"
    (tmp_path / "register.csv").write_bytes(text.encode("utf-16-le"))

    def policy(csv: dict[str, Any] | None) -> sqlanon.Policy:
        population = {"files": [str(tmp_path / "register.csv")], **({} if csv is None else {"csv": csv})}
        return make_policy(
            {"town": "suppress", "dx": "sensitive"},
            table=None,
            source={"files": [str(tmp_path / "people.csv")]},
            privacy={"k_map": 9},
            population=population,
        )

    return policy


@pytest.mark.thorough
def test_population_is_read_with_its_own_keys(policy_of: Any) -> None:
    with sqlanon.connect() as db:
        result = db.anonymize(policy_of(KEYS), record=False)
    assert result.generalization == {"town": 0}, "each town has nine people of the register"
    assert "population.csv: register.csv: 1 bad line is dropped: line 21 has 1" in result.warnings
    assert result.dropped_lines is None, "that of the source counts"


@pytest.mark.cases(1)
@pytest.mark.parametrize("missing", ["encoding", "skip", "on_bad_line"])
def test_missing_settings_are_refused_by_their_key(missing: str, policy_of: Any) -> None:
    keys = {key: value for key, value in KEYS.items() if key != missing}
    with sqlanon.connect() as db, pytest.raises(SourceError, match=r"^population\.files: register\.csv: ") as caught:
        db.anonymize(policy_of(keys), record=False)
    assert "[source.csv]" not in str(caught.value)
    if missing == "encoding":
        assert 'set encoding = "utf-16-le" under [population.csv]' in str(caught.value)


def test_wrong_keys_name_their_section(policy_of: Any) -> None:
    with pytest.raises(PolicyError, match=r"population\.csv\.delimiter: must be one character"):
        policy_of({"delimiter": "||"})


def test_a_population_in_a_database_has_no_csv_keys() -> None:
    with pytest.raises(PolicyError, match=r"population\.csv: applies to CSV files: remove it"):
        make_policy({"a": "suppress"}, privacy={"k_map": 2}, population={"table": "register", "csv": {"skip": 1}})
