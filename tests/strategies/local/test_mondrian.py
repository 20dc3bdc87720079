"""Strategy mondrian: the parts and the labels of a slow, plain mondrian; and worked examples."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

import sqlanon
from oracles import oracle_privacy
from properties import privacy_checks
from properties.local_tasks import LIMITS, adult, asked
from properties.privacy_cases import PrivacyCase, privacy_cases
from properties.random_cases import Case, cases
from properties.search_checks import arrow_table, quick, thorough
from sqlanon.strategies.local.finish import on_combinations
from sqlanon.strategies.local.mondrian import mondrian
from sqlanon.strategies.local.nodes import END_COLUMNS
from sqlanon.strategies.local.task import LocalOutcome, LocalTask
from support.lanes import draw_tables, examples, some

MONDRIAN = {"strategy": "mondrian"}

Part = tuple[int, ...]
Item = tuple[float, int]


@dataclass(frozen=True)
class Node:
    level: int
    label: str | None
    leaves: float
    low: int
    high: int
    released: bool


@dataclass(frozen=True)
class Cell:
    """A cell of a grid: its number, the places of its first and last value, and its texts."""

    cell: int
    low: int
    high: int
    lower: str | None
    upper: str | None
    least: str | None
    beyond: str | None
    middle: str | None
    closed: bool

    @property
    def void(self) -> bool:
        return self.lower is None and self.upper is None


@dataclass
class Column:
    """A quasi-identifier: its nodes, and by combination the nodes from the lowest level to the top. With a grid, the
    cells of the lowest nodes, and the level of the cells. ``rare`` nodes are in no set."""

    nodes: Mapping[int, Node]
    paths: Mapping[int, list[int]]
    ordered: bool
    scale: float
    top: float
    cells: Mapping[int, Cell]
    grid_level: int | None
    members: Mapping[int, list[bool]]

    def cell(self, combination: int) -> Cell:
        return self.cells[self.paths[combination][0]]

    def in_cell(self, combination: int) -> list[tuple[int, float]]:
        """The nodes from the lowest to the cell, and their leaves."""
        first, cell = self.value(combination), self.cell(combination)
        if self.grid_level is None:
            return [(self.paths[combination][0], first.leaves), (cell.cell, float(cell.high - cell.low))]
        path = self.paths[combination][: self.grid_level - first.level + 1]
        return [(node, self.nodes[node].leaves) for node in path]

    def above(self, combination: int) -> list[Node]:
        return [self.nodes[node] for node in self.paths[combination]]

    def value(self, combination: int) -> Node:
        return self.above(combination)[0]

    def common(self, part: Iterable[int]) -> int:
        """By place in the paths: where all of a part are the same."""
        paths = [self.paths[combination] for combination in part]
        return next(place for place in range(len(paths[0])) if len({path[place] for path in paths}) == 1)


class Plain:
    """Mondrian, one part after the other, over what the strategy itself is given."""

    def __init__(self, task: LocalTask, summary: str, relaxed: bool, k: int) -> None:
        self.summary, self.relaxed, self.k = summary, relaxed, k
        self.columns = [self.column(task, i) for i in range(len(task.trees))]
        self.n = dict(task.engine.rows(exp.select("combination", "n").from_(task.combinations)))

    def column(self, task: LocalTask, i: int) -> Column:
        tree = task.trees[i]
        names = ["node", "level", "label", "leaves", "low", "high", "released"]
        nodes = {row[0]: Node(*row[1:]) for row in task.engine.rows(exp.select(*names).from_(tree.nodes))}
        path = [f"node_{i}_level_{level}" for level in range(tree.floor, tree.height + 1)]
        paths = task.engine.rows(exp.select("combination", *path).from_(task.combinations))
        weight = task.search_input.policy.attributes[tree.name].weight
        scale = weight / max(tree.leaves - 1, 1)
        cells: dict[int, Cell] = {}
        if tree.grid is not None:
            names = ["node", "cell", "cell_low", "cell_high", *END_COLUMNS]
            cells = {row[0]: Cell(*row[1:]) for row in task.engine.rows(exp.select(*names).from_(tree.grid.table))}
        level = None if tree.grid is None else tree.grid.level
        members: dict[int, list[bool]] = {}
        if tree.set_labels is not None:
            names = ["node", *(f"is_member_{level}" for level in range(tree.floor, tree.height))]
            members = {row[0]: list(row[1:]) for row in task.engine.rows(exp.select(*names).from_(tree.set_labels))}
        by_combination = {row[0]: list(row[1:]) for row in paths}
        return Column(nodes, by_combination, tree.is_ordered, scale, tree.leaves - 1.0, cells, level, members)

    def rows(self, part: Iterable[int]) -> int:
        return sum(self.n[combination] for combination in part)

    def first(self) -> list[Part]:
        """What can be released as one, where it is large enough."""
        found = defaultdict(list)
        for combination in self.n:
            tops = [[place for place, node in enumerate(column.above(combination)) if node.released]
                    for column in self.columns]  # fmt: skip
            if all(tops):
                key = tuple(
                    column.paths[combination][places[-1]] for column, places in zip(self.columns, tops, strict=True)
                )
                found[key].append(combination)
        return [tuple(part) for part in found.values() if self.rows(part) >= self.k]

    def parts(self) -> set[Part]:
        waiting, found = self.first(), set()
        while waiting:
            part = waiting.pop()
            cut = self.best(part)
            if cut is None:
                found.add(tuple(sorted(part)))
            else:
                waiting += cut
        return found

    def best(self, part: Part) -> tuple[Part, Part] | None:
        found = []
        for i, column in enumerate(self.columns):
            within = bool(column.cells) and len({column.cell(combination) for combination in part}) == 1
            cut = self.cut_of_cell(column, part) if within else self.cut(column, part)
            if cut is not None and min(map(self.rows, cut[1])) >= self.k:
                found.append((-round(cut[0], 9), i + len(self.columns) * within, cut[1]))
        return min(found)[2] if found else None

    def cut(self, column: Column, part: Part) -> tuple[float, tuple[Part, Part]] | None:
        if column.common(part) == 0:
            return None
        if column.ordered:
            return self.cut_of_order(column, part)
        return (self.cut_of_set if self.summary == "set" else self.cut_of_hierarchy)(column, part)

    def gain(self, column: Column, part: Part, cut: tuple[Part, Part]) -> float:
        """What is saved if ranges are released, or sets."""
        return (self.lost(column, part) - sum(self.lost(column, side) for side in cut)) * column.scale

    def lost(self, column: Column, part: Part) -> float:
        if column.cells:
            cells = {column.cell(combination) for combination in part}
            width = max(cell.high for cell in cells) - min(cell.low for cell in cells)
            return self.rows(part) * (
                column.top if len(cells) > 1 and any(cell.void for cell in cells) else width
            )  # fmt: skip
        values = {column.value(combination) for combination in part}
        void = any(value.label is None for value in values)
        if column.members:
            void = not all(any(column.members[column.paths[combination][0]]) for combination in part)
        if len(values) > 1 and void:
            return self.rows(part) * column.top
        if column.ordered:
            return self.rows(part) * (max(v.high for v in values) - min(v.low for v in values))
        return self.rows(part) * (sum(value.leaves + 1 for value in values) - 1)

    def cut_of_order(self, column: Column, part: Part) -> tuple[float, tuple[Part, Part]]:
        def item(combination: int) -> Cell | Node:
            return column.cell(combination) if column.cells and not self.relaxed else column.value(combination)

        order = sorted(part, key=lambda combination: (item(combination).low, combination))
        borders = [at for at in range(1, len(order)) if self.relaxed or item(order[at - 1]) != item(order[at])]
        to_middle = {at: abs(2 * self.rows(order[:at]) - self.rows(part)) for at in borders}
        at = min(borders, key=lambda at: (to_middle[at], at))
        cut = tuple(order[:at]), tuple(order[at:])
        return self.gain(column, part, cut), cut

    def cut_of_set(self, column: Column, part: Part) -> tuple[float, tuple[Part, Part]]:
        rows = Counter[int]()
        for combination in part:
            rows[column.paths[combination][0]] += self.n[combination]
        taken, so_far = set(), 0
        for value in sorted(rows, key=lambda value: (-rows[value], value)):
            if so_far < self.k or 8 * so_far < self.rows(part):
                taken.add(value)
                so_far += rows[value]
        cut = self.split(column.paths, part, lambda path: path[0] in taken)
        return (self.gain(column, part, cut) if cut[1] else 0.0), cut

    def cut_of_hierarchy(self, column: Column, part: Part) -> tuple[float, tuple[Part, Part]] | None:
        leaves = {node: column.nodes[node].leaves for path in column.paths.values() for node in path}
        return self.cut_of_paths(column.scale, part, column.paths, leaves)

    def cut_of_cell(self, column: Column, part: Part) -> tuple[float, tuple[Part, Part]] | None:
        """The values within a cell are its children, or what the hierarchy has between."""
        in_cell = {combination: column.in_cell(combination) for combination in part}
        paths = {combination: [node for node, _ in path] for combination, path in in_cell.items()}
        leaves = {node: lost for path in in_cell.values() for node, lost in path}
        if len({path[0] for path in paths.values()}) == 1:
            return None
        return self.cut_of_paths(column.scale, part, paths, leaves)

    def cut_of_paths(
        self, scale: float, part: Part, paths: Mapping[int, list[int]], leaves: Mapping[int, float]
    ) -> tuple[float, tuple[Part, Part]] | None:
        of_part = [paths[combination] for combination in part]
        place = next(at for at in range(len(of_part[0])) if len({path[at] for path in of_part}) == 1) - 1
        whole = leaves[of_part[0][place + 1]]
        rows = Counter[int]()
        for combination in part:
            rows[paths[combination][place]] += self.n[combination]
        saved = {child: n * (whole - leaves[child]) for child, n in rows.items()}
        most = self.rows(part) - self.k
        taken: list[int] = []
        for child in sorted(rows, key=lambda child: (-saved[child], child)):
            so_far = sum(rows[one] for one in taken)
            if not self.k <= rows[child] <= most:
                continue
            if so_far + rows[child] > most or 8 * so_far >= self.rows(part):
                break
            taken.append(child)
        if not taken:
            return None
        gain = sum(saved[child] for child in (rows if len(rows) == 2 else taken))
        return gain * scale, self.split(paths, part, lambda path: path[place] in taken)

    def split(self, paths: Mapping[int, list[int]], part: Part, test: Callable[[list[int]], bool]) -> tuple[Part, Part]:
        inside = tuple(combination for combination in part if test(paths[combination]))
        return inside, tuple(combination for combination in part if combination not in inside)

    def render(self, part: Part) -> tuple[tuple[str | None, float], ...]:
        """The labels, and the leaves that they lose."""
        return tuple(self.released(column, part) for column in self.columns)

    def released(self, column: Column, part: Part) -> tuple[str | None, float]:
        place = column.common(part)
        above = column.above(part[0])
        shown = next(node for node in above[place:] if node.released)
        values = sorted({column.value(combination) for combination in part}, key=lambda value: value.low)
        plain = shown.label, shown.leaves
        if column.cells and self.summary == "median" and len(values) > 1:
            return self.median_of_cells(column, part, plain)
        if len(values) == 1 or any(value.label is None for value in values):
            return plain
        if column.cells:
            return self.range_of_cells(column, part, above[place].level, plain)
        least, greatest = values[0], max(values, key=lambda value: value.high)
        width = float(greatest.high - least.low)
        if column.ordered and self.summary == "median":
            by_value = [[value] * self.rows(c for c in part if column.value(c) == value) for value in values]
            middle = [value for some in by_value for value in some][(self.rows(part) - 1) // 2]
            return (middle.label, width) if middle.released else plain
        if column.ordered:
            ends = [str(least.label), str(greatest.label)]
            dash = " to " if "-" in "".join(ends) else "-"
            return (dash.join(ends), width) if least.released and greatest.released else plain
        if self.summary != "set":
            return plain
        members = [column.members[column.paths[combination][0]] for combination in part]
        level = next((at for at, all_ in enumerate(zip(*members, strict=True)) if all(all_)), None)
        if level is None or level >= place:
            return plain
        listed = {column.above(combination)[level] for combination in part}
        size = sum(node.leaves + 1 for node in listed)
        is_whole = size == above[place].leaves + 1 and above[place].released
        return plain if is_whole else (f"{{{', '.join(sorted(str(node.label) for node in listed))}}}", size - 1)

    def range_of_cells(
        self, column: Column, part: Part, level: int, plain: tuple[str | None, float]
    ) -> tuple[str | None, float]:
        cells = sorted({column.cell(combination) for combination in part}, key=lambda cell: cell.low)
        first, last = cells[0], max(cells, key=lambda cell: cell.high)
        if any(cell.void for cell in cells) or level <= (column.grid_level or 0):
            return plain
        if first.lower is None:
            label = None if last.upper is None else f"<{last.beyond}"
        elif last.upper is None:
            label = f"≥{first.least}"
        elif first.closed:
            dash = " to " if "-" in first.lower + last.upper else "-"
            label = f"{first.lower}{dash}{last.upper}"
        else:
            label = f"[{first.lower}, {last.upper})"
        return plain if label is None else (label, float(last.high - first.low))

    def median_of_cells(self, column: Column, part: Part, plain: tuple[str | None, float]) -> tuple[str | None, float]:
        order = sorted(part, key=lambda combination: column.value(combination).low)
        by_row = [column.cell(combination) for combination in order for _ in range(self.n[combination])]
        if any(
            column.value(combination).label is None or column.cell(combination).middle is None for combination in part
        ):
            return plain
        return by_row[(len(by_row) - 1) // 2].middle, float(
            max(cell.high for cell in by_row) - min(cell.low for cell in by_row)
        )


def released(task: LocalTask, outcome: LocalOutcome) -> dict[int, tuple[tuple[str | None, float], ...]]:
    """By combination what it is released as: the labels, and their leaves."""
    known = [
        {node: (label, leaves) for node, label, leaves in task.engine.rows(
            exp.select("node", "label", "leaves").from_(outcome.nodes.get(i, tree.nodes)))}
        for i, tree in enumerate(task.trees)
    ]  # fmt: skip
    nodes = [f"node_{i}" for i in range(len(task.trees))]
    rows = task.engine.rows(exp.select("combination", *nodes).from_(outcome.assignment))
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: tuple(by[node] for by, node in zip(known, row[1:], strict=True)) for row in rows}


def check(
    case: Case, limits: Sequence[int], summary: str, cuts: str, publish: bool = False, ends: str = "grid"
) -> None:
    seen: list[int] = []

    def beside_a_plain_one(task: LocalTask) -> LocalOutcome:
        outcome = mondrian(task)
        plain = Plain(task, summary, cuts == "relaxed", case.k)
        parts = plain.parts()
        expected = {combination: plain.render(part) for part in parts for combination in part}
        assert released(task, outcome) == expected
        if (summary, cuts, ends) == ("range", "strict", "exact"):
            for part in parts:
                refuse_further_cuts(plain, part)
        seen.append(len(expected))
        return outcome

    with pytest.MonkeyPatch().context() as patch, tempfile.TemporaryDirectory() as name:
        patch.setattr("sqlanon.strategies.local.mondrian.run", on_combinations(beside_a_plain_one))
        ask = asked(case, Path(name), limits, **MONDRIAN, suppression_limit=1.0, summary=summary, cuts=cuts, ends=ends)
        with sqlanon.connect(arrow_table(case)) as db:
            try:
                result = db.anonymize(ask)
            except sqlanon.InfeasibleError:
                assert not any(seen)
                return
            assert seen[0]
            assert result.smallest_class >= case.k
            if publish:
                assert db.verify(result.publish(Path(name) / "r.duckdb").path, ask).verified


def refuse_further_cuts(plain: Plain, part: Part) -> None:
    """No border, and no child of the lowest common ancestor, has rows enough on both sides."""
    for column in plain.columns:
        place = column.common(part)
        if place == 0:
            continue
        if column.ordered:
            lows = sorted({column.value(combination).low for combination in part})
            sides = [[c for c in part if column.value(c).low <= low] for low in lows[:-1]]
        else:
            children = {column.paths[combination][place - 1] for combination in part}
            sides = [[c for c in part if column.paths[c][place - 1] == child] for child in children]
        for side in sides:
            assert min(plain.rows(side), plain.rows(part) - plain.rows(side)) < plain.k


SUMMARIES, CUTS = st.sampled_from(["range", "set", "median"]), st.sampled_from(["strict", "relaxed"])
ENDS_OF_RANGES = st.sampled_from(["grid", "exact"])


@settings(quick, max_examples=draw_tables(5, usual=3))
@given(cases(), LIMITS, SUMMARIES, CUTS, ENDS_OF_RANGES)
def test_parts_and_labels_are_those_of_a_plain_mondrian(
    case: Case, limits: list[int], summary: str, cuts: str, ends: str
) -> None:
    check(case, limits, summary, cuts, ends=ends)


@pytest.mark.thorough
@settings(thorough, max_examples=examples(50))
@given(cases(), LIMITS, SUMMARIES, CUTS, st.booleans(), ENDS_OF_RANGES)
def test_parts_and_labels_are_those_of_a_plain_mondrian_thoroughly(
    case: Case, limits: list[int], summary: str, cuts: str, publish: bool, ends: str
) -> None:
    check(case, limits, summary, cuts, publish, ends)


def check_privacy(case: PrivacyCase, summary: str, cuts: str) -> None:
    """What is released meets every requirement; and it is found wherever the top generalization meets them."""
    refused = {"k_map", "null_map", "wrong_map", "delta_presence", "average_risk", "sample_uniqueness"}
    privacy = {name: asked for name, asked in case.privacy.items() if name not in refused} or {"k": 2}
    case = replace(case, privacy=privacy, measure="loss", aggregate=None, source=replace(case.source, population=None))
    heights = tuple(tree.height for tree in case.source.quasi.values())
    top = oracle_privacy.Release(case.source, heights, privacy)
    with tempfile.TemporaryDirectory() as name, privacy_checks.opened(case.source) as db:
        tree = privacy_checks.policy_of(case, "optimal", Path(name)).model_dump(mode="json", exclude_none=True)
        tree["search"] |= MONDRIAN | {"summary": summary, "cuts": cuts}
        ask = sqlanon.Policy(**tree)
        if not oracle_privacy.satisfies(top, case.limit):
            with pytest.raises(sqlanon.InfeasibleError):
                db.anonymize(ask)
            return
        result = db.anonymize(ask)
        assert result.suppressed_rows == top.suppressed
        release = result.publish(Path(name) / "r.duckdb")
        verification = db.verify(release.path, ask)
        assert verification.verified, verification.failures


@pytest.mark.thorough
@settings(privacy_checks.quick, max_examples=draw_tables(3, usual=2))
@given(privacy_cases(), SUMMARIES, CUTS)
def test_every_requirement_stops_the_cuts(case: PrivacyCase, summary: str, cuts: str) -> None:
    check_privacy(case, summary, cuts)


@pytest.mark.slow
@privacy_checks.thorough
@given(privacy_cases(), SUMMARIES, CUTS)
def test_every_requirement_stops_the_cuts_thoroughly(case: PrivacyCase, summary: str, cuts: str) -> None:
    check_privacy(case, summary, cuts)


# --- worked examples ----------------------------------------------------------------------------------

PATIENTS = """CREATE TABLE t AS FROM (VALUES
    (25, 'Male', 53711, 'Flu'), (25, 'Female', 53712, 'Hepatitis'), (26, 'Male', 53711, 'Brochitis'),
    (27, 'Male', 53710, 'Broken Arm'), (27, 'Female', 53712, 'AIDS'), (28, 'Male', 53711, 'Hang Nail')
) AS v(age, sex, zip, disease)"""

HAMBURG = """CREATE TABLE t AS FROM (VALUES
    ('w', 22981, 1944, 'Hepatitis'), ('w', 22362, 1945, 'Gicht'), ('w', 22669, 1949, 'Arthrose'),
    ('w', 22862, 1985, 'Diabetes'), ('w', 22875, 1992, 'Demenz'), ('m', 22997, 1936, 'Arthrose'),
    ('m', 22121, 1949, 'Diabetes'), ('m', 22350, 1963, 'Demenz'), ('m', 22188, 1964, 'Demenz'),
    ('m', 22997, 1975, 'Hepatitis')
) AS v(sex, zip, born, disease)"""


@contextmanager
def run_mondrian(
    statement: str, hierarchies: Mapping[str, Any], privacy: Mapping[str, Any], **search: Any
) -> Iterator[tuple[Any, list[tuple[Any, ...]], list[str]]]:
    """The result for a small table, the rows of its release in the table's columns, and their types."""
    with duckdb.connect() as connection, tempfile.TemporaryDirectory() as folder:
        connection.execute(statement)
        columns = [row[0] for row in connection.execute("DESCRIBE t").fetchall()]
        attributes = {
            column: {"role": "quasi", "hierarchy": hierarchies[column]}
            if column in hierarchies
            else {"role": "sensitive"}
            for column in columns
        }
        ask = sqlanon.Policy(
            source={"table": "t"}, attributes=attributes, privacy=dict(privacy), release={"table": "released"},
            search={**MONDRIAN, **search},
        )  # fmt: skip
        with sqlanon.connect(connection) as db:
            result = db.anonymize(ask)
            release = result.publish(Path(folder) / "r.duckdb")
        with duckdb.connect(str(release.path), read_only=True) as reader:
            sql = reader.sql(f"SELECT {', '.join(columns)} FROM released ORDER BY ALL")
            yield result, sql.fetchall(), [str(type_) for type_ in sql.types]


