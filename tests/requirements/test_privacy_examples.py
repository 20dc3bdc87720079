"""The literature's own examples of privacy requirements, through the public API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from oracles import oracle_distances as distances
from oracles.oracle import Hierarchy
from oracles.oracle_distances import shares
from support.databases import connect_to, insert, live_connection, without_tables
from support.lanes import some

S: dict[str, Any] = {"attribute": "s"}
SUPPRESS = {"role": "quasi", "hierarchy": "suppress"}
X_AND_S: dict[str, Any] = {"x": SUPPRESS, "s": {"role": "sensitive"}}


def create(connection: duckdb.DuckDBPyConnection, table: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
    """A table of ``name type, ...``."""
    connection.execute(f"CREATE TABLE {table} ({columns})")
    insert(connection, table, rows)


def file_of(connection: duckdb.DuckDBPyConnection, name: str, lines: str) -> dict[str, str]:
    """A hierarchy from lines ``leaf;...;root``, as a table."""
    paths = [line.split(";") for line in lines.split()]
    create(connection, name, ", ".join(f"level_{i} VARCHAR" for i in range(len(paths[0]))), paths)
    return {"table": name}


@contextmanager
def search_with_limits(
    connection: duckdb.DuckDBPyConnection, attributes: Mapping[str, Any], privacy: Mapping[str, Any], **sections: Any
) -> Iterator[Any]:
    """The result for the table ``t``; other sections as in TOML."""
    source = {"table": "t", "undeclared": "drop", **sections.pop("source", {})}
    with connect_to(connection) as db:
        yield db.anonymize(sqlanon.Policy(source=source, attributes=attributes, privacy=privacy, **sections))


def passes(
    connection: duckdb.DuckDBPyConnection,
    attributes: Mapping[str, Any],
    privacy: Mapping[str, Any],
    levels: Mapping[str, int] | None = None,
    **sections: Any,
) -> bool:
    """Whether a generalization is feasible; without ``levels``, the table as it stands."""
    fixed: dict[str, Any] = {}
    for name, spec in attributes.items():
        level = (levels or {}).get(name, 0)
        fixed[name] = {**spec, "min_level": level, "max_level": level} if spec["role"] == "quasi" else spec
    try:
        with search_with_limits(connection, fixed, privacy, **sections) as result:
            assert result.nodes == 1
    except sqlanon.InfeasibleError:
        return False
    return True


@pytest.fixture(scope="module")
def live() -> Iterator[duckdb.DuckDBPyConnection]:
    with live_connection() as connection:
        yield connection


@pytest.fixture
def connection(live: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    with without_tables(live):
        yield live


def classes(connection: duckdb.DuckDBPyConnection, *values: Iterable[Any], type_: str = "VARCHAR") -> None:
    """The table ``t``: ``x`` is the class, and ``s`` has these values."""
    rows = [(f"class {i}", value) for i, some in enumerate(values) for value in some]
    create(connection, "t", f"x VARCHAR, s {type_}", rows)


# --- Sweeney: k-anonymity: a model for protecting privacy (2002) -------------------------------------


@pytest.mark.slow
def test_figure_2_of_sweeney(connection: duckdb.DuckDBPyConnection) -> None:
    """2-anonymous over race, birth, gender and ZIP: t1 and t2, t3 and t4, t5 and t6, t7 to t9, t10 and t11 agree."""
    rows = [
        *[("black", "1965", "m", "0214*")] * 2,
        *[("black", "1965", "f", "0213*")] * 2,
        *[("black", "1964", "f", "0213*")] * 2,
        *[("white", "1964", "m", "0213*")] * 3,
        *[("white", "1967", "m", "0213*")] * 2,
    ]
    create(connection, "t", "race VARCHAR, birth VARCHAR, gender VARCHAR, zip VARCHAR", rows)
    attributes = dict.fromkeys(("race", "birth", "gender", "zip"), SUPPRESS)
    assert passes(connection, attributes, {"k": 2})
    assert not passes(connection, attributes, {"k": 3})


# --- Li, Li, Venkatasubramanian: t-closeness (2007) --------------------------------------------------

INCOME_1 = ((3, 4, 5), (6, 8, 11), (7, 9, 10))
INCOME_2 = ((3, 5, 9), (6, 8, 11), (4, 7, 10))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "ninths", "t"), some([(INCOME_1, (27, 12, 17), 0.375), (INCOME_2, (12, 12, 6), 0.16666666666666666)], 2)
)
def test_income_table_matches_the_published_distances(
    connection: duckdb.DuckDBPyConnection, table: Sequence[Sequence[int]], ninths: Sequence[int], t: float
) -> None:
    whole = shares(Counter(value for some in table for value in some))
    values = [distances.ordered_distance(shares(Counter(some)), whole) for some in table]
    assert values == [Fraction(n, 72) for n in ninths]
    classes(connection, *table, type_="INTEGER")
    for closeness, expected in ((t, True), (t - 1e-9, False)):
        privacy = {"t_closeness": [{**S, "distance": "ordered", "t": closeness}]}
        assert passes(connection, X_AND_S, privacy) is expected
    # Each class whose distance is above a limit is suppressed, and no other.
    with search_with_limits(
        connection,
        {**X_AND_S, "x": {**SUPPRESS, "max_level": 0}},
        {"t_closeness": [{**S, "distance": "ordered", "t": 13 / 72}]},
        search={"suppression_limit": 0.99},
    ) as result:
        assert result.suppressed_rows == 3 * sum(n > 13 for n in ninths)


DISEASES = """
    flu;infection;respiratory;*        pneumonia;infection;respiratory;*    bronchitis;infection;respiratory;*
    edema;vascular;respiratory;*       embolism;vascular;respiratory;*      ulcer;stomach;digestive;*
    gastritis;stomach;digestive;*      cancer;stomach;digestive;*           colitis;colon;digestive;*
