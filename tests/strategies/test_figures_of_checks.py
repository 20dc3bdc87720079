"""The figures of every generalization of a small table are those of the oracle, by every path that counts them.

The paths are one check at a time, several in one statement, and those for large tables: codes in columns of their own
or in packs, and half of the classes first.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from oracles import oracle
from oracles.oracle import Hierarchy, Levels, Row
from oracles.oracle_distances import exact
from oracles.oracle_privacy import OF_VALUES, Record, Release, Source
from oracles.score_bounds import at_most
from properties.prepared_tables import Prepared, prepared_table
from properties.privacy_cases import PrivacyCase
from properties.small_tables import ROW, SmallTable, number_rows
from sqlanon.frequency.sets import FrequencySets
from sqlanon.measures import Figures
from sqlanon.strategies.lattice.candidate import visible_classes_query
from sqlanon.strategies.lattice.checker import Checker, policy_measure
from sqlanon.strategies.lattice.persons import fewest_persons_query
from sqlanon.strategies.lattice.population_match import match_population
from sqlanon.strategies.lattice.vectors import distinct_values
from support.thresholds import COARSE_SET, ROWS_PER_CODE, SMALL_SET

X = Hierarchy({"a": ("a", "ab", "*"), "b": ("b", "ab", "*"), "c": ("c", "cd", "*"), "d": ("d", "cd", "*")})
Y = Hierarchy({"p": ("p", "*"), "q": ("q", "*")})
ILL = Hierarchy({"flu": ("flu", "mild", "*"), "cold": ("cold", "mild", "*"), "cancer": ("cancer", "bad", "*")})
DIVERSE = {"attribute": "ill", "kind": "entropy", "l": 1.5}
JOINT = {"attribute": "job", "kind": "distinct", "l": 2, "joint": True}
CLOSE = {"attribute": "ill", "distance": "hierarchical", "t": 0.3}
ORDERED = {"attribute": "ill", "distance": "ordered", "t": 0.2}


def drawn(seed: int, persons: bool = False, population: bool = False, unknown: bool = False) -> Source:
    """18 rows of few combinations and, with ``persons``, of eight persons. Some rows, and some of the population, have
    an unknown value; the population lacks some rows and all with b, and has combinations of its own."""
    rng = random.Random(seed)
    places = ["a", "a", "a", "b", "b", "c", *(["?", None] if unknown else [])]
    rows: list[Record] = [
        {
            "x": rng.choice(places), "y": rng.choice("ppq"), "ill": rng.choice(["flu", "flu", "cold", "cancer"]),
            "job": rng.choice(["cook", "judge", None]), **({"who": f"p{rng.randrange(8)}"} if persons else {}),
        }
        for _ in range(18)
    ]  # fmt: skip
    people = [{**row, **({"who": "other"} if persons and rng.random() < 0.3 else {})} for row in rows * 2]
    people = [record for record in people if rng.random() < 0.6 and record["x"] != "b"]
    people += [{**people[0], "x": x, "y": y} for x in "cd?" for y in "pq"]
    names = ("x", "y", *(["who"] if persons else []))
    population_rows = [{name: record[name] for name in names} for record in people] if population else None
    who = "who" if persons else None
    return Source(rows, {"x": X, "y": Y}, {"ill": ILL, "job": None}, who, population_rows, who if population else None)


def case(source: Source, limit: str, measure: str, **privacy: Any) -> SmallTable:
    return number_rows(PrivacyCase(source, privacy, limit, measure))


def visits(*places: str) -> list[Record]:
    """The rows of persons, each given by the values of its rows."""
    return [{"x": value, "who": f"p{i}"} for i, values in enumerate(places) for value in values.split()]


# At level 0, (a, p) needs the rows of (a, q) for its first shield, and these violate the second: no class is left.
CASCADE = Source(
    [{"x": x, "y": y} for x, y in ["ap"] * 5 + ["aq"] * 2 + ["bp"]],
    {"x": Hierarchy({"a": ("a", "*"), "b": ("b", "*")}), "y": Y},
)
# Two persons may lose rows; those with the most have six. At level 0, six persons lose one row each; at level 1, the
# three whose row has an unknown value.
LAST_ROW = Source(
    visits("a a a", "a a b", "a a c", "a a d", *["a a"] * 6, "?", "?", "?"),
    {"x": Hierarchy({value: (value, "bcd" if value in "bcd" else value, "*") for value in "abcd"})},
    person="who",
)
# Two persons have both the rows (a, p) and the rows (a, q): in a they are two, not four.
TWICE = Source(
    [
        {"x": x, "y": y, "who": who}
        for x, y, people in [("a", "p", "01"), ("a", "q", "01"), ("c", "p", "234")]
        for who in people
    ],
    {"x": X, "y": Y},
    person="who",
)
SHIELDS = [{"quasi": ["x"], "k": 6}, {"quasi": ["y"], "k": 3}]
PRESENCE = {"delta_presence": {"min": 0.2, "max": 1}, "l_diversity": [DIVERSE]}
PERSONS = {"k": 2, "wrong_map": {"max": 0.3}, "null_map": {"max": 0.3}, "t_closeness": [{**CLOSE, "t": 0.2}]}
REMOTE_PERSONS = {"k": 2, "t_closeness": [CLOSE], "l_diversity": [JOINT]}
VALUES = {"t_closeness": [CLOSE, ORDERED], "l_diversity": [DIVERSE, JOINT], "average_risk": 0.5}

CASES = {
    "presence": case(drawn(1, population=True), "0.5", "entropy", **PRESENCE),
    "spread": case(drawn(13, population=True, unknown=True), "0.5", "distinct", delta_presence={"max": 1}),
    "k-map": replace(
        case(drawn(6, population=True, unknown=True), "0.5", "loss", k=2, k_map=3), forbidden=((), ("q",))
    ),
    "persons": case(drawn(12, persons=True, population=True, unknown=True), "0.5", "loss", **PERSONS),
    "shields": case(CASCADE, "0.5", "discernibility", k=2, k_anonymity=SHIELDS),
    "values": replace(case(drawn(10, unknown=True), "0.5", "loss", **VALUES), forbidden=(("cd",), ("q",))),
    "last row": case(LAST_ROW, "0.16", "loss", k=2),
    # Too many rows are suppressed at the lowest levels for their persons to be counted.
    "few persons": case(drawn(12, persons=True), "0.3", "loss", k=3),
    "shields of persons": case(TWICE, "0.5", "loss", k=2, k_anonymity=[{"quasi": ["x"], "k": 3}]),
}
REMOTE = {
    "remote persons": case(drawn(12, persons=True, unknown=True), "0.3", "loss", **REMOTE_PERSONS),
}
MASKED = ("remote persons", "k-map", "shields", "last row")

MANY_ROWS = {SMALL_SET: 5, COARSE_SET: 0, "sqlanon.frequency.sets.FIRST_SET_SHARE": 10**9, ROWS_PER_CODE: 10**9}
PACKS = {**MANY_ROWS, ROWS_PER_CODE: 1}
LARGE = {
    "k": (case(drawn(5), "0.1", "loss", k=4), MANY_ROWS),
    "shields": (CASES["shields"], MANY_ROWS),
    "values": (replace(CASES["values"], forbidden=((), ())), PACKS),
}


@pytest.mark.cases(8)
@pytest.mark.least(5)
@pytest.mark.parametrize("name", [*CASES, *REMOTE])
def test_figures_of_every_generalization_match_the_oracle(name: str) -> None:
    table = (CASES | REMOTE)[name]
    sections = {"release": {"suppressed": "mask"}} if name in MASKED else {}
    with prepared_table(table, remembers=False, sections=sections, remote_persons=name in REMOTE) as prepared:
        figures = {levels: prepared.check(levels) for levels in table.generalizations}
        for levels, release in table.generalizations.items():
            check_figures(prepared, table, levels, figures[levels])
            check_match(prepared, release)
            check_visible_classes(prepared, release)
            if name in MASKED:
                check_masked_rows(prepared, table, levels, figures[levels])
        together = checker_of(prepared).check_together([*figures])
        assert [replace(some, suppressed_leaves={}) for some in together] == [
            replace(some, suppressed_leaves={}) for some in [*figures.values()][: len(together)]
        ]
        counts = [
            tuple(
                len({tree.label(row[name], level) for row in table.source.rows if tree.knows(row[name])})
                for level in range(tree.height + 1)
            )
            for name, tree in table.source.quasi.items()
        ]
        assert distinct_values(prepared.search_input) == counts
        # Local strategies begin at levels with labels that the policy forbids.
        lowest = (0,) * len(table.source.quasi)
        release = Release(table.source, lowest, table.case.privacy)
        assert prepared.check(lowest).suppressed_rows == release.suppressed


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", LARGE)
def test_the_figures_of_a_large_table(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, thresholds = LARGE[name]
    for constant, value in thresholds.items():
        monkeypatch.setattr(constant, value)
    with prepared_table(table, remembers=False) as prepared:
        halved = {levels: checker_of(prepared, halves=True)(levels) for levels in table.generalizations}
        for levels, figures in halved.items():
            check_figures(prepared, table, levels, checker_of(prepared)(levels))
            if figures.counted_share == 1:
                check_figures(prepared, table, levels, figures)
            else:
                suppressed = table.generalizations[levels].suppressed
                assert prepared.search_input.limit.rows < figures.suppressed_rows <= suppressed
        check_sets_above_a_floor(prepared, table)


def checker_of(prepared: Prepared, halves: bool = False) -> Checker:
    """A checker that counts every class, or half of them first."""
    search_input = prepared.search_input
    measure = policy_measure(search_input)
    return Checker(
        prepared.runner.engine, search_input, measure, (lambda _: math.inf) if halves else None, lambda: halves
    )


def check_figures(prepared: Prepared, table: SmallTable, levels: Levels, figures: Figures) -> None:
    release, privacy, limit = table.generalizations[levels], table.case.privacy, prepared.search_input.limit
    assert (figures.classes, figures.suppressed_rows) == (len(release.kept), release.suppressed), levels
    if "average_risk" in privacy or "null_map" in privacy:
        assert (figures.kept_count, figures.single_classes) == (sum(release.counts), release.counts.count(1)), levels
    if "null_map" in privacy:
        assert figures.unmatched_rows == release.null_map
    if privacy.get("delta_presence", {}).get("min"):
        least = exact(privacy["delta_presence"]["min"])
        missing = [labels for labels in release.population if labels not in release.kept]
        too_few = [labels for labels in release.population if share_of(release, labels) < least]
        assert (figures.uncovered_classes, figures.uncoverable_classes) == (len(missing), len(too_few)), levels
    if table.source.person is not None:
        persons = release.suppressed_persons if release.suppressed <= limit.rows else None
        assert figures.suppressed_persons == persons, levels
    if figures.least_suppressed is not None:
        lower = [
            lower_release.suppressed for low, lower_release in table.generalizations.items() if at_most(low, levels)
        ]
        assert figures.least_suppressed <= min(lower) + 1e-6, levels
    if figures.classes and limit.allows(figures.suppressed_rows, figures.suppressed_persons):
        sign = -1 if table.case.measure in oracle.MAXIMISED else 1
        score = policy_measure(prepared.search_input).score(levels, figures)
        assert math.isclose(sign * score, table.score(levels), rel_tol=1e-9, abs_tol=1e-12), levels


def share_of(release: Release, labels: Row) -> Any:
    """The share of a class of the population that is in the source."""
    records = release.classes.get(labels, [])
    return exact(release.source.count(records)) / release.population[labels]


def check_match(prepared: Prepared, release: Release) -> None:
    if release.source.population is not None:
        match = match_population(prepared.runner.engine, prepared.search_input, release.levels)
        assert match is not None
        assert match.null_map == release.null_map, release.levels
        assert match.wrong_map == (release.wrong_map if release.source.person else None), release.levels


def check_visible_classes(prepared: Prepared, release: Release) -> None:
    """The kept classes by the first attribute alone."""
    space, engine = prepared.search_input.frequency_sets.class_space(release.levels), prepared.runner.engine
    visible: dict[Any, list[Record]] = {}
    for labels, records in release.kept_records.items():
        visible.setdefault(labels[0], []).extend(records)
    sizes = [len(records) for records in visible.values()]
    assert engine.rows(visible_classes_query(space, release.levels, 1)) == [(len(sizes), min(sizes, default=0))]
    if release.source.person is not None and not space.moving_elsewhere:  # a server's persons have no earlier releases
        fewest = min(map(release.source.count, visible.values()), default=0)
        assert engine.rows(fewest_persons_query(space, release.levels, 1)) == [(fewest,)]


def check_sets_above_a_floor(prepared: Prepared, table: SmallTable) -> None:
    """Sets above a floor also serve levels below it: strategies check levels that the policy forbids."""
    sets = prepared.search_input.frequency_sets
    top = tuple(tree.height for tree in table.source.quasi.values())
    high = FrequencySets(sets.runner, lambda name: sets.work(f"above {name}"), sets.ground, sets.space, top)
    search_input = replace(prepared.search_input, frequency_sets=high)
    figures = Checker(prepared.runner.engine, search_input, policy_measure(search_input))((0,) * len(top))
    check_figures(prepared, table, (0,) * len(top), figures)


def check_masked_rows(prepared: Prepared, table: SmallTable, levels: Levels, figures: Figures) -> None:
    """Suppressed rows are masked if the policy permits their class: to readers they have equal values. At the top they
    are in the class of all rows."""
    source, privacy, kept = table.source, table.case.privacy, table.generalizations[levels].kept_records
    numbers = {record[ROW] for records in kept.values() for record in records}
    masked = [record for record in source.rows if record[ROW] not in numbers]
    is_top = levels == tuple(tree.height for tree in source.quasi.values())
    least = max([privacy.get("k", 1), *(shield["k"] for shield in privacy.get("k_anonymity", ()))])
    release = Release(source, (), {**{name: privacy[name] for name in OF_VALUES if name in privacy}, "k": least})
    release.__dict__["classes"] = {(): source.rows if is_top else masked}
    expected = len(masked) if masked and release.meets(()) else 0
    assert prepared.recode(levels, figures).masked_rows == expected, levels
