"""The columns that `suggest` recognizes by names, languages and values, and the hierarchies that it proposes."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.policy import Policy
from sqlanon.sources.column_kinds import find_kind
from sqlanon.suggest.groupings import RULES, Labelled, vocabulary
from sqlanon.suggest.hierarchies import _by_frequency, _icd
from support.commands import cli


@pytest.mark.parametrize(
    ("kind", "names"),
    {
        "sex or gender": "isex patient_sex PatientSex sex_cd patient_sex_code sesso geslacht sexe sexo",
        "age": "iage patient_age PatientAge age_group eta leeftijd idade edad",
        "names": "voornaam cognome sobrenome nom_de_famille nombre_completo achternaam",
        "dates: of birth": "data_di_nascita data_nascimento fecha_de_nacimiento date_naissance geboortedatum",
        "geographic subdivisions": "native-country customer_city woonplaats comune cidade ville paese istatenum",
        "race, ethnicity, nationality": "irace ihispanic nazionalita nationaliteit nacionalidade langue",
        "family": "stato_civile estado_civil burgerlijke_staat situation_familiale",
        "education and work": "titolo_di_studio opleidingsniveau escolaridade niveau_etudes profession_desc beroep",
        "social security numbers": "codice_fiscale bsn cpf niss",
        "money": "stipendio sueldo inkomen renda revenu",
    }.items(),
)
def test_names_with_affixes_and_in_seven_languages(kind: str, names: str) -> None:
    kinds = {name: recognized.name if (recognized := find_kind(name)) else None for name in names.split()}
    assert kinds == dict.fromkeys(names.split(), kind)


@pytest.mark.parametrize("name", ["isalary", "patient_income_tax", "sdiagnosis", "cost_raw", "c_religion", "my_hiv"])
def test_a_part_of_a_name_makes_no_column_sensitive(name: str) -> None:
    """The whole name must support an unchanged release."""
    kind = find_kind(name)
    assert kind is None or kind.role != "sensitive"


PEOPLE = """
    CREATE TABLE people AS
    SELECT
        ['US', 'DE', 'FR', 'JP', 'BR', 'n/a'][1 + (hash(i) % 6)::INTEGER] AS origin_code,
        ['Texas', 'Ohio', 'Maine', 'Utah', 'California'][1 + (hash(i + 1) % 5)::INTEGER] AS x,
        ['Bachelors', 'HS-grad', 'Some-college', 'Masters', '10th', 'odd'][1 + (hash(i + 2) % 6)::INTEGER] AS education,
        ['red', 'green', 'blue', 'pale pink'][1 + least((hash(i + 3) % 40)::INTEGER, 3)] AS colour,
        ['E11.9', 'I21.0', 'J45', 'C50.1', 'Z00'][1 + (hash(i + 4) % 5)::INTEGER] AS code,
        'road ' || chr((65 + hash(i + 5) % 26)::INTEGER) || hash(i + 6) % 4 AS road,
        CASE WHEN i = 0 THEN 1e6 ELSE hash(i + 7) % 100 END AS amount,
        (hash(i + 8) % 99)::INTEGER AS age,
        CASE WHEN i = 7 THEN 'NA' ELSE (hash(i + 9) % 80 + 20.5)::VARCHAR END AS size_text,
        DATE '2024-01-01' + (hash(i + 9) % 60)::INTEGER AS day
    FROM range(500) AS r(i)
