"""Assignment of a local strategy as a result: its figures, scores and bounds are those of a plain reader."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from plain_counts import Counts
from small_tasks import Small, SmallTask, draw_rows, letters, small_task
from sqlglot import parse_one

from properties.local_tasks import Nodes
from sqlanon.errors import InfeasibleError
from sqlanon.measures import MEASURES
from sqlanon.policy.guarantee import select_combinations
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.strategies.lattice.task import SearchTask
from sqlanon.strategies.local.core import finish, label_sorting
from sqlanon.strategies.local.core.task import LocalOutcome

A, B, C, D = letters("a", 4, 2), letters("b", 4, 2), letters("c", 3), letters("d", 2)


@dataclass(frozen=True)
class Placed:
    """A task with its rows placed at random: each combination at the nodes of some levels, a few nowhere."""

    task: SmallTask
    plain: Counts
    nodes: dict[int, Nodes]
    outcome: LocalOutcome

    def result(self, monkeypatch: pytest.MonkeyPatch) -> SearchResult:
        monkeypatch.setattr(finish, "prepare_local_task", lambda *_: self.task)
        engines = SimpleNamespace(runner=SimpleNamespace(engine=self.task.engine))
        self.task.search_input.frequency_sets = engines  # type: ignore[misc]
        task = SearchTask(self.task.runner, self.task.search_input, self.task.progress)
        return finish.on_combinations(lambda _: self.outcome)(task)


@contextmanager
def place_rows(small: Small, number: int | None, bound: float = 0.0) -> Iterator[Placed]:
    """Without a number, at the lowest nodes."""
    rng = random.Random(number)
    with small_task(small) as task:
        plain = Counts(task, small)
        levels = [tuple(rng.choice(tree.levels) for tree in task.trees) for _ in range(2)]
        some = [plain.at(vector) for vector in levels]
        nodes = {c: rng.choice(some)[c] for c in plain.n if rng.random() < 0.9}
        nodes = plain.at(task.floor) if number is None else nodes
        names = ", ".join(f"node_{i}" for i in range(len(task.trees)))
        rows = ", ".join(str((c, *row_nodes)) for c, row_nodes in nodes.items())
        query = parse_one(f"SELECT * FROM (VALUES {rows}) AS v(combination, {names})")
        assignment = task.make("placed", query)
        yield Placed(task, plain, nodes, LocalOutcome(task, assignment, bound=bound))


UNKNOWN = ("?", "b0")
SMALLS = {
    "rows": Small(draw_rows(1, 30, [A, B]), [A, B], 3, 15, weights=(1.0, 3.0)),
    "unknown": Small([*draw_rows(2, 24, [A, B]), UNKNOWN, UNKNOWN], [A, B], 2, 20, forbidden=[["aa1"], ["b1"]]),
    "shields": Small(draw_rows(3, 30, [A, B, C]), [A, B, C], 2, 30, shields=[((0, 1), 5), ((2,), 9)]),
    "persons": Small([*draw_rows(4, 24, [A, B]), UNKNOWN], [A, B], 3, 12,
                     persons=[row * row % 13 for row in range(25)]),
    "settled": Small(rows := draw_rows(5, 24, [A, B], 0.7), [A, B], 2, 20,
                     persons=[20 * sorted({*rows}).index(row) + i % 3 for i, row in enumerate(rows)]),
    "persons and shields": Small(draw_rows(6, 30, [A, B]), [A, B], 2, 12, shields=[((0,), 4)],
                                 persons=[row * row % 17 for row in range(30)]),
}  # fmt: skip


NUMBERS = {"rows": 4, "unknown": 2, "shields": 3, "persons": 3, "settled": 6, "persons and shields": 3}
"""By table, which random nodes leave several classes, and suppress some rows."""


@pytest.mark.parametrize("name", ["unknown", "shields", "persons", "settled", "persons and shields"])
def test_the_kept_rows_and_their_figures_are_those_that_a_reader_counts(name: str) -> None:
    small = SMALLS[name]
    with place_rows(small, NUMBERS[name]) as local_result:
        task, plain = local_result.task, local_result.plain
        allowed = {
            c: row_nodes for c, row_nodes in local_result.nodes.items()
            if not any(plain.nodes[i][node].label in task.trees[i].forbidden for i, node in enumerate(row_nodes))
        }  # fmt: skip
        retained = plain.holding(allowed)
        result = finish.finish(task, local_result.outcome)
        classes = [*plain.classes(retained).values()]
        sizes = [sum(plain.n[c] for c in members) for members in classes]
        counts = [plain.count(members) for members in classes]
        figures = result.figures
        assert 0 < len(retained) < len(plain.n) and len(classes) > 1
        assert (figures.classes, figures.suppressed_rows) == (len(classes), len(small.rows) - sum(sizes))
        assert (figures.squared_sizes, figures.kept_count) == (sum(n * n for n in sizes), sum(counts))
        assert result.smallest_class == min(sizes)
        of_rows = [
            (plain.n[c], [by[node] for by, node in zip(plain.nodes, row_nodes, strict=True)])
            for c, row_nodes in retained.items()
        ]
        for i in range(len(task.trees)):
            assert result.totals.leaves[i] == sum(n * nodes[i].leaves for n, nodes in of_rows)
            assert result.totals.levels[i] == sum(n * nodes[i].level for n, nodes in of_rows)
            levels = {nodes[i].level for _, nodes in of_rows}
            assert result.levels[i] == (min(levels), max(levels))
        if small.persons is None:
            assert (result.persons, figures.suppressed_persons) == (None, None)
            return
        losers, people = plain.losers(retained), len({*small.persons})
        partly = {person for person in losers if not plain.persons[person].isdisjoint(retained)}
        assert result.persons is not None and figures.suppressed_persons == len(losers)
        assert result.persons.smallest_class == min(counts)
        assert (result.persons.persons, result.persons.suppressed) == (people, len(losers))
        assert result.persons.partly_released == len(partly)


def test_with_combinations_guaranteed_classes_may_be_small_over_all_attributes() -> None:
    pairs = [("a0", "b0", c, d) for c in ("c0", "c1") for d in ("d0", "d1")]
    rows = [*pairs * 2, *[("a1", "b0", "c0", "d0")] * 3, ("a2", "b1", "c0", "d0")]
    classes = dict(zip(("a0", "a1", "a2", "a3"), ("most", "more", "identifying", "identifying"), strict=True))
    attributes = {name: {"role": "quasi", "identification": identification} for name, identification in classes.items()}
    policy = {"search": {"strategy": "mu-argus"}, "attributes": attributes}
    with place_rows(Small(rows, [A, B, C, D], 3, 1), None) as case:
        case.task.search_input.policy.redact = lambda: policy  # type: ignore[method-assign, assignment]
        shields = [(tuple(int(name[1:]) for name in subset), 3) for subset in select_combinations(classes)]
        plain = Counts(case.task, Small(rows, [A, B, C, D], 1, shields=shields))
        retained = plain.holding(case.nodes)
        sizes = [sum(plain.n[c] for c in members) for members in plain.classes(retained).values()]
        result = finish.finish(case.task, case.outcome)
        assert sorted(sizes) == [2, 2, 2, 2, 3]
        assert result.figures.classes == len(sizes)
        assert (result.smallest_class, result.figures.squared_sizes) == (min(sizes), sum(n * n for n in sizes))


def scores(plain: Counts, retained: dict[int, Nodes]) -> dict[str, float]:
    """The score by each measure, from its formula."""
    task = plain.task
    sizes = [sum(plain.n[c] for c in members) for members in plain.classes(retained).values()]
    suppressed, rows = task.row_count - sum(sizes), task.row_count
    heights = [tree.height for tree in task.trees]
    steps: Counter[int] = Counter()
    for c, row_nodes in retained.items():
        for i, node in enumerate(row_nodes):
            steps[i] += plain.n[c] * plain.nodes[i][node].level
    weights = [tree.weight for tree in task.trees]
    precision = [(steps[i] / height + suppressed) / rows for i, height in enumerate(heights)]
    return {
        "loss": plain.loss(retained),
        "precision": sum(w * x for w, x in zip(weights, precision, strict=True)) / sum(weights),
        "suppression": suppressed,
        "distinct": -len(sizes),
        "average_class_size": rows / (len(sizes) + bool(suppressed)),
        "discernibility": sum(n * n for n in sizes) + rows * suppressed,
    }


def test_scores_are_those_of_their_formulas() -> None:
    with place_rows(SMALLS["persons"], NUMBERS["persons"]) as case:
        expected = scores(case.plain, case.plain.holding(case.nodes))
        result, task = finish.finish(case.task, case.outcome), case.task
        weights, marginals = task.search_input.weights, task.search_input.marginals
        measures = {name: MEASURES[name](marginals, weights) for name in expected}
        assert {name: result.score(measure) for name, measure in measures.items()} == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0.0, 0.4, 0.99])
def test_a_bound_of_the_strategy_is_reported_up_to_the_score(bound: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a bound, it is the loss of the rows at the lowest levels."""
    small = replace(SMALLS["rows"], spans=[(1, 2), (0, 2)])
    with place_rows(small, 4, bound) as case:
        result = case.result(monkeypatch)
        least = case.plain.loss(case.plain.at((1, 0)))
        assert 0 < least < 0.4 < result.score < 0.99
        assert result.bound == pytest.approx(min(max(bound, least), result.score))
        assert result.optimal == (bound == 0.99)