PLAIN_TREES = {"age": {"intervals": [5, 10]}, "sex": "suppress", "zip": {"mask": "right"}}


@pytest.mark.slow
@pytest.mark.parametrize("cuts", some(["strict", "relaxed"], 2))
def test_the_patients_of_the_paper(cuts: str) -> None:
    """The multidimensional 2-anonymization that the paper shows of its six patients."""
    with run_mondrian(PATIENTS, PLAIN_TREES, {"k": 2}, cuts=cuts, ends="exact") as (result, rows, _):
        assert rows == [
            ("25-26", "Male", "53711", "Brochitis"),
            ("25-26", "Male", "53711", "Flu"),
            ("25-27", "Female", "53712", "AIDS"),
            ("25-27", "Female", "53712", "Hepatitis"),
            ("27-28", "Male", "53710-53711", "Broken Arm"),
            ("27-28", "Male", "53710-53711", "Hang Nail"),
        ]
        assert (result.classes, result.suppressed_rows, result.checked) == (3, 0, 3)


@pytest.mark.thorough
def test_the_patients_of_the_paper_on_a_grid() -> None:
    """Ages end at multiples of five, ZIP codes at their last but one digit."""
    with run_mondrian(PATIENTS, PLAIN_TREES, {"k": 2}) as (result, rows, _):
        assert Counter(row[:3] for row in rows) == {("25-29", "Male", "5371*"): 4, ("25-29", "Female", "53712"): 2}
        assert result.losses["age"] == 1