"""
DISEASES_1 = (
    ("ulcer", "gastritis", "cancer"),
    ("gastritis", "flu", "bronchitis"),
    ("bronchitis", "pneumonia", "cancer"),
)
DISEASES_2 = (
    ("ulcer", "cancer", "pneumonia"),
    ("gastritis", "flu", "bronchitis"),
    ("gastritis", "bronchitis", "cancer"),
)


@pytest.mark.thorough
def test_similar_diseases_are_diverse_and_not_close(connection: duckdb.DuckDBPyConnection) -> None:
    """Tables 4 and 5, with a tree like figure 1: three stomach diseases are 3-diverse, and reveal the ill organ."""
    attributes = {"x": SUPPRESS, "s": {"role": "sensitive", "hierarchy": file_of(connection, "diseases", DISEASES)}}
    classes(connection, *DISEASES_1)
    for kind in ("distinct", "entropy"):
        assert passes(connection, attributes, {"l_diversity": [{**S, "kind": kind, "l": 3}]})

    def close(t: float) -> bool:
        return passes(connection, attributes, {"t_closeness": [{**S, "distance": "hierarchical", "t": t}]})

    # 5 in 9 of the table are digestive: the class of three such has 4 in 9 too many.
    assert close(4 / 9)
    assert not close(4 / 9 - 1e-9)
    connection.execute("DROP TABLE t")
    classes(connection, *DISEASES_2)
    # The second class: 1 in 9 moves among stomach diseases, 1 in 9 among infections (1/3 each), 2 in 9 across (1).
    assert close(8 / 27)
    assert not close(8 / 27 - 1e-9)


@pytest.mark.slow
def test_skewed_class_is_diverse_and_not_close(connection: duckdb.DuckDBPyConnection) -> None:
    """One in a hundred of the table is positive, and every second of one class: 2-diverse, and not close."""
    classes(connection, ["negative", "positive"] * 50, ["negative"] * 9850 + ["positive"] * 50)
    assert passes(connection, X_AND_S, {"l_diversity": [{**S, "kind": "distinct", "l": 2}]})
    with search_with_limits(
        connection,
        {**X_AND_S, "x": {**SUPPRESS, "max_level": 0}},
        {"l_diversity": [{**S, "kind": "entropy", "l": 2}]},
        search={"suppression_limit": 0.99},
    ) as result:
        assert (result.classes, result.smallest_class) == (1, 100), "the skewed class is the diverse one"
    for t, expected in ((0.49, True), (0.4899, False)):
        privacy = {"t_closeness": [{**S, "distance": "equal", "t": t}]}
        assert passes(connection, X_AND_S, privacy) is expected


# A million rows, one binary quasi-identifier. In the smaller class, and in the greater one the other way round, 41,040
# rows are b1 in place of a1 (as far as can be), and as many in place of b2 (half as far).
MILLION = {
    0: {"a1": 212_040, "a2": 171_000, "b1": 88_920, "b2": 212_040},
    1: {"a1": 39_960, "a2": 81_000, "b1": 163_080, "b2": 39_960},
}
AB = "a1;a;* a2;a;* b1;b;* b2;b;*"


@pytest.mark.thorough
def test_hierarchical_closeness_of_a_million_rows_does_not_overflow(connection: duckdb.DuckDBPyConnection) -> None:
    """Products of counts this large overflow 32 bits: a class that must be refused would pass."""
    tree = Hierarchy({path[0]: tuple(path) for path in (line.split(";") for line in AB.split())})
    whole = Counter[str]()
    for counts in MILLION.values():
        whole.update(counts)
    values = [distances.hierarchical_distance(shares(c), shares(whole), tree) for c in MILLION.values()]
    assert values == [Fraction(9, 100), Fraction(19, 100)]
    create(
        connection, "counts", "x TINYINT, s VARCHAR, n BIGINT", [(x, *c) for x in MILLION for c in MILLION[x].items()]
    )
    connection.execute("CREATE TABLE t AS SELECT x, s FROM (SELECT x, s, unnest(range(n)) FROM counts)")
    assert connection.sql("SELECT count(*) FROM t").fetchall() == [(sum(whole.values()),)]
    assert sum(whole.values()) > 1_000_000
    attributes = {"x": SUPPRESS, "s": {"role": "sensitive", "hierarchy": file_of(connection, "ab", AB)}}

    def at(t: float, limit: float = 0) -> tuple[int, int]:
        privacy = {"t_closeness": [{**S, "distance": "hierarchical", "t": t}]}
        with search_with_limits(connection, attributes, privacy, search={"suppression_limit": limit}) as result:
            return result.generalization["x"], result.suppressed_rows

    assert at(0.05) == (1, 0)
    assert at(0.189999) == (1, 0)
    assert at(0.19) == (0, 0)
    assert at(0.09, 0.5) == (0, sum(MILLION[1].values()))
    assert at(0.05, 0.5) == (1, 0)


# --- Machanavajjhala, Kifer, Gehrke, Venkitasubramaniam: l-diversity (2007) --------------------------

INPATIENTS = [
    ("13053", "28", "heart"), ("13068", "29", "heart"), ("13068", "21", "viral"), ("13053", "23", "viral"),
    ("14853", "50", "cancer"), ("14853", "55", "heart"), ("14850", "47", "viral"), ("14850", "49", "viral"),
    ("13053", "31", "cancer"), ("13053", "37", "cancer"), ("13068", "36", "cancer"), ("13068", "35", "cancer"),
]  # fmt: skip
AGES = """
    21;<30;≤40;*  23;<30;≤40;*  28;<30;≤40;*  29;<30;≤40;*  31;3*;≤40;*  35;3*;≤40;*  36;3*;≤40;*  37;3*;≤40;*
    47;≥40;>40;*  49;≥40;>40;*  50;≥40;>40;*  55;≥40;>40;*
