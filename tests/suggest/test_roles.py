"""Roles that `suggest` proposes: no column is left out silently, and health, flags, weights and households are
recognized."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from sqlanon.policy import Policy
from sqlanon.sources.column_kinds import HEALTH, HOUSEHOLD, KINDS, SURVEY_WEIGHT, find_kind
from sqlanon.suggest.hierarchies import _by_alphabet
from sqlanon.suggest.profile import Profile
from sqlanon.suggest.propose import MAX_QUASI_IDENTIFIERS, propose
from support.commands import cli
from support.lanes import examples


@pytest.fixture(autouse=True)
def _without_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlanon.suggest.trials.SECONDS", 0.0)


def suggest_policy(connection: duckdb.DuckDBPyConnection, folder: Path, table: str = "t") -> tuple[str, Policy]:
    with sqlanon.connect(connection) as db:
        text = db.suggest(table)
    (folder / "policy.toml").write_text(text, encoding="utf-8")
    return text, Policy.load(folder / "policy.toml")


HEALTH_NAMES = (
    "diabetes has_diabetes type_2_diabetes tumor tumour_size TumorSize tumor_grade cancer cancer_type CancerStage "
    "family_history_of_cancer carcinoma asthma hypertension hypertension_history icd10 icd_code atc atc_code snomed "
    "loinc hba1c HbA1c_mmol_mol creatinine serum_creatinine glucose fasting_glucose cholesterol total_cholesterol ldl "
    "sbp systolic_bp diastolic SystolicBP resting_bp high_bp psa_baseline heart_attack stroke depression anxiety hiv "
    "hiv_positive pregnancy medication drugs dose daily_dose treatment therapy chemotherapy symptoms comorbidities "
    "complications disability smoker "
    "relapse cause_of_death health health_status htn t_stage AJCC_stage ca_125 CA19_9 vitamin_d aufnahmegrund "
    "Krebs Tumorstadium Vorerkrankungen Bluthochdruck Blutzucker Medikation cancro ipertensione glicemia "
    "enfermedad hipertension embarazo hypertensie kanker traitement grossesse doenca diabetico"
)


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTH_NAMES.split())
def test_health_is_recognized_by_more_than_diagnosis(name: str) -> None:
    kind = find_kind(name)
    assert kind is not None and kind.name == HEALTH and kind.role == "sensitive"


# Columns of real tables with a word of health in their names, but without certain health data.
NO_HEALTH = (
    "treatedIndex drug_store_distance health_insurance healthcare_exp_2020 tree_health annual_deaths death_rate "
    "life_exp_at_birth infant_mortality vapPress alcoholfitted transmission diameter stage grade growth dmi Dm5 "
    "hospital expression age_at_diagnosis date_of_diagnosis diagnosis_year birth_weight weight height bmi "
    "bp BP bp2 hbp psa PSA_1"
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NO_HEALTH.split())
def test_other_words_around_one_of_health_make_no_column_sensitive(name: str) -> None:
    kind = find_kind(name)
    assert kind is None or kind.role == "quasi"


WEIGHTS = (
    "fnlwgt pweight perwt hhwt sample_weight survey_weight sampling_weights weighting wtint2yr WTMEC2YR dweight "
    "pspwght final_weight weight_final Hochrechnungsfaktor gewichtung ponderation factor_expansion peso_campionario"
)


@pytest.mark.parametrize("name", WEIGHTS.split())
def test_sampling_weights_are_recognized(name: str) -> None:
    kind = find_kind(name)
    assert kind is not None and kind.name == SURVEY_WEIGHT and kind.role == "quasi"


HOUSEHOLDS = "hh_id HHID household_id household_number hhnr family_id famID Haushaltsnummer id_menage hogar_id"


@pytest.mark.parametrize("name", HOUSEHOLDS.split())
def test_household_numbers_are_recognized(name: str) -> None:
    kind = find_kind(name)
    assert kind is not None and kind.name == HOUSEHOLD and kind.role == "identifying"


FLAGS = """
    CREATE TABLE t AS
    SELECT
        i % 2 AS death, ['Yes', 'No', NULL][1 + i % 3] AS date_of_birth_known, (i % 3 = 0)::DOUBLE AS died_date,
        i % 2 = 0 AS deceased, ['ja', 'nein'][1 + i % 2] AS phone, i % 2 AS birth_complication, i % 2 AS diabetes,
        DATE '2020-01-01' + (i % 2)::INTEGER AS death_date, i % 12 + 1 AS death_month, 'W' || i % 2 AS died,
        i // 3 AS household, i % 5 AS family, 0.5 + (hash(i) % 9000) / 100 AS pweight
    FROM range(600) AS r(i)
