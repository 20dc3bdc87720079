"""The oracle of the privacy requirements itself: by hand, by brute force, and by proven optima on real tables."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import oracle, oracle_privacy
from oracles import oracle_distances as distances
from oracles.oracle import Hierarchy, Value
from oracles.oracle_distances import shares
from oracles.oracle_privacy import Release, Source
from properties import random_cases
from properties.adult_privacy import adult, privacy_of
from support.files import data_folder
from support.lanes import EXAMPLES, examples

SUPPRESS = Hierarchy({x: (x, "*") for x in "abcd"})


def rows(*lines: str) -> list[dict[str, Value]]:
    """Rows of ``x s`` or ``x s person``; ``-`` is NULL."""
    names = ("x", "s", "who")
    return [dict(zip(names, (None if word == "-" else word for word in line.split()), strict=False)) for line in lines]


def source(*lines: str, **options: Any) -> Source:
    return Source(rows(*lines), {"x": SUPPRESS}, {"s": None}, **options)


def kept_values(source: Source, privacy: dict[str, Any], level: int = 0) -> set[Value]:
    return {labels[0] for labels in Release(source, (level,), privacy).kept}


# --- distances against transport by brute force -----------------------------------------------------


def cheapest(first: list[Value], second: list[Value], ground: Any) -> Fraction:
    """The least mean distance over all ways to pair two lists of the same length."""
    pairings = (zip(first, some, strict=True) for some in itertools.permutations(second))
    return min(sum((ground(a, b) for a, b in pairs), Fraction(0)) for pairs in pairings) / len(first)


def common(tree: Hierarchy, a: Value, b: Value) -> Fraction:
    """The level of the closest common ancestor / height."""
    level = next(level for level in range(tree.height + 1) if tree.label(a, level) == tree.label(b, level))
    return Fraction(level, tree.height) if tree.height else Fraction(0)


@st.composite
def transports(draw: st.DrawFn) -> tuple[Hierarchy, list[Value], list[Value]]:
    """A tree and two lists of up to 6 of its values (NULL too), the second with all that the first has."""
    tree = draw(random_cases.hierarchies())
    value = st.sampled_from(random_cases.occurring(tree, unknown=False))
    n = draw(st.integers(1, 6))
    drawn = draw(st.lists(value, min_size=n, max_size=n))
    return tree, draw(st.lists(st.sampled_from(drawn), min_size=n, max_size=n)), drawn


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(case=transports())
def test_distances_are_the_cheapest_transport(case: tuple[Hierarchy, list[Value], list[Value]]) -> None:
    tree, class_, table = case
    p, q = shares(Counter(class_)), shares(Counter(table))
    assert distances.equal_distance(p, q) == cheapest(class_, table, lambda a, b: Fraction(a != b))
    place = {value: i for i, value in enumerate(distances.in_order(q))}
    steps = max(len(place) - 1, 1)
    assert distances.ordered_distance(p, q) == cheapest(
        class_, table, lambda a, b: Fraction(abs(place[a] - place[b]), steps)
    )
    assert distances.hierarchical_distance(p, q, tree) == cheapest(class_, table, lambda a, b: common(tree, a, b))


def test_income_table_of_li_et_al() -> None:
    """Section 4.2, with the table's nine incomes."""
    table = shares(Counter(range(3, 12)))
    for class_, ninths in (((3, 4, 5), 27), ((6, 8, 11), 12), ((7, 9, 10), 17), ((4, 7, 10), 6), ((3, 5, 9), 12)):
        assert distances.ordered_distance(shares(Counter(class_)), table) == Fraction(ninths, 72)


def test_distance_of_a_tree_by_hand() -> None:
    """Stomach and lung diseases: a step between siblings costs half of one to another branch."""
    tree = Hierarchy({"ulcer": ("ulcer", "s", "*"), "gastritis": ("gastritis", "s", "*"), "flu": ("flu", "l", "*")})
    table = shares({"ulcer": 1, "gastritis": 1, "flu": 2})
    assert distances.hierarchical_distance(shares({"ulcer": 1}), table, tree) == Fraction(1, 4) * Fraction(
        1, 2
    ) + Fraction(1, 2)
    assert distances.hierarchical_distance(shares({"flu": 1}), table, tree) == Fraction(1, 2)


# --- one requirement after the other, by hand -------------------------------------------------------


def test_diversity_of_a_class() -> None:
    three_of_one = Counter("aaab")
    assert distances.entropy(three_of_one) == pytest.approx(2 * math.log(2) - 0.75 * math.log(3))
    assert distances.is_entropy_diverse(three_of_one, 1.75)  # e^entropy is 4 / 3^0.75 = 1.7548
    assert not distances.is_entropy_diverse(three_of_one, 1.76)
    for l in range(1, 30):  # noqa: E741  # its name in the paper
        assert distances.is_entropy_diverse(Counter(range(l)), l), "exactly l equally frequent values"
        assert not distances.is_entropy_diverse(Counter(range(l)), l + 1)


