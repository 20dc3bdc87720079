"""Finding quasi-identifiers: distinction and separation, what columns look like, and policies to start from."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from sqlanon.demo.hospital import make_hospital
from sqlanon.errors import PolicyError, SourceError
from sqlanon.ledger.catalog import init_database
from sqlanon.policy import Policy
from sqlanon.policy.models import parse_toml
from sqlanon.sources.column_kinds import KINDS, find_kind
from sqlanon.support.toml import toml_key
from support.commands import cli
from support.databases import insert, quote_name
from support.lanes import examples, some
from support.policies import make_policy

Row = tuple[Any, ...]
NAMES = ('my "col"', "distinct", "subset", "quasi_0", "Größe")


def table_of(rows: Sequence[Row], names: Sequence[str], type_: str = "VARCHAR") -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t ({', '.join(f'{quote_name(name)} {type_}' for name in names)})")
    insert(connection, "t", rows)
    return connection


# --- distinction and separation


def apart(rows: Sequence[Row], subset: Sequence[int]) -> tuple[int, float | None, float | None]:
    """Distinct combinations, distinction, separation: of all pairs of rows, one by one."""
    seen = [tuple(row[i] for i in subset) for row in rows]
    pairs = list(combinations(seen, 2))
    return (
        len(set(seen)),
        len(set(seen)) / len(rows) if rows else None,
        sum(first != second for first, second in pairs) / len(pairs) if pairs else None,
    )


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_separation_matches_all_pairs_of_rows(data: st.DataObject) -> None:
    m, size = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    values = st.sampled_from([None, "", "a", "A", "b", "c"])
    rows = data.draw(st.lists(st.tuples(*[values] * m), max_size=10))
    with table_of(rows, NAMES[:m]) as connection, sqlanon.connect(connection) as db:
        answer = db.distinction("t", size).fetchall()
        of_policy = db.distinction(make_policy(dict.fromkeys(NAMES[:m], "suppress")), size).fetchall()
    expected = [
        ([NAMES[i] for i in subset], k, len(rows), *apart(rows, subset))
        for k in range(1, min(size, m) + 1)
        for subset in combinations(range(m), k)
    ]
    assert [(row[0], row[1], row[3], row[2], *row[4:]) for row in answer] == [
        (*figures[:4], *(None if figure is None else pytest.approx(figure) for figure in figures[4:]))
        for figures in expected
    ]
    assert of_policy == answer


PAPER = [
    ("20", "Female", "CA"),
    ("30", "Female", "CA"),
    ("40", "Female", "TX"),
    ("20", "Male", "NY"),
    ("40", "Male", "CA"),
]


@pytest.mark.thorough
def test_distinction_matches_the_example_of_motwani_and_xu() -> None:
    """Motwani and Xu, table 1: age is 0.6-distinct and separates 8 of 10 pairs; sex and state 0.8 and 9 of 10."""
    with table_of(PAPER, ["age", "sex", "state"]) as connection, sqlanon.connect(connection) as db:
        figures = {tuple(row[0]): row[4:] for row in db.distinction("t", 2).fetchall()}
    assert figures["age",] == (0.6, 0.8)
    assert figures["sex",][1] == 0.6
    assert figures["sex", "state"] == (0.8, 0.9)


@pytest.mark.thorough
def test_the_sets_with_a_key_in_them_are_keys() -> None:
    """They are not counted, because nothing else is known about them."""
    rows = [(str(i), str(i % 2), str(i // 2)) for i in range(6)]
    with table_of(rows, "abc") as connection, sqlanon.connect(connection) as db:
        figures = {"".join(row[0]): row[2:] for row in db.distinction("t").fetchall()}
    assert [figures[key] for key in ("a", "ab", "abc", "bc")] == [(6, 6, 1.0, 1.0)] * 4


@pytest.mark.thorough
def test_nested_columns_are_left_out_and_many_columns_are_not() -> None:
    with duckdb.connect() as connection:
        columns = ", ".join(f"i % {2 + j % 5} AS x{j}" for j in range(70))
        connection.execute(f"CREATE TABLE t AS SELECT {columns}, [i] AS l, {{'a': i}} AS s FROM range(9) AS r(i)")
        with sqlanon.connect(connection) as db:
            rows = db.distinction("t", 1).fetchall()
    assert [row[0] for row in rows] == [[f"x{j}"] for j in range(70)]
    assert rows[69][2:] == (6, 9, 6 / 9, pytest.approx(1 - 3 / 36))


def test_the_statements_run(tmp_path: Path) -> None:
    """They are shown for columns of up to three values, and no key."""
    rows = [("a", "x"), ("a", "y"), ("b", "y"), ("b", "y")]
    with table_of(rows, "ab") as connection, sqlanon.connect(connection) as db:
        text = db.distinction_sql("t")
        *_, query = text.split(";\n\n")
        connection.execute(text.removesuffix(query))
        assert len(connection.execute(query).fetchall()) == 3
        with pytest.raises(PolicyError, match="at least 1"):
            db.distinction("t", 0)
        with pytest.raises(SourceError, match="no table"):
            db.distinction("elsewhere")


@pytest.mark.slow
def test_too_many_sets_are_refused() -> None:
    names = [f"x{i}" for i in range(40)]
    with table_of([], names) as connection, sqlanon.connect(connection) as db:
        with pytest.raises(PolicyError, match=r"there are .* sets of up to 8 of 40 attributes"):
            db.distinction("t", 8)
        with pytest.raises(PolicyError, match="give a smaller size"):
            db.suda(make_policy(dict.fromkeys(names, "suppress")))
        assert db.suda(make_policy(dict.fromkeys(names, "suppress")), 1).msus == 0


def macro(connection: duckdb.DuckDBPyConnection, relation: str, names: Sequence[str]) -> Row:
    text = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
    cursor = connection.execute(f"FROM sqlanon.distinction('{relation}', [{text}])")
    assert [column[0] for column in cursor.description or []] == ["distinct", "rows", "distinction", "separation"]
    (row,) = cursor.fetchall()
    return tuple(row)


@pytest.mark.thorough
def test_separation_macro_handles_any_column_names(tmp_path: Path) -> None:
    init_database(tmp_path / "db.duckdb")
    names = ["age", 'my "sex"', "sqlanon class size"]
    with duckdb.connect(tmp_path / "db.duckdb") as connection:
        connection.execute(f"CREATE TABLE t ({', '.join(f'{quote_name(name)} VARCHAR' for name in names)})")
        assert macro(connection, "t", names) == (0, 0, None, None)
        connection.execute("INSERT INTO t VALUES ('20', NULL, 'a')")
        assert macro(connection, "t", names[:1]) == (1, 1, 1.0, None)
        rows = [("20", None, "a"), *((age, sex, state) for age, sex, state in PAPER), ("20", None, "b")]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows[1:])
        for k in (1, 2, 3):
            for subset in combinations(range(3), k):
                distinct, distinction, separation = apart(rows, subset)
                expected = (distinct, 7, pytest.approx(distinction), pytest.approx(separation))
                assert macro(connection, "t", [names[i].upper() for i in subset]) == expected
        with pytest.raises(duckdb.Error, match="unknown"):
            macro(connection, "t", ["age", "unknown"])


# --- information in names


@pytest.mark.parametrize(
    ("role", "names"),
    {
        "identifying": "name Name PatientName first_name Vorname Nachname Familienname surname nom apellido e-mail "
        "EMail emailAddress Telefonnummer phone mobile_number Handy fax SSN Sozialversicherungsnummer IBAN Kontonummer "
        "account_number MRN Fallnummer Versichertennummer passport Führerschein Kennzeichen VIN IMEI serial_number "
        "homepage URL ip IPAddress fingerprint Foto photo address Straße Hausnummer street2 "
        "Kundennummer patient_id uuid",
        "quasi": "zip ZIPCode PLZ Postleitzahl city Wohnort Stadt county state native-country Geburtsdatum birth_date "
        "DOB admissionDate Aufnahmedatum Geburtsjahr year age Alter sex gender Geschlecht race ethnicity nationality "
        "Staatsangehörigkeit marital-status Familienstand education occupation Beruf workclass latitude",
        "sensitive": "diagnosis Diagnose icd10 disease Medikament HIV salary income Gehalt salary-class religion cost "
        "total_costs annual-income-usd capital_gain PrimaryDiagnosis icd_code drug_1 hiv_status bloodType",
    }.items(),
)
def test_column_names_suggest_roles(role: str, names: str) -> None:
    roles = {name: kind.role if (kind := find_kind(name)) else None for name in names.split()}
    assert roles == dict.fromkeys(names.split(), role)


@pytest.mark.parametrize("name", ["x", "flag", "sport", "report", "status", "mailed", "", "名前", "'; DROP TABLE t"])
def test_uninformative_names_suggest_no_role(name: str) -> None:
    assert find_kind(name) is None


UNSURE = (
    "bill_length_mm bill_depth_mm bill capital capital_city party_size note rating score grade orientation vote union "
    "condition problem price_tag_colour cost_centre pay_phone_nearby drug_store_distance smoking_room debt_collector "
    "balance_beam lab income_tax_office therapy_dog wage_slip_number_of_pages disease_free_town "
    "charge_code fee_type payment_status price_codes cost_name"
)


@pytest.mark.thorough
@pytest.mark.parametrize("name", some(UNSURE.split(), 8))
def test_a_sensitive_word_beside_unknown_words_is_not_taken_for_sensitive(name: str, tmp_path: Path) -> None:
    """Columns released unchanged must be recognized with confidence: a doubt makes a quasi-identifier."""
    kind = find_kind(name)
    assert kind is None or kind.role != "sensitive"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT i % 40 + 0.5 AS {name} FROM range(2000) AS r(i)")
        _, policy = suggest_policy(connection, tmp_path)
    assert roles_of(policy)[name] in ("quasi", "identifying")


@pytest.mark.thorough
def test_a_rare_value_outside_the_sample_keeps_a_column_from_being_released(tmp_path: Path) -> None:
    """300,000 rows are sampled, and two of many columns differ in one row: no estimate may call them constant."""
    columns = ", ".join(f"CASE WHEN i = 150001 THEN 'rare {j}' ELSE 'common' END AS c{j}" for j in range(9))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {columns}, 'same' AS same, i % 7 AS x FROM range(300000) AS r(i)")
        _, policy = suggest_policy(connection, tmp_path)
    roles = roles_of(policy)
    assert [name for name in roles if roles[name] == "insensitive"] == ["same"]


@pytest.mark.thorough
def test_the_patterns_are_the_engines() -> None:
    """Each matches its own examples, and no other's."""
    examples = {
        "e-mail addresses": ["ada@example.org", "a.b+c@d-e.co.uk"],
        "URLs": ["https://example.org/x?y=1", "www.example.org"],
        "IP addresses": ["192.168.0.1", "2001:0db8:0000:0000:0000:ff00:0042:8329", "fe80::1"],
        "device identifiers and serial numbers": ["00:1A:2b:3C:4d:5e"],
        "social security numbers": ["078-05-1120", "65 170839 J 003"],
        "account numbers": ["DE89 3704 0044 0532 0130 00", "4111 1111 1111 1111"],
        "telephone numbers": ["+49 30 901820", "(030) 901820", "555-123-4567", "030 901820"],
        "geographic subdivisions: a ZIP or postal code": ["02139", "02139-4307", "SW1A 1AA"],
        "dates": ["2020-01-31", "31.1.2020", "1/31/20", "2020-01-31 10:00:00"],
        "any other unique number or code": ["123e4567-e89b-12d3-a456-426614174000"],
        "names": ["Ada Ivermere", "Lovelace, Ada"],
        "geographic subdivisions: exact coordinates": ["52.52001, 13.40495", "(-33.8688;151.2093)"],
        "ICD-10 codes": ["E11.9", "I21", "S72.001A"],
        "geographic subdivisions: a street address": ["12 Acorn Street", "Hauptstraße 7b"],
    }
    nothing = ["12:30:15", "10", "abc", "Some words that are a sentence", "2.50", "1.5, 2.5", ""]
    with duckdb.connect() as connection:
        for value in [text for example in examples.values() for text in example] + nothing:
            names = {name for name, values in examples.items() if value in values}
            like = set()
            for kind in KINDS:
                if kind.content is not None:
                    (match,) = connection.execute("SELECT regexp_full_match(?, ?)", [value, kind.content]).fetchall()
                    like |= {kind.name} if match[0] else set()
            assert like == names, value