@pytest.mark.thorough
@pytest.mark.parametrize("summary", some(["set", "range"], 2))
def test_many_values_take_few_rounds(summary: str) -> None:
    statement = "CREATE TABLE t AS SELECT 'v' || i // 2 AS x FROM range(128) AS r(i)"
    with run_mondrian(statement, {"x": "suppress"}, {"k": 2}, summary=summary) as (result, rows, _):
        assert result.classes == len(set(rows)) == 64
        assert result.checked < 64 / 2


@pytest.mark.thorough
def test_medians_are_values_of_their_columns() -> None:
    with run_mondrian(PATIENTS, PLAIN_TREES, {"k": 2}, summary="median", ends="exact") as (_, rows, types):
        assert types[:3] == ["INTEGER", "VARCHAR", "INTEGER"]
        assert Counter(row[:3] for row in rows) == {
            (25, "Male", 53711): 2, (25, "Female", 53712): 2, (27, "Male", 53710): 2,
        }  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(
    "privacy", some([{"k": 2, "l_diversity": [{"attribute": "disease", "kind": "distinct", "l": 2}]}, {"k": 2}], 2)
)
def test_ten_patients_are_all_released(privacy: dict[str, Any]) -> None:
    trees = {"sex": "suppress", "zip": {"mask": "right"}, "born": {"intervals": [10, 20]}}
    with run_mondrian(HAMBURG, trees, privacy) as (result, rows, _):
        assert (len(rows), result.suppressed_rows) == (10, 0)
        assert result.classes >= 4
        classes = defaultdict(list)
        for *quasi, disease in rows:
            classes[tuple(quasi)].append(disease)
        assert all(len(diseases) >= 2 for diseases in classes.values())
        if "l_diversity" in privacy:
            assert all(len(set(diseases)) >= 2 for diseases in classes.values())