"""
FIGURE_2, FIGURE_3 = {"zip": 2, "age": 1}, {"zip": 1, "age": 2}


@pytest.fixture
def inpatients(connection: duckdb.DuckDBPyConnection) -> tuple[duckdb.DuckDBPyConnection, dict[str, Any]]:
    create(connection, "t", "zip VARCHAR, age VARCHAR, s VARCHAR", INPATIENTS)
    return connection, {
        "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
        "age": {"role": "quasi", "hierarchy": file_of(connection, "ages", AGES)},
        "s": {"role": "sensitive"},
    }


Inpatients = tuple[duckdb.DuckDBPyConnection, dict[str, Any]]


@pytest.mark.thorough
def test_homogeneous_class_is_k_anonymous_and_not_diverse(inpatients: Inpatients) -> None:
    """Figure 2: 4-anonymous, and all four of their thirties have cancer."""
    assert passes(*inpatients, {"k": 4}, FIGURE_2)
    assert not passes(*inpatients, {"k": 5}, FIGURE_2)
    for kind in ({"kind": "distinct"}, {"kind": "entropy"}, {"kind": "recursive", "c": 1000}):
        assert passes(*inpatients, {"l_diversity": [{**S, **kind, "l": 1}]}, FIGURE_2)
        assert not passes(*inpatients, {"k": 4, "l_diversity": [{**S, **kind, "l": 2}]}, FIGURE_2)
        allowed = {"suppression_limit": 0.34}
        # The four of them are a third of the table; 2 hearts and 2 virals, and 1, 1, 2, are diverse.
        assert passes(*inpatients, {"k": 4, "l_diversity": [{**S, **kind, "l": 2}]}, FIGURE_2, search=allowed)


@pytest.mark.slow
def test_figure_3_is_3_diverse(inpatients: Inpatients) -> None:
    """Figure 3: every class has one value twice and two once."""
    assert passes(*inpatients, {"l_diversity": [{**S, "kind": "distinct", "l": 3}]}, FIGURE_3)
    assert not passes(*inpatients, {"l_diversity": [{**S, "kind": "distinct", "l": 4}]}, FIGURE_3)
    # The entropy is 1.5 bits: 2^1.5 = 2.828.
    assert passes(*inpatients, {"l_diversity": [{**S, "kind": "entropy", "l": 2.82}]}, FIGURE_3)
    assert not passes(*inpatients, {"l_diversity": [{**S, "kind": "entropy", "l": 2.83}]}, FIGURE_3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("c", "least", "expected"),
    some([(1, 2, False), (1.01, 2, True), (2, 3, False), (2.01, 3, True), (1000, 4, False), (0.001, 1, True)], 3),
)
def test_recursive_diversity_follows_definition_4_2(
    inpatients: Inpatients, c: float, least: int, expected: bool
) -> None:
    """Definition 4.2, r1 < c (r_l + ... + r_m): 2 < c (1 + 1) for l = 2, 2 < c 1 for l = 3, 2 < 0 for l = 4."""
    diverse = {"l_diversity": [{**S, "kind": "recursive", "c": c, "l": least}]}
    assert passes(*inpatients, diverse, FIGURE_3) is expected


@pytest.mark.slow
def test_the_recursive_border_is_exact(connection: duckdb.DuckDBPyConnection) -> None:
    """55 < 2.2 × 25 does not hold exactly, but does in binary floating point."""
    assert 55 < 2.2 * 25
    classes(connection, ["flu"] * 55 + ["cold"] * 25)
    assert not passes(connection, X_AND_S, {"l_diversity": [{**S, "kind": "recursive", "c": 2.2, "l": 2}]})
    assert passes(connection, X_AND_S, {"l_diversity": [{**S, "kind": "recursive", "c": 2.21, "l": 2}]})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("least", "times"), some([(least, times) for least in (2, 3, 5, 6, 7, 10, 11, 49) for times in (1, 7)], 4)
)
def test_exactly_l_equally_frequent_values_are_entropy_l_diverse(
    connection: duckdb.DuckDBPyConnection, least: int, times: int
) -> None:
    classes(connection, [f"v{i}" for i in range(least)] * times, range(1000))
    assert passes(connection, X_AND_S, {"l_diversity": [{**S, "kind": "entropy", "l": least}]})
    assert not passes(connection, X_AND_S, {"l_diversity": [{**S, "kind": "entropy", "l": least + 0.001}]})


@pytest.mark.slow
def test_joint_diversity_needs_more_than_diversity_of_each_attribute(connection: duckdb.DuckDBPyConnection) -> None:
    """Section 4.3: each is diverse by itself; who knows one of them knows the other."""
    rows = [("x", s, v) for s, v in (("flu", "aspirin"), ("flu", "aspirin"), ("cancer", "chemo"), ("cancer", "chemo"))]
    create(connection, "t", "x VARCHAR, s VARCHAR, v VARCHAR", rows)
    attributes = {**X_AND_S, "v": {"role": "sensitive"}}
    specs = [{"attribute": name, "kind": "distinct", "l": 2} for name in ("s", "v")]
    assert passes(connection, attributes, {"l_diversity": specs})
    for spec in specs:
        assert not passes(connection, attributes, {"l_diversity": [{**spec, "joint": True}]})
    connection.execute("UPDATE t SET v = 'aspirin'")
    assert passes(connection, attributes, {"l_diversity": [{**specs[0], "joint": True}]})
    assert not passes(connection, attributes, {"l_diversity": [{**specs[1], "joint": True}]})


@pytest.mark.slow
def test_each_attribute_of_a_line_has_its_figures(connection: duckdb.DuckDBPyConnection) -> None:
    """The diagnoses of the second class are 2-diverse, and its drugs are not: each attribute has its own figures."""
    rows = [("a", "flu", "aspirin"), ("a", "flu", "ibuprofen"), ("a", "cold", "aspirin")]
    rows += [("b", "flu", "aspirin"), ("b", "cold", "aspirin")]
    create(connection, "t", "x VARCHAR, diagnosis VARCHAR, drug VARCHAR", rows)
    attributes = {"x": SUPPRESS, "diagnosis": {"role": "sensitive"}, "drug": {"role": "sensitive"}}
    privacy = {"l_diversity": {"attributes": ["diagnosis", "drug"], "kind": "distinct", "l": 2}}
    policy = sqlanon.Policy(source={"table": "t"}, attributes=attributes, privacy=privacy)
    with connect_to(connection) as db:
        requirements = [
            (requirement.requirement, requirement.classes, requirement.rows)
            for requirement in db.risk(policy).requirements
        ]
    assert requirements == [("distinct 2-diversity of diagnosis", 0, 0), ("distinct 2-diversity of drug", 1, 2)]


# --- Sweeney: k-map, null-map, wrong-map (2001) ------------------------------------------------------


@pytest.mark.thorough
def test_k_map_counts_the_population(connection: duckdb.DuckDBPyConnection) -> None:
    """Everybody is alone in the table, and one of two in the town."""
    people = [("02138", "ann"), ("02138", "bob"), ("02139", "cid"), ("02139", "dan"), ("02141", "eve")]
    create(connection, "people", "ZIP VARCHAR, name VARCHAR", people)
    create(connection, "t", "zip VARCHAR, who VARCHAR", [("02138", "ann"), ("02139", "cid")])
    attributes = {"zip": {"role": "quasi", "hierarchy": {"mask": "right"}}}
    population = {"population": {"table": "people"}}
    assert not passes(connection, attributes, {"k": 2})
    assert passes(connection, attributes, {"k_map": 2}, **population)
    assert not passes(connection, attributes, {"k_map": 3}, **population)
    assert passes(connection, attributes, {"k_map": 4}, {"zip": 1}, **population)
    assert not passes(connection, attributes, {"k_map": 5}, {"zip": 1}, **population), "02141 is not of 0213*"
    assert passes(connection, attributes, {"k_map": 5}, {"zip": 2}, **population)
    connection.execute("INSERT INTO people VALUES ('02138', 'ann'), ('02139', 'cid')")
    assert passes(connection, attributes, {"k_map": 3}, **population), "rows"
    assert not passes(connection, attributes, {"k_map": 3}, population={"table": "people", "person": "name"}), "persons"


@pytest.mark.slow
def test_a_class_that_only_the_population_has_is_none(connection: duckdb.DuckDBPyConnection) -> None:
    """The table has rows with each of its two values, but none with both."""
    people = [(zip_, sex) for zip_, sex in (("1", "f"), ("2", "m"), ("1", "m")) for _ in range(3)]
    create(connection, "people", "zip VARCHAR, sex VARCHAR", people)
    create(connection, "t", "zip VARCHAR, sex VARCHAR", [("1", "f"), ("2", "m"), ("2", "m")])
    attributes = {"zip": {**SUPPRESS, "max_level": 0}, "sex": {**SUPPRESS, "max_level": 0}}
    with search_with_limits(connection, attributes, {"k_map": 3}, population={"table": "people"}) as result:
        assert (result.classes, result.smallest_class, result.suppressed_rows) == (2, 1, 0)


def test_null_map_and_wrong_map(connection: duckdb.DuckDBPyConnection) -> None:
    """dan is nowhere; eve's row matches bob's only; ann and bob are where they should be."""
    create(connection, "people", "zip VARCHAR, name VARCHAR", [("1", "ann"), ("2", "bob"), ("3", "eve"), ("1", "eve")])
    rows = [("1", "ann"), ("2", "bob"), ("9", "dan"), ("2", "eve")]
    create(connection, "t", "zip VARCHAR, who VARCHAR", rows)
    with search_with_limits(
        connection,
        {"zip": {**SUPPRESS, "max_level": 0}},
        {"k": 1, "delta_presence": {"max": 2}},
        source={"person": "who"},
        population={"table": "people", "person": "name"},
        search={"suppression_limit": 0.25},
    ) as result:
        assert result.suppressed_rows == 1, "dan's: δ-presence keeps only persons of the population"
        assert (result.null_map, result.wrong_map) == (0, 1)
        assert result.to_dict().keys() >= {"null_map", "wrong_map"}
    with search_with_limits(connection, {"zip": SUPPRESS}, {"k": 1}) as result:
        assert not {"null_map", "wrong_map"} & result.to_dict().keys()


@pytest.mark.slow
def test_a_limit_on_the_null_map_is_met_exactly(connection: duckdb.DuckDBPyConnection) -> None:
    """One of five rows has a zip that does not occur in town; one level up, somebody has one like it."""
    create(connection, "people", "zip VARCHAR", [("02138",), ("02139",), ("02142",)])
    create(connection, "t", "zip VARCHAR", [("02138",), ("02138",), ("02138",), ("02139",), ("02141",)])
    attributes = {"zip": {"role": "quasi", "hierarchy": {"mask": "right"}}}
    population = {"population": {"table": "people"}}
    assert passes(connection, attributes, {"null_map": {"max": 0.2}}, **population)
    assert not passes(connection, attributes, {"null_map": {"max": 0.19}}, **population)
    assert not passes(connection, attributes, {"null_map": {"max": 0}}, **population)
    assert passes(connection, attributes, {"null_map": {"max": 0}}, {"zip": 1}, **population)
    requirements = {"k": 2, "null_map": {"max": 0}}
    assert not passes(connection, attributes, requirements, search={"suppression_limit": 0.39}, **population)
    assert passes(connection, attributes, requirements, search={"suppression_limit": 0.4}, **population), (
        "1 of 3 is left"
    )


PEOPLE = [("02138", "ann"), ("02139", "bob"), ("02131", "eve"), ("02142", "dan"), ("02142", None)]
PATIENTS = [("02138", "ann"), ("02139", "bob"), ("02139", "eve"), ("02135", "dan"), ("02142", None)]
"""eve's row matches bob alone; one level up herself, and dan's others; above, all but the one without an id."""


def patients_and_people(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    create(connection, "people", "zip VARCHAR, name VARCHAR", PEOPLE)
    create(connection, "t", "zip VARCHAR, who VARCHAR", PATIENTS)
    return {"source": {"person": "who"}, "population": {"table": "people", "person": "name"}}


@pytest.mark.slow
def test_a_limit_on_the_wrong_map_raises_the_level(connection: duckdb.DuckDBPyConnection) -> None:
    sections = patients_and_people(connection)
    attributes = {"zip": {"role": "quasi", "hierarchy": {"mask": "right"}}}
    with search_with_limits(connection, attributes, {"wrong_map": {"max": 0.2}}, **sections) as result:
        assert (result.generalization, result.wrong_map) == ({"zip": 2}, 1)


@pytest.mark.slow
def test_the_audit_counts_the_wrong_map_at_each_level(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit counts independently of the search."""
    sections = patients_and_people(connection)
    attributes = {"zip": {"role": "quasi", "hierarchy": {"mask": "right"}}}
    for level, share in enumerate((0.4, 0.4, 0.2, 0.2)):
        at = {"zip": level}
        assert passes(connection, attributes, {"wrong_map": {"max": share}}, at, **sections)
        assert not passes(connection, attributes, {"wrong_map": {"max": share - 0.01}}, at, **sections)
    for most in (0.25, 0.24):  # dan's of the four that are left
        requirements, limit = {"k": 2, "wrong_map": {"max": most}}, {"suppression_limit": 0.2}
        assert passes(connection, attributes, requirements, {"zip": 1}, search=limit, **sections) is (most == 0.25)
    monkeypatch.setattr("sqlanon.requirements.wrong_map.WrongMap.figure", lambda self, kept_classes: 0.0)
    with (
        search_with_limits(connection, attributes, {"wrong_map": {"max": 0.39}}, **sections) as result,
        pytest.raises(sqlanon.AuditError, match="2 of 5 rows match only other people in the population"),
    ):
        result.publish(tmp_path / "release.duckdb")


