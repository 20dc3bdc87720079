"""Dependencies: released columns that narrow a generalized quasi-identifier, held against pairs of rows, one by one."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from narrowing_people import PEOPLE, ROLES

import sqlanon
from oracles.oracle_narrowing import figures_of_pairs
from sqlanon.disclosure import dependencies as dependencies_module
from sqlanon.disclosure.narrowing import Grouping, measure_narrowing, pinned_groups, values_by_chance
from sqlanon.errors import AuditError
from sqlanon.support.expressions import col, table
from support.lanes import examples, some

pytestmark = pytest.mark.usefixtures("plain_macros")


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("narrowing") / "hospital.duckdb"
    with duckdb.connect(place) as connection:
        connection.execute(f"CREATE TABLE people AS {PEOPLE}")
    return place


def policy_of(hospital: Path, **privacy: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"database": hospital, "table": "people"},
        attributes=ROLES,
        privacy={"k": 20} | privacy,
        release={"database": hospital.parent / "release.duckdb"},
    )


def change_policy(policy: sqlanon.Policy, **sections: Any) -> sqlanon.Policy:
    return sqlanon.Policy.model_validate(policy.model_dump(exclude_unset=True) | sections)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_narrowing_matches_all_pairs_of_persons(data: st.DataObject) -> None:
    value = st.sampled_from([None, "a", "b", "c"])
    drawn = data.draw(st.lists(st.tuples(value, value, value, value), max_size=30)) * data.draw(st.integers(1, 3))
    persons = data.draw(st.booleans())
    persons_of = [data.draw(st.integers(1, 12)) if persons else i for i in range(len(drawn))]
    rows = [(person, *row) for person, row in zip(persons_of, drawn, strict=True)]
    shared = data.draw(st.integers(2, 8))
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (p INTEGER, label VARCHAR, ground VARCHAR, c VARCHAR, d VARCHAR)")
        if rows:
            connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        for columns, some_rows in ((["c"], [row[:4] for row in rows]), (["c", "d"], rows)):
            names = [col(name) for name in columns]
            person = col("p") if persons else None
            query = measure_narrowing(table("t"), [Grouping(col("label"), col("ground"), names, person)], shared)
            cursor = connection.execute(query.sql("duckdb"))
            headers = [column[0] for column in cursor.description or []]
            answer = cursor.fetchall()
            if not rows:
                assert answer == []
                continue
            (figures,) = answer
            wanted = {"candidate": 0} | figures_of_pairs(some_rows, shared)
            assert dict(zip(headers, figures, strict=True)) == {
                name: None if figure is None else pytest.approx(figure, abs=1e-9) for name, figure in wanted.items()
            }


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("uvwxyz"), st.sampled_from("cde")), min_size=1, max_size=60
    )
)
def test_the_values_left_by_chance_are_those_of_a_random_draw(rows: list[tuple[str, str, str]]) -> None:
    """If n of N rows are drawn, none has a value that m rows have with the probability C(N - m, n) / C(N, n)."""
    grounds, groups = defaultdict[str, Counter[str]](Counter), Counter[tuple[str, str]]()
    for label, ground, column in rows:
        grounds[label][ground] += 1
        groups[label, column] += 1
    total = rows_counted = 0.0
    for (label, _), n in groups.items():
        if n > 1 and len(grounds[label]) > 1:
            size = grounds[label].total()
            missing = [math.comb(size - m, n) / math.comb(size, n) for m in grounds[label].values()]
            total, rows_counted = total + n * sum(1 - share for share in missing), rows_counted + n
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (label VARCHAR, ground VARCHAR, c VARCHAR)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        query = values_by_chance(table("t"), Grouping(col("label"), col("ground"), [col("c")]), 0)
        (answer,) = connection.execute(query.sql("duckdb")).fetchone() or (None,)
    assert answer == (pytest.approx(total / rows_counted, rel=0.05) if rows_counted else None)


def test_groups_that_give_a_value_away() -> None:
    """40 rows of ward 1 are all of one ZIP code, of two that are equally frequent; 4 rows are so by chance."""
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE t AS SELECT '*' AS label, if(i < 42, 'a', 'b') AS ground,
                CASE WHEN i < 40 THEN 1 WHEN i < 44 THEN 2 WHEN i < 48 THEN 3 ELSE 4 + i % 2 END AS ward
            FROM range(84) AS r(i)
        """)
        query = pinned_groups(table("t"), col("label"), col("ground"), col("ward"))
        assert connection.execute(query.sql("duckdb")).fetchall() == [("*", 1, 40)]