@pytest.mark.slow
def test_null_and_dates() -> None:
    """NULL is in no range, and a range of dates can be read; a month is no range."""
    statement = """CREATE TABLE t AS FROM (VALUES
        (DATE '2020-01-05', 1), (DATE '2020-01-07', 1), (DATE '2021-03-01', 1), (DATE '2021-03-01', 1), (NULL, 2),
        (NULL, 2), (NULL, 3), (DATE '2022-01-01', 3)) AS v(day, ward)"""
    trees = {"day": {"dates": ["month", "year"]}, "ward": "suppress"}
    others = {("2021-03-01", 1): 2, (None, 2): 2, ("*", 3): 2}
    with run_mondrian(statement, trees, {"k": 2}, ends="exact") as (_, rows, _):
        assert Counter(rows) == {("2020-01-05 to 2020-01-07", 1): 2, **others}
    with run_mondrian(statement, trees, {"k": 2}) as (_, rows, _):
        assert Counter(rows) == {("2020-01", 1): 2, **others}


def test_a_class_shows_its_set() -> None:
    """Where it is all that an ancestor has, it shows that."""
    statement = (
        """CREATE TABLE t AS FROM (VALUES ('a', 2), ('b', 2), ('c', 1), ('d', 1), ('a', 3), ('c', 3)) AS v(x, y)"""
    )
    trees = {"x": {"categories": {"ab": ["a", "b"], "cde": ["c", "d", "e"]}}, "y": "suppress"}
    with run_mondrian(statement, trees, {"k": 2}, summary="set", ends="exact") as (result, rows, _):
        assert Counter(rows) == {("ab", 2): 2, ("{c, d}", 1): 2, ("{a, c}", 3): 2}
        assert result.score == pytest.approx(1 / 4 / 2)