@pytest.mark.parametrize(
    ("counts", "c", "least", "expected"),
    [
        ((5, 3, 2), 2, 2, True),  # 5 < 2 (3 + 2)
        ((5, 3, 2), 1, 2, False),  # 5 < 5: strict
        ((5, 3, 2), 2.5, 3, False),  # 5 < 2.5 × 2
        ((5, 3, 2), 3, 3, True),
        ((5, 3, 2), 100, 4, False),  # without a fourth
        ((5,), 0.5, 1, True),  # 1-diversity always holds
        ((55, 25), 2.2, 2, False),  # 55 < 55; in binary floating point 2.2 × 25 is more
    ],
)
def test_recursive_diversity_compares_top_and_tail_counts(
    counts: tuple[int, ...], c: float, least: int, expected: bool
) -> None:
    assert distances.is_recursive_diverse(dict(enumerate(counts)), c, least) is expected


@pytest.mark.parametrize(
    ("privacy", "expected"),
    [
        # The source: flu 4, cold 2, cancer 2 of 8.
        ({"k": 3}, {"a"}),
        ({"l_diversity": [{"attribute": "s", "kind": "distinct", "l": 2}]}, {"a", "b"}),
        ({"alpha_k": [{"attribute": "s", "alpha": 0.5}]}, {"a", "b"}),
        ({"alpha_k": [{"attribute": "s", "alpha": 0.49}]}, set()),
        # a: ½, ¼, ¼: distance 0. b: ½, 0, ½: ¼. c: 1, 0, 0: ½. d: 0, 1, 0: ¾.
        ({"t_closeness": [{"attribute": "s", "distance": "equal", "t": 0}]}, {"a"}),
        ({"t_closeness": [{"attribute": "s", "distance": "equal", "t": 0.25}]}, {"a", "b"}),
        ({"t_closeness": [{"attribute": "s", "distance": "equal", "t": 0.74}]}, {"a", "b", "c"}),
        # In order cancer, cold, flu: b is ¼ too far at cancer and level after cold; c: ¼ + ½ of 2; d: ¼ + ½.
        ({"t_closeness": [{"attribute": "s", "distance": "ordered", "t": 0.125}]}, {"a", "b"}),
        ({"t_closeness": [{"attribute": "s", "distance": "ordered", "t": 0.375}]}, {"a", "b", "c", "d"}),
        # b: cold is missing.
        ({"delta_disclosure": [{"attribute": "s", "delta": 50}]}, {"a"}),
        # b: cancer (½ - ¼) / ¼ = 1; c: flu (1 - ½) / ½ = 1; d: cold 3. -ln ½ = 0.69, -ln ¼ = 1.39.
        ({"beta_likeness": [{"attribute": "s", "kind": "basic", "beta": 1}]}, {"a", "b", "c"}),
        ({"beta_likeness": [{"attribute": "s", "kind": "enhanced", "beta": 1}]}, {"a", "b"}),
        ({"beta_likeness": [{"attribute": "s", "beta": 0.9}]}, {"a"}),
    ],
)
def test_requirements_decide_which_classes_are_kept(privacy: dict[str, Any], expected: set[str]) -> None:
    table = source("a flu", "a flu", "a cold", "a cancer", "b flu", "b cancer", "c flu", "d cold")
    assert kept_values(table, privacy) == expected


def test_null_is_a_sensitive_value() -> None:
    table = source("a -", "a flu", "b -", "b -")
    assert kept_values(table, {"l_diversity": [{"attribute": "s", "kind": "distinct", "l": 2}]}) == {"a"}
    assert table.distributions == {"s": {None: Fraction(3, 4), "flu": Fraction(1, 4)}}


def test_joint_diversity_counts_pairs_of_values() -> None:
    """Each attribute is diverse in the class; who knows one of them knows the other."""
    table = Source(
        [{"x": "a", "s": s, "t": t} for s, t in ("p1", "p2", "q3")] + [{"x": "b", "s": s, "t": 1} for s in "pq"],
        {"x": SUPPRESS},
        {"s": None, "t": None},
    )
    spec = {"attribute": "s", "kind": "distinct", "l": 2}
    assert kept_values(table, {"l_diversity": [spec]}) == {"a", "b"}
    assert kept_values(table, {"l_diversity": [{**spec, "joint": True}]}) == {"b"}


def test_persons_are_counted_once() -> None:
    table = source("a flu ann", "a flu ann", "a cold ann", "a flu bob", "b flu -", "b cold -", person="who")
    assert kept_values(table, {"k": 2}) == {"a"}
    assert kept_values(table, {"k": 2}, level=1) == {"*"}
    assert table.values(table.rows[:4], "s") == {"flu": 2, "cold": 1}
    assert table.values(table.rows, "s") == {"flu": 3, "cold": 2}, "those without an id are one person"