@pytest.mark.slow
def test_unknown_values_match_at_the_top(connection: duckdb.DuckDBPyConnection) -> None:
    """In the population, ann has a ZIP code that is in no hierarchy: it matches every row at the top, none below."""
    create(connection, "people", "zip VARCHAR, who VARCHAR", [("?", "ann"), ("02139", "bob")])
    create(connection, "t", "zip VARCHAR, who VARCHAR", [("02138", "ann"), ("02139", "bob"), ("?", "cid")])
    tree = file_of(connection, "zips", "02138;0213*;* 02139;0213*;*")
    attributes = {"zip": {"role": "quasi", "hierarchy": tree, "on_unknown": "suppress"}}
    sections = {
        "source": {"person": "who"},
        "population": {"table": "people", "person": "who"},
        "search": {"suppression_limit": 0.34},
    }
    with search_with_limits(connection, attributes, {"k_map": 2}, **sections) as result:
        assert (result.generalization, result.suppressed_rows) == ({"zip": 2}, 1)
        assert (result.null_map, result.wrong_map) == (0, 0)
    with search_with_limits(connection, attributes, {"k": 2, "k_map": 1}, **sections) as result:
        assert (result.generalization, result.suppressed_rows) == ({"zip": 1}, 1)
        assert (result.null_map, result.wrong_map) == (0, 1)


