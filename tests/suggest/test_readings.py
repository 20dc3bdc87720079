"""`suggest` names values that do not fit, ambiguous dates and codes of missing values, and the keys that decide."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import sqlanon
from sqlanon.errors import SourceError
from sqlanon.policy.models import parse_toml
from support.commands import cli

pytestmark = pytest.mark.slow

TOWNS = ["Wales", "France", "Spain"]


@pytest.fixture(autouse=True)
def no_strategy_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings do not depend on the strategy, and trials take ten seconds."""
    monkeypatch.setattr("sqlanon.suggest.trials.SECONDS", 0.0)


def suggest_policy(folder: Path, columns: dict[str, Sequence[Any]]) -> tuple[str, dict[str, Any]]:
    """The text of the policy for a CSV file, and its attributes."""
    rows = zip(*columns.values(), strict=True)
    lines = [";".join(columns), *(";".join(map(str, row)) for row in rows), ""]
    (folder / "people.csv").write_text("\n".join(lines))
    ended = cli("suggest", "people.csv", "-o", "policy.toml", cwd=folder)
    assert ended.status == 0, ended.err
    text = (folder / "policy.toml").read_text()
    return " ".join(line.removeprefix("# ") for line in text.splitlines()), parse_toml(folder / "policy.toml")[
        "attributes"
    ]


def people(rows: int = 200, **columns: Sequence[Any]) -> dict[str, Sequence[Any]]:
    return {**columns, "town": [TOWNS[i % 3] for i in range(rows)], "sex": ["mf"[i % 2] for i in range(rows)]}


@pytest.mark.thorough
def test_words_among_numbers_are_missing_values(tmp_path: Path) -> None:
    ages = ["NA" if i % 50 == 7 else 20 + i * 7 % 60 for i in range(200)]
    text, attributes = suggest_policy(tmp_path, people(age=ages))
    assert "age: 196 numbers and 4 other values: 'NA' (line 9), 'NA' (line 59)" in text
    assert attributes["age"] == {"role": "quasi", "missing": ["NA"], "hierarchy": {"intervals": [5, 10, 20, 40]}}
    assert cli("anonymize", "policy.toml", cwd=tmp_path).status == 0


@pytest.mark.thorough
def test_other_words_are_decided_by_people(tmp_path: Path) -> None:
    ages = ["4e" if i == 77 else 20 + i * 7 % 60 for i in range(200)]
    text, attributes = suggest_policy(tmp_path, people(age=ages))
    assert '\'4e\' (line 79). Decide what they are: missing = ["4e"] or type = "text"' in text
    assert "missing" not in attributes["age"] and "intervals" in attributes["age"]["hierarchy"]
    refused = cli("anonymize", "policy.toml", cwd=tmp_path)
    assert refused.status == 2 and "'4e' (line 79)" in refused.err
    policy = (tmp_path / "policy.toml").read_text()
    (tmp_path / "policy.toml").write_text(policy.replace("\nage = {", '\nage = { missing = ["4e"],'))
    assert cli("anonymize", "policy.toml", cwd=tmp_path).status == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("date_format", "format_"),
    [("{:02d}.{:02d}.1990", ', type = "date", format = "%d.%m.%Y"'), ("1990-{1:02d}-{0:02d}", "")],
)
def test_words_among_dates_are_decided_by_people(date_format: str, format_: str, tmp_path: Path) -> None:
    days = ["NA" if i % 50 == 7 else date_format.format(1 + i % 28, 1 + i % 12) for i in range(200)]
    text, attributes = suggest_policy(tmp_path, people(seen=days))
    assert f'Decide what they are: missing = ["NA"]{format_.replace(",", " with", 1)}; or type = "text"' in text
    assert not {"type", "missing"} & set(attributes["seen"]) and "dates" in attributes["seen"]["hierarchy"]
    refused = cli("anonymize", "policy.toml", cwd=tmp_path)
    assert refused.status == 2 and "'NA' (line 9)" in refused.err
    policy = (tmp_path / "policy.toml").read_text()
    (tmp_path / "policy.toml").write_text(policy.replace("\nseen = {", f'\nseen = {{ missing = ["NA"]{format_},'))
    assert cli("anonymize", "policy.toml", cwd=tmp_path).status == 0


@pytest.mark.thorough
def test_numbers_beside_many_words_for_missing_values_are_numbers(tmp_path: Path) -> None:
    ages = ["NA" if i % 5 == 2 else 20 + i * 7 % 60 for i in range(200)]
    _, attributes = suggest_policy(tmp_path, people(age=ages))
    assert attributes["age"]["missing"] == ["NA"] and "intervals" in attributes["age"]["hierarchy"]
    assert cli("anonymize", "policy.toml", cwd=tmp_path).status == 0