# --- policies


@pytest.fixture(autouse=True)
def _without_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds, and have separate tests."""
    monkeypatch.setattr("sqlanon.suggest.trials.SECONDS", 0.0)


def suggest_policy(connection: duckdb.DuckDBPyConnection, folder: Path, table: str = "t") -> tuple[str, Policy]:
    """The text for a table of a connection, and the policy that it is."""
    with sqlanon.connect(connection) as db:
        text = db.suggest(table)
    (folder / "policy.toml").write_text(text, encoding="utf-8")
    return text, Policy.load(folder / "policy.toml")


def roles_of(policy: Policy) -> dict[str, str]:
    return {name: attribute.role for name, attribute in policy.attributes.items()}


def printed_text(*arguments: str, cwd: Path) -> str:
    done = cli(*arguments, cwd=cwd)
    assert (done.status, done.err) == (0, ""), arguments
    return done.out


@pytest.mark.thorough
def test_suggested_hospital_policy_publishes_a_verified_release(tmp_path: Path) -> None:
    """From nothing to a release that is verified."""
    make_hospital(tmp_path / "hospital.duckdb", rows=2000)
    text = printed_text("suggest", "hospital.duckdb", "patients", cwd=tmp_path)
    (tmp_path / "policy.toml").write_text(text, encoding="utf-8")
    policy = Policy.load(tmp_path / "policy.toml")
    assert roles_of(policy) == {
        "name": "identifying",
        "address": "identifying",
        **dict.fromkeys(("zip", "birth_date", "sex", "ethnicity"), "quasi"),
        **dict.fromkeys(("diagnosis", "cost"), "sensitive"),
    }
    assert "released" in printed_text("anonymize", "policy.toml", cwd=tmp_path)
    with sqlanon.connect() as db:
        assert db.verify(tmp_path / "patients_release.duckdb", policy).verified


@pytest.mark.thorough
def test_the_quasi_identifiers_of_adult_are_suggested(data: Path, tmp_path: Path) -> None:
    with sqlanon.connect(data / "adult" / "adult.csv") as db:
        (tmp_path / "policy.toml").write_text(db.suggest(), encoding="utf-8")
        policy = Policy.load(tmp_path / "policy.toml")
        result = db.anonymize(policy)
    assert roles_of(policy).pop("salary-class") == "sensitive"
    assert len(policy.quasi_identifiers) == 8
    assert result.smallest_class >= 5
    assert result.optimal


@pytest.mark.slow
def test_suggested_policy_contains_no_values(tmp_path: Path) -> None:
    """The least and the greatest value do not show either: widths show their distance, rounded."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT 'secret' || (i % 40) AS word, 700123 + 37 * i AS n, 1234.5 + i / 7 AS d, "
            "DATE '1931-07-19' + i::INTEGER * 11 AS day, 'unvaried' AS constant, "
            "'pat' || i || '@example.org' AS contact, 'note ' || repeat('x', 60) || i AS remark FROM range(500) AS r(i)"
        )
        text, policy = suggest_policy(connection, tmp_path)
        values = {str(value) for row in connection.execute("FROM t").fetchall() for value in row}
    assert [value for value in values if value in text] == []
    assert not any(part in text for part in ("secret", "example.org", "1931", "7001", "note x"))
    assert roles_of(policy) == {
        "word": "quasi", "n": "identifying", "d": "quasi", "day": "quasi", "constant": "insensitive",
        "contact": "identifying", "remark": "identifying",
    }  # fmt: skip