"""


def suggest_policy(folder: Path, hierarchies: Path | None = None) -> tuple[str, Policy]:
    with duckdb.connect() as connection:
        connection.execute(PEOPLE)
        with sqlanon.connect(connection) as db:
            text = db.suggest("people", folder=folder, hierarchies=hierarchies)
    (folder / "policy.toml").write_text(text, encoding="utf-8")
    return text, Policy.load(folder / "policy.toml")


def rule_of(policy: Policy, name: str) -> object:
    (rule,) = policy.attributes[name].hierarchy or ()
    return rule.model_dump(exclude_none=True) if not isinstance(rule, str) else rule


@pytest.fixture(autouse=True)
def _without_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlanon.suggest.trials.SECONDS", 0.0)


@pytest.mark.slow
def test_known_groupings_stand_in_the_policy_where_they_have_all_values(tmp_path: Path) -> None:
    text, policy = suggest_policy(tmp_path)
    countries = rule_of(policy, "origin_code")["categories"]  # type: ignore[index]
    assert countries["Europe"] == {"Western Europe": ["DE", "FR"]}
    assert countries["unknown"] == {"unknown": ["n/a"]}
    assert rule_of(policy, "x")["categories"]["West"] == {"Mountain": ["Utah"], "Pacific": ["California"]}  # type: ignore[index]
    assert "all of its values are US states; US states by census division, then region" in text
    assert rule_of(policy, "education") == "suppress"  # a value that the vocabulary lacks is not written down
    assert "odd" not in text
    assert rule_of(policy, "code") == {"mask": "right"}
    assert rule_of(policy, "amount")["above"] is not None  # type: ignore[index]
    assert rule_of(policy, "age")["above"] == 90  # type: ignore[index]
    assert rule_of(policy, "day")["dates"] == ("week",)  # type: ignore[index]


@pytest.mark.thorough
def test_files_group_all_values_and_are_never_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "trees"
    text, policy = suggest_policy(tmp_path, folder)
    files = sorted(path.name for path in folder.iterdir())
    names = ["code", "colour", "education", "origin_code", "road", "x"]
    assert files == [f"hierarchy_{name}.csv" for name in names]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert 'file = "trees/hierarchy_x.csv"' in text

    def lines(name: str) -> list[str]:
        return (folder / f"hierarchy_{name}.csv").read_text(encoding="utf-8").splitlines()

    assert "odd;other;other;*" in lines("education")
    assert "Bachelors;bachelor level;university level;*" in lines("education")
    assert "E11.9;E11;E00-E90 metabolism;*" in lines("code")
    assert "road A0;R…;M–R;*" in lines("road")
    assert "red;(each under 10 %);*" in lines("colour")
    with duckdb.connect() as connection:
        connection.execute(PEOPLE)
        with sqlanon.connect(connection) as db:
            assert db.anonymize(policy).smallest_class >= 5

    mine = folder / "hierarchy_x.csv"
    mine.write_text("".join(f"{state};mine;*\n" for state in ("Texas", "Ohio", "Maine", "Utah", "California")))
    unfit = folder / "hierarchy_colour.csv"
    unfit.write_text("red;warm;*\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    text, policy = suggest_policy(tmp_path, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert rule_of(policy, "x")["file"] == mine  # type: ignore[index]
    assert rule_of(policy, "colour") == "suppress"
    assert "its hierarchy file does not fit" in text


@pytest.mark.thorough
def test_numbers_among_words_have_intervals_by_a_query(tmp_path: Path) -> None:
    """The query of a table turns NA into NULL, and keeps all other values."""
    text, policy = suggest_policy(tmp_path)
    assert rule_of(policy, "size_text")["widths"] == (2, 10, 20, 40)  # type: ignore[index]
    assert policy.source.query is not None
    assert "Texts such as 12 and NA become numbers and NULL" in text
    with duckdb.connect() as connection:
        connection.execute(PEOPLE)
        query = f"SELECT count(*), count(size_text), sum(size_text) FROM ({policy.source.query})"
        numbers = "SELECT count(*), count(*) - 1, sum(TRY_CAST(size_text AS DOUBLE)) FROM people"
        assert connection.execute(query).fetchall() == connection.execute(numbers).fetchall()
        with sqlanon.connect(connection) as db:
            assert db.anonymize(policy).smallest_class >= 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "odd",
    [
        "<5",
        "1e3",
        "007",
        "1,5",
        pytest.param("12 kg", marks=pytest.mark.slow),
        pytest.param("inf", marks=pytest.mark.slow),
    ],
)
def test_words_other_than_missing_keep_the_type_of_a_column(odd: str, tmp_path: Path) -> None:
    """A word outside of the profiled rows counts, too: a query would lose it."""
    with duckdb.connect() as connection:
        value = f"CASE WHEN i = 25000 THEN '{odd}' WHEN i % 10 = 0 THEN 'NA' ELSE (i % 70)::VARCHAR END"
        connection.execute(f"CREATE TABLE t AS SELECT {value} AS size, i % 9 AS x FROM range(30000) AS r(i)")
        with sqlanon.connect(connection) as db:
            assert "query" not in db.suggest("t")


@pytest.mark.slow
def test_numbers_among_words_of_a_file_are_numbers_and_missing_values(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(PEOPLE)
        connection.execute(f"COPY (SELECT age, size_text FROM people) TO '{tmp_path / 'people.csv'}'")
    plain = cli("suggest", "people.csv", "-o", "p.toml", cwd=tmp_path)
    assert "round widths" not in plain.out
    text = (tmp_path / "p.toml").read_text(encoding="utf-8")
    assert 'size_text = { role = "quasi", missing = ["NA"], hierarchy = { intervals = [2, 10, 20, 40] } }' in text
    with sqlanon.connect() as db:
        assert db.anonymize(Policy.load(tmp_path / "p.toml")).smallest_class >= 5


@pytest.mark.thorough
def test_a_file_beside_the_source_is_used_where_it_fits(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        rows = "SELECT ['a', 'b', 'c'][1 + i % 3] AS town, i % 7 AS size FROM range(60) AS r(i)"
        connection.execute(f"COPY ({rows}) TO '{tmp_path / 'people.csv'}'")
    (tmp_path / "hierarchy_town.csv").write_text("a;north;*\nb;north;*\nc;south;*\n")
    with sqlanon.connect(tmp_path / "people.csv") as db:
        text = db.suggest(folder=tmp_path)
    assert 'town = { role = "quasi", hierarchy = { file = "hierarchy_town.csv" }' in text


def test_the_vocabulary_is_a_tree() -> None:
    """A word has one place in a grouping, and a fine label one coarse one."""
    words = [(grouping, word) for grouping, _, _, words in vocabulary() for word in words.split("|")]
    assert len(words) == len(set(words)) > 1500
    parents: dict[tuple[str, str], set[str]] = {}
    for grouping, fine, coarse, _ in vocabulary():
        parents.setdefault((grouping, fine), set()).add(coarse)
    assert all(len(parent) == 1 for parent in parents.values())
    assert {grouping for grouping, _ in words} == {*RULES, "unknown"}


def test_codes_and_rare_values() -> None:
    assert [_icd(code)[1][:3] for code in ("B99", "C00", "D49.9", "D50", "H60", "O9A", "T98", "V01", "W99")] == [
        "A00", "C00", "C00", "D50", "H60", "O00", "S00", "V00", "V00",
    ]  # fmt: skip
    values = [Labelled("a", 80), Labelled("b", 9), Labelled("c", 9), Labelled("d", 1), Labelled("e", 1)]
    low, high = "(each under 2 %)", "(each under 10 %)"
    assert _by_frequency(values) == [
        ["a", "a", "a"],
        ["b", "b", high],
        ["c", "c", high],
        ["d", low, high],
        ["e", low, high],
    ]
