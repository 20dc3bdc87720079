"""The frontier to explore: what the page says of k, a limit and levels is what `anonymize` finds with that policy."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import InfeasibleError
from sqlanon.report.explorer import NODES, Explorer, build_explorer, policy_entry
from sqlanon.report.page import render_template
from sqlanon.strategies.compare import compute_attribute_losses
from sqlanon.support.markup import escape_html
from support.policies import make_policy

TABLE = """
    CREATE TABLE people AS
    SELECT
        (20 + (i * 7919 % 61)) AS age,
        CASE WHEN i % 97 = 0 THEN NULL ELSE 'r' || (i * i % 23 % 5) || (i % 3) END AS region,
        CASE i % 5 WHEN 0 THEN 'f' ELSE 'm' END AS sex,
        'd' || (i * 31 % 7 % 4) AS illness
    FROM range(700) AS r(i)
"""
RULES: dict[str, Any] = {"age": {"intervals": [5, 20]}, "region": {"mask": "right"}, "sex": "suppress"}
DIVERSITY = [{"attribute": "illness", "kind": "distinct", "l": 2}]


def losses_of(result: sqlanon.Result) -> list[float]:
    return [*compute_attribute_losses(result._draft.search_input, result._draft.result).values()]


def controls(explorer: Explorer) -> str:
    return render_template("explorer.html", explorer=explorer)


def policy_of(k: int, limit: float = 0.1, levels: tuple[int, ...] | None = None, **sections: Any) -> sqlanon.Policy:
    attributes: dict[str, Any] = {"illness": "sensitive"}
    for i, (name, rule) in enumerate(RULES.items()):
        fixed = {} if levels is None else {"min_level": levels[i], "max_level": levels[i]}
        attributes[name] = {"role": "quasi", "hierarchy": rule, **fixed}
    tree = make_policy(attributes, k=k, table="people", search={"suppression_limit": limit}).model_dump(
        exclude_none=True
    )
    tree["privacy"]["l_diversity"] = DIVERSITY
    return sqlanon.Policy(**{**tree, **sections})


@pytest.fixture(scope="module")
def db() -> Iterator[sqlanon.Database]:
    with duckdb.connect() as connection:
        connection.execute(TABLE)
        with sqlanon.connect(connection) as db:
            yield db


@pytest.fixture(scope="module")
def data(db: sqlanon.Database) -> dict[str, Any]:
    explorer = build_explorer(db.anonymize(policy_of(5))._draft)
    assert explorer.data is not None
    return explorer.data


def figures(data: dict[str, Any], levels: tuple[int, ...], k: int) -> dict[str, Any]:
    """The figures as the script of the page computes them."""
    above, never, sizes = data["nodes"][",".join(map(str, levels))]
    out = [size for size in sizes if size[0] < k]
    retained = [size for size in sizes if size[0] >= k]
    lost = [never[0] + sum(size * n for size, n, *_ in out)]
    lost += [never[j + 1] + sum(size[j + 2] for size in out) for j in range(len(never) - 1)]
    between = iter(lost[1:])
    losses = []
    for level, attribute in zip(levels, data["attributes"], strict=True):
        span = attribute["leaves"] - 1
        inner = next(between) if 0 < level < attribute["height"] else 0
        gone = (lost[0] - attribute["unknown"]) * span if level == attribute["height"] else inner
        losses.append(((attribute["sums"][level] - gone) / span + lost[0]) / data["rows"])
    return {
        "suppressed": lost[0],
        "classes": above[0] + sum(n for _, n, *_ in retained),
        "smallest": min([size for size, *_ in retained] or [above[2]]),
        "losses": losses,
    }


POINTS = [(2, (0, 0, 0)), (5, (1, 1, 0)), (7, (1, 2, 1)), (31, (2, 3, 0)), (3, (3, 3, 1))]


@pytest.mark.thorough
def test_page_figures_match_anonymize(db: sqlanon.Database, data: dict[str, Any]) -> None:
    seen = set()
    for k, levels in POINTS:
        page_figures = figures(data, levels, k)
        try:
            result = db.anonymize(policy_of(k, 1, levels))
        except InfeasibleError as error:
            assert page_figures["suppressed"] == error.suppressed_rows == 700
            continue
        assert tuple(result.generalization.values()) == levels
        assert (page_figures["suppressed"], page_figures["classes"]) == (result.suppressed_rows, result.classes)
        assert page_figures["smallest"] == result.smallest_class
        assert page_figures["losses"] == pytest.approx(losses_of(result), abs=1e-12)
        assert sum(page_figures["losses"]) / 3 == pytest.approx(result.score, abs=1e-12)
        seen.add(page_figures["suppressed"])
    assert len(seen) >= 3, "the points differ"


@pytest.mark.thorough
def test_all_points_match_anonymize(db: sqlanon.Database, data: dict[str, Any]) -> None:
    """The least loss over the page's generalizations, and its levels, are those of an unbounded search."""
    for k, limit in ((2, 0.0), (4, 0.03), (11, 0.0125), (20, 0.25), (60, 0.05)):
        result = db.anonymize(policy_of(k, limit))
        allowed = int(Fraction(str(limit)) * data["rows"])
        every = {
            levels: figures(data, levels, k)
            for levels in product(*(range(attribute["height"] + 1) for attribute in data["attributes"]))
        }
        fitting = {
            candidate: sum(at["losses"]) / 3 for candidate, at in every.items() if at["suppressed"] <= min(allowed, 699)
        }
        least = min(fitting.values())
        assert least == pytest.approx(result.score, abs=1e-12)
        assert fitting[tuple(level or 0 for level in result.generalization.values())] == pytest.approx(least, abs=1e-12)