"""


@pytest.mark.slow
def test_flag_is_neither_date_nor_identifier(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(FLAGS)
        text, policy = suggest_policy(connection, tmp_path)
    for name in ("death", "date_of_birth_known", "died_date", "deceased", "phone", "birth_complication"):
        assert re.search(rf"{name}\b.*yes or no, and not recognized: quasi, to be safe", text), name
        assert policy.attributes[name].role == "quasi"
    for name in ("death_date", "death_month", "died"):
        assert re.search(rf"{name}\b.*by its name: dates", text), name
    assert policy.attributes["diabetes"].role == "sensitive"


@pytest.mark.thorough
def test_a_household_is_numbered_by_many_values_and_a_weight_is_generalized(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(FLAGS)
        text, policy = suggest_policy(connection, tmp_path)
    assert policy.attributes["household"].role == "identifying"
    assert "household numbers, which all members of a household share" in text.replace("\n# ", " ")
    assert policy.attributes["family"].role == "quasi"  # five values number no households
    assert policy.source.person is None
    (rule,) = policy.attributes["pweight"].hierarchy or ()
    assert hasattr(rule, "widths")


NAMES = st.sampled_from(HEALTH_NAMES.split() + NO_HEALTH.split() + ["name", "email", "zip", "x", "hh_id", "fnlwgt"])
PROFILES = st.builds(
    lambda name, number, type_, values, distinct: Profile(
        f"{name}{number}", type_, 100, values=values, distinct=min(distinct, values), mean_length=5, longest=9
    ),
    NAMES,
    st.integers(0, 10**6),
    st.sampled_from(["VARCHAR", "BIGINT", "DOUBLE", "DATE", "BOOLEAN", "BLOB", "BIGINT[]", "UUID"]),
    st.integers(0, 100),
    st.integers(1, 100),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(PROFILES, min_size=1, max_size=60, unique_by=lambda profile: profile.name))
def test_every_column_has_a_role_and_omissions_have_reasons(columns: list[Profile]) -> None:
    proposals = propose(columns)
    assert [proposal.column for proposal in proposals] == columns
    quasi = [proposal for proposal in proposals if proposal.role == "quasi"]
    beyond = [
        proposal for proposal in proposals if f"beyond the {MAX_QUASI_IDENTIFIERS} quasi-identifiers" in proposal.reason
    ]
    assert len(quasi) <= MAX_QUASI_IDENTIFIERS
    assert not beyond or len(quasi) == MAX_QUASI_IDENTIFIERS
    assert all("to add it: {" in proposal.reason for proposal in beyond)
    assert all(proposal.reason for proposal in proposals)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(PROFILES, min_size=1, max_size=60, unique_by=lambda profile: profile.name))
def test_note_explains_the_role(columns: list[Profile]) -> None:
    for proposal in propose(columns):
        assert ("released unchanged" in proposal.reason) is (proposal.role == "sensitive")
        kinds = [kind for kind in KINDS if proposal.reason.startswith(f"by its name: {kind.name}")]
        if kinds and "; but " not in proposal.reason and "; beyond the " not in proposal.reason:
            assert proposal.role in {kind.role for kind in kinds}


@pytest.mark.thorough
def test_a_wide_table_loses_no_column_silently(tmp_path: Path) -> None:
    """31 columns: none is lost to the limit; of 40, those beyond it are printed, and can be added as the text says."""
    with duckdb.connect() as connection:
        columns = ", ".join(f"(hash(i * {j + 1}) % {2 + j % 7})::INTEGER AS q{j}" for j in range(38))
        rows = f"SELECT 'p' || i || '@example.org' AS email, i AS id, {columns} FROM range(300) AS r(i)"
        connection.execute(f"COPY ({rows}) TO '{tmp_path / 'wide.csv'}'")
        connection.execute(f"CREATE TABLE t AS SELECT * FROM ({rows})")
        thirty = ", ".join(f"q{j}" for j in range(30))
        connection.execute(f"CREATE VIEW narrow AS SELECT email, {thirty} FROM t")
        _, policy = suggest_policy(connection, tmp_path, "narrow")
        assert len(policy.quasi_identifiers) == 30
        assert policy.attributes_with_role("identifying") == ("email",)
    done = cli("suggest", "wide.csv", "-o", "p.toml", cwd=tmp_path)
    assert done.status == 0
    policy, text = Policy.load(tmp_path / "p.toml"), (tmp_path / "p.toml").read_text(encoding="utf-8")
    printed = dict(re.findall(r"^not released: (\w+) \((.*)\)$", done.out, re.MULTILINE))
    assert {*printed} == {*policy.attributes_with_role("identifying")}
    assert len(policy.attributes) == 40 and len(policy.quasi_identifiers) == MAX_QUASI_IDENTIFIERS
    assert "Not released, 10 of 40 columns" in text
    left = [name for name, reason in printed.items() if "to add it" in reason]
    assert len(left) == 8
    for name in left:
        rule = printed[name].partition("to add it: ")[2]
        text = text.replace(f'{name} = {{ role = "identifying" }}', f"{name} = {rule}")
    (tmp_path / "p.toml").write_text(text, encoding="utf-8")
    assert len(Policy.load(tmp_path / "p.toml").quasi_identifiers) == 38


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.text(max_size=6), min_size=1, max_size=30), st.integers(1, 3))
def test_first_letters_are_a_tree(values: list[str], letters: int) -> None:
    """Two values with one label have one label above it, too."""
    lines = [_by_alphabet(value, letters) for value in values]
    assert {len(line) for line in lines} == {letters + 1}
    for level in range(letters):
        assert len({tuple(line[level : level + 2]) for line in lines}) == len({line[level] for line in lines})


MEASURED = "CASE WHEN i % 9 = 0 THEN 'some ' || i % 2 ELSE (i % {count})::VARCHAR END"


@pytest.mark.slow
@pytest.mark.parametrize("count", [40, 1500])
def test_hierarchy_files_have_all_values_and_their_advice_is_given_once(count: int, tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        towns = f"chr((65 + i % 26)::INTEGER) || chr((97 + i % 7)::INTEGER) || ' ' || i % {count}"
        rows = f"SELECT {MEASURED.format(count=count)} AS size, {towns} AS town, i % 5 AS x FROM range(6000) AS r(i)"
        connection.execute(f"COPY ({rows}) TO '{tmp_path / 'people.parquet'}'")
    first = cli("suggest", "people.parquet", "-o", "p.toml", cwd=tmp_path)
    advice = "add: --hierarchies DIR --force"
    assert advice in first.out
    for _ in range(2):
        again = cli("suggest", "people.parquet", "-o", "p.toml", "--force", "--hierarchies", "trees", cwd=tmp_path)
        assert (again.status, advice in again.out) == (0, False)
        assert "--hierarchies" not in (tmp_path / "p.toml").read_text(encoding="utf-8")
    policy = Policy.load(tmp_path / "p.toml")
    for name in ("size", "town"):
        (rule,) = policy.attributes[name].hierarchy or ()
        assert hasattr(rule, "file"), name
        with duckdb.connect() as connection:
            query = f"SELECT count(DISTINCT {name}) FROM '{tmp_path / 'people.parquet'}'"
            (distinct,) = connection.execute(query).fetchall()[0]
        lines = (tmp_path / "trees" / f"hierarchy_{name}.csv").read_text(encoding="utf-8").splitlines()
        assert len(lines) == distinct
