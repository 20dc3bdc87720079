"""Strategy ``iab``: the worked run of its paper, and an exhaustive search of the same tables in plain Python."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_iab import Question

import sqlanon
from oracles.oracle import Hierarchy, Row
from properties import random_cases
from properties.search_checks import thorough, write_hierarchy
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.pipeline import prepare
from sqlanon.strategies.local.core.task import prepare_local_task
from sqlanon.strategies.local.iab import State, StateSearch
from support.lanes import draw_tables

# --- The strategy


def arrow_table(question: Question) -> pa.Table:
    columns = {}
    for i, (name, tree) in enumerate(question.hierarchies.items()):
        type_ = pa.int64() if isinstance(next(iter(tree.paths)), int) else pa.string()
        columns[name] = pa.array([row[i] for row in question.rows], type=type_)
    return pa.table({**columns, "other": pa.array([row[-1] for row in question.rows], type=pa.string())})


def policy_of(question: Question, directory: Path, **search: Any) -> sqlanon.Policy:
    attributes: dict[str, Any] = {"other": {"role": "sensitive"}}
    for i, (name, tree) in enumerate(question.hierarchies.items()):
        file = write_hierarchy(tree, directory / f"hierarchy_{i}.csv")
        attributes[name] = {"role": "quasi", "hierarchy": {"file": file}, "on_unknown": "suppress"}
        if question.ceiling(i) < tree.height:
            attributes[name]["max_level"] = question.ceiling(i)
        if i in question.forbidden:
            attributes[name]["forbidden"] = sorted(question.forbidden[i])
    names = list(question.hierarchies)
    shields = [{"quasi": [names[i] for i in attributes_], "k": k} for attributes_, k in question.shields]
    return sqlanon.Policy(
        source={"table": "t"},
        attributes=attributes,
        privacy={**({} if question.k is None else {"k": question.k}), **({"k_anonymity": shields} if shields else {})},
        search={"strategy": "iab", "suppression_limit": Decimal(question.limit), "measure": "distinct", **search},
        release={"table": "released"},
    )


@contextmanager
def balance_of(question: Question, **search: Any) -> Iterator[StateSearch]:
    """The search, not begun."""
    with tempfile.TemporaryDirectory() as directory, sqlanon.connect(arrow_table(question)) as db:
        policy = policy_of(question, Path(directory), **search)
        with db._workspace.run(policy) as run:
            steps = StatementRunner(run.engine)
            prepared = prepare(steps, policy, run.source, run.work)
            yield StateSearch(prepare_local_task(steps, prepared, lambda open_, checked, best: None))


def publish(question: Question) -> Counter[Row] | None:
    """The rows of the release, which passed its audit; None without a release."""
    with tempfile.TemporaryDirectory() as name, sqlanon.connect(arrow_table(question)) as db:
        directory = Path(name)
        try:
            result = db.anonymize(policy_of(question, directory))
        except sqlanon.InfeasibleError:
            return None
        assert result.optimal == (result.score == result.bound)
        assert result.bound >= result.score
        release = result.publish(directory / "release.duckdb")
        assert release.verify().verified
        with duckdb.connect(release.path, read_only=True) as connection:
            rows = connection.execute('SELECT * EXCLUDE (other), other FROM "released"').fetchall()
    assert len(rows) == result.released_rows == len(question.rows) - result.suppressed_rows
    return Counter(rows)


# --- The worked run of the paper: 22 tuples, six violate 2-anonymity


def letters(letter: str, count: int, *sizes: int) -> Hierarchy:
    """``a0, a1, ...``, in groups of these sizes, level by level, below ``*``."""
    paths = {
        f"{letter}{i}": (
            f"{letter}{i}",
            *(f"{letter.upper() * (j + 1)}{i // size}" for j, size in enumerate(sizes)),
            "*",
        )
        for i in range(count)
    }
    return Hierarchy(paths)


RUN = Question(
    rows=[
        *((a, b, c, d) for a, b, c, ds in [
            ("a0", "b1", "c0", "x"), ("a0", "b1", "c1", "x"), ("a0", "b3", "c3", "xy"),
            ("a1", "b0", "c0", "yz"), ("a1", "b0", "c1", "z"), ("a1", "b1", "c1", "xy"),
            ("a2", "b1", "c0", "xyz"), ("a2", "b1", "c2", "xz"),
            ("a4", "b2", "c0", "x"), ("a4", "b2", "c1", "x"), ("a4", "b3", "c1", "xyz"),
            ("a5", "b2", "c0", "yz"), ("a5", "b2", "c1", "y"),
        ] for d in ds),
    ],
    hierarchies={"a": letters("a", 8, 2, 4), "b": letters("b", 4, 2), "c": letters("c", 4, 2)},
    k=2,
)  # fmt: skip


def test_the_run_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The feasible table with 18 tuples does not end the search, and (2, 21) comes before (4, 21)."""
    steps: list[tuple[tuple[int, int], list[tuple[int, int]]]] = []
    with balance_of(RUN) as search:
        expand, check = search._expand, search._check

        def figures(state: State) -> tuple[int, int]:
            return state.violating, state.tuples

        def expand_state(state: State) -> list[State]:
            steps.append((figures(state), []))
            return expand(state)

        def check_numbers(numbers: list[int]) -> list[State]:
            states = check(numbers)
            (steps[-1][1] if steps else start).extend(map(figures, states))
            return states

        start: list[tuple[int, int]] = []
        monkeypatch.setattr(search, "_expand", expand_state)
        monkeypatch.setattr(search, "_check", check_numbers)
        search.run()
        assert search.best is not None
        answer = figures(search.best)
    assert start == [(6, 22)]
    assert steps == [
        ((6, 22), [(2, 21), (4, 21), (0, 18)]),
        ((2, 21), [(2, 21), (0, 21), (0, 17)]),
    ]
    assert answer == (0, 21)