@pytest.mark.parametrize("name", ["rows", "persons"])
def test_a_result_suppresses_as_many_as_allowed_and_no_more(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with place_rows(SMALLS[name], NUMBERS[name]) as case:
        retained = case.plain.holding(case.nodes)
        suppressed, losers = len(SMALLS[name].rows) - case.plain.rows(retained), len(case.plain.losers(retained))
    least = suppressed if name == "rows" else losers
    with place_rows(replace(SMALLS[name], limit=least), NUMBERS[name]) as case:
        assert case.result(monkeypatch).figures.suppressed_rows == suppressed
    too_few = replace(SMALLS[name], limit=least - 1)
    with place_rows(too_few, NUMBERS[name]) as case, pytest.raises(InfeasibleError) as raised:
        case.result(monkeypatch)
    error = raised.value
    assert error.suppressed_rows == suppressed
    allowed = error.allowed_rows if name == "rows" else error.allowed_persons
    assert (allowed, error.suppressed_persons or least) == (least - 1, least)


def test_release_without_classes_is_infeasible_at_any_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with place_rows(replace(SMALLS["rows"], k=31, limit=30), 4) as case, pytest.raises(InfeasibleError) as raised:
        case.result(monkeypatch)
    assert (raised.value.suppressed_rows, raised.value.allowed_rows) == (30, 30)


RECODINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"levels": ((0, 0), (0, 1), (1, 1))}, {"ground": {0}}),
    ({"levels": ((0, 0), (0, 0), (0, 0)), "open_ends": True}, {"ground": set()}),  # ``≥90`` stands for 97
    ({"generated": {0, 1, 2}, "sets": "list", "ordered": {1}}, {"lists": {0, 2}}),
    ({"generated": {0, 2}, "sets": "text"}, {"lists": set()}),
    ({"typed": {0, 2}}, {"types": ("INTEGER", None, "DATE")}),
    ({"strategy": "forest"}, {"division_key": ("id",)}),
    ({"strategy": "local"}, {"division_key": ()}),
]  # fmt: skip


