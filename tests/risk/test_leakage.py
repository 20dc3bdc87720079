"""Leakage with priors, of values at each level, and of sets of any size: against counts in plain Python."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import sqlanon
from oracles import oracle_risk as oracle
from sqlanon.cli.printing import print_leakage
from sqlanon.errors import HierarchyError, PolicyError
from sqlanon.risk import leakage, leakage_search
from sqlanon.risk.leakage import SetFigures
from support.commands import cli
from support.databases import connect_to, connection_of, insert, live_connection
from support.lanes import SEARCHING, examples

NAMES = ('my "c0"', "n", "weight", "share")
"""Quasi-identifiers with names of our own columns."""

FEW = settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
RICH = settings(FEW, phases=[*FEW.phases] if SEARCHING else [Phase.explicit])
MANY = settings(max_examples=examples(200), deadline=None)
VALUES = st.sampled_from([None, "", "a", "b", "c"])
ROWS_OF_PERSONS = [("a", 0, "b", 0), ("a", 0, "", 0), (None, 1, "b", 0), ("", 2, None, 1), ("b", 2, "a", 1),
                   ("c", 3, "a", 2), ("c", 0, "a", 2), ("c", 3, "b", 2)]  # fmt: skip
"""The last column numbers persons, who have rows with several values, and several rows with one."""
ROWS = st.lists(st.tuples(VALUES, st.integers(0, 3), VALUES, st.integers(0, 2)), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def live() -> Iterator[duckdb.DuckDBPyConnection]:
    with live_connection() as connection:
        yield connection


def fill(live: duckdb.DuckDBPyConnection, rows: Sequence[tuple[Any, ...]]) -> None:
    columns = '"my ""c0""" VARCHAR, n INTEGER, weight VARCHAR, share INTEGER'
    live.execute(f"CREATE OR REPLACE TABLE t ({columns})")
    insert(live, "t", rows)


def policy(
    priors: Mapping[str, str | Path] | None = None, hierarchy: Any = "suppress", **sections: Any
) -> sqlanon.Policy:
    """A policy with priors as tables, or from files."""
    attributes = {name: {"role": "quasi", "hierarchy": "suppress"} for name in NAMES}
    attributes["n"] = {"role": "quasi", "hierarchy": hierarchy}
    attributes |= sections.pop("attributes", {})
    prior_files = {
        name: {"file" if isinstance(place, Path) else "table": place} for name, place in (priors or {}).items()
    }
    return sqlanon.Policy(
        attributes=attributes,
        privacy={"k": 2},
        risk={"priors": prior_files} if prior_files else {},
        **{"source": {"table": "t"}, **sections},
    )


def tell(live: duckdb.DuckDBPyConnection, name: str, type_: str, shares: Any) -> None:
    live.execute(f"CREATE OR REPLACE TABLE {name} (value {type_}, share DOUBLE)")
    insert(live, name, list(shares))


# --- sets of any size -------------------------------------------------------------------------------


class PlainSets:
    """Counts sets of places in plain Python; after some of the larger ones the time is over.

    With ``persons``, the last place has the person of the row.
    """

    def __init__(
        self, rows: list[tuple[Any, ...]], sets_per_statement: int = 1, most: float = math.inf, persons: bool = False
    ) -> None:
        self.rows, self.sets_per_statement, self.most, self.small = rows, sets_per_statement, most, 0
        self.figures: dict[tuple[int, ...], SetFigures] = {}
        self.quasi = len(rows[0]) - persons
        self.person = self.quasi if persons else None
        self.gains_add_up = not persons
        self.whole = math.log2(len({row[-1] for row in rows}) if persons else len(rows))

    def count_up_to(self, most: int) -> None:
        wanted = [part for length in range(1, most + 1) for part in combinations(range(self.quasi), length)]
        self.small = len(wanted)
        self.count(wanted)

    def count(self, wanted: Sequence[tuple[int, ...]]) -> None:
        for combination in wanted:
            if len(self.figures) >= self.small + self.most:
                raise leakage_search.OvertimeError(1)
            sizes = [size for size, _ in oracle.sizes_of(self.rows, combination, self.person)]
            self.figures[combination] = SetFigures(combination, len(sizes), sizes.count(1), self.gain(combination))

    def gain(self, places: Sequence[int]) -> float:
        if self.person is None:
            return oracle.leakage(self.rows, places)
        return oracle.leakage_of_persons(self.rows, places, self.person)