@pytest.mark.thorough
def test_tuples_of_the_release_count_all_released_attributes() -> None:
    """Its tuples count all released attributes: by the quasi-identifiers alone, the table of 18 is the better one, for
    it has nine classes, and the answer eight."""
    rows = publish(RUN)
    assert rows is not None
    assert len({row[:-1] for row in rows}) == 8
    assert len(rows) == 21
    assert min(Counter(row[:-1] for row in rows.elements()).values()) == 2
    assert rows.total() == 22
    with balance_of(replace(RUN, rows=[(*row[:-1], "x") for row in RUN.rows])) as search:
        search.run()
        assert search.best is not None
        assert search.best.released_tuples == 9


# --- Random small tables


@st.composite
def questions(draw: st.DrawFn) -> Question:
    case = draw(random_cases.cases().filter(lambda case: bool(case.rows) and len(case.hierarchies) <= 3))
    drawn = draw(st.lists(st.sampled_from(["x", "y", None]), min_size=len(case.rows), max_size=len(case.rows)))
    m = len(case.hierarchies)
    attributes = st.lists(st.integers(0, m - 1), min_size=1, max_size=m, unique=True).map(
        lambda pair: tuple(sorted(pair))
    )
    shields = draw(st.lists(st.tuples(attributes, st.integers(2, 4)), max_size=draw(st.sampled_from([0, 2]))))
    highest, forbidden, tree = {}, {}, next(iter(case.hierarchies.values()))
    if draw(st.integers(0, 3)) == 3:
        highest = {0: draw(st.integers(0, tree.height))}
    if draw(st.integers(0, 3)) == 3:
        label = draw(st.sampled_from([label for path in tree.paths.values() for label in path[:-1]] or [tree.top]))
        forbidden = {0: frozenset({str(label)})}
    return Question(
        rows=[(*row, extra) for row, extra in zip(case.rows, drawn, strict=True)],
        hierarchies=case.hierarchies,
        k=None if shields and draw(st.booleans()) else case.k,
        limit=case.limit,
        shields=shields,
        highest=highest,
        forbidden=forbidden,
    )


def check_optimum(question: Question, most: int) -> None:
    """Check for as many distinct tuples as in any table that steps lead to, with no tuple counted twice."""
    tables = question.reachable(most)
    expected = question.best(tables)
    with balance_of(question) as search:
        if expected is None:
            with pytest.raises(sqlanon.InfeasibleError, match="strategy iab found no table"):
                search.run()
        else:
            search.run()
            assert search.best is not None
            assert search.best.released_tuples == expected
        assert search.checks <= len(tables)