# --- Nergiz, Atzori, Clifton: δ-presence (2007) ------------------------------------------------------

PUBLIC = [
    ("47906", "USA", False), ("47903", "Canada", True), ("47906", "USA", True), ("47630", "Brazil", False),
    ("47630", "Brazil", False), ("47633", "Peru", True), ("48973", "Spain", False), ("48972", "Bulgaria", True),
    ("48970", "France", True),
]  # fmt: skip
COUNTRIES = """
    USA;America;*  Canada;America;*  Brazil;America;*  Peru;America;*  Spain;Europe;*  Bulgaria;Europe;* France;Europe;*
"""


@pytest.mark.slow
def test_delta_presence_bounds_population_shares(connection: duckdb.DuckDBPyConnection) -> None:
    """Three of six Americans and two of three Europeans are in the private table: (1/2, 2/3)-present."""
    create(connection, "people", "zip VARCHAR, country VARCHAR", [row[:2] for row in PUBLIC])
    create(connection, "t", "zip VARCHAR, country VARCHAR", [row[:2] for row in PUBLIC if row[2]])
    attributes = {
        "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
        "country": {"role": "quasi", "hierarchy": file_of(connection, "countries", COUNTRIES)},
    }
    continents = {"zip": 3, "country": 1}
    people = {"population": {"table": "people"}}

    def present(least: float, most: float, levels: Mapping[str, int] | None = None, limit: float = 0) -> bool:
        privacy = {"delta_presence": {"min": least, "max": most}}
        return passes(connection, attributes, privacy, levels, search={"suppression_limit": limit}, **people)

    assert present(1 / 2, 2 / 3, continents)
    assert not present(0.51, 2 / 3, continents)
    assert not present(1 / 2, 0.66, continents)
    assert not present(0, 0.99), "Canada's only one is there for sure"
    assert present(0, 1)
    assert not present(0.001, 1), "Spain's is certainly not there"
    assert present(0, 0.6, continents, limit=0.4), "the Europeans are suppressed"
    assert not present(0.001, 0.6, continents, limit=0.4), "and then they are certainly not there"


