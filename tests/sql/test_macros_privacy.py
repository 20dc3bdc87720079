"""The macros of the privacy requirements, as a stranger calls them: from a file, on tables of another database.

Their expected results are counted here again, in plain Python.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import duckdb
import pytest

from oracles.oracle import Hierarchy, Value
from oracles.oracle_distances import entropy, equal_distance, hierarchical_distance, ordered_distance, shares
from sqlanon.release.contents import PARSED_TYPE
from sqlanon.requirements import requirement_types
from sqlanon.requirements.macros import call_macro
from sqlanon.support.resources import sql_file
from support.databases import quote_name
from support.lanes import some

Connection: TypeAlias = duckdb.DuckDBPyConnection
Row: TypeAlias = Mapping[str, Any]

FILES = sorted(sql_file("macros.sql").parent.glob("macros*.sql"))
QUASI = ["zip", "Age"]
TREE = Hierarchy({v: (v, v[0] + "*", "*" if v[0] in "ab" else "**", "any") for v in ("a1", "a2", "b1", "c1", "c2")})
INFINITY = math.inf
COLUMNS = {macro.name: macro.columns for kind in requirement_types() for macro in kind.entry.macros}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """The library in a file of the version that releases have, which is opened again; the tables are elsewhere."""
    path = tmp_path_factory.mktemp("macros") / "library.duckdb"
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS made (STORAGE_VERSION 'v1.0.0')")
        connection.execute("USE made")
        for file in FILES:
            connection.execute(file.read_text(encoding="utf-8"))
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS lib (READ_ONLY)")
        connection.execute("ATTACH ':memory:' AS src")
        for name in ("t", "source", "population"):
            connection.execute(
                f"CREATE TABLE src.{name} (age INTEGER, ZIP VARCHAR, s VARCHAR, cost DOUBLE, id INTEGER, voter INTEGER)"
            )
        labels = ", ".join(f"('{value}', {', '.join(map(repr, path[1:]))})" for value, path in TREE.paths.items())
        connection.execute("CREATE TABLE src.tree (level_3 VARCHAR, Level_1 VARCHAR, level_0 VARCHAR, level_2 VARCHAR)")
        connection.execute(f"INSERT INTO src.tree (level_0, level_1, level_2, level_3) VALUES {labels}")
        yield connection


def fill(db: Connection, name: str, rows: Sequence[Row]) -> None:
    db.execute(f"DELETE FROM src.{name}")
    insert(db, name, [[row[column] for column in ("Age", "zip", "s", "cost", "id", "voter")] for row in rows])


def insert(db: Connection, name: str, rows: Sequence[Sequence[Any]]) -> None:
    if rows:
        values = ", ".join(f"({', '.join('?' * len(row))})" for row in rows)
        db.execute(f"INSERT INTO src.{name} VALUES {values}", [value for row in rows for value in row])


def single_row(db: Connection, macro: str, *arguments: Any, **options: Any) -> tuple[Any, ...]:
    """The one row of a macro on table t."""
    query = call_macro(macro, "src.main.t", *arguments, catalog="lib", **options).sql("duckdb")
    relation = db.execute(query)
    assert tuple(column[0] for column in relation.description or []) == COLUMNS[macro]
    (row,) = relation.fetchall()
    return row


def by_class(db: Connection, macro: str, *arguments: Any, **options: Any) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The figures of each class of table t: by Age and zip, as the table has them."""
    query = call_macro(macro, "src.main.t", *arguments, catalog="lib", **options).sql("duckdb")
    relation = db.execute(query)
    assert [column[0] for column in relation.description or []][:2] == ["age", "ZIP"]
    rows = relation.fetchall()
    classes = {row[:2]: row[2:] for row in rows}
    assert len(classes) == len(rows)
    return classes


# --- the same in plain Python -----------------------------------------------------------------------