@pytest.mark.thorough
def test_a_set_lists_what_k_rows_have() -> None:
    """One row has a, and one e, as one has their groups."""
    statement = """CREATE TABLE t AS FROM (VALUES
        ('a', 'p'), ('e', 'p'), ('b', 'q'), ('c', 'q'), ('b', 'r'), ('c', 'r'))
        AS v(x, y)"""
    trees = {"x": {"categories": {"a": ["a"], "bc": ["b", "c", "d"], "e": ["e"]}}, "y": "suppress"}
    others = {("{b, c}", "q"): 2, ("{b, c}", "r"): 2}
    for ends, label in (("grid", "*"), ("exact", "{a, e}")):
        with run_mondrian(statement, trees, {"k": 2}, summary="set", ends=ends) as (_, rows, _):
            assert Counter(rows) == {(label, "p"): 2, **others}


@pytest.mark.slow
@pytest.mark.parametrize("limit", some([{"time_limit": 1e-9}, {"max_checks": 1}], 2))
def test_it_may_be_stopped_at_any_time(limit: dict[str, Any]) -> None:
    """The parts so far meet the requirements; there is always a first round."""
    with run_mondrian(PATIENTS, PLAIN_TREES, {"k": 2}, ends="exact", **limit) as (result, _, _):
        assert (result.checked, result.classes, result.optimal) == (1, 2, False)


