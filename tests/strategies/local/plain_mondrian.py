"""Mondrian in plain Python, one part after the other, over the tables that the strategy itself works on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.strategies.local.core.nodes import END_COLUMNS
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask

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
        """The first position in the paths at which all combinations of a part agree."""
        paths = [self.paths[combination] for combination in part]
        return next(place for place in range(len(paths[0])) if len({path[place] for path in paths}) == 1)


class Plain:
    """Mondrian, one part after the other, over the input of the strategy itself."""

    def __init__(self, task: LocalTask, summary: str, relaxed: bool, k: int) -> None:
        self.summary, self.relaxed, self.k = summary, relaxed, k
        self.columns = [self.column(task, i) for i in range(len(task.trees))]
        self.n = dict(task.engine.rows(exp.select("combination", "row_count").from_(task.combinations)))

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

    def count(self, part: Iterable[int]) -> int:
        """The number that must be k in a class."""
        return self.rows(part)

    def rows(self, part: Iterable[int]) -> int:
        return sum(self.n[combination] for combination in part)

    def first(self) -> list[Part]:
        """Parts that can be released as one, where they are large enough."""
        groups = defaultdict(list)
        for combination in self.n:
            tops = [[place for place, node in enumerate(column.above(combination)) if node.released]
                    for column in self.columns]  # fmt: skip
            if all(tops):
                key = tuple(
                    column.paths[combination][places[-1]] for column, places in zip(self.columns, tops, strict=True)
                )
                groups[key].append(combination)
        return [tuple(part) for part in groups.values() if self.count(part) >= self.k]

    def parts(self) -> set[Part]:
        waiting, finished = self.first(), set()
        while waiting:
            part = waiting.pop()
            cut = self.best(part)
            if cut is None:
                finished.add(tuple(sorted(part)))
            else:
                waiting += cut
        return finished

    def best(self, part: Part) -> tuple[Part, Part] | None:
        cuts = []
        for i, column in enumerate(self.columns):
            within = bool(column.cells) and len({column.cell(combination) for combination in part}) == 1
            cut = self.cut_of_cell(column, part) if within else self.cut(column, part)
            if cut is not None and min(map(self.rows, cut[1])) >= self.k <= min(map(self.count, cut[1])):
                cuts.append((-round(cut[0], 9), i + len(self.columns) * within, cut[1]))
        return min(cuts)[2] if cuts else None

    def cut(self, column: Column, part: Part) -> tuple[float, tuple[Part, Part]] | None:
        if column.common(part) == 0:
            return None
        if column.ordered:
            return self.cut_of_order(column, part)
        return (self.cut_of_set if self.summary == "set" else self.cut_of_hierarchy)(column, part)

    def gain(self, column: Column, part: Part, cut: tuple[Part, Part]) -> float:
        """Gain of releasing ranges, or sets."""
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

    def cut_of_order(self, column: Column, part: Part) -> tuple[float, tuple[Part, Part]] | None:
        """At the mean position; or at the nearest border with k rows on both sides."""
        position = {combination: self.position(column, combination) for combination in part}
        mean = sum(self.n[combination] * position[combination] for combination in part) // self.rows(part)
        order = sorted(part, key=lambda combination: (position[combination], combination))
        at_mean = sum(position[combination] <= mean for combination in part)
        borders = [
            at
            for at in range(1, len(order))
            if (self.relaxed or position[order[at - 1]] != position[order[at]])
            and self.k <= self.rows(order[:at]) <= self.rows(part) - self.k
        ]
        if not borders or len(set(position.values())) == 1:
            return None
        at = min(borders, key=lambda at: abs(at - at_mean))
        cut = tuple(order[:at]), tuple(order[at:])
        return self.gain(column, part, cut), cut

    def position(self, column: Column, combination: int) -> int:
        """The place of a value, or of the first value of its cell. A value in no range with others lies as far from
        the others as the domain is wide, or farther."""

        def place(number: int) -> tuple[int, bool]:
            item = column.cell(number) if column.cells else column.value(number)
            return item.low, item.void if isinstance(item, Cell) else item.label is None

        low, is_void = place(combination)
        places = [place for place, void in map(place, self.n) if not void]
        leaves = int(column.top) + 1
        if not is_void or not places:
            return low
        if low < min(places):
            return low - (min(places) - low) * leaves
        return low + (low - max(places)) * leaves

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
        """The values within a cell are its children, or the nodes of the hierarchy between."""
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
            so_far = sum(rows[path] for path in taken)
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
        node = next(node for node in above[place:] if node.released)
        values = sorted({column.value(combination) for combination in part}, key=lambda value: value.low)
        plain = node.label, node.leaves
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
        covered = {column.above(combination)[level] for combination in part}
        size = sum(node.leaves + 1 for node in covered)
        is_whole = size == above[place].leaves + 1 and above[place].released
        return plain if is_whole else (f"{{{', '.join(sorted(str(node.label) for node in covered))}}}", size - 1)

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


def released_labels(task: LocalTask, outcome: LocalOutcome) -> dict[int, tuple[tuple[str | None, float], ...]]:
    """The released labels of each combination, with their leaves."""
    nodes_by_key = [
        {node: (label, leaves) for node, label, leaves in task.engine.rows(
            exp.select("node", "label", "leaves").from_(outcome.nodes.get(i, tree.nodes)))}
        for i, tree in enumerate(task.trees)
    ]  # fmt: skip
    nodes = [f"node_{i}" for i in range(len(task.trees))]
    rows = task.engine.rows(exp.select("combination", *nodes).from_(outcome.assignment))
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: tuple(by[node] for by, node in zip(nodes_by_key, row[1:], strict=True)) for row in rows}