def classes_of(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    classes = defaultdict(list)
    for row in rows:
        classes[row["Age"], row["zip"]].append(row)
    return classes


def size(rows: Sequence[Row], person: str | None) -> int:
    return len(rows) if person is None else len({row[person] for row in rows})


def counts(rows: Sequence[Row], sensitive: str, person: str | None) -> Counter[Value]:
    if person is None:
        return Counter(row[sensitive] for row in rows)
    return Counter(value for value, _ in {(row[sensitive], row[person]) for row in rows})


def recursive_c(value_counts: Counter[Value], least: int) -> float:
    ordered = sorted(value_counts.values(), reverse=True)
    tail = sum(ordered[least - 1 :])
    return 0.0 if least == 1 else ordered[0] / tail if tail else INFINITY


def delta(p: Mapping[Value, Fraction], q: Mapping[Value, Fraction]) -> float:
    return max(abs(math.log(p[value] / q[value])) for value in q) if p.keys() == q.keys() else INFINITY


def beta(p: Mapping[Value, Fraction], q: Mapping[Value, Fraction]) -> float:
    return max(max(0.0, float((p[value] - q[value]) / q[value])) if value in q else INFINITY for value in p)


def excess(p: Mapping[Value, Fraction], q: Mapping[Value, Fraction]) -> float:
    gains = {value: float((p[value] - q[value]) / q[value]) for value in p.keys() & q.keys() if p[value] > q[value]}
    return INFINITY if p.keys() - q else max((max(0.0, gain + math.log(q[v])) for v, gain in gains.items()), default=0)


def close(values: Any, expected: Any) -> bool:
    """Compare numbers within 1e-12; NaN, infinity and NULL exactly."""
    if isinstance(expected, tuple | list):
        return len(values) == len(expected) and all(map(close, values, expected))
    if isinstance(expected, dict):
        return values.keys() == expected.keys() and all(close(values[key], expected[key]) for key in expected)
    if expected is None or isinstance(expected, str):
        return bool(values == expected)
    return values is not None and math.isclose(values, expected, rel_tol=1e-12, abs_tol=1e-12)


def some_rows(chance: random.Random, least: int = 1) -> list[Row]:
    """A few rows: few classes and values, NULLs in all columns; persons have many rows."""
    values = chance.sample([None, *TREE.paths, "unknown"], chance.randint(1, 7))
    return [
        {
            "zip": chance.choice(["1", "2", None]),
            "Age": chance.choice([30, None]),
            "s": chance.choice(values),
            "cost": chance.choice([None, -1.0, 0.5, 2.0, 10.0]),
            "id": chance.choice([None, *range(8)]),
            "voter": chance.choice([None, *range(12)]),
        }
        for _ in range(chance.randint(least, 40))
    ]


@pytest.fixture(params=some(range(6), 3))
def tables(request: pytest.FixtureRequest, db: Connection) -> tuple[list[Row], list[Row], list[Row]]:
    """The table, a source that has it, and a population that may not."""
    chance = random.Random(request.param)
    rows = some_rows(chance)
    source = rows + some_rows(chance, 0)
    population = some_rows(chance, 0)
    for name, content in (("t", rows), ("source", source), ("population", population)):
        fill(db, name, content)
    return rows, source, population


@pytest.mark.thorough
@pytest.mark.parametrize("person", [None, "id"])
def test_diversity_is_that_of_the_classes(tables: Any, person: str | None, db: Connection) -> None:
    classes = classes_of(tables[0])
    options = {} if person is None else {"person": person}
    for least in (1, 2, 3):
        expected = {}
        for name, rows in classes.items():
            value_counts = counts(rows, "s", person)
            expected[name] = (
                len(rows),
                len(value_counts),
                math.exp(entropy(value_counts)),
                recursive_c(value_counts, least),
            )
        figures = by_class(db, "l_diversity_classes", QUASI, "s", l=least, **options)
        assert close(figures, expected)
        _, distinct, entropies, cs = zip(*expected.values(), strict=True)
        worst = (min(distinct), min(entropies), max(cs), len(classes))
        assert close(single_row(db, "l_diversity", QUASI, "s", l=least, **options), worst)


@pytest.mark.slow
@pytest.mark.parametrize("person", [None, "id"])
@pytest.mark.parametrize("source_is", ["the table", "another"])
def test_shares_are_compared_with_the_source(tables: Any, source_is: str, person: str | None, db: Connection) -> None:
    rows, source, _ = tables
    classes = classes_of(rows)
    options = {} if person is None else {"person": person}
    if source_is == "another":
        options["reference"] = "src.main.source"
    q = shares(counts(source if source_is == "another" else rows, "s", person))
    expected = {}
    for name, members in classes.items():
        p = shares(counts(members, "s", person))
        expected[name] = (len(members), delta(p, q), beta(p, q), excess(p, q), float(max(p.values())))
    assert close(by_class(db, "disclosure_classes", QUASI, "s", **options), expected)
    _, worst_delta, worst_beta, worst_excess, worst_alpha = map(max, zip(*expected.values(), strict=True))
    assert close(single_row(db, "delta_disclosure", QUASI, "s", **options), (worst_delta, len(classes)))
    assert close(single_row(db, "beta_likeness", QUASI, "s", **options), (worst_beta, worst_excess, len(classes)))
    options.pop("reference", None)
    assert close(single_row(db, "alpha", QUASI, "s", **options), (worst_alpha, len(classes)))


@pytest.mark.slow
@pytest.mark.parametrize("person", [None, "id"])
@pytest.mark.parametrize(
    ("distance", "sensitive"), [("equal", "s"), ("ordered", "s"), ("ordered", "cost"), ("hierarchical", "s")]
)
def test_closeness_is_the_distance_to_the_source(
    tables: Any, distance: str, sensitive: str, person: str | None, db: Connection
) -> None:
    rows, source, _ = tables
    classes = classes_of(rows)
    options = {"distance": distance, "reference": "src.main.source"}
    if person is not None:
        options["person"] = person
    if distance == "hierarchical":
        options["hierarchy"] = "src.main.tree"
    q = shares(counts(source, sensitive, person))
    expected = {}
    for name, members in classes.items():
        p = shares(counts(members, sensitive, person))
        if distance == "hierarchical":
            t = hierarchical_distance(p, q, TREE)
        else:
            t = equal_distance(p, q) if distance == "equal" else ordered_distance(p, q)
        expected[name] = (len(members), float(t))
    assert close(by_class(db, "t_closeness_classes", QUASI, sensitive, **options), expected)
    worst = max(t for _, t in expected.values())
    assert close(single_row(db, "t_closeness", QUASI, sensitive, **options), (worst, len(classes)))


@pytest.mark.slow
def test_without_a_reference_the_source_is_the_table(tables: Any, db: Connection) -> None:
    for distance in ("equal", "ordered"):
        without_reference = single_row(db, "t_closeness", QUASI, "s", distance=distance)
        assert without_reference == single_row(db, "t_closeness", QUASI, "s", distance=distance, reference="src.main.t")


@pytest.mark.slow
def test_persons_are_counted_once_a_class(tables: Any, db: Connection) -> None:
    rows, _, _ = tables
    classes = classes_of(rows)
    expected = {name: (size(members, "id"), len(members)) for name, members in classes.items()}
    assert by_class(db, "person_k_anonymity_classes", QUASI, "id") == expected
    sizes = [persons for persons, _ in expected.values()]
    figures = (min(sizes), len(classes), size(rows, "id"), len(rows), sizes.count(1))
    assert single_row(db, "person_k_anonymity", QUASI, "id") == figures
    risk = (len(sizes) / sum(sizes), sizes.count(1) / sum(sizes), len(sizes), len(rows))
    assert close(single_row(db, "average_risk", QUASI, person="id"), risk)


def test_average_risk_is_of_rows_where_no_person_is_given(tables: Any, db: Connection) -> None:
    rows, _, _ = tables
    sizes = [len(members) for members in classes_of(rows).values()]
    figures = (len(sizes) / len(rows), sizes.count(1) / len(rows), len(sizes), len(rows))
    assert close(single_row(db, "average_risk", QUASI), figures)


@pytest.mark.slow
@pytest.mark.parametrize("person", [None, "id"])
@pytest.mark.parametrize("voter", [None, "voter"])
def test_classes_are_compared_with_the_population(
    tables: Any, person: str | None, voter: str | None, db: Connection
) -> None:
    rows, _, population = tables
    classes, theirs = classes_of(rows), classes_of(population)
    options = {} if voter is None else {"population_person": voter}
    matched = {name: size(theirs.get(name, []), voter) for name in classes}
    null_map = sum(len(members) for name, members in classes.items() if not matched[name])
    assert single_row(db, "k_map", QUASI, "src.main.population", **options) == (
        min(matched.values()),
        null_map,
        len(classes),
    )

    if person is not None:
        options["person"] = person
    presence = {}
    for name in classes.keys() | theirs.keys():
        in_class, all_ = size(classes.get(name, []), person), size(theirs.get(name, []), voter)
        presence[name] = (in_class, all_, in_class / all_ if all_ else INFINITY)
    assert close(by_class(db, "presence_classes", QUASI, "src.main.population", **options), presence)
    shares_ = [share for _, _, share in presence.values()]
    figures = (min(shares_), max(shares_), len(presence))
    assert close(single_row(db, "delta_presence", QUASI, "src.main.population", **options), figures)


def test_the_population_s_columns_are_found_by_name(db: Connection) -> None:
    """Whatever their order, their case and their types."""
    fill(db, "t", [{**dict.fromkeys(("s", "cost", "id", "voter")), "zip": "7", "Age": age} for age in (1, 2, 2)])
    db.execute(
        "CREATE OR REPLACE TABLE src.voters AS SELECT '7' AS Zip, 0 AS other, unnest([1, 2, 2, 3])::HUGEINT AS AGE"
    )
    assert single_row(db, "k_map", ["zip", "age"], "src.voters") == (1, 0, 2)
    assert single_row(db, "k_map", ["AGE", "Zip"], "src.voters") == (1, 0, 2)
    assert single_row(db, "delta_presence", ["zip", "age"], "src.voters") == (0.0, 1.0, 3)
    presence = by_class(db, "presence_classes", ["zip", "age"], "src.voters")
    assert presence == {(1, "7"): (1, 1, 1.0), (2, "7"): (2, 2, 1.0), (3, "7"): (0, 1, 0.0)}


# --- the literature's examples ----------------------------------------------------------------------


def table_of(db: Connection, *classes: Sequence[Any], type_: str = "VARCHAR") -> None:
    """``src.main.x``: a class of each list of values."""
    db.execute(f"CREATE OR REPLACE TABLE src.x (zip INTEGER, s {type_})")
    insert(db, "x", [(number, value) for number, values in enumerate(classes) for value in values])


def of_x(db: Connection, macro: str, **options: Any) -> list[tuple[Any, ...]]:
    query = call_macro(macro, "src.main.x", ["zip"], "s", catalog="lib", **options).sql("duckdb")
    return sorted(db.execute(query).fetchall())


@pytest.mark.parametrize(
    ("classes", "distances"),
    [
        ([(3, 4, 5), (6, 8, 11), (7, 9, 10)], [27 / 72, 12 / 72, 17 / 72]),
        ([(3, 5, 9), (6, 8, 11), (4, 7, 10)], [12 / 72, 12 / 72, 6 / 72]),
    ],
)
def test_closeness_of_incomes_is_that_of_li_et_al(
    classes: Sequence[Sequence[int]], distances: list[float], db: Connection
) -> None:
    table_of(db, *classes, type_="INTEGER")
    answer = of_x(db, "t_closeness_classes", distance="ordered")
    assert close(answer, [(number, 3, distance) for number, distance in enumerate(distances)])
    assert close(of_x(db, "t_closeness", distance="ordered"), [(max(distances), 3)])


def test_homogeneous_class_has_l_diversity_1(db: Connection) -> None:
    """A class of one value has l = 1, however large it is."""
    table_of(db, ["flu"] * 5, ["flu", "cold"])
    assert close(of_x(db, "l_diversity"), [(1, 1.0, INFINITY, 2)])
    assert of_x(db, "l_diversity", l=1)[0][2] == 0


@pytest.mark.slow
@pytest.mark.parametrize("values", range(1, 60))
def test_a_class_of_equally_frequent_values_is_as_diverse_as_they_are_many(values: int, db: Connection) -> None:
    table_of(db, list(range(values)) * 3, type_="INTEGER")
    ((distinct, entropy_l, _, _),) = of_x(db, "l_diversity")
    assert distinct == values
    assert math.log(entropy_l) >= math.log(values) - 1e-12


def test_skewed_class_is_diverse_and_not_close(db: Connection) -> None:
    """Half of a class positive, one in a hundred in the table: diverse, and not close."""
    table_of(db, ["yes", "no"], ["no"] * 98 + ["yes"] * 0)
    assert of_x(db, "l_diversity_classes")[0][2] == 2
    assert close(of_x(db, "t_closeness_classes")[0], (0, 2, 0.49))


def test_similar_values_are_diverse_and_not_close(db: Connection) -> None:
    """Three values with one parent: diverse, and by their tree as far from the table as one value."""
    table_of(db, ["ulcer", "gastritis", "cancer"], ["flu", "cold", "cough"])
    tree = [
        ("ulcer", "gut"),
        ("gastritis", "gut"),
        ("cancer", "gut"),
        ("flu", "lung"),
        ("cold", "lung"),
        ("cough", "lung"),
    ]
    db.execute("CREATE OR REPLACE TABLE src.organs (level_0 VARCHAR, level_1 VARCHAR, level_2 VARCHAR DEFAULT '*')")
    insert(db, "organs (level_0, level_1)", tree)
    assert of_x(db, "l_diversity")[0][0] == 3
    options = {"distance": "hierarchical", "hierarchy": "src.organs"}
    assert close(of_x(db, "t_closeness", **options), [(0.5, 2)])
    table_of(db, ["ulcer", "flu", "cold"], ["gastritis", "cough", "cancer"])
    assert of_x(db, "t_closeness", **options)[0][0] < 0.4


@pytest.mark.thorough
def test_a_million_rows_are_measured_exactly(db: Connection) -> None:
    """Sums of 32 bits would overflow here, and accept a distance of 0.19."""
    db.execute("""
        CREATE OR REPLACE TABLE src.x AS
        SELECT zip, unnest(CASE WHEN i < positive THEN ['a1'] ELSE ['c1'] END) AS s
        FROM (VALUES ('A', 684000, 403560), ('B', 324000, 100440)) AS c(zip, size, positive), range(size) AS r(i)
    """)
    options = {"distance": "hierarchical", "hierarchy": "src.tree"}
    assert close(of_x(db, "t_closeness_classes", **options), [("A", 684000, 0.09), ("B", 324000, 0.19)])
    assert close(of_x(db, "t_closeness", **options), [(0.19, 2)])
    for distance in ("equal", "ordered"):
        assert close(of_x(db, "t_closeness", distance=distance), [(0.19, 2)])


# --- names, types, settings, what is missing --------------------------------------------------------

# Names that the macros use themselves, and names that are patterns: each is the name of a column here.
PARAMETERS = ["rel", "qi", "sensitive", "person", "reference", "population", "population_person", "distance"]
PARAMETERS += ["hierarchy", "l"]
INTERNAL = ["class", "value", "person_id", "n", "rows", "size", "total", "p", "q", "m", "x", "c", "s", "r", "t", "up"]
INTERNAL += ["node", "level", "label", "height", "place", "area", "whole", "scale_place", "presence", "persons"]
INTERNAL += ["population_size", "matched_rows", "sqlanon value", "sqlanon values", "sqlanon shares", "class_size"]
INTERNAL += ["level_0", "level_1"]
HOSTILE = [*PARAMETERS, *INTERNAL, ".*", "*", "%", 'say "hi"', "größe", "it's", "; DROP TABLE people; --"]

EVERY: dict[str, tuple[str, ...]] = {
    "person_k_anonymity": ("person",),
    "average_risk": (),
    "k_map": ("population",),
    "delta_presence": ("population",),
    "l_diversity": ("sensitive",),
    "alpha": ("sensitive",),
    "delta_disclosure": ("sensitive",),
    "beta_likeness": ("sensitive",),
    "t_closeness": ("sensitive",),
}
TWINS: dict[str, tuple[str, ...]] = {
    "person_k_anonymity_classes": ("person",),
    "presence_classes": ("population",),
    "l_diversity_classes": ("sensitive",),
    "disclosure_classes": ("sensitive",),
    "t_closeness_classes": ("sensitive",),
}
NAMED: dict[str, tuple[str, ...]] = {
    "average_risk": ("person",),
    "k_map": ("population_person",),
    "delta_presence": ("person", "population_person"),
    "l_diversity": ("person",),
    "alpha": ("person",),
    "delta_disclosure": ("person", "reference"),
    "beta_likeness": ("person", "reference"),
    "t_closeness": ("person", "reference"),
}


def macro_rows(
    db: Connection, macro: str, relation: str, quasi: Sequence[str], **arguments: str
) -> list[tuple[Any, ...]]:
    """A macro's rows; the arguments by the parameters' names."""
    positional = [arguments[parameter] for parameter in {**EVERY, **TWINS}[macro]]
    options = {name: arguments[name] for name in NAMED.get(macro, ()) if name in arguments}
    query = call_macro(macro, relation, list(quasi), *positional, catalog="lib", **options).sql("duckdb")
    return db.execute(query).fetchall()


@pytest.fixture(scope="module")
def hostile(db: Connection) -> None:
    """Table plain; table hostile, of as many rows, with a column of each name, all different from those of plain."""
    db.execute("""
        CREATE TABLE src.plain AS
        SELECT i, hash(i) % 4 AS a, i % 3 AS other, hash(i + 100) % 5 AS b, hash(i + 200) % 17 AS d
        FROM range(80) AS r(i)
    """)
    columns = ", ".join(f"hash(i + {1000 * j}) % 9 AS {quote_name(name)}" for j, name in enumerate(HOSTILE))
    db.execute(f"CREATE TABLE src.hostile AS SELECT i AS number, i % 3 AS other, {columns} FROM range(80) AS r(i)")


@pytest.mark.slow
@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize(
    ("macro", "step"),
    [*((macro, 5) for macro in EVERY), *(pytest.param(macro, 1, marks=pytest.mark.slow) for macro in EVERY)],
)
def test_every_name_means_its_own_column(macro: str, step: int, db: Connection) -> None:
    """The names are used for quasi-identifiers, sensitive columns and persons, in upper and lower case."""
    arguments = {"sensitive": "b", "person": "d", "population": "src.plain", "reference": "src.plain"}
    arguments["population_person"] = "d"
    expected = macro_rows(db, macro, "src.plain", ["a", "other"], **arguments)
    for i in range(0, len(HOSTILE), step):
        name, sensitive, person = HOSTILE[i], HOSTILE[i - 1], HOSTILE[i - 2]
        renamed = ", ".join(
            f"{old} AS {quote_name(new)}" for old, new in [("a", name), ("b", sensitive), ("d", person)]
        )
        db.execute(f"""
            CREATE OR REPLACE VIEW src.renamed AS
            SELECT h.* REPLACE ({renamed}) FROM src.hostile AS h JOIN src.plain AS p ON h.number = p.i
        """)
        names = {"sensitive": sensitive, "person": person, "population": "src.renamed", "reference": "src.renamed"}
        names["population_person"] = person.upper() if person.isascii() else person
        assert macro_rows(db, macro, "src.renamed", [name, "OTHER"], **names) == expected, (name, sensitive, person)


@pytest.mark.thorough
@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("macro", some(TWINS, 3))
def test_classes_have_the_given_columns(macro: str, db: Connection) -> None:
    """Names of figures are refused: which of the two would be which?"""
    arguments = [{"sensitive": "b", "person": "d", "population": "src.renamed"}[twin] for twin in TWINS[macro]]
    figures: list[str] = []
    for name in ["other", *HOSTILE]:
        db.execute(f"CREATE OR REPLACE VIEW src.renamed AS SELECT a AS {quote_name(name)}, b, d FROM src.plain")
        query = call_macro(macro, "src.renamed", [name], *arguments, catalog="lib").sql("duckdb")
        if name in figures:
            with pytest.raises(duckdb.Error, match="rename it"):
                db.execute(query).fetchall()
            continue
        relation = db.execute(query)
        columns = [column[0] for column in relation.description or []]
        figures = figures or columns[1:]
        assert columns == [name, *figures]
        assert sorted(row[0] for row in relation.fetchall()) == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("macro", [*EVERY, *TWINS])
def test_an_unknown_column_is_an_error(macro: str, db: Connection) -> None:
    right = {"sensitive": "b", "person": "d", "population": "src.plain", "reference": "src.plain"}
    right["population_person"] = "d"
    assert macro_rows(db, macro, "src.plain", ["a"], **right)
    for quasi in (["nope"], ["a", "nope"], [".*"], [""], ["a "], []):
        with pytest.raises(duckdb.BinderException):
            macro_rows(db, macro, "src.plain", quasi, **right)
    for parameter in {**EVERY, **TWINS}[macro] + NAMED.get(macro, ()):
        for name in ("nope", ".*", "", "src.nope", "(SELECT 1 AS b)"):
            with pytest.raises(duckdb.Error):
                macro_rows(db, macro, "src.plain", ["a"], **{**right, parameter: name})
    with pytest.raises(duckdb.Error):
        macro_rows(db, macro, "src.nope", ["a"], **right)


@pytest.mark.slow
@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize(
    "call",
    [
        "l_diversity('src.plain', ['a'], NULL)",
        "l_diversity('src.plain', ['a'], ['b', 'd'])",
        "l_diversity('src.plain', 'a', 'b')",
        "l_diversity('src.plain', NULL, 'b')",
        "l_diversity('src.plain', ['a', NULL], 'b')",
        "l_diversity('src.plain', ['a'], 'b', l := 0)",
        "l_diversity('src.plain', ['a'], 'b', l := 2.5)",
        "l_diversity('src.plain', ['a'], 'b', l := NULL)",
        "t_closeness('src.plain', ['a'], 'b', distance := 'Ordered')",
        "t_closeness('src.plain', ['a'], 'b', distance := NULL)",
        "t_closeness('src.plain', ['a'], 'b', distance := 'hierarchical')",
        "t_closeness('src.plain', ['a'], 'b', hierarchy := 'src.tree')",
        "t_closeness('src.plain', ['a'], 'b', distance := 'hierarchical', hierarchy := 'src.plain')",
        "t_closeness('src.plain', ['a'], 'b', distance := 'hierarchical', hierarchy := 'src.nope')",
        "k_map('src.plain', ['a'], NULL)",
        "k_map('src.plain', ['a'], 'src.tree')",
        "average_risk('src.plain', 'a')",
        "average_risk('src.plain', ['a'], nobody := 'd')",
    ],
)
def test_impossible_parameters_are_an_error(call: str, db: Connection) -> None:
    with pytest.raises(duckdb.Error):
        db.execute(f"FROM lib.sqlanon.{call}").fetchall()


def test_a_hierarchy_with_a_value_twice_is_an_error(db: Connection) -> None:
    table_of(db, ["a1", "c1"])
    db.execute("CREATE OR REPLACE TABLE src.twice AS FROM src.tree UNION ALL SELECT 'any', 'x', 'a1', 'y'")
    with pytest.raises(duckdb.Error, match="twice"):
        of_x(db, "t_closeness", distance="hierarchical", hierarchy="src.twice")


@pytest.mark.thorough
def test_an_empty_table_has_figures_of_nothing(db: Connection) -> None:
    for name in ("t", "source", "population"):
        fill(db, name, [])
    empty = {
        "person_k_anonymity": (None, 0, 0, 0, 0),
        "average_risk": (None, None, 0, 0),
        "k_map": (None, 0, 0),
        "delta_presence": (None, None, 0),
        "l_diversity": (None, None, None, 0),
        "alpha": (None, 0),
        "delta_disclosure": (None, 0),
        "beta_likeness": (None, None, 0),
        "t_closeness": (None, 0),
    }
    arguments = {"sensitive": "s", "person": "id", "population": "src.population", "reference": "src.source"}
    for macro, figures in empty.items():
        assert macro_rows(db, macro, "src.t", QUASI, **arguments) == [figures], macro
    for macro in TWINS:
        assert macro_rows(db, macro, "src.t", QUASI, **arguments) == []
    for distance in ("ordered", "hierarchical"):
        options = {"hierarchy": "src.tree"} if distance == "hierarchical" else {}
        assert single_row(db, "t_closeness", QUASI, "s", distance=distance, **options) == (None, 0)


def test_all_is_far_from_an_empty_source(db: Connection) -> None:
    """A class compared with an empty table must not look close."""
    table_of(db, [1, 1], [1, 2], type_="INTEGER")
    db.execute("CREATE OR REPLACE VIEW src.nobody AS FROM src.x LIMIT 0")
    for distance in ("equal", "ordered"):
        assert of_x(db, "t_closeness", reference="src.nobody", distance=distance) == [(1.0, 2)]
    assert of_x(db, "delta_disclosure", reference="src.nobody") == [(INFINITY, 2)]
    assert of_x(db, "beta_likeness", reference="src.nobody") == [(INFINITY, INFINITY, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    some(
        [
            "v::UTINYINT",
            "v::HUGEINT * 10::HUGEINT ** 30",
            "v / 7.0::DOUBLE",
            "CASE WHEN v = 4 THEN 'NaN'::DOUBLE ELSE v END",
            "v::DECIMAL(20, 2)",
            "v > 1",
            "DATE '2020-01-01' + v::INTEGER",
            "TIMESTAMPTZ '2020-01-01' + v * INTERVAL 1 HOUR",
            "TIME '01:00' + v * INTERVAL 1 HOUR",
            "v * INTERVAL 30 DAY",
            "chr((97 + v)::INTEGER)",
            "encode(chr((97 + v)::INTEGER))",
            "('00000000-0000-0000-0000-00000000000' || v)::UUID",
            "('1' || v)::INTEGER::BIT",
            "(['zero', 'one', 'two', 'three', 'four'][(v + 1)::BIGINT])::ENUM ('zero', 'one', 'two', 'three', 'four')",
            "[v, NULL]",
            "array_value(v, 1)",
            "{'it': v, 'not': NULL}",
            "MAP {'it': v}",
            "union_value(it := v)",
        ],
        3,
    ),
)
def test_values_are_of_any_type(value: str, db: Connection) -> None:
    """The figures are those of the numbers behind the values, in the same order."""
    db.execute(f"""
        CREATE OR REPLACE TABLE src.typed AS
        SELECT i % 3 AS zip, {value} AS s, dense_rank() OVER (ORDER BY s) AS n, i % 7 AS id
        FROM (SELECT *, hash(i) % 5 AS v FROM range(50) AS r(i))
    """)
    db.execute("INSERT INTO src.typed (zip, id) SELECT i % 3, i % 7 FROM range(10) AS r(i)")
    db.execute("CREATE OR REPLACE VIEW src.part AS FROM src.typed WHERE id > 1")
    calls: list[tuple[str, dict[str, str]]] = [
        (macro, {}) for macro, needed in EVERY.items() if needed == ("sensitive",)
    ]
    for macro, more in [*calls, ("t_closeness", {"distance": "ordered"})]:
        options = more if macro in ("l_diversity", "alpha") else {"reference": "src.typed", **more}
        answer, expected = (
            db.execute(
                call_macro(macro, "src.part", ["zip"], column, catalog="lib", **options).sql("duckdb")
            ).fetchall()
            for column in ("s", "n")
        )
        assert close(answer, expected), (macro, options)
    by_value = db.execute("SELECT classes FROM lib.sqlanon.k_map('src.part', ['s'], 'src.typed')").fetchall()
    assert by_value == db.execute("SELECT count(*) FROM (SELECT DISTINCT s FROM src.part)").fetchall()


@pytest.mark.slow
def test_released_text_is_compared_with_a_source_of_an_enum(db: Connection) -> None:
    table_of(db, ["mild", "severe"], ["mild"], type_="ENUM ('severe', 'mild', 'none')")
    db.execute("CREATE OR REPLACE VIEW src.released AS SELECT zip, s::VARCHAR AS s FROM src.x")
    for macro in ("t_closeness", "delta_disclosure", "beta_likeness"):
        query = call_macro(macro, "src.released", ["zip"], "s", catalog="lib", reference="src.x").sql("duckdb")
        assert close(db.execute(query).fetchall(), of_x(db, macro))


def test_the_ground_values_of_a_hierarchy_may_be_of_another_type(db: Connection) -> None:
    table_of(db, [1, 2], [3, 4], type_="INTEGER")
    db.execute("""
        CREATE OR REPLACE TABLE src.h AS
        SELECT i::HUGEINT AS level_0, i > 2 AS level_1, '*' AS level_2 FROM range(9) AS r(i)
    """)
    assert close(of_x(db, "t_closeness", distance="hierarchical", hierarchy="src.h"), [(0.5, 2)])
    db.execute("CREATE OR REPLACE VIEW src.flat AS SELECT level_0 FROM src.h")
    assert close(of_x(db, "t_closeness", distance="hierarchical", hierarchy="src.flat"), of_x(db, "t_closeness"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "setting",
    ["integer_division = true", "default_order = 'DESC'", "default_null_order = 'NULLS_LAST_ON_ASC_FIRST_ON_DESC'"],
)
def test_settings_of_the_client_change_no_figure(setting: str, db: Connection) -> None:
    rows = some_rows(random.Random(setting), 20)
    fill(db, "t", rows)
    fill(db, "source", rows * 2)
    fill(db, "population", rows[::2])
    arguments = {"sensitive": "s", "person": "id", "population": "src.population", "reference": "src.source"}
    name = setting.split(maxsplit=1)[0]

    def figures() -> list[Any]:
        ordered = single_row(db, "t_closeness", QUASI, "s", distance="ordered")
        return [macro_rows(db, macro, "src.t", QUASI, **arguments) for macro in EVERY] + [ordered]

    before = figures()
    db.execute(f"SET {setting}")
    try:
        assert figures() == before
    finally:
        db.execute(f"RESET {name}")


@pytest.mark.slow
def test_the_macros_can_be_views_and_relations_can_be_views(tables: Any, db: Connection) -> None:
    db.execute("CREATE OR REPLACE TEMP VIEW released AS FROM src.t")
    for name, query in {
        "far": "lib.sqlanon.t_closeness('released', ['zip'], 's', reference := 'src.main.source')",
        "diverse": "lib.sqlanon.l_diversity_classes('temp.main.released', ['zip'], 's', l := 3, person := 'id')",
        "mapped": "lib.sqlanon.k_map('released', ['zip'], 'src.population')",
    }.items():
        db.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS FROM {query}")
        assert db.execute(f"FROM {name} ORDER BY ALL").fetchall() == db.execute(f"FROM {query} ORDER BY ALL").fetchall()


@pytest.mark.thorough
def test_a_table_may_be_called_as_a_part_of_a_macro(db: Connection) -> None:
    """Relations are looked up among a macro's own parts too."""
    table_of(db, ["a1", "c1"], ["a1"])
    for name in ("seen", "counts", "shares", "source", "figures", "population", "c", "s", "r", "p", "rel"):
        db.execute(f'CREATE OR REPLACE TEMP VIEW "{name}" AS FROM src.x')
        query = f"lib.sqlanon.t_closeness('{name}', ['zip'], 's', reference := '{name}')"
        assert db.execute(f"FROM {query}").fetchall() == of_x(db, "t_closeness")
        rows = db.execute(f"FROM lib.sqlanon.delta_presence('{name}', ['zip'], '{name}')").fetchall()
        db.execute(f'DROP VIEW temp."{name}"')
        assert rows == [(1.0, 1.0, 2)]


@pytest.mark.thorough
def test_a_file_keeps_the_words_of_a_macro(db: Connection) -> None:
    """`verify` compares those of a release with those that are loaded: some things are spelled otherwise in a file."""
    with duckdb.connect() as connection:
        for file in FILES:
            connection.execute(file.read_text(encoding="utf-8"))
        query = (
            "SELECT function_name, parameters, macro_definition FROM duckdb_functions() WHERE schema_name = 'sqlanon'"
        )
        ours = words(connection, query)
    assert {name for name, _, _ in ours} >= EVERY.keys() | TWINS.keys()
    assert words(db, f"{query} AND database_name = 'lib'") == ours


def words(connection: Connection, query: str) -> list[tuple[str, list[str], str]]:
    """Macros, with the types of casts in one spelling."""
    rows = connection.execute(query).fetchall()
    return sorted((name, parameters, PARSED_TYPE.sub("", text)) for name, parameters, text in rows)


def test_twins_share_their_words() -> None:
    """Parts that two macros need are repeated: in an attached file, no macro can call another."""
    bodies = {}
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        for name, body in re.findall(
            r"MACRO sqlanon\.(\w+)\(.*?\) AS TABLE \((.*?)^\);", text, re.DOTALL | re.MULTILINE
        ):
            bodies[name] = dict(re.findall(r'("sqlanon [\w ]+") AS \((.*?)\n    \)', body, re.DOTALL))
    assert bodies.keys() >= EVERY.keys() | TWINS.keys()
    words_by_part = defaultdict(set)
    for parts in bodies.values():
        for part, words in parts.items():
            words_by_part[part].add(words)
    several = {part for part, words in words_by_part.items() if len(words) > 1}
    assert several <= {'"sqlanon values"', '"sqlanon figures"'}  # of persons and of values; of each requirement
    for twin in TWINS:
        name = twin.removesuffix("_classes")
        if name in bodies:
            assert bodies[twin] == bodies[name]
