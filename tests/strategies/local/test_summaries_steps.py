"""The labels that classes are released as, on small tables in the tests, compared with plain Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from plain_counts import Counts
from small_tasks import Small, draw_rows, letters, small_task
from sqlglot import exp

from oracles.oracle import Hierarchy
from properties.local_tasks import Plain
from sqlanon.strategies.local.core import summaries
from sqlanon.strategies.local.core.nodes import CELL_COLUMNS, Grid, Tree, set_labels
from sqlanon.strategies.local.core.summaries import (
    AttributeClasses,
    Summary,
    as_ancestor,
    as_median,
    as_range,
    as_set,
    make_allowed_nodes,
)
from sqlanon.strategies.local.core.task import LocalTask
from sqlanon.support.expressions import table
from support.databases import insert

NUMBERS = Hierarchy({
    f"1{i}": (f"1{i}", f"1{i // 2 * 2}+", f"1{i // 4 * 4}~", "*") for i in range(8)
})  # fmt: skip
WORDS = Hierarchy({
    "{a": ("{a", "p", "*"), "b, c": ("b, c", "p", "*"), 'd"e': ('d"e', "p", "*"), "f": ("f", "q", "*"),
    "g ": ("g ", "q", "*"), "h": ("h", "r", "*"), "i": ("i", "r", "*"), " j": (" j", "r", "*"),
})  # fmt: skip
A, B = letters("a", 6, 2), letters("b", 2)

Shown = tuple[str | None, float, int, bool]  # label, leaves, level, and whether its node is none of the hierarchy


@dataclass
class Part:
    """A class: the facts about its values of the first attribute."""

    plain: Plain
    tree: Tree
    rows: Counter[int]  # by lowest node
    position: Mapping[int, tuple[int, int]]
    cells: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # by lowest node
    members: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = self.plain.nodes[0]
        paths = {paths[0][0]: paths[0] for paths in self.plain.paths.values()}
        self.values = sorted(self.rows, key=lambda node: self.position[node])
        self.labels = [nodes[node].label for node in self.values]
        levels = zip(*(paths[node] for node in self.values), strict=True)
        path = [next(iter(level)) for level in map(set, levels) if len(level) == 1]
        self.common = nodes[path[0]]
        released = [node for node in path if nodes[node].released]
        self.may_be_common = released[0] == path[0]
        node = nodes[released[0]]
        self.ancestor: Shown = node.label, node.leaves, node.level, False
        self.width = self.position[self.values[-1]][1] - self.position[self.values[0]][0]

    def own(self, label: str, leaves: float) -> Shown:
        """A single value is shown by itself, not as a node of the hierarchy, unless its label is forbidden."""
        return self.ancestor if label in self.tree.forbidden else (label, float(leaves), self.common.level, True)

    def are_released(self, *values: int) -> bool:
        return all(self.plain.nodes[0][value].released for value in values)

    @property
    def has_several(self) -> bool:
        return len(self.values) > 1 and None not in self.labels

    @property
    def middle(self) -> int:
        rows = [node for node in self.values for _ in range(self.rows[node])]
        return rows[(len(rows) - 1) // 2]


def range_of(part: Part) -> Shown:
    first, last = part.labels[0], part.labels[-1]
    if not part.has_several or not part.are_released(part.values[0], part.values[-1]):
        return part.ancestor
    assert first is not None and last is not None
    if first.startswith("<") or last.startswith("≥"):
        if first.startswith("<") == last.startswith("≥"):
            return part.ancestor
        return part.own(f"<{int(last) + 1}" if first.startswith("<") else f"≥{first}", part.width)
    return part.own(f"{first} to {last}" if "-" in first + last else f"{first}-{last}", part.width)


def range_of_cells(part: Part) -> Shown:
    assert part.tree.grid is not None
    cells = sorted((part.cells[node] for node in part.values), key=lambda cell: int(cell["cell_low"]))
    first, last = cells[0], cells[-1]
    is_open_below, is_open_above = (any(cell[end] is None for cell in cells) for end in ("lower", "upper"))
    is_in_cells = all(cell["lower"] is not None or cell["upper"] is not None for cell in cells)
    if not part.has_several or not is_in_cells or part.common.level <= (part.tree.grid.level or 0):
        return part.ancestor
    width = last["cell_high"] - first["cell_low"]
    if is_open_below:
        return part.ancestor if is_open_above else part.own(f"<{last['beyond']}", width)
    if is_open_above:
        return part.own(f"≥{first['least']}", width)
    if all(cell["closed"] for cell in cells):
        dash = " to " if "-" in first["lower"] + last["upper"] else "-"
        return part.own(f"{first['lower']}{dash}{last['upper']}", width)
    return part.own(f"[{first['lower']}, {last['upper']})", width)


def median_of(part: Part) -> Shown:
    label = part.plain.nodes[0][part.middle].label
    if not part.has_several or not part.are_released(part.middle):
        return part.ancestor
    return part.own(label or "", part.width)


def median_of_cells(part: Part) -> Shown:
    cells = [part.cells[node] for node in part.values]
    if not part.has_several or any(cell["middle"] is None for cell in cells):
        return part.ancestor
    width = max(cell["cell_high"] for cell in cells) - min(cell["cell_low"] for cell in cells)
    return part.own(part.cells[part.middle]["middle"], width)


def set_of(part: Part) -> Shown:
    alone = len(part.values) == 1 and str(part.labels[0]).startswith("{")
    listed_values = None
    if alone and part.are_released(*part.values):
        listed_values = {(part.labels[0], 1)}
    for level in range(part.tree.height):
        rows = [part.members[node] for node in part.values]
        if listed_values is None and all(row[f"is_member_{level}"] for row in rows):
            listed_values = {(row[f"label_{level}"], row[f"size_{level}"]) for row in rows}
    if listed_values is None or None in part.labels or not (alone or len(listed_values) > 1):
        return part.ancestor
    leaves = sum(size for _, size in listed_values) - 1
    if not alone and leaves == part.common.leaves and part.may_be_common:
        return part.ancestor
    return part.own("{" + ", ".join(quote_name(str(label)) for label, _ in sorted(listed_values)) + "}", leaves)


def quote_name(label: str) -> str:
    is_plain = label and label == label.strip() and not {*label} & {*',{}"'}
    return label if is_plain else '"' + label.replace('"', '""') + '"'


@contextmanager
def classes_of(small: Small, renamed: Mapping[str, str | None]) -> Iterator[tuple[LocalTask, Plain]]:
    """A task with many classes of one or more combinations, ``classes``; with other labels of some values."""
    with small_task(small) as task:
        connection = task.engine.connection  # type: ignore[attr-defined]
        for old, new in renamed.items():
            connection.execute("UPDATE nodes_0 SET label = ? WHERE label = ?", [new, old])
        plain, rng = Plain(task), random.Random(1)
        places = sorted(plain.n)
        parts = [{place} for place in places] + [{*places}]
        parts += [{place for place in places if node in plain.paths[place][0]} for node in plain.nodes[0]]
        parts += [{*rng.sample(places, 1 + number % 5)} for number in range(60)]
        connection.execute("CREATE TABLE parts (combination INTEGER, part INTEGER)")
        values = [(place, part) for part, some in enumerate(parts) for place in some]
        insert(connection, "parts", values)
        connection.execute("CREATE TABLE classes AS SELECT c.*, p.part FROM combinations AS c NATURAL JOIN parts AS p")
        yield task, plain


def summarize_classes(task: LocalTask, tree: Tree, summary: Summary) -> dict[int, Shown]:
    """The released label of each class, as a number above those of the hierarchy if it is not a node."""
    name = summary.__name__
    allowed = make_allowed_nodes(task, f"{name}_of")[0]
    summary_table = task.runner.create_table(table(name), summary(AttributeClasses(table("classes"), 0, tree, allowed)))
    numbers: dict[int, Any] = {}
    parts: dict[int, Shown] = {}
    for part, node, *columns in task.engine.rows(
        exp.select("part", "node", "label", "leaves", "level").from_(summary_table)
    ):
        assert numbers.setdefault(node, columns) == columns
        parts[part] = (*columns, node > tree.root)  # type: ignore[assignment]
    nodes = [node for node in numbers if node > tree.root]
    assert sorted(nodes) == [*range(tree.root + 1, tree.root + 1 + len({*map(str, map(numbers.get, nodes))}))]
    return parts


def expected_summaries(
    task: LocalTask, plain: Plain, tree: Tree, summarize: Callable[[Part], Shown], **more: Any
) -> dict[int, Shown]:
    parts: dict[int, Counter[int]] = {}
    for part, combination in task.engine.rows(exp.select("part", "combination").from_("classes")):
        parts.setdefault(part, Counter())[plain.paths[combination][0][0]] += plain.n[combination]
    positions = exp.select("node", "low", "high").from_("nodes_0")
    position = {node: (low, high) for node, low, high in task.engine.rows(positions)}
    return {part: summarize(Part(plain, tree, rows, position, **more)) for part, rows in parts.items()}


PLAIN = Small(draw_rows(1, 60, [NUMBERS, B], 0.6), [NUMBERS, B], forbidden=[["10-15", "12", "14+"], []])
RANGES = {
    "numbers": (PLAIN, {"10": "-10", "13": None}),
    "open ends": (replace(PLAIN, forbidden=[["<17", "12"], []]), {"10": "<11", "17": "≥17", "15": "nan"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RANGES)
def test_classes_are_ancestors_ranges_and_medians_as_in_plain_python(name: str) -> None:
    small, renamed = RANGES[name]
    with classes_of(small, renamed) as (task, plain):
        tree = replace(task.trees[0], is_ordered=True, column_type="BIGINT", open_ends=name == "open ends")
        ancestors = expected_summaries(task, plain, tree, lambda part: part.ancestor)
        assert summarize_classes(task, tree, as_ancestor) == ancestors
        for summary, summarize in ((as_range, range_of), (as_median, median_of)):
            if (name, summary) == ("open ends", as_median):
                continue

            def range_or_ancestor(part: Part, summarize: Callable[[Part], Shown] = summarize) -> Shown:
                return part.ancestor if "nan" in part.labels else summarize(part)

            labels = expected_summaries(task, plain, tree, range_or_ancestor)
            assert summarize_classes(task, tree, summary) == labels
            assert {label[3] for label in labels.values()} == {False, True}


def grid_of(task: LocalTask, kind: str) -> dict[int, dict[str, Any]]:
    """Makes ``grid``: cells of two values; closed, half open, or with open ends and one that is not a range."""
    cells = {}
    lowest = exp.select("node", "low").from_("nodes_0").where("level = 0").order_by("low")
    for node, place in task.engine.rows(lowest):
        low = place // 2 * 2
        ends: list[Any] = [f"1{low}", f"1{low + 1}", f"1{low}", f"1{low + 2}", f"m{low}", kind != "half open"]
        if kind == "closed" and not low:
            ends[0] = f"-{ends[0]}"
        if kind == "open" and low in (0, 4, 6):
            ends[0] = ends[0] if low == 6 else None
            ends[1] = None if low in (4, 6) else ends[1]
            ends[4] = ends[4] if low != 4 else None
        cells[node] = dict(zip(("cell", *CELL_COLUMNS), (100 + low, low, low + 1, *ends), strict=True))
    connection = task.engine.connection  # type: ignore[attr-defined]
    texts = "lower VARCHAR, upper VARCHAR, least VARCHAR, beyond VARCHAR, middle VARCHAR, closed BOOLEAN"
    connection.execute(f"CREATE TABLE grid (node INTEGER, cell INTEGER, cell_low INTEGER, cell_high INTEGER, {texts})")
    rows = [[node, *cell.values()] for node, cell in cells.items()]
    insert(connection, "grid", rows)
    return cells


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "level"), [("closed", 1), ("half open", None), ("open", 1)])
def test_classes_end_on_their_grid_as_in_plain_python(kind: str, level: int | None) -> None:
    with classes_of(
        replace(PLAIN, forbidden=[["10-15", "[10, 13)", "m2"], []]), {"13": None} if kind == "closed" else {}
    ) as (
        task,
        plain,
    ):
        cells = grid_of(task, kind)
        tree = replace(task.trees[0], is_ordered=True, grid=Grid(table("grid"), level))
        assert summarize_classes(task, tree, as_range) == expected_summaries(
            task, plain, tree, range_of_cells, cells=cells
        )
        assert summarize_classes(task, tree, as_median) == expected_summaries(
            task, plain, tree, median_of_cells, cells=cells
        )


@pytest.mark.parametrize("exact", [False, True])
def test_sets_of_frequent_values_match_plain_python(exact: bool) -> None:
    # With exact sets, all values of r may be listed, but not r itself.
    forbidden = ["f", "r" if exact else "q", '{" j", h}']
    small = Small(draw_rows(3, 60, [WORDS, B], 0.6), [WORDS, B], forbidden=[forbidden, []])
    with classes_of(small, {"b, c": None} if exact else {}) as (task, plain):
        nodes = plain.nodes[0]
        frequent = {node for node in nodes if node % 4 != 1}
        connection = task.engine.connection  # type: ignore[attr-defined]
        connection.execute("CREATE TABLE frequent (node INTEGER)")
        insert(connection, "frequent", [(node,) for node in frequent])
        tree = task.trees[0]
        sets = task.runner.create_table(table("sets"), set_labels(tree, table("frequent"), exact))
        members = {}
        for paths in plain.paths.values():
            row: dict[str, Any] = {"node": paths[0][0], "is_rare": paths[0][0] not in frequent}
            for level, node in enumerate(paths[0][:-1]):
                details = nodes[node]
                is_listed = level == 0 if exact else node in frequent
                row |= {f"label_{level}": details.label, f"size_{level}": int(details.leaves) + 1}
                row[f"is_member_{level}"] = details.label is not None and details.released and is_listed
            members[paths[0][0]] = row
        names = list(row)
        rows = task.engine.rows(exp.select(*names).from_(sets))
        assert {set_row[0]: dict(zip(names, set_row, strict=True)) for set_row in rows} == members
        tree = replace(tree, set_labels=sets)
        labels = expected_summaries(task, plain, tree, set_of, members=members)
        assert summarize_classes(task, tree, as_set) == labels
        assert {label[3] for label in labels.values()} == {False, True}


@pytest.mark.parametrize(("unit", "k"), [("rows", 1), ("settled persons", 1), ("persons", 3)])
def test_a_set_may_list_what_as_many_have_as_a_class_needs_but_never_one_alone(unit: str, k: int) -> None:
    rows = draw_rows(3, 24, [A, B], 0.6)
    persons = {
        "rows": None,
        "settled persons": [10 * sorted({*rows}).index(row) + i % 2 for i, row in enumerate(rows)],
        "persons": [i * i % 4 for i in range(24)],
    }[unit]
    small = Small(rows, [A, B], k, persons=persons, search={"summary": "set"})
    with small_task(small) as task:
        plain, tree = Counts(task, small), task.trees[0]
        assert tree.set_labels is not None
        by_node = {
            node: [c for c, paths in plain.paths.items() if node in paths[0]]
            for paths in plain.paths.values()
            for node in paths[0]
        }
        listed = task.engine.rows(exp.select("node", "is_member_0", "is_member_1").from_(tree.set_labels))
        path_of = {paths[0][0]: paths[0] for paths in plain.paths.values()}
        counts = {node: [plain.count(by_node[above]) for above in path_of[node][:2]] for node in path_of}
        assert {node: flags for node, *flags in listed if node in path_of} == {
            node: [count >= max(k, 2) for count in of_levels] for node, of_levels in counts.items()
        }
        enough_rows = [node for node in path_of if plain.rows(dict.fromkeys(by_node[node], ())) >= max(k, 2)]
        assert (persons is None) == all(counts[node][0] >= max(k, 2) for node in enough_rows)


def test_each_node_knows_its_nearest_and_highest_releasable_ancestor() -> None:
    with small_task(
        Small(PLAIN.rows, PLAIN.hierarchies, spans=[(1, 2), (0, 1)], forbidden=[["12+", "14~"], []])
    ) as task:
        plain, (allowed, _) = Plain(task), make_allowed_nodes(task, "t")
        rows = task.engine.rows(exp.select("node", "released_node", "highest_released").from_(allowed))
        expected = {}
        for path in {paths[0] for paths in plain.paths.values()}:
            for place, node in enumerate(path):
                released = [above for above in path[place:] if plain.nodes[0][above].released]
                expected[node] = (released[0], released[-1]) if released else (None, None)
        assert {node: tuple(ancestors) for node, *ancestors in rows} == expected


@pytest.mark.parametrize("summary", ["range", "median", "set"])
def test_combinations_whose_values_a_label_shows_are_flagged(summary: str) -> None:
    with classes_of(PLAIN, {"17": "≥17"}) as (task, plain):
        tree = replace(task.trees[0], is_ordered=summary != "set", set_labels=table("sets"))
        build = {"range": as_range, "median": as_median, "set": as_set}[summary]
        rare = {node for node in plain.nodes[0] if node % 3 == 0}
        if summary == "set":
            connection = task.engine.connection  # type: ignore[attr-defined]
            connection.execute("CREATE TABLE frequent AS SELECT node FROM nodes_0 WHERE node % 3 <> 0")
            task.runner.create_table(table("sets"), set_labels(tree, table("frequent"), exact=True))
        ordered = replace(task, trees=(tree, task.trees[1]))
        parts = summarize_classes(task, tree, build)
        allowed = make_allowed_nodes(task, "u")[1]
        lasting = task.runner.create_table(
            table("others"), as_ancestor(AttributeClasses(table("classes"), 1, task.trees[1], allowed))
        )
        query = summaries.exact_end_flags(ordered, table("classes"), [table(build.__name__), lasting], summary)
        of_part: dict[int, list[int]] = {}
        for part, combination in task.engine.rows(exp.select("part", "combination").from_("classes")):
            of_part.setdefault(part, []).append(combination)
        cases = []
        for part, combinations in of_part.items():
            label, _, _, is_own = parts[part]
            values = {c: plain.paths[c][0][0] for c in combinations}
            for c, node in values.items():
                own_label = plain.nodes[0][node].label or ""
                is_value = not own_label.startswith("≥")  # but an open cell
                is_end = {
                    "range": is_value and node in (min(values.values()), max(values.values())),
                    "median": is_value and own_label == label,
                    "set": node in rare,
                }[summary]
                cases.append((c, is_own and is_end, False))
        assert sorted(task.engine.rows(query)) == sorted(cases)