HOSTILE = [
    'my "col"', "a.b", "a'b", "[x]", "# x", "new\nline", "tab\t", "\\", "größe", "名前", "sqlanon place", "x0",
    "quasi_0", "{", "e\x7f", "select",
]  # fmt: skip


@pytest.mark.thorough
def test_policy_for_hostile_names_runs(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        columns = ", ".join(f"i % {2 + j} AS {quote_name(name)}" for j, name in enumerate(HOSTILE))
        connection.execute('CREATE SCHEMA "my.schema"')
        connection.execute(f'CREATE TABLE "my.schema"."# t" AS SELECT {columns} FROM range(60) AS r(i)')
        _, policy = suggest_policy(connection, tmp_path, '"my.schema"."# t"')
        assert list(policy.attributes) == HOSTILE
        assert list(policy.quasi_identifiers) == HOSTILE
        with sqlanon.connect(connection) as db:
            release = db.anonymize(policy).publish(tmp_path / "release.duckdb")
        assert release.verify().verified


@pytest.mark.parametrize("name", HOSTILE)
def test_a_written_key_is_read_back(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(f"{toml_key(name)} = 1", encoding="utf-8", newline="\n")
    assert parse_toml(tmp_path / "x.toml") == {name: 1}


ODD = """
    CREATE TYPE mood AS ENUM ('good', 'bad');
    CREATE TABLE t AS SELECT
        [i] AS list, {'a': i} AS struct, MAP {'k': i} AS map, ('x' || i % 3)::BLOB AS blob, uuid() AS u,
        (CASE WHEN i % 2 = 0 THEN 'good' ELSE 'bad' END)::mood AS mood, i % 2 = 0 AS yes, i % 2 = 0 AS phone,
        TIMESTAMP '2020-01-01' + INTERVAL (i) HOUR AS at,
        TIMESTAMPTZ '2020-01-01 00:00:00+00' + INTERVAL (i) DAY AS zoned,
        INTERVAL (i % 3) DAY AS lasted, TIME '10:00:00' + INTERVAL (i % 3) HOUR AS clock, (i % 3)::INTEGER::BIT AS bits,
        (i * 1000003)::HUGEINT * 10000000000000000000 AS huge,
        (i / 7)::FLOAT AS f, (i * 1.25)::DECIMAL(18, 3) AS price,
        CASE WHEN i = 3 THEN 'nan'::DOUBLE ELSE i / 3 END AS nan, CASE WHEN i = 3 THEN 'infinity'::DATE
        ELSE DATE '2020-01-01' + i::INTEGER END AS forever, NULL AS nothing, NULL::VARCHAR AS no_text,
        1e-12 * i AS tiny
    FROM range(120) AS r(i);
"""


@pytest.mark.thorough
def test_every_odd_type_gets_a_role(tmp_path: Path) -> None:
    """Every type has a role, and the policy runs; values outside of intervals are suppressed or not."""
    with duckdb.connect() as connection:
        connection.execute(ODD)
        connection.execute(
            "ALTER TABLE t DROP huge; ALTER TABLE t DROP tiny; ALTER TABLE t DROP f; ALTER TABLE t DROP clock"
        )
        text, policy = suggest_policy(connection, tmp_path)
        with sqlanon.connect(connection) as db:
            release = db.anonymize(policy).publish(tmp_path / "release.duckdb")
        assert release.verify().verified
    roles = roles_of(policy)
    assert [roles[name] for name in ("list", "struct", "map", "blob", "u")] == ["identifying"] * 5
    assert [roles[name] for name in ("mood", "yes", "phone", "at", "zoned")] == ["quasi"] * 5
    assert [roles[name] for name in ("nothing", "no_text")] == ["insensitive"] * 2
    assert 'nan = { role = "quasi", hierarchy = "suppress" }' in text
    assert "nan: not recognized: quasi, to be safe; some values do not fit into intervals or dates" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", some(["forever", "f", "tiny", "nan", "huge", "bits", "clock", "lasted"], 4))
def test_suggest_writes_a_usable_policy_for_one_odd_column(name: str, tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(ODD)
        connection.execute(f"CREATE VIEW alone AS SELECT {name} FROM t")
        _, policy = suggest_policy(connection, tmp_path, "alone")
        with sqlanon.connect(connection) as db:
            assert db.anonymize(policy).smallest_class >= 5


@pytest.mark.thorough
@pytest.mark.parametrize(
    "definition",
    some(
        [
            "name VARCHAR, zip VARCHAR, age INTEGER, birth DATE, id BIGINT, x VARCHAR, l INTEGER[]",
            "name VARCHAR",
            "diagnosis VARCHAR",
            "price DOUBLE",
            "u UUID",
        ],
        3,
    ),
)
def test_an_empty_table_has_a_policy(definition: str, tmp_path: Path) -> None:
    """Only names and types decide; there is nothing to release (exit status 1), but the policy is valid."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t ({definition})")
        _, policy = suggest_policy(connection, tmp_path)
        assert policy.quasi_identifiers
        with sqlanon.connect(connection) as db:
            assert db.risk(policy).rows == 0
            with pytest.raises(sqlanon.InfeasibleError):
                db.anonymize(policy)


def test_both_columns_of_a_table_with_one_row_are_quasi_identifiers(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 'x' AS a, 1 AS b")
        _, policy = suggest_policy(connection, tmp_path)
        assert policy.quasi_identifiers == ("a", "b")


@pytest.mark.slow
def test_suggest_refuses_a_table_of_nested_columns(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT [1] AS a")
        with sqlanon.connect(connection) as db, pytest.raises(SourceError, match="nested"):
            db.suggest("t")


@pytest.mark.slow
def test_persons_with_several_rows_are_counted(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        rows = "SELECT i // 2 AS patient_id, i % 3 AS ward, i % 2 AS sex FROM range(200) AS r(i)"
        connection.execute(f"CREATE TABLE t AS {rows}")
        text, policy = suggest_policy(connection, tmp_path)
        assert policy.source.person == "patient_id"
        with sqlanon.connect(connection) as db:
            assert db.anonymize(policy).released_rows > 0
        assert 'role = "identifying"' in text


@pytest.mark.thorough
@pytest.mark.parametrize("ending", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_policy_for_files_has_full_paths(ending: str, tmp_path: Path) -> None:
    """A ZIP keeps its zero; the policy has the file's whole path, and runs from anywhere."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT printf('0%04d', 1000 + i % 50) AS zip, 'p' || i AS name, i % 90 AS age "
            "FROM range(400) AS r(i)"
        )
        connection.execute(f"COPY t TO '{tmp_path / 'people 1.'}{ending}'")
    (tmp_path / "policy.toml").write_text(printed_text("suggest", f"people 1.{ending}", cwd=tmp_path), encoding="utf-8")
    policy = Policy.load(tmp_path / "policy.toml")
    assert roles_of(policy) == {"zip": "quasi", "name": "identifying", "age": "quasi"}
    with sqlanon.connect() as db:
        assert db.anonymize(policy).publish().table == "people_1"


@pytest.mark.thorough
def test_larger_tables_are_sampled(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i AS number, i % 7 AS x, 'a' || i || '@b.org' AS y, i % 100000 AS z "
            "FROM range(200_000) AS r(i)"
        )
        text, policy = suggest_policy(connection, tmp_path)
        with sqlanon.connect(connection) as db:
            assert db.anonymize(policy).smallest_class >= 5
    assert "200,000 rows (about one in 4 was read)" in re.sub(r"\n# ", " ", text)
    assert re.search(r"^#   50,\d{3}: x, z$", text, re.MULTILINE)
    assert Counter(roles_of(policy).values()) == {"identifying": 2, "quasi": 2}


@pytest.mark.thorough
def test_arrow_and_small_tables(tmp_path: Path) -> None:
    """Few rows say little; an id by its name is one all the same."""
    with duckdb.connect() as connection:
        arrow = connection.sql(
            "SELECT i AS id, i // 3 AS ward_id, 'x' || i AS v, '{\"a\": 1}'::JSON AS j FROM range(9) AS r(i)"
        ).to_arrow_table()
    with sqlanon.connect(arrow) as db:
        (tmp_path / "policy.toml").write_text(db.suggest(), encoding="utf-8")
        policy = Policy.load(tmp_path / "policy.toml")
        assert len(db.distinction().fetchall()) == 14
        assert db.anonymize(policy).released_rows == 9
    roles = roles_of(policy)
    assert (roles["id"], roles["ward_id"], roles["v"]) == ("identifying", "quasi", "quasi")


@pytest.mark.slow
def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        with pytest.raises(SourceError, match="no table or view"):
            db.suggest("t")
        with pytest.raises(SourceError, match="name a table"):
            db.suggest()


# --- docs/how-to/finding.md

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "finding.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python_blocks_print_the_documented_output(number: int) -> None:
    program = blocks("python")[number]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "finding.md", "exec"), {})
    *_, output = re.findall(r"# (.*)", program)
    assert printed.getvalue().strip() == output