# --- persons, not rows ------------------------------------------------------------------------------


@pytest.mark.slow
def test_five_rows_of_one_patient_are_one_person(connection: duckdb.DuckDBPyConnection) -> None:
    rows = [("a", "ann", "flu")] * 5 + [("b", f"p{i}", "flu" if i else "cold") for i in range(5)]
    create(connection, "t", "x VARCHAR, who VARCHAR, s VARCHAR", rows)
    persons = {"source": {"person": "who"}}
    assert passes(connection, X_AND_S, {"k": 5})
    assert not passes(connection, X_AND_S, {"k": 2}, **persons)
    assert passes(connection, X_AND_S, {"k": 6}, {"x": 1}, **persons)
    assert not passes(connection, X_AND_S, {"k": 7}, {"x": 1}, **persons)
    with search_with_limits(
        connection,
        {**X_AND_S, "x": {**SUPPRESS, "max_level": 0}},
        {"k": 5},
        search={"suppression_limit": 0.5},
        **persons,
    ) as result:
        assert (result.suppressed_rows, result.classes) == (5, 1), "rows are suppressed, whoever's they are"
        assert "who" not in result.sql()


@pytest.mark.slow
def test_distributions_are_of_persons_and_values(connection: duckdb.DuckDBPyConnection) -> None:
    """ann has flu in five rows; bob a cold in one."""
    rows = [("a", "ann", "flu")] * 5 + [("a", "bob", "cold")]
    create(connection, "t", "x VARCHAR, who VARCHAR, s VARCHAR", rows)
    entropy = {"l_diversity": [{**S, "kind": "entropy", "l": 2}]}
    assert not passes(connection, X_AND_S, entropy)
    assert passes(connection, X_AND_S, entropy, source={"person": "who"})
    connection.execute("UPDATE t SET who = NULL")
    assert passes(connection, X_AND_S, entropy, source={"person": "who"}), "the person NULL has flu and a cold"
    assert not passes(connection, X_AND_S, {"k": 2}, source={"person": "who"}), "NULL is one person"