@pytest.mark.thorough
def test_a_district_of_four_zip_codes_narrows_them(hospital: Path) -> None:
    """The example of the issue's kind: 20-anonymous over zip and age, and smaller groups with the district."""
    with sqlanon.connect() as db:
        result = db.anonymize(policy_of(hospital))
    assert result.smallest_class >= 20
    (dependency,) = result.dependencies
    assert (dependency.columns, dependency.quasi) == (("district",), "zip")
    with duckdb.connect(hospital, read_only=True) as connection:
        rows = connection.execute("SELECT zip, age, district FROM people").fetchall()
        left = connection.execute(dependency.query).fetchall()
    assert result.generalization == {"zip": 2, "age": 1}
    level = 2
    groups = Counter((zip_[: 4 - level], age // 10, district) for zip_, age, district in rows)
    assert dependency.smallest_group == min(groups.values()) < 20
    under = {
        label: len({row[0] for row in rows if row[0].startswith(label)})
        for label in {row[0][: 4 - level] for row in rows}
    }
    assert dependency.before == pytest.approx(sum(under[row[0][: 4 - level]] for row in rows) / len(rows))
    assert {values for _, values, _ in left} == {4}
    assert dependency.after == pytest.approx(4, abs=0.1)
    assert dependency.pinned == 0
    (warning,) = [warning for warning in result.warnings if "district" in warning]
    assert "narrows 'zip'" in warning
    assert dependency.query in warning
    assert result.to_dict()["dependencies"][0]["quasi"] == "zip"


@pytest.mark.thorough
def test_independent_columns_do_not_warn(hospital: Path) -> None:
    attributes = {name: attribute for name, attribute in ROLES.items() if name != "district"}
    policy = sqlanon.Policy(
        source={"database": hospital, "table": "people", "undeclared": "drop"}, attributes=attributes, privacy={"k": 20}
    )
    with sqlanon.connect() as db:
        assert db.anonymize(policy).dependencies == ()


PEOPLE_WITH_VISITS = """
    SELECT p AS patient, 'c' || hash(p + 1) % 20 AS country, (hash(p + 2) % 60)::INTEGER AS age,
        (hash(p + 3) % 3000)::INTEGER AS cost, 'h' || hash(i + 4) % 9 AS hospital
    FROM (SELECT i, i // 6 AS p FROM range(6000) AS r(i)) AS visits
"""


def warnings_of(query: str, attributes: dict[str, Any], **source: Any) -> tuple[str, ...]:
    policy = sqlanon.Policy(
        source={"table": "t", "undeclared": "drop"} | source, attributes=attributes, privacy={"k": 5}
    )
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        connection.execute(f"CREATE TABLE t AS {query}")
        return db.anonymize(policy).warnings


@pytest.mark.thorough
def test_visits_of_one_person_do_not_count_as_dependency() -> None:
    """All visits of a person have the same cost and country, which say nothing about other persons."""
    country = {"role": "quasi", "hierarchy": "suppress", "min_level": 1}
    attributes = {"country": country, "age": ROLES["age"], "cost": {"role": "insensitive"}}
    assert not [
        warning for warning in warnings_of(PEOPLE_WITH_VISITS, attributes, person="patient") if "narrows" in warning
    ]


@pytest.mark.thorough
def test_visits_that_differ_by_chance_do_not_narrow() -> None:
    """Each person has several visits, each with a ward that reveals nothing: one of twelve, or mostly one of few."""
    wards = "hash(i + 3) % 12 AS ward, least(hash(i + 5) % 9, 2) AS shift"
    visits = f"SELECT i // 6 AS patient, (hash(i // 6) % 40)::INTEGER AS country, {wards} FROM range(6000) AS t(i)"
    attributes: dict[str, Any] = {name: {"role": "insensitive"} for name in ("ward", "shift")}
    attributes |= {"patient": {"role": "identifying"}, "country": {"role": "quasi", "hierarchy": "suppress"}}
    attributes["country"]["min_level"] = 1
    assert not [warning for warning in warnings_of(visits, attributes, person="patient") if "narrow" in warning]


@pytest.mark.thorough
def test_values_that_a_household_shares_are_in_no_reference_table() -> None:
    """Two to four people have one income and one of 400 ZIP codes. A town of many households is known to others."""
    rows = """
        SELECT lpad((hash(h + 1) % 400)::VARCHAR, 4, '0') AS zip, (hash(h + 2) % 1000000)::INTEGER AS income,
            't' || hash(h + 1) % 400 // 5 AS town, 'x' || i % 3 AS sex
        FROM (SELECT i, i // 3 AS h FROM range(9000) AS r(i)) AS people
    """
    zip_ = {"role": "quasi", "hierarchy": "suppress", "min_level": 1}
    attributes = {"zip": zip_, "sex": {"role": "quasi", "hierarchy": "suppress"}, "income": {"role": "insensitive"}}
    assert not warnings_of(rows, attributes)
    attributes["town"] = {"role": "insensitive"}
    assert ["'town'" in warning for warning in warnings_of(rows, attributes)] == [True]


def test_numbers_near_each_other_narrow_though_hardly_two_are_equal() -> None:
    rows = """
        SELECT (hash(i) % 80)::INTEGER AS age, age * 365 + (hash(i + 1) % 365)::INTEGER AS days
        FROM range(12000) AS r(i)
    """
    attributes = {"age": {"role": "quasi", "hierarchy": "suppress", "min_level": 1}, "days": {"role": "insensitive"}}
    (warning,) = warnings_of(rows, attributes)
    assert "'days' narrows 'age'" in warning and "known to a part of 5 %" in warning
    with duckdb.connect() as connection:  # the query that it hands out
        connection.execute(f"CREATE TABLE t AS {rows}")
        parts = connection.execute(warning.partition("To see the values left: ")[2]).fetchall()
    assert len(parts) == 20 and all(least < greatest and values <= 6 for least, greatest, _, values, _ in parts)


@pytest.mark.slow
def test_missing_numbers_do_not_hide_what_a_part_leaves() -> None:
    """A part of 5 % of the numbers leaves 10 of 200 ZIP codes, or 11; 95 % of the rows have no number."""
    rows = """
        SELECT (hash(i) % 200)::INTEGER AS zip,
            CASE WHEN hash(i + 7) % 100 >= 95 THEN zip * 1000 + (hash(i + 1) % 900)::INTEGER END AS meters
        FROM range(12000) AS r(i)
    """
    zip_ = {"role": "quasi", "hierarchy": "suppress", "min_level": 1}
    policy = sqlanon.Policy(
        source={"table": "t", "person": False},
        attributes={"zip": zip_, "meters": {"role": "insensitive"}},
        privacy={"k": 5, "dependencies": "warn"},
    )
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        connection.execute(f"CREATE TABLE t AS {rows}")
        (dependency,) = db.anonymize(policy).dependencies
    assert dependency.in_parts == ("meters",)
    assert dependency.after <= 11 < dependency.by_chance


@pytest.mark.thorough
def test_the_year_of_a_sparse_date_narrows_its_decade() -> None:
    """Hardly two of the 800 people share a day of birth: the dependency is visible in months and years only."""
    people = """
        SELECT *, year(born) AS cohort, hash(i + 2) % 80 AS other
        FROM (SELECT i, DATE '1930-01-01' + (hash(i) % 27000)::INTEGER AS born FROM range(800) AS t(i)) AS p
    """
    born = {"role": "quasi", "hierarchy": {"dates": ["month", "year", "decade"]}, "min_level": 3}
    attributes: dict[str, Any] = {"born": born} | {name: {"role": "insensitive"} for name in ("cohort", "other")}
    (warning,) = (warning for warning in warnings_of(people, attributes) if "narrows" in warning)
    assert warning.startswith("'cohort' narrows 'born': a released label stands for 9.6 labels of level 2 of it")
    assert "and for 1.0 if 'cohort' is known" in warning


@pytest.mark.thorough
def test_a_column_that_leaves_one_person_alone_is_refused_unless_the_policy_accepts_it(hospital: Path) -> None:
    """Nothing is published if the smallest group has one row by sqlanon's own figures."""
    with sqlanon.connect() as db:
        (dependency,) = db.anonymize(policy_of(hospital, k=5)).dependencies
        assert dependency.smallest_group == 1
        with pytest.raises(
            AuditError, match=r'the smallest group has 1 row;[\s\S]*dependencies = "warn" in \[privacy\]'
        ):
            db.anonymize(policy_of(hospital, k=5)).publish()
        assert not (hospital.parent / "release.duckdb").exists()
        accepted = policy_of(hospital, k=5, dependencies="warn")
        db.anonymize(accepted).publish(hospital.parent / "accepted.duckdb").verify()


@pytest.mark.thorough
def test_narrowing_by_sensitive_columns_is_accepted(hospital: Path) -> None:
    """Others should not know the column: diversity requires groups of one row that agree in it."""
    policy = policy_of(hospital, k=5)
    sensitive = change_policy(policy, attributes=ROLES | {"district": {"role": "sensitive"}})
    with sqlanon.connect() as db:
        result = db.anonymize(sensitive)
        assert [dependency.smallest_group for dependency in result.dependencies] == [None]
        result.publish(hospital.parent / "sensitive.duckdb")


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", some(["mondrian", "local"], 2))
def test_local_strategies_report_the_narrowing_column(strategy: str, hospital: Path, tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "some.duckdb") as connection:
        connection.execute(f"ATTACH '{hospital}' AS h (READ_ONLY)")
        connection.execute("CREATE TABLE people AS FROM h.people WHERE name < 2000")
    policy = sqlanon.Policy(
        source={"database": tmp_path / "some.duckdb", "table": "people"},
        attributes=ROLES,
        privacy={"k": 20},
        search={"strategy": strategy},
    )
    with sqlanon.connect() as db:
        dependencies = db.anonymize(policy).dependencies
    assert [(dependency.columns, dependency.quasi) for dependency in dependencies] == [(("district",), "zip")]


@pytest.mark.thorough
def test_a_statement_measures_a_limited_number_of_candidates_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide table has thousands of candidates, whose groups would not fit in memory at once."""
    rows = """
        SELECT (hash(i) % 80)::INTEGER AS age, (hash(i + 1) % 9)::INTEGER AS zip, age // 4 AS cohort,
            zip // 3 AS district, age * 7 + (hash(i + 2) % 7)::INTEGER AS weeks, hash(i + 3) % 7 AS other
        FROM range(2000) AS r(i)
    """
    roles: dict[str, Any] = {name: {"role": "insensitive"} for name in ("cohort", "district", "weeks", "other")}
    roles |= {name: {"role": "quasi", "hierarchy": "suppress", "min_level": 1} for name in ("age", "zip")}
    sizes, measure = list[int](), dependencies_module.measure_narrowing
    monkeypatch.setattr(
        dependencies_module,
        "measure_narrowing",
        lambda relation, groupings, shared: sizes.append(len(groupings)) or measure(relation, groupings, shared),
    )

    expected = warnings_of(rows, roles)
    narrowing = ("'cohort' narrows 'age'", "'district' narrows 'zip'", "'weeks' narrows 'age'")
    assert [any(text in warning for warning in expected) for text in narrowing] == [True] * 3
    (count,) = sizes  # of all candidates
    for name, limit, size in (("MAX_CANDIDATES", 5, 5), ("MAX_COUNTED", 3 * 2000, 3), ("MAX_COUNTED", 1, 1)):
        with monkeypatch.context() as patch:
            patch.setattr(dependencies_module, name, limit)
            sizes.clear()
            assert warnings_of(rows, roles) == expected
            assert (max(sizes), sum(sizes)) == (size, count)


@pytest.mark.slow
def test_large_tables_are_sampled(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "large.duckdb") as connection:
        rows = PEOPLE.replace("20000", "200000")
        connection.execute(f"CREATE TABLE people AS {rows}")
    with sqlanon.connect() as db:
        result = db.anonymize(policy_of(tmp_path / "large.duckdb", k=400))
    (dependency,) = result.dependencies
    assert (dependency.columns, dependency.quasi) == (("district",), "zip")
    (zip_level, age_level) = result.generalization.values()
    with duckdb.connect(tmp_path / "large.duckdb", read_only=True) as connection:  # the smallest of all rows
        rows = connection.execute("SELECT zip, age, district FROM people").fetchall()
    width = (1, 10, 20, 60)[age_level]
    groups = Counter((zip_[: 4 - zip_level], age // width, district) for zip_, age, district in rows)
    assert dependency.smallest_group == min(groups.values())


@pytest.mark.thorough
def test_risk_suggest_and_attack_show_the_narrowing_column(
    hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlanon.suggest.trials.SECONDS", 0.0)
    policy = policy_of(hospital)
    with sqlanon.connect() as db:
        risk = db.risk(policy)
        assert "alike" in db.risk_sql(policy)
        release = db.anonymize(policy).publish()
    assert [(dependency.columns, dependency.quasi, dependency.before) for dependency in risk.dependencies] == [
        (("district",), "zip", 1000)
    ]
    assert risk.to_dict()["dependencies"][0]["after"] == pytest.approx(4, abs=0.1)
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        connection.execute(f"CREATE TABLE t AS SELECT * RENAME (district AS salary) FROM ({PEOPLE})")
        text = db.suggest("t")
    assert "#   salary: of 1,000.0 values of zip, 4.0 are left" in text
    outcome = sqlanon.attack(release.path, policy, only=["dependencies"])["dependencies"]
    assert outcome.victims == 0  # four ZIP codes are left of each
    assert sqlanon.attack(release.path, only=["dependencies"])["dependencies"].skipped


@pytest.mark.thorough
def test_attack_counts_the_rows_that_are_given_away(tmp_path: Path) -> None:
    """Each clinic is in one ZIP code, and all ZIP codes have one label."""
    with duckdb.connect(tmp_path / "c.duckdb") as connection:
        connection.execute("""
            CREATE TABLE people AS
            SELECT i AS name, '0' || (i % 5) AS zip, if(i % 5 = 4, 'other', 'c' || i % 10) AS clinic
            FROM range(500) AS t(i) UNION ALL SELECT 500 + i, '0' || (i % 4), 'other' FROM range(100) AS t(i)
        """)
    policy = sqlanon.Policy(
        source={"database": tmp_path / "c.duckdb", "table": "people"},
        attributes={
            "name": {"role": "identifying"},
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 1},
            "clinic": {"role": "insensitive"},
        },
        privacy={"k": 20},
        release={"database": tmp_path / "r.duckdb"},
    )
    with sqlanon.connect() as db:
        release = db.anonymize(policy).publish()
    outcome = sqlanon.attack(release.path, policy, only=["dependencies"])["dependencies"]
    assert outcome.victims == 400
    assert outcome.worst is not None
    assert outcome.worst.figures == {"attribute": "clinic", "quasi": "zip"}


KEYS = """
    SELECT * EXCLUDE (cost), 'd' || ((name * 7919) % 1000) // 4 || '-' || name AS serial, hash(name + 3) AS token
    FROM ({people})
"""
"""Two columns with one value for each person: the district follows from the first, the second is useless."""


def with_keys(place: Path, low: int = 0, **privacy: Any) -> sqlanon.Policy:
    source = place / "keys.duckdb"
    if not source.exists():
        with duckdb.connect(source) as connection:
            people = PEOPLE.replace("20000", "2000")
            connection.execute(f"CREATE TABLE people AS {KEYS.format(people=people)}")
    quasi = {"zip": ROLES["zip"] | {"min_level": low}, "age": {"role": "quasi", "hierarchy": "suppress"}}
    return sqlanon.Policy(
        source={"database": source, "table": "people", "undeclared": "drop"},
        attributes={"name": ROLES["name"], **quasi, "serial": {"role": "insensitive"}, "token": {"role": "sensitive"}},
        privacy={"k": 1} | privacy,
        release={"database": place / "release.duckdb"},
    )


@pytest.mark.thorough
def test_a_nearly_unique_column_is_refused_as_a_key(tmp_path: Path) -> None:
    """No two rows share a value, so that nothing can be measured; whether it depends on zip or not, it is a key."""
    with sqlanon.connect() as db:
        result = db.anonymize(with_keys(tmp_path, 1))
        assert (result.generalization, result.dependencies) == ({"zip": 1, "age": 0}, ())
        assert sorted(warning.split(":")[0] for warning in result.warnings) == [
            "column 'serial' is nearly unique",
            "column 'token' is nearly unique",
            "k = 1 allows classes of one row, which protects no person",
        ]
        strict = db.anonymize(with_keys(tmp_path, 1, dependencies="error"))
        with pytest.raises(AuditError, match=r"'serial' is nearly a key.* with it and 'zip' reveals") as refused:
            strict.publish()
        assert [failure.split(" is ")[0] for failure in refused.value.failures] == [
            "dependencies: 'serial'",
            "dependencies: 'token'",
        ]
        assert not (tmp_path / "release.duckdb").exists()
        # Nothing is generalized, so that nothing is narrowed; of the rest there is the warning.
        db.anonymize(with_keys(tmp_path, dependencies="error")).publish()


@pytest.mark.slow
def test_placeholders_do_not_hide_a_key(tmp_path: Path) -> None:
    """Four of five rows have a unique value with the ZIP code in it; only the fifth could be measured."""
    with duckdb.connect(tmp_path / "source.duckdb") as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT zip, CASE WHEN i % 5 = 0 THEN 'n/a' ELSE zip || '-' || i END AS x "
            "FROM (SELECT (10000 + i % 40)::VARCHAR AS zip, i FROM range(600) AS r(i))"
        )
    policy = sqlanon.Policy(
        source={"database": tmp_path / "source.duckdb", "table": "t"},
        attributes={"zip": ROLES["zip"] | {"min_level": 2}, "x": {"role": "insensitive"}},
        privacy={"k": 5, "dependencies": "error"},
        release={"database": tmp_path / "release.duckdb"},
    )
    with sqlanon.connect() as db, pytest.raises(AuditError, match="'x' is nearly a key"):
        db.anonymize(policy).publish()


@pytest.mark.slow
@pytest.mark.cases(1)
@pytest.mark.parametrize("strategy", ["optimal", "mondrian"])
def test_plan_shows_how_it_is_measured(strategy: str, hospital: Path) -> None:
    policy = change_policy(policy_of(hospital), search={"strategy": strategy})
    with sqlanon.connect() as db:
        (stage,) = [candidate for candidate in db.plan(policy).stages if candidate.name == "dependencies"]
    assert "alike_before" in stage.sql[-1]
    assert "narrowing_rows" in stage.sql[-2]
    # Unchanged columns are listed, and zip with its label and its value.
    assert all(f'"{name}"' in stage.sql[-2] for name in ("district", "diagnosis", "cost", "zip"))


def growing(place: Path, **privacy: Any) -> sqlanon.Policy:
    return change_policy(
        policy_of(place / "hospital.duckdb", **privacy),
        source={"database": place / "grows.duckdb", "table": "people", "key": ["name"]},
        release={"database": place / "release.duckdb"},
        catalog={"database": place / "private.duckdb"},
    )


@pytest.mark.thorough
@pytest.mark.parametrize("dependencies", ["error", pytest.param("warn", marks=pytest.mark.slow)])
def test_rows_that_are_added_can_narrow(dependencies: str, tmp_path: Path) -> None:
    """Districts of the first rows do not narrow; later ones do."""
    policy = growing(tmp_path, dependencies=dependencies, k=5)
    columns = "name, zip, age % 20 AS age, {} AS district, diagnosis, hash(name + 1) % 10 AS cost"
    with duckdb.connect(tmp_path / "grows.duckdb") as connection:
        first = columns.format("'d' || hash(name + 9) % 50")
        connection.execute(f"CREATE TABLE people AS SELECT {first} FROM ({PEOPLE}) WHERE name < 1000")
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        assert result.dependencies == ()
        release = result.publish()
    before = release.path.read_bytes()
    with duckdb.connect(tmp_path / "grows.duckdb") as connection:
        second = columns.format("'d' || ((name * 7919) % 1000) // 20")
        connection.execute(f"INSERT INTO people SELECT {second} FROM ({PEOPLE}) WHERE name BETWEEN 1000 AND 15000")
    with sqlanon.connect() as db:
        extension = db.extend(policy)
        assert [(dependency.columns, dependency.quasi) for dependency in extension.dependencies] == [
            (("district",), "zip")
        ]
        assert extension.to_dict()["dependencies"][0]["quasi"] == "zip"
        assert [warning for warning in extension.warnings if "'district' narrows 'zip'" in warning]
        if dependencies == "warn":
            assert extension.publish().verify().verified
            return
        with pytest.raises(AuditError, match="'district' narrows 'zip'"):
            extension.publish()
    assert release.path.read_bytes() == before