RULES_OF_ALL_KINDS: dict[str, Any] = {
    'a "b"\n': {"mask": "left"},
    "ages": {"intervals": {"widths": [0.5, 5], "origin": 0.5, "below": 0.5, "above": 90}},
    "born": [{"dates": ["month"]}, {"table": "decades"}],
    "place": {"categories": {"north \u202e": ["a", "b"], "south": ["c"]}},
    "file": {"file": "ages.csv"},
    "sex": "suppress",
}


def test_copied_lines_are_those_of_the_policy() -> None:
    loads = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads
    more = {"weight": 2.5, "on_unknown": "suppress", "max_level": 1}
    tree = {name: {"role": "quasi", "hierarchy": rule, **more} for name, rule in RULES_OF_ALL_KINDS.items()}
    policy = sqlanon.Policy(attributes=tree, privacy={"k": 2})
    lines = [policy_entry(name, policy.attributes[name]) + ", min_level = 0, max_level = 1 }" for name in tree]
    copied = loads("\n".join(["[attributes]", *lines]))
    pinned = {name: {**spec, "min_level": 0, "max_level": 1} for name, spec in tree.items()}
    again, meant = (
        sqlanon.Policy(attributes=copied_attributes, privacy={"k": 2})
        for copied_attributes in (copied["attributes"], pinned)
    )
    assert again.attributes == meant.attributes
    assert again.fingerprint() == meant.fingerprint()


@pytest.mark.thorough
def test_labels_show_how_a_value_reads(data: dict[str, Any]) -> None:
    age, region, sex = data["attributes"]
    assert sex["labels"] == ["m", "*"]
    assert sex["values"] == [2, 1]
    assert age["labels"][3] == "*" and age["labels"][1].count("-") == 1
    assert len(region["labels"]) == region["height"] + 1


@pytest.mark.slow
def test_a_large_lattice_is_cut_to_a_box_around_the_chosen(
    db: sqlanon.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlanon.report.explorer.NODES", 12)
    result = db.anonymize(policy_of(5))
    explorer = build_explorer(result._draft)
    assert explorer.data is not None
    assert 6 <= len(explorer.data["nodes"]) <= 12 < explorer.nodes == 32 <= NODES
    assert ",".join(str(level) for level in result.generalization.values()) in explorer.data["nodes"]
    for attribute in explorer.data["attributes"]:
        assert attribute["chosen"] in attribute["levels"]
        assert attribute["levels"] == [*range(attribute["levels"][0], attribute["levels"][-1] + 1)]
    assert "The lattice has 32 generalizations." in explorer.extent
    assert not explorer.data["finds"]
    assert "Find the best levels" not in controls(explorer)


def test_time_limit_leaves_complete_points(db: sqlanon.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlanon.report.explorer.SECONDS", -1.0)
    explorer = build_explorer(db.anonymize(policy_of(5))._draft)
    assert explorer.data is not None
    assert len(explorer.data["nodes"]) == 1
    assert [len(attribute["levels"]) for attribute in explorer.data["attributes"]] == [1, 1, 1]
    assert 'id="explore-level-0"' not in controls(explorer)


@pytest.mark.thorough
@pytest.mark.parametrize(("sections", "why"), [
    pytest.param({"search": {"strategy": "mondrian"}}, "does not choose one level", marks=pytest.mark.slow),
    ({"privacy": {"k": 5, "average_risk": 0.2}}, "on more than one group at a time"),
    ({"release": {"suppressed": "mask"}}, "Noise, decoys or masked rows"),
])  # fmt: skip
def test_the_page_explains_why_it_has_no_explorer(db: sqlanon.Database, sections: dict[str, Any], why: str) -> None:
    explorer = build_explorer(db.anonymize(policy_of(5, **sections))._draft)
    assert explorer.data is None
    assert why in explorer.obstacle
    assert f"There is nothing to move here. {escape_html(explorer.obstacle)}" in controls(explorer)


@pytest.mark.thorough
def test_values_that_the_hierarchy_lacks_are_left_out_at_every_k() -> None:
    tree = {"west": ["r0", "r1"], "east": ["r2", "r3"]}  # r4 is missing
    attributes: dict[str, Any] = {
        "region": {"role": "quasi", "hierarchy": {"categories": tree}, "on_unknown": "suppress", "weight": 3.0},
        "age": {"intervals": [5, 20]},
    }
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT 'r' || if(i % 50 = 0, 4, i % 4) AS region, i * 7919 % 61 AS age "
            "FROM range(600) AS r(i)"
        )
        with sqlanon.connect(connection) as db:
            first = make_policy(attributes, k=4, table="people", search={"suppression_limit": 0.1})
            data = build_explorer(db.anonymize(first)._draft).data
            assert data is not None
            assert [attribute["unknown"] for attribute in data["attributes"]] == [12, 0]
            for k, levels in ((3, (1, 1)), (9, (0, 2)), (5, (2, 1)), (2, (2, 3))):
                for i, name in enumerate(attributes):
                    spec = attributes[name] if "role" in attributes[name] else {
                        "role": "quasi", "hierarchy": attributes[name],
                    }  # fmt: skip
                    attributes[name] = spec | {"min_level": levels[i], "max_level": levels[i]}
                fixed = make_policy(attributes, k=k, table="people", search={"suppression_limit": 1})
                result, page_figures = db.anonymize(fixed), figures(data, levels, k)
                assert (page_figures["suppressed"], page_figures["classes"]) == (result.suppressed_rows, result.classes)
                assert page_figures["losses"] == pytest.approx(losses_of(result), abs=1e-12)
                weighted = (3 * page_figures["losses"][0] + page_figures["losses"][1]) / 4
                assert weighted == pytest.approx(result.score, abs=1e-12)
                assert data["weights"] == [3.0, 1.0]