# --- others -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_delta_disclosure_bounds_log_ratios(connection: duckdb.DuckDBPyConnection) -> None:
    """flu is a third of the table and half of a class: ln(3/2) = 0.405; cold ln(3/4) = -0.288, b: ln(1/2), ln(5/4)."""
    classes(connection, ["flu", "cold"] * 3, ["flu"] + ["cold"] * 5)
    for delta, expected in ((0.694, True), (0.693, False)):
        assert passes(connection, X_AND_S, {"delta_disclosure": [{**S, "delta": delta}]}) is expected
    connection.execute("UPDATE t SET s = 'cold' WHERE x = 'class 1'")
    assert not passes(connection, X_AND_S, {"delta_disclosure": [{**S, "delta": 100}]}), "a value is missing"


@pytest.mark.slow
def test_beta_likeness_bounds_relative_gain(connection: duckdb.DuckDBPyConnection) -> None:
    """rare: 1 in 10 of the table, 1 in 4 of a class: gain 1.5, under -ln 0.1 = 2.3.
    usual: 9 in 10 of the table, all of the other: gain 0.111, above -ln 0.9 = 0.105."""
    classes(connection, ["rare", "usual", "usual", "usual"] * 2, ["usual"] * 12)
    for kind, beta, expected in (
        ("basic", 1.5, True),
        ("basic", 1.49, False),
        ("enhanced", 1.5, False),
        (None, 1.5, False),
    ):
        spec = {**S, "beta": beta} | ({} if kind is None else {"kind": kind})
        assert passes(connection, X_AND_S, {"beta_likeness": [spec]}) is expected, spec


@pytest.mark.slow
def test_alpha_k_bounds_the_share_of_a_value(connection: duckdb.DuckDBPyConnection) -> None:
    classes(connection, ["flu", "cold", "flu", None], [None, None, None, "flu", "cold"])
    for alpha, expected in ((0.6, True), (0.59, False)):
        assert passes(connection, X_AND_S, {"alpha_k": [{**S, "alpha": alpha}]}) is expected
    assert not passes(connection, X_AND_S, {"k": 5, "alpha_k": [{**S, "alpha": 0.6}]})


@pytest.mark.slow
def test_null_comes_first_in_order(connection: duckdb.DuckDBPyConnection) -> None:
    """NULL, 2020, 2021: all NULLs are as far from the mean as all of 2021; dates have their own order."""
    days = [None, "2020-12-31", "2021-01-01"]
    classes(connection, [None] * 3, days, days, type_="DATE")
    # The table: 5, 2, 2 of 9. The first class: 4/9 too much, carried over one place, 2/9 over the other: 6/9 / 2.
    for t, expected in ((1 / 3, True), (1 / 3 - 1e-6, False)):
        assert passes(connection, X_AND_S, {"t_closeness": [{**S, "distance": "ordered", "t": t}]}) is expected