SMALL_VALUES = st.integers(0, 2)
TABLES = st.integers(2, 5).flatmap(lambda n: st.lists(st.tuples(*[SMALL_VALUES] * n), min_size=1, max_size=9))


@MANY
@given(rows=TABLES, most=st.integers(1, 3), sets_per_statement=st.integers(1, 3), persons=st.booleans())
def test_sets_of_any_size_are_all_known_in_the_end(
    rows: list[Any], most: int, sets_per_statement: int, persons: bool
) -> None:
    """Every omitted set contains a set that makes as many classes as all attributes, and leaks as much."""
    sets = PlainSets(rows, sets_per_statement, persons=persons)
    quasi = sets.quasi
    ranked, search = leakage_search.search_leakage(sets, quasi, most, 60, [])
    every = oracle.leakages(rows, quasi, quasi, sets.person)
    counted_sets = {leak.attributes for leak in ranked}
    whole = tuple(range(quasi))
    assert (search.complete, search.stopped, search.proven) == (True, None, len(counted_sets))
    assert (search.sets, search.measured) == (len(every), len(counted_sets))
    classes = len(oracle.classes_of(rows, whole))
    complete = [set(leak.attributes) for leak in ranked if leak.classes == classes]
    for combination in every.keys() - counted_sets:
        assert any(part <= set(combination) for part in complete)
        assert every[combination] == pytest.approx(every[whole], abs=1e-9)
    for combination in every:  # what the bounds say
        assert persons or every[combination] <= sum(every[(i,)] for i in combination) + 1e-9
        assert all(
            every[part] <= every[combination] + 1e-9
            for n in range(1, len(combination))
            for part in combinations(combination, n)
        )


@pytest.mark.slow
@MANY
@given(rows=TABLES, most=st.integers(1, 2), sets_per_statement=st.integers(1, 3), time=st.integers(0, 31))
def test_bounds_hold_when_the_time_is_over(rows: list[Any], most: int, sets_per_statement: int, time: int) -> None:
    sets, quasi = PlainSets(rows, sets_per_statement, time), len(rows[0])
    ranked, search = leakage_search.search_leakage(sets, quasi, most, 60, [])
    every = oracle.leakages(rows, quasi, quasi)
    classes = len(oracle.classes_of(rows, range(quasi)))
    complete = [set(combination) for combination, figures in sets.figures.items() if figures.classes == classes]
    uncounted = (
        combination
        for combination in every
        if combination not in sets.figures and not any(part <= set(combination) for part in complete)
    )
    gains = [every[combination] for combination in uncounted]
    first = leakage.rank_leakage(ranked, [str(i) for i in range(quasi)], 1.0)[: search.proven]
    assert sets.small <= search.measured == len(ranked) <= sets.small + time
    assert search.stopped == (None if search.complete else "time limit")
    if first:
        assert first[-1].gain >= max(gains, default=0.0) - 1e-8