def test_population_limits_are_checked_by_class() -> None:
    people = rows("a", "a", "b", "b", "b", "e", "-")
    table = source("a flu", "a flu", "b flu", "c flu", population=people)
    assert kept_values(table, {"k_map": 2}) == {"a", "b"}
    assert kept_values(table, {"k_map": 3}) == {"b"}
    assert kept_values(table, {"k_map": 7}, level=1) == {"*"}, (
        "NULL, and what the hierarchy misses, join the others there"
    )
    assert kept_values(table, {"delta_presence": {"max": 0.5}}) == {"b"}
    assert kept_values(table, {"delta_presence": {"min": 0.5, "max": 1}}) == {"a"}
    assert Release(table, (0,), {"k": 1}).null_map == 1
    low = {"delta_presence": {"min": 0.1, "max": 1}}
    assert not oracle_privacy.satisfies(Release(table, (0,), low), "1"), "two of the population's classes are missing"
    assert oracle_privacy.satisfies(Release(table, (1,), low), "0")


def test_wrong_map_needs_a_class_that_matches_others_only() -> None:
    people = [{"x": "a", "id": "bob"}, {"x": "b", "id": "ann"}, {"x": "b", "id": "cid"}]
    lines = ("a flu ann", "a flu bob", "b flu cid", "c flu dan")
    table = source(*lines, person="who", population=people, population_person="id")
    low, top = Release(table, (0,), {"k": 1}), Release(table, (1,), {"k": 1})
    assert (low.null_map, low.wrong_map) == (1, 1)  # dan; ann
    assert (top.null_map, top.wrong_map) == (0, 1)  # dan


def test_shields_keep_the_greatest_set() -> None:
    """Suppressing for one shield breaks the other, and that the first again."""
    pairs = ["aa", "aa", "ab", "bb", "cb", "cb", "cc", "cc"]
    table = Source([{"x": x, "y": y} for x, y in pairs], {"x": SUPPRESS, "y": SUPPRESS})
    shields = [{"quasi": ["x"], "k": 3}, {"quasi": ["y"], "k": 4}]
    # x: a 3, b 1, c 4. y: a 2, b 4, c 2. First b goes by x; a and c by y: (a, b), (c, b) are left, too few by now.
    assert Release(table, (0, 0), {"k_anonymity": shields}).kept == {}
    release = Release(table, (0, 0), {"k_anonymity": [shields[0]]})
    assert release.kept == {("a", "a"): 2, ("a", "b"): 1, ("c", "b"): 2, ("c", "c"): 2}
    assert Release(table, (0, 1), {"k_anonymity": shields}).suppressed == 1


def test_conditions_on_the_kept_table() -> None:
    table = source("a flu", "a flu", "a flu", "b flu", "c flu")
    for privacy, expected in (
        ({"average_risk": 0.6}, True),  # 3 classes, 5 rows
        ({"average_risk": 0.59}, False),
        ({"sample_uniqueness": 0.4}, True),  # b and c
        ({"sample_uniqueness": 0.39}, False),
        ({"sample_uniqueness": 0, "k": 2}, True),  # of the kept
    ):
        assert oracle_privacy.satisfies(Release(table, (0,), privacy), "1") is expected, privacy
    people = source("a flu ann", "a flu ann", "b flu bob", person="who")
    assert not oracle_privacy.satisfies(Release(people, (0,), {"average_risk": 0.9}), "0")


# --- proven optima on real tables -------------------------------------------------------------------


def entries_with_models() -> list[dict[str, Any]]:
    folder = data_folder()
    if folder is None:
        return []
    document = json.loads((folder / "known_optima.json").read_text(encoding="utf-8"))
    return [entry for entry in document if entry["model"] != "k"]


def parameters() -> list[Any]:
    """The slow lane runs every third case; longer runs have all."""
    quick = (0.05, "loss", "mean")
    words = ("suppression_limit", "measure", "aggregate")
    cases = [
        pytest.param(
            entry,
            id="-".join(str(entry[word]) for word in ("model", *words)),
            marks=[] if tuple(entry[word] for word in words) == quick else [pytest.mark.slow],
        )
        for i, entry in enumerate(entries_with_models())
        if not i % 3 or tuple(entry[word] for word in words) == quick or EXAMPLES > 1
    ]
    return cases or [pytest.param(None, marks=pytest.mark.skip("no test data: set SQLANON_DATA"))]


@pytest.mark.thorough
@pytest.mark.parametrize("entry", parameters())
def test_figures_of_known_optima(entry: dict[str, Any]) -> None:
    table = adult(tuple(entry["quasi"]), entry["sensitive"])
    assert len(table.rows) == entry["rows"]
    figures = []
    for optimum in entry["optima"]:
        release = Release(table, tuple(optimum["levels"]), privacy_of(entry))
        assert oracle_privacy.satisfies(release, str(entry["suppression_limit"]))
        assert (release.suppressed, len(release.kept)) == (optimum["suppressed"], optimum["classes"])
        figure = oracle.score(release, entry["measure"], entry["aggregate"])
        assert math.isclose(figure, entry["score"], rel_tol=oracle.TIE)
        figures.append(oracle.Figures(release.levels, figure, release.suppressed, len(release.kept)))
    if entry["ties"] == len(figures):
        solution = oracle.best(figures, entry["measure"])
        assert solution is not None
        assert solution.levels == tuple(entry["preferred"])