# --- real tables --------------------------------------------------------------------------------------

FIGURES = {
    ("range", "strict", 5): (0.02793, 3197),
    ("range", "relaxed", 5): (0.02754, 3221),
    ("set", "strict", 2): (0.00358, 6972),
    ("set", "strict", 5): (0.01278, 3222),
    ("set", "relaxed", 5): (0.01274, 3231),
}


@pytest.mark.thorough
@pytest.mark.parametrize(("summary", "cuts", "k"), FIGURES)
def test_adult(data: Path, summary: str, cuts: str, k: int) -> None:
    """Little is lost, and nothing is suppressed."""
    with sqlanon.connect() as db:
        result = db.anonymize(adult(data, k, 0, **MONDRIAN, summary=summary, cuts=cuts, ends="exact"))
        loss, classes = FIGURES[summary, cuts, k]
        assert result.score <= loss
        assert result.classes >= classes
        assert result.suppressed_rows == 0


@pytest.mark.thorough
def test_it_is_the_same_with_any_number_of_threads(data: Path, tmp_path: Path) -> None:
    ask = adult(data, 10, 0, **MONDRIAN, summary="set", cuts="relaxed")
    digests = set()
    for threads in (1, 4):
        with sqlanon.connect(threads=threads) as db:
            digests.add(db.anonymize(ask).publish(tmp_path / f"{threads}.duckdb", "adult").manifest.digest)
    assert len(digests) == 1