def test_sets_come_best_first() -> None:
    """Two of the four attributes leak almost nothing: sets without them come last."""
    rows = [(i % 4, i // 4, i == 0, i == 1) for i in range(16)]
    sets = PlainSets(rows)
    leakage_search.search_leakage(sets, 4, 1, 60, [])
    measured_sets = [combination for combination in sets.figures if len(combination) > 1]
    assert measured_sets == [
        (0, 1, 2, 3),
        (0, 1, 2),
        (0, 1),
        (0, 2, 3),
        (1, 2, 3),
        (0, 2),
        (0, 3),
        (1, 2),
        (1, 3),
        (2, 3),
    ]


@pytest.mark.slow
@FEW
@given(rows=ROWS, small=st.sampled_from([0, 200_000]), data=st.data())
def test_sets_of_any_size_of_random_tables(
    rows: list[tuple[Any, ...]], small: int, data: st.DataObject, live: duckdb.DuckDBPyConnection
) -> None:
    fill(live, rows)
    drawn = data.draw(st.booleans())
    prior_shares = {"n": dict.fromkeys(range(4), 0.25)} if drawn else {}
    if drawn:
        tell(live, "shares", "INTEGER", prior_shares["n"].items())
    chances = oracle.fit_to_priors(rows, {1: prior_shares["n"]} if drawn else {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leakage, "SMALL", small)
        with connect_to(live) as db:
            risk = db.risk(policy({"n": "shares"} if drawn else {}), leakage=1, leakage_seconds=60)
    assert risk.leakage_search.complete
    for leak in risk.leakage:
        places = [NAMES.index(name) for name in leak.attributes]
        assert leak.gain == pytest.approx(oracle.expected_gain(rows, places, chances), abs=1e-9)
        groups = [len(group) for group in oracle.classes_of(rows, places).values()]
        assert (leak.classes, leak.uniques) == (len(groups), groups.count(1))


@pytest.mark.thorough
def test_sets_are_counted_in_persons(live: duckdb.DuckDBPyConnection) -> None:
    """Persons have several rows in some classes, and rows in several classes."""
    draw = random.Random(7)
    rows = [(draw.choice(["a", "b", None]), draw.randrange(3), draw.choice("xyz"), i % 11) for i in range(40)]
    fill(live, rows)
    attributes = {name: {"role": "quasi", "hierarchy": "suppress"} for name in NAMES[:3]}
    source = {"table": "t", "undeclared": "drop", "person": "share"}
    with connect_to(live) as db:
        risk = db.risk(sqlanon.Policy(source=source, attributes=attributes, privacy={"k": 2}), leakage=3)
    gains = oracle.leakages(rows, 3, person=3)
    assert len(risk.leakage) == len(gains) == 7
    for leak in risk.leakage:
        places = tuple(NAMES.index(name) for name in leak.attributes)
        assert leak.gain == pytest.approx(gains[places], abs=1e-9)
        persons = [size for size, _ in oracle.sizes_of(rows, places, person=3)]
        assert (leak.classes, leak.uniques) == (len(persons), persons.count(1))


@pytest.mark.slow
def test_a_leakage_search_stops_at_the_time_limit(
    live: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(live, [(str(i % 3), i % 4, str(i % 5), i % 2) for i in range(20)])
    monkeypatch.setattr(leakage_search, "_Search", type("Late", (leakage_search._Search,), {"descend": late}))
    with connect_to(live) as db:
        risk = db.risk(policy(), leakage=1, leakage_seconds=60)
        search = risk.leakage_search
    assert search.to_dict() == {"sets": 15, "measured": 5, "complete": False, "proven": 1, "stopped": "time limit"}
    print_leakage(risk.leakage, search, "rows")
    out = capsys.readouterr().out
    assert "Leakage measured for 5 of 15 sets of attributes before the time limit.\nThe first row is the set" in out


def late(search: leakage_search._Search, most: int) -> None:
    search.sets.count([search._all])
    search._open[search._all] = search.sets.figures[search._all].gain


# --- priors -----------------------------------------------------------------------------------------


def test_a_prior_of_sixty_persons(live: duckdb.DuckDBPyConnection) -> None:
    """27 women and 33 men; half of all people are women: the sex leaks one bit of H(½, ½) + ½ log2 27 + ½ log2 33."""
    fill(live, [("a" if i < 27 else None, 0, "", 0) for i in range(60)])
    tell(live, "shares", "VARCHAR", [("a", 0.5), (None, 0.5)])
    with connect_to(live) as db:
        requested_policy = policy({NAMES[0]: "shares"})
        (leak, *_) = db.risk(requested_policy, leakage=1).leakage
        by_value = db.value_leakage(requested_policy, NAMES[0])
    whole = 1 + math.log2(27) / 2 + math.log2(33) / 2
    assert (leak.gain, leak.normalized) == (pytest.approx(1), pytest.approx(1 / whole))
    assert by_value.bits == pytest.approx(whole)
    assert [round(value.gain, 9) for value in by_value.levels[0].most_leaking] == [1, 1]


@pytest.mark.thorough
@FEW
@given(rows=ROWS, data=st.data())
def test_leakage_with_priors_matches_the_oracle_on_random_tables(
    rows: list[tuple[Any, ...]], data: st.DataObject, live: duckdb.DuckDBPyConnection
) -> None:
    """One prior, or two that some probabilities of the rows have."""
    fill(live, rows)
    wanted = data.draw(st.lists(st.integers(1, 5), min_size=len(rows), max_size=len(rows)))
    places = data.draw(st.sampled_from([[0], [1], [0, 1], [1, 0]]))
    shares: dict[int, dict[Any, float]] = {}
    for place in places:
        keys = {row[place] for row in rows}
        shares[place] = {
            key: sum(n for row, n in zip(rows, wanted, strict=True) if row[place] == key) / sum(wanted) for key in keys
        }
        tell(live, f"shares_{place}", "VARCHAR", [(None if k is None else str(k), v) for k, v in shares[place].items()])
    chances = oracle.fit_to_priors(rows, shares)
    with connect_to(live) as db:
        risk = db.risk(policy({NAMES[place]: f"shares_{place}" for place in places}), leakage=4)
    assert len(risk.leakage) == 15
    whole = oracle.entropy(chances)
    for leak in risk.leakage:
        gain = oracle.expected_gain(rows, [NAMES.index(name) for name in leak.attributes], chances)
        assert leak.gain == pytest.approx(gain, abs=1e-7)
        assert leak.normalized == pytest.approx(gain / whole if whole > 1e-9 else 0.0, abs=1e-6)


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("lines", "messages"),
    [
        ("1;0.5\n2;0.4\n", ["add up to 0.9, and must add up to 1"]),
        ("1;0.5\n3;0.5\n", ["without a share in", ": '2'"]),
        (
            "1;1.5\n2;-0.5\nx;half\n",
            ["not of type INTEGER: 'x'", "not numbers of 0 or more (a file has no header), of: '2', 'x'"],
        ),
        ("1;0.5\n2;0.25\n2;0.25\n", ["listed more than once: '2'"]),
        ("1;1\n2;1e-300\n", ["shares below 1e-12, which must be 0 or more than that, of: '2'"]),
        ("1;0.5;a\n2;0.5;b\n", ["has 3 columns: it needs two"]),
        ("1;0\n2;0\n7;1\n", ["no value of the column has a share of more than 0"]),
        (None, ["does not exist"]),
    ],
)
def test_invalid_priors_are_refused(
    lines: str | None, messages: list[str], live: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    fill(live, [("a", 1, "", 0), ("a", 2, "", 0)])
    if lines is not None:
        (tmp_path / "n.csv").write_text(lines)
    tell(live, "half", "VARCHAR", [("a", 0.5)])
    with connect_to(live) as db, pytest.raises(PolicyError) as raised:
        db.risk(policy({"n": tmp_path / "n.csv", NAMES[0]: "half"}))
    message = str(raised.value)
    assert all(phrase in message for phrase in [*messages, "add up to 0.5"])


def test_priors_are_of_quasi_identifiers() -> None:
    """An attribute that is wrong itself is reported once."""
    attributes = {"sex": {"role": "quasi", "hierarchy": "sufress"}, "ill": {"role": "sensitive"}}
    attributes["zip"] = {"role": "quasi", "hierarchy": "suppress"}
    wrong_priors = {name: {"table": "shares"} for name in ("sex", "ill", "zipp")}
    with pytest.raises(PolicyError) as raised:
        sqlanon.Policy(source={"table": "t"}, attributes=attributes, privacy={"k": 2}, risk={"priors": wrong_priors})
    first, *further = [f"{problem.place} {problem.message}" for problem in raised.value.problems]
    assert first.startswith("attributes.sex.hierarchy ")
    assert further == [
        "risk.priors.ill 'ill' is sensitive, and priors are for quasi-identifiers",
        "risk.priors.zipp unknown attribute 'zipp'; did you mean 'zip'?",
    ]


def test_limits_that_are_none(live: duckdb.DuckDBPyConnection) -> None:
    with connect_to(live) as db, pytest.raises(PolicyError) as raised:
        db.risk(policy(), leakage=-1, leakage_seconds=float("nan"))
    assert [problem.place for problem in raised.value.problems] == ["leakage", "leakage_seconds"]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.9, pytest.param(0.999999999, marks=pytest.mark.slow)])
def test_contradictory_priors_are_refused(share: float, live: duckdb.DuckDBPyConnection) -> None:
    fill(live, [("a", 1, "x", 0), ("b", 2, "y", 0), ("b", 2, "x", 0)])
    tell(live, "one", "VARCHAR", [("a", share), ("b", 1 - share)])
    tell(live, "other", "INTEGER", [(1, 1 - share), (2, share)])
    tell(live, "third", "VARCHAR", [("x", (1 + share) / 2), ("y", (1 - share) / 2)])
    with connect_to(live) as db, pytest.raises(PolicyError) as raised:
        db.risk(policy({NAMES[2]: "third", NAMES[0]: "one", "n": "other"}), leakage=1)
    (problem,) = raised.value.problems
    assert problem.place == f"risk.priors.{NAMES[0]}"
    assert problem.message.startswith("cannot hold together with risk.priors.n: ")
    assert "no probabilities of the rows of the source have these shares" in problem.message


def test_priors_of_a_policy(tmp_path: Path) -> None:
    quasi = {"zip": {"role": "quasi", "hierarchy": "suppress"}, "ill": {"role": "sensitive"}}
    tree: dict[str, Any] = {"attributes": quasi, "privacy": {"k": 2}}
    shares = str(tmp_path / "zip.parquet")
    priors_by_message = {
        "give file = ... or table": {"zip": {"table": "t", "file": shares}},
        "is the file of risk.priors.zip": {"zip": {"file": shares}},
    }
    for message, prior_section in priors_by_message.items():
        with pytest.raises(PolicyError) as raised:
            sqlanon.Policy(**tree, risk={"priors": prior_section}, release={"file": shares})
        assert message in str(raised.value)
    requested_policy = sqlanon.Policy(**tree, risk={"priors": {"zip": {"file": shares}}})
    assert "zip.parquet" not in json.dumps(requested_policy.redact())
    assert (
        sqlanon.Policy(**json.loads(requested_policy.model_dump_json())).fingerprint() == requested_policy.fingerprint()
    )


# --- values at each level ---------------------------------------------------------------------------


@RICH
@given(rows=ROWS, has_prior=st.booleans())
@example(rows=ROWS_OF_PERSONS, has_prior=True)
def test_value_leakage_at_each_level_matches_the_oracle(
    rows: list[tuple[Any, ...]], has_prior: bool, live: duckdb.DuckDBPyConnection
) -> None:
    """The values are 0 to 3 in intervals of 2; 3 has the share 0, and another attribute may have a prior."""
    shares = {0: 0.5, 1: 0.25, 2: 0.25, 3: 0.0}
    has_prior = has_prior and any(row[1] < 3 for row in rows)
    fill(live, rows)
    tell(live, "shares", "INTEGER", shares.items())
    chances = oracle.fit_to_priors(rows, {1: shares} if has_prior else {})
    with connect_to(live) as db:
        by_value = db.value_leakage(policy({"n": "shares"} if has_prior else {}, {"intervals": [2]}), "N")
        relation = by_value.values.fetchall()
        if has_prior:  # whoever has the rows
            person = {"source": {"table": "t", "person": "share"}, "attributes": {"share": {"role": "identifying"}}}
            by_row = db.value_leakage(policy({"n": "shares"}, {"intervals": [2]}, **person), "n")
            assert (by_row.counts, by_row.bits) == ("rows", by_value.bits)
    assert by_value.bits == pytest.approx(oracle.entropy(chances), abs=1e-9)
    for level, label in enumerate([str, lambda n: f"{n // 2 * 2}-{n // 2 * 2 + 1}", lambda n: "*"]):
        expected = oracle.value_gains([label(row[1]) for row in rows], chances)
        figures_by_value = {value: figures for at, value, *figures in relation if at == level}
        assert figures_by_value.keys() == expected.keys()
        for value, (n, share, gain) in expected.items():
            assert figures_by_value[value] == [n, pytest.approx(share, abs=1e-9), pytest.approx(gain, abs=1e-7)]
        at_level = by_value.levels[level]
        places = [(label(row[1]),) for row in rows]
        assert (at_level.level, at_level.values) == (level, len(expected))
        assert at_level.gain == pytest.approx(oracle.expected_gain(places, [0], chances), abs=1e-7)
        assert at_level.highest == pytest.approx(
            max(gain for *_, gain in expected.values() if gain is not None), abs=1e-7
        )


@RICH
@given(rows=ROWS)
@example(rows=ROWS_OF_PERSONS)
def test_values_of_persons_at_each_level(rows: list[tuple[Any, ...]], live: duckdb.DuckDBPyConnection) -> None:
    """The last column numbers the persons: a value leaks as much as it distinguishes persons."""
    fill(live, rows)
    attributes = {"n": {"role": "quasi", "hierarchy": {"intervals": [2]}}}
    source = {"table": "t", "undeclared": "drop", "person": "share"}
    with connect_to(live) as db:
        by_value = db.value_leakage(sqlanon.Policy(source=source, attributes=attributes, privacy={"k": 2}), "n")
        relation = by_value.values.fetchall()
    persons = {row[3] for row in rows}
    assert by_value.counts == "persons"
    for level, label in enumerate([str, lambda n: f"{n // 2 * 2}-{n // 2 * 2 + 1}", lambda n: "*"]):
        labelled = [(label(row[1]), row[3]) for row in rows]
        who: dict[str, set[int]] = {}
        for value, person in labelled:
            who.setdefault(value, set()).add(person)
        figures_by_value = {value: figures for at, value, *figures in relation if at == level}
        assert figures_by_value == {
            value: [
                len(some),
                pytest.approx(len(some) / len(persons)),
                pytest.approx(math.log2(len(persons) / len(some))),
            ]
            for value, some in who.items()
        }
        assert by_value.levels[level].gain == pytest.approx(oracle.leakage_of_persons(labelled, [0], 1), abs=1e-9)


@pytest.mark.thorough
def test_missing_values_are_treated_as_null(live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    fill(live, [("a", 1, None, 0)] * 2 + [("b", 1, None, 0)])
    (file := tmp_path / "n.csv").write_text("2;*\n")
    with connect_to(live) as db:
        with pytest.raises(PolicyError, match="--values: 'nothing' is not a quasi-identifier"):
            db.value_leakage(policy(), "nothing")
        with pytest.raises(HierarchyError, match="missing from the hierarchy"):
            db.value_leakage(policy(hierarchy={"file": str(file)}), "n")
        nulls = db.value_leakage(policy(), "weight")
    assert [(level.most_leaking[0].value, level.gain) for level in nulls.levels] == [(None, 0.0), ("*", 0.0)]


@pytest.mark.slow
def test_the_statements_are_those_that_are_run(live: duckdb.DuckDBPyConnection) -> None:
    fill(live, [("a", 1, "", 0), ("b", 2, "", 0), ("b", 2, "", 1)])
    tell(live, "shares", "INTEGER", [(1, 0.5), (2, 0.5)])
    with connect_to(live) as db:
        requested_policy = policy({"n": "shares"})
        for statements, figure in (
            (db.value_leakage_sql(requested_policy, "n"), db.value_leakage(requested_policy, "n").bits),
            (db.risk_sql(requested_policy), db.risk(requested_policy).leakage[0].gain),
        ):
            answers = [connection_of(db).execute(part).fetchall() for part in statements.split(";\n\n")]
            assert figure in [value for rows in answers for row in rows for value in row]


@pytest.mark.slow
def test_leakage_command_prints_gains(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("sex,zip\n" + "F,1\n" * 27 + "M,1\n" * 32 + "M,2\n")
    (tmp_path / "sex.csv").write_text("F;0.5\nM;0.5\n")
    (tmp_path / "policy.toml").write_text("""
        source = { files = "people.csv" }
        privacy = { k = 2 }
        risk = { priors = { sex = { file = "sex.csv" } } }
        [attributes]
        sex = { role = "quasi", hierarchy = "suppress" }
        zip = { role = "quasi", hierarchy = "suppress" }
    """)
    options = ("risk", "policy.toml", "--leakage", "1", "--values", "sex")
    done = cli(*options, cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    assert "Leakage measured for 2 of 3 sets of attributes; --leakage-seconds S measures larger ones." in done.out
    assert "level 0             2              1.0   17 %  F (1.0)" in done.out
    document = json.loads(cli(*options, "--leakage-seconds", "9", "--json", cwd=tmp_path).out)
    assert document["leakage_search"] == {"sets": 3, "measured": 3, "complete": True, "proven": 3, "stopped": None}
    assert [level["values"] for level in document["values"]["levels"]] == [2, 1]
    assert document["values"]["levels"][0]["most_leaking"][0] == {"value": "F", "count": 27, "share": 0.5, "gain": 1.0}