@pytest.mark.slow
def test_conditions_on_the_kept_table(connection: duckdb.DuckDBPyConnection) -> None:
    classes(connection, *(["v"] * n for n in (5, 3, 1, 1)))
    for privacy, expected in (
        ({"average_risk": 0.4}, True),
        ({"average_risk": 0.39}, False),
        ({"sample_uniqueness": 0.2}, True),
        ({"sample_uniqueness": 0.19}, False),
        ({"k": 2, "sample_uniqueness": 0}, False),  # with nothing suppressed k says no
    ):
        assert passes(connection, X_AND_S, privacy) is expected, privacy
    allowed = {"suppression_limit": 0.2}
    assert passes(connection, X_AND_S, {"k": 2, "average_risk": 0.25, "sample_uniqueness": 0}, search=allowed)
    assert not passes(connection, X_AND_S, {"average_risk": 0.25}, search=allowed), "they suppress nothing themselves"


# --- shields ----------------------------------------------------------------------------------------

XYZ = dict.fromkeys("xyz", SUPPRESS)


@pytest.mark.slow
def test_shields_hold_together_after_suppression(connection: duckdb.DuckDBPyConnection) -> None:
    """Suppression for one shield makes classes of the other too small: only classes that meet both stay."""
    rows = [("a", "a", i) for i in range(4)] + [("a", "b", 1), ("a", "b", 2), ("c", "b", 3)]
    create(connection, "t", "x VARCHAR, y VARCHAR, z INTEGER", rows)
    shields = [{"quasi": ["x"], "k": 2}, {"quasi": ["y"], "k": 3}]

    def suppressed_rows(*some: Mapping[str, Any]) -> int:
        attributes = {name: {**SUPPRESS, "max_level": 0} for name in XYZ}
        limit = {"suppression_limit": 0.9}
        with search_with_limits(connection, attributes, {"k_anonymity": list(some)}, search=limit) as result:
            return result.suppressed_rows

    assert suppressed_rows(shields[0]) == 1, "c"
    assert suppressed_rows(shields[1]) == 0
    assert suppressed_rows(*shields) == 3, "c, and then the two of b that are left"
    assert passes(connection, XYZ, {"k_anonymity": shields}, {"x": 1})


@pytest.mark.slow
def test_shields_may_suppress_every_row(connection: duckdb.DuckDBPyConnection) -> None:
    """The 8 rows in the middle have 10 neighbours for each shield, until both ends are suppressed for the other."""
    create(connection, "t", "x VARCHAR, y VARCHAR", [("a", "b")] * 2 + [("c", "b")] * 8 + [("c", "d")] * 2)
    privacy = {"k": 2, "k_anonymity": [{"quasi": ["x"], "k": 10}, {"quasi": ["y"], "k": 10}]}
    attributes = {name: {**SUPPRESS, "weight": weight} for name, weight in (("x", 2), ("y", 1))}
    with search_with_limits(connection, attributes, privacy, search={"suppression_limit": 0.4}) as result:
        assert (result.generalization, result.suppressed_rows) == ({"x": 0, "y": 1}, 2)


@pytest.mark.thorough
def test_void_shields_are_named(connection: duckdb.DuckDBPyConnection) -> None:
    create(connection, "t", "x VARCHAR, y VARCHAR, z INTEGER", [("a", "a", 1)] * 9)
    shields = [
        {"quasi": ["x"], "k": 3},
        {"quasi": ["x", "y"], "k": 7},
        {"quasi": ["y"], "k": 8},
        {"quasi": ["x"], "k": 6},
    ]
    with search_with_limits(connection, XYZ, {"k": 5, "k_anonymity": shields}) as result:
        void = [warning for warning in result.warnings if "void" in warning]
    assert len(void) == 2, result.warnings  # x 3 by k; x 6 by (x, y) 7
    with search_with_limits(connection, XYZ, {"k_anonymity": shields[1:3]}) as result:
        assert not any("void" in warning for warning in result.warnings)


@pytest.mark.thorough
def test_the_binding_requirement_is_named(connection: duckdb.DuckDBPyConnection) -> None:
    """Without diversity all rows could stay; without k as many would go."""
    classes(connection, ["flu"] * 4, ["flu"] * 3, ["flu", "cold", "gout"])
    privacy = {"k": 3, "l_diversity": [{**S, "kind": "distinct", "l": 4}]}
    with (
        pytest.raises(sqlanon.InfeasibleError, match=r"distinct 4-diversity of s") as caught,
        search_with_limits(connection, X_AND_S, privacy),
    ):
        pass
    assert "3-anonymity" not in str(caught.value).partition("binding")[2]