def test_ambiguous_dates_are_decided_by_people(tmp_path: Path) -> None:
    days = [f"{1 + i % 12:02d}/{1 + i // 12 % 12:02d}/2020" for i in range(200)]
    text, attributes = suggest_policy(tmp_path, people(seen=days))
    assert 'type = "date", format = "%d/%m/%Y" or format = "%m/%d/%Y"' in text
    assert not {"type", "format"} & set(attributes["seen"])
    assert cli("anonymize", "policy.toml", cwd=tmp_path).status == 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([0, 1, 2, 3, 99], '"99"'),
        ([0, 1, 2, 3, -9], '"-9"'),
        ([20, 30, 40, 50, 999], '"999"'),
        ([1.5, 2.5, 3.5, 4.5, 99.0], '"99"'),
        (["a", "b", "c", "d", "?"], '"?"'),
        (["a", "b", "c", "d", "N/A"], '"N/A"'),
        (["a", "b", "c", "d", "*"], '"*"'),
        (["a", "b", "c", "d", "."], '"."'),
    ],
)
def test_codes_of_missing_values_are_proposed_but_not_active(values: list[Any], codes: str, tmp_path: Path) -> None:
    text, attributes = suggest_policy(tmp_path, people(children=[values[i % 5] for i in range(200)]))
    assert f"children: {codes} (40 rows) may stand for missing values; if so, add missing = [{codes}]" in text
    assert "missing" not in attributes["children"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "values", [[60, 70, 80, 90, 99], [-20, -15, -9, 0, 5], [98, 99, 100, 101, 102], ["a", "b", "c", "d", "e"]]
)
def test_values_among_others_are_not_read_as_codes(values: list[Any], tmp_path: Path) -> None:
    text, _ = suggest_policy(tmp_path, people(score=[values[i % 5] for i in range(200)]))
    assert "may stand for missing values" not in text


@pytest.mark.thorough
def test_other_sources_have_no_second_reading(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("age,town\n" + "".join(f"{20 + i % 60},x{i % 3}\n" for i in range(200)))
    with sqlanon.connect(str(tmp_path / "people.csv")) as db:
        text = db.suggest()
    assert "missing" not in text
    with sqlanon.connect(str(tmp_path / "nothing.csv")) as db, pytest.raises(SourceError):
        db.suggest()


@pytest.mark.thorough
@pytest.mark.cases(1)
@pytest.mark.parametrize("values", [["$1,234.50", "$7.00"], ["1.234,50 €", "7,00 €"], ["12 %", "7%"], ["1E5", "2E7"]])
def test_numbers_with_units_and_marks_are_named(values: list[str], tmp_path: Path) -> None:
    text, attributes = suggest_policy(tmp_path, people(cost=[values[i % 2] for i in range(200)]))
    example = min(values)
    assert f'cost: Texts such as "{example}" may be numbers. If they are, set type = "number"' in text
    assert "type" not in attributes["cost"]


@pytest.mark.thorough
def test_days_without_marks_are_dates(tmp_path: Path) -> None:
    days = [f"19{50 + i % 40}0{1 + i % 9}{10 + i % 18}" for i in range(200)]
    _, attributes = suggest_policy(tmp_path, people(birth=days, code=[str(19_999_990 + i) for i in range(200)]))
    assert (attributes["birth"]["type"], attributes["birth"]["format"]) == ("date", "%Y%m%d")
    assert "type" not in attributes["code"]


@pytest.mark.thorough
def test_numbers_with_commas_are_named_with_the_keys_that_decide(tmp_path: Path) -> None:
    text, attributes = suggest_policy(tmp_path, people(cost=[["1,5", "7"][i % 2] for i in range(200)]))
    assert "cost: 200 numbers, 100 of them with marks: '1,5' (line 2), " in text
    assert 'Decide how they are written: under [source.csv], decimal = ","; or set type' in text
    assert "type" not in attributes["cost"], "to be decided"


@pytest.mark.thorough
@pytest.mark.parametrize("values", [["02139", "10115"], ["31.12.1999", "a"], ["A1", "B2"], ["10.0.0.1", "1.2"]])
def test_codes_are_not_taken_for_numbers(values: list[str], tmp_path: Path) -> None:
    text, _ = suggest_policy(tmp_path, people(code_of_ward=[values[i % 2] for i in range(200)]))
    assert "may be numbers" not in text