ROWS = [
    *((a, b, extra) for a, b, extras in [
        ("a0", "b0", "xxy"), ("a0", "b1", "y"), ("a1", "b0", "xy"), ("a2", "b1", "x"), ("a2", "b2", "xxz"),
        ("a3", "b2", "z"), ("a3", "b3", "zx"),
    ] for extra in extras),
]  # fmt: skip
TREES = {"a": letters("a", 4, 2), "b": letters("b", 4, 2)}
FIXED = [
    Question(ROWS, TREES, k=3, limit="0.2"),
    Question([*ROWS, ("a1", None, "x"), ("u0", "b1", "y")], TREES, k=2, limit="0.29", shields=[((0,), 4)]),
    Question(ROWS, TREES, k=None, limit="0.1", shields=[((0,), 4), ((1,), 3)], forbidden={0: frozenset({"A0"})}),
    Question(ROWS, TREES, k=3, limit="0.5", highest={1: 1}),
]


@pytest.mark.parametrize("question", FIXED)
def test_no_table_that_steps_lead_to_has_more_tuples(question: Question) -> None:
    check_optimum(question, most=400)


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(8, usual=20))
@given(question=questions())
def test_iab_finds_the_most_distinct_tuples(question: Question) -> None:
    check_optimum(question, most=400)


def check_release(question: Question) -> None:
    """Check that the release passes its audit, and that its classes meet all requirements as readers see them."""
    expected = question.best(question.reachable(60))
    rows = publish(question)
    assert (rows is None) == (expected is None)
    for attributes, k in question.conditions if rows is not None else ():
        groups = Counter(tuple(row[i] for i in attributes) for row in rows.elements())
        assert min(groups.values()) >= k


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(8, usual=20))
@given(question=questions())
def test_release_passes_all_checks(question: Question) -> None:
    check_release(question)


# --- What it says and where it ends

# Each of two violating rows can go up by itself; without the other it stays alone, at the top.
STUCK = Question(
    rows=[("v0", "x"), ("v4", "x"), *[("v2", "x")] * 3],
    hierarchies={
        "b": Hierarchy({
            "v0": ("v0", "g0", "h0", "*"), "v2": ("v2", "g2", "h0", "*"), "v4": ("v4", "g4", "h4", "*"),
        })
    },
    k=3,
)  # fmt: skip


@pytest.mark.slow
def test_no_step_leads_to_a_table_that_satisfies() -> None:
    """The rows that violate end at the top, two of them; the three others stay as they are, though at the top all five
    would do."""
    with balance_of(STUCK) as search, pytest.raises(sqlanon.InfeasibleError) as caught:
        search.run()
    assert "another strategy may find one" in str(caught.value)
    assert (caught.value.suppressed_rows, caught.value.allowed_rows) == (2, 0)
    assert publish(replace(STUCK, limit="0.4")) == Counter({("v2", "x"): 3})


@pytest.mark.slow
def test_it_stops_at_a_limit_with_the_best_so_far() -> None:
    best_by_limit = {}
    for most in (1, 3, 4, 6):
        with balance_of(RUN, max_checks=most) as search:
            try:
                search.run()
            except sqlanon.InfeasibleError as error:
                assert f"stopped at [search] max_checks = {most}" in str(error)
            assert search.checks == most
            best_by_limit[most] = None if search.best is None else search.best.released_tuples
    assert best_by_limit == {1: None, 3: None, 4: 18, 6: 21}


@pytest.mark.thorough
def test_persons_are_counted() -> None:
    """Three rows of two persons do not form a class of three."""
    people = pa.table({"zip": ["a"] * 3 + ["b"] * 2, "person": [1, 1, 2, 3, 4]})
    with sqlanon.connect(people) as db:
        policy = sqlanon.Policy(
            source={"table": "t", "person": "person"},
            attributes={"zip": {"role": "quasi", "hierarchy": "suppress"}},
            privacy={"k": 3},
            search={"strategy": "iab"},
        )
        assert db.anonymize(policy).generalization == {"zip": 1}


@pytest.mark.thorough
@pytest.mark.parametrize("threads", [1, 3])
def test_the_order_of_rows_and_threads_change_nothing(threads: int) -> None:
    answers = set()
    for rows in (RUN.rows, RUN.rows[::-1]):
        question = replace(RUN, rows=rows)
        with tempfile.TemporaryDirectory() as directory, sqlanon.connect(arrow_table(question), threads=threads) as db:
            result = db.anonymize(policy_of(question, Path(directory)))
            answers.add((tuple(result.generalization.items()), result.score, result.checked))
    assert answers == {((("a", None), ("b", None), ("c", 0)), 8.0, 7)}