def test_toml_blocks_are_valid_policies(tmp_path: Path) -> None:
    search, diversity = blocks("toml")
    (tmp_path / "x.toml").write_text(search, encoding="utf-8")
    policy = make_policy({"x": "suppress"}, **parse_toml(tmp_path / "x.toml"))
    assert (policy.search.strategy, policy.search.summary) == ("mondrian", "set")
    (tmp_path / "y.toml").write_text(diversity, encoding="utf-8")
    tree = parse_toml(tmp_path / "y.toml")["privacy"]
    policy = Policy(
        attributes={"salary-class": {"role": "sensitive"}, "x": {"role": "quasi", "hierarchy": "suppress"}},
        privacy=tree,
    )
    assert policy.privacy.l_diversity[0].attribute == "salary-class"


@pytest.mark.thorough
def test_sql_blocks_return_the_documented_rows(tmp_path: Path) -> None:
    init_database(tmp_path / "practice.duckdb")
    (script,) = blocks("sql")
    with duckdb.connect(tmp_path / "practice.duckdb") as connection:
        for statement in script.splitlines():
            query, _, output = statement.partition(";")
            relation = connection.execute(query)
            if output:
                names = [column[0] for column in relation.description or []]
                (row,) = relation.fetchall()
                assert ", ".join(f"{name} {value:.6g}" for name, value in zip(names, row, strict=True)) == output.strip(
                    " -"
                )


@pytest.mark.thorough
def test_documented_commands_run(tmp_path: Path) -> None:
    (tmp_path / "sqlanon-demo").mkdir()
    make_hospital(tmp_path / "sqlanon-demo" / "hospital.duckdb", rows=2000)
    for script in blocks("sh"):
        for line in script.splitlines():
            _, *arguments = shlex.split(line, comments=True)
            *parameters, into = arguments if ">" in arguments else (*arguments, None)
            text = printed_text(*(argument for argument in parameters if argument != ">"), cwd=tmp_path)
            if into is not None:
                (tmp_path / into).write_text(text, encoding="utf-8")