@pytest.mark.parametrize(("options", "expected"), RECODINGS)
def test_recoding_releases_the_figures_of_its_result(options: dict[str, Any], expected: dict[str, Any]) -> None:
    trees: Any = [
        SimpleNamespace(is_ordered=i in options.get("ordered", ()), open_ends=options.get("open_ends", False))
        for i in range(3)
    ]
    search = SimpleNamespace(
        sets=options.get("sets", "text"), traits=STRATEGIES[options.get("strategy", "local")].traits
    )
    search_input: Any = SimpleNamespace(
        source=SimpleNamespace(relation="t"), released_columns=(), attributes=(), types=["INTEGER", "VARCHAR", "DATE"],
        hierarchies=[SimpleNamespace(top="*")] * 3, columns=SimpleNamespace(key=("id",)),
        policy=SimpleNamespace(search=search),
    )  # fmt: skip
    none: Any = None
    result = finish.LocalResult(
        trees, none, (), none, none, 0, options.get("levels", ((0, 2),) * 3),
        frozenset(options.get("generated", ())), frozenset(options.get("typed", ())),
    )  # fmt: skip
    recoding = result.recoding(search_input, mask=False)
    plain: dict[str, Any] = {"ground": set(), "lists": set(), "types": (None,) * 3, "division_key": ()} | expected
    assert {name: getattr(recoding, name) for name in plain} == plain


def pads_labels(task: SmallTask, labels: Sequence[str], **options: Any) -> bool:
    """Whether the labels of an attribute are padded."""
    rows = ", ".join(f"({i}, {i}, '{label}', 0.0, 0)" for i, label in enumerate(labels))
    values = parse_one(f"SELECT * FROM (VALUES {rows}) AS v(node, code, label, leaves, level)")
    exact_values = task.make("own", values)
    kept_rows = task.make("kept", parse_one(f"SELECT unnest(range({len(labels)})) AS code_0"))
    grid: Any = SimpleNamespace(holds_dates=options.get("dates", False), level=None)
    tree = replace(
        task.trees[0], is_ordered=options.get("ordered", True), grid=grid, offsets=(-1,),
        forbidden=options.get("forbidden", ()),
    )  # fmt: skip
    changed = replace(task, trees=(tree, *task.trees[1:]))
    typed = frozenset({0} if options.get("typed") else ())
    outcome = LocalOutcome(changed, kept_rows, {} if options.get("plain") else {0: exact_values}, typed)
    is_padded = label_sorting.sort_labels(changed, outcome, kept_rows, 0, exact_values) is not exact_values
    task.runner.drop_all_except([tree.nodes for tree in task.trees])
    return is_padded


@pytest.mark.slow
def test_numbers_are_padded_only_where_that_keeps_labels_distinct_allowed_and_typed() -> None:
    labels = ["5-9", "10-14", "100"]
    with small_task(SMALLS["rows"]) as task:
        assert pads_labels(task, labels) and pads_labels(task, labels, forbidden=("9",))
        assert not pads_labels(task, [*labels, "005-009"]), "two labels would be one"
        assert not pads_labels(task, labels, forbidden=("005-009",))
        assert not pads_labels(task, labels, ordered=False)
        assert not pads_labels(task, labels, dates=True)
        assert not pads_labels(task, labels, typed=True)
        assert not pads_labels(task, labels, plain=True)
