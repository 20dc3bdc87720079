"""Bound the rows that two overlapping classes of two releases have in common, given the counts of all classes.

With the ages 0-14 in one release, and 0-9 and 10-19 in the other, the rows of ages 10 to 14 are those that 0-14 has in
excess of 0-9. The assignment of rows of the first release to classes of the second is a flow in a bipartite graph, and
readers assume as few new or gone rows as the counts allow: the maximum flows. SQL cannot compute flows, so this module
iterates over classes; few components need it (`overlaps.MAX_OVERLAPS`).

The flow of an edge can change only along a cycle of the residual graph, and so is the same in all maximum flows where
the ends of the edge are in different strongly connected components of that graph.

Sources: R. K. Ahuja, T. L. Magnanti, J. B. Orlin, Network Flows, Prentice Hall 1993, sections 2.4 and 6.3; R. M. Karp,
M. Sipser, Maximum matchings in sparse random graphs, FOCS 1981, for matching classes with one remaining edge first.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

Edge = tuple[int, int]

MAX_STEPS = 15_000_000
"""Maximum number of arcs of residual graphs that are followed for two releases: five to ten seconds."""

FEW_STEPS = 1_000_000
"""Maximum number of arcs that are followed to find more attacks on releases that are refused already."""


class TooManyStepsError(Exception):
    """The flows of two releases take more than `MAX_STEPS` steps."""


class StepBudget:
    """The steps that are left for all graphs of two releases."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def leave_few(self) -> None:
        self._left = min(self._left, FEW_STEPS)

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooManyStepsError


@dataclass(frozen=True)
class Bound:
    """Proof that a pair of classes shares no more rows.

    The classes ``seconds`` of the second release contain only the rows of the classes ``firsts`` of the first, the rows
    of the pair, and rows that are new or gone. So the rows of the pair are those of ``seconds`` minus those of
    ``firsts``, plus ``changed``.
    """

    firsts: Set[int]
    seconds: Set[int]
    changed: int


class OverlapFlows:
    """A maximum flow between overlapping classes, and the maximum number of rows of an edge in any such flow.

    ``first`` and ``second`` are the rows of each class of either release; ``edges`` are the pairs of a class of the
    first and one of the second that can have rows in common. A graph that is too large for the steps that are left, by
    default those of two releases, raises `TooManyStepsError`.

    Ages 0-9, 10-19 and 20-29, then 0-14 and 15-29: one row is of 10 to 14 years.

    >>> flows = OverlapFlows({0: 6, 1: 10, 2: 8}, {0: 7, 1: 17}, [(0, 0), (1, 0), (1, 1), (2, 1)])
    >>> [flows.max_rows((1, 0), enough=5), flows.max_rows((1, 1), enough=5)]
    [1, 5]
    >>> flows.bound((1, 0))
    Bound(firsts={0}, seconds={0}, changed=0)
    """

    def __init__(
        self,
        first: Mapping[int, int],
        second: Mapping[int, int],
        edges: Iterable[Edge],
        budget: StepBudget | None = None,
    ) -> None:
        self._firsts, self._seconds = list(first), list(second)
        self._nodes = {(True, class_id): node for node, class_id in enumerate(self._firsts)}
        self._nodes |= {(False, class_id): node for node, class_id in enumerate(self._seconds, len(first))}
        self._rows = [*first.values(), *second.values()]
        self._source, self._sink = len(self._rows), len(self._rows) + 1
        # The residual capacity of each arc, by its start and its end
        self._room: list[dict[int, int]] = [{} for _ in range(len(self._rows) + 2)]
        for first_class, second_class in edges:
            start, end = self._edge_nodes((first_class, second_class))
            self._room[start][end], self._room[end][start] = self._rows[start] + self._rows[end], 0
        for node, rows in enumerate(self._rows):
            start, end = (self._source, node) if node < len(first) else (node, self._sink)
            self._room[start][end], self._room[end][start] = rows, 0
        self._budget = budget or StepBudget()
        self._match_leaves_first()
        while self._fill_shortest_paths():
            pass
        self._components = self._strong_components()

    @property
    def rows(self) -> int:
        """The rows of the maximum flow."""
        return sum(self._room[node][self._source] for node in range(len(self._firsts)))

    def max_rows(self, edge: Edge, enough: int) -> int:
        """The maximum number of rows of a pair of classes in any maximum flow, but at most ``enough``."""
        first, second = self._edge_nodes(edge)
        enough = min(enough, self._rows[first], self._rows[second])
        if self._components[first] == self._components[second]:
            while (flow := self._room[second][first]) < enough:
                if not (path := self._path(second, first, {(second, first)})):
                    break
                self._push([*path, (first, second)], min(enough - flow, self._least_room(path)))
        return min(self._room[second][first], enough)

    def max_rows_together(self, edges: Sequence[Edge], enough: int) -> int:
        """The maximum number of rows of pairs of classes together in any maximum flow, but at most ``enough``.

        Each of two classes can have both rows of the one class that they meet, but not in the same flow:

        >>> flows = OverlapFlows({0: 2, 1: 2}, {0: 2}, [(0, 0), (1, 0)])
        >>> [flows.max_rows((0, 0), enough=5), flows.max_rows((1, 0), enough=5)]
        [2, 2]
        >>> flows.max_rows_together([(0, 0), (1, 0)], enough=5)
        2
        """
        pairs = {self._edge_nodes(edge) for edge in edges}
        closed = {(second, first) for first, second in pairs}
        for first, second in pairs:  # first without taking rows from other pairs: that is often enough
            if self._components[first] == self._components[second]:
                while (rows := self._rows_of(pairs)) < enough and (path := self._path(second, first, closed)):
                    self._push([*path, (first, second)], min(enough - rows, self._least_room(path)))
        while (rows := self._rows_of(pairs)) < enough and (cycle := self._gaining_cycle(pairs)):
            self._push(cycle, self._least_room(cycle))
        return min(rows, enough)

    def unmatched_rows(self, is_first: bool, class_id: int) -> int:
        """The rows of a class that are new or gone in the current flow."""
        return self._unmatched_rows(self._nodes[is_first, class_id])

    def max_unmatched_rows(self, is_first: bool, class_id: int) -> int:
        """The maximum number of rows of a class that are new or gone, in any maximum flow."""
        node = self._nodes[is_first, class_id]
        start, goal = (self._source, node) if is_first else (node, self._sink)
        if self._components[start] == self._components[goal]:
            while matched := self._rows[node] - self._unmatched_rows(node):
                if not (path := self._path(start, goal, {(start, goal)})):
                    break
                self._push([*path, (goal, start)], min(matched, self._least_room(path)))
        return self._unmatched_rows(node)

    def bound(self, edge: Edge) -> Bound:
        """Prove the bound of `max_rows` for a pair of classes.

        Once the pair has its most rows, more can flow from its second class only to the classes that are reached. So
        all matched rows of the reached classes of the second release come from the reached classes of the first, or are
        those of the pair.
        """
        self.max_rows(edge, sum(self._rows))
        goal, start = self._edge_nodes(edge)
        reached, queue = {start}, [start]
        while queue:
            node = queue.pop()
            for end in self._open_arcs(node):
                if end not in reached and (node, end) != (start, goal):
                    reached.add(end)
                    queue.append(end)
        firsts = [node for node in reached if node < len(self._firsts)]
        seconds = [node for node in reached if len(self._firsts) <= node < self._source]
        return Bound(
            {self._firsts[node] for node in firsts},
            {self._seconds[node - len(self._firsts)] for node in seconds},
            sum(map(self._unmatched_rows, firsts)) - sum(map(self._unmatched_rows, seconds)),
        )

    def _edge_nodes(self, edge: Edge) -> Edge:
        return self._nodes[True, edge[0]], self._nodes[False, edge[1]]

    def _unmatched_rows(self, node: int) -> int:
        return self._room[self._source][node] if node < len(self._firsts) else self._room[node][self._sink]

    def _rows_of(self, pairs: Set[Edge]) -> int:
        self._budget.spend(len(pairs))
        return sum(self._room[second][first] for first, second in pairs)

    def _least_room(self, path: Iterable[Edge]) -> int:
        return min(self._room[start][end] for start, end in path)

    def _push(self, path: Iterable[Edge], rows: int) -> None:
        for start, end in path:
            self._room[start][end] -= rows
            self._room[end][start] += rows

    def _open_arcs(self, node: int) -> Iterator[int]:
        """The ends of the arcs of a node with residual capacity."""
        self._budget.spend(len(self._room[node]))
        return (end for end, room in self._room[node].items() if room)

    def _match_leaves_first(self) -> None:
        """Match rows greedily; classes with one remaining edge come first."""
        left = [{end for end in room if end < self._source} for room in self._room[: self._source]]
        leaves = deque(node for node, ends in enumerate(left) if len(ends) == 1)
        for node in range(len(left)):
            while left[node] or leaves:
                leaf = leaves.popleft() if leaves else node
                if not left[leaf]:
                    continue
                neighbour = next(iter(left[leaf]))
                first, second = min(leaf, neighbour), max(leaf, neighbour)
                path = [(self._source, first), (first, second), (second, self._sink)]
                self._push(path, min(self._unmatched_rows(first), self._unmatched_rows(second)))
                for start, end in ((first, second), (second, first)):
                    left[start].discard(end)
                    if len(left[start]) == 1:
                        leaves.append(start)

    def _fill_shortest_paths(self) -> bool:
        """Match along all shortest paths of the residual graph (E. Dinic 1970); returns whether there was one."""
        levels, nodes, level = {self._source: 0}, [self._source], 0
        while nodes and self._sink not in levels:
            nodes, level = [end for node in nodes for end in self._open_arcs(node) if end not in levels], level + 1
            levels |= dict.fromkeys(nodes, level)
        if self._sink not in levels:
            return False
        left: dict[int, list[int]] = {}
        path = [self._source]
        while path:
            node = path[-1]
            if node == self._sink:
                arcs = [*pairwise(path)]
                self._push(arcs, self._least_room(arcs))
                del path[next(i for i, (start, end) in enumerate(arcs, 1) if not self._room[start][end]) :]
                continue
            if node not in left:
                left[node] = [end for end in self._open_arcs(node) if levels.get(end) == levels[node] + 1]
            while left[node] and not self._room[node][left[node][-1]]:
                left[node].pop()
            if left[node]:
                path.append(left[node][-1])
            elif path.pop() != self._source:
                left[path[-1]].pop()
        return True

    def _path(self, start: int, goal: int, closed: Set[Edge]) -> list[Edge]:
        """The arcs of a shortest path with residual capacity, without closed arcs; empty without such a path.

        The search proceeds from both ends, each time from the one whose last step reached fewer nodes.
        """
        before, after = {start: start}, {goal: goal}
        forward, backward = [start], [goal]
        while forward and backward:
            is_forward = len(forward) <= len(backward)
            nodes, reached, opposite = (forward, before, after) if is_forward else (backward, after, before)
            following = list[int]()
            for node in nodes:
                self._budget.spend(len(self._room[node]))
                for end in self._room[node]:
                    arc = (node, end) if is_forward else (end, node)
                    if end in reached or arc in closed or not self._room[arc[0]][arc[1]]:
                        continue
                    reached[end] = node
                    if end in opposite:
                        return _join_paths(before, after, end)
                    following.append(end)
            if is_forward:
                forward = following
            else:
                backward = following
        return []

    def _gaining_cycle(self, pairs: Set[Edge]) -> list[Edge]:
        """The arcs of a cycle of the residual graph along which these pairs gain rows; none if they have the most
        (M. Klein 1967). The search for longest paths of R. Bellman and L. Ford finds it.
        """
        queue = deque(first for first, second in pairs if self._components[first] == self._components[second])
        starts, queued = {*queue}, {*queue}
        gains, before = defaultdict[int, int](int), dict[int, int]()
        while queue:
            node = queue.popleft()
            queued.discard(node)
            for end in self._open_arcs(node):
                gain = gains[node] + ((node, end) in pairs) - ((end, node) in pairs)
                if self._components[end] != self._components[node] or gain <= gains[end]:
                    continue
                was_reached = end in before or end in starts
                gains[end], before[end] = gain, node
                if was_reached and (cycle := _close_cycle(before, end)):
                    return cycle
                if end not in queued:
                    queued.add(end)
                    queue.append(end)
        return []

    def _strong_components(self) -> list[int]:
        """The strongly connected component of each node of the residual graph, by R. Tarjan's algorithm."""
        nodes = len(self._rows) + 2
        component, low, order = [-1] * nodes, [-1] * nodes, 0
        for root in range(nodes):
            if low[root] >= 0:
                continue
            index = {root: order}
            stack, open_nodes = [(root, self._open_arcs(root))], [root]
            low[root], order = order, order + 1
            # Nodes of earlier roots have a component: no path leads from them to this root.
            while stack:
                node, ends = stack[-1]
                for end in ends:
                    if low[end] < 0:
                        index[end] = low[end] = order
                        order += 1
                        open_nodes.append(end)
                        stack.append((end, self._open_arcs(end)))
                        break
                    if component[end] < 0:
                        low[node] = min(low[node], low[end])
                else:
                    stack.pop()
                    if stack:
                        low[stack[-1][0]] = min(low[stack[-1][0]], low[node])
                    if low[node] == index[node]:
                        while component[node] < 0:
                            component[open_nodes.pop()] = node
        return component


def _join_paths(before: Mapping[int, int], after: Mapping[int, int], middle: int) -> list[Edge]:
    """The arcs of a path from a start to a goal through a node in the middle.

    ``before`` and ``after`` map nodes to their neighbours on the path; the start and the goal map to themselves.

    >>> _join_paths({1: 1, 2: 1}, {4: 4, 3: 4, 2: 3}, 2)
    [(1, 2), (2, 3), (3, 4)]
    """
    path, node = list[Edge](), middle
    while before[node] != node:
        path.append((before[node], node))
        node = before[node]
    path.reverse()
    node = middle
    while after[node] != node:
        path.append((node, after[node]))
        node = after[node]
    return path


def _close_cycle(before: Mapping[int, int], node: int) -> list[Edge]:
    """The arcs of a cycle through a node, given the node before each; empty without a cycle.

    >>> _close_cycle({2: 1, 3: 2, 1: 3, 4: 3}, 1)
    [(3, 1), (2, 3), (1, 2)]
    >>> _close_cycle({2: 1, 3: 2}, 3)
    []
    """
    cycle, end = [(before[node], node)], before[node]
    while end != node:
        if end not in before:
            return []
        cycle.append((before[end], end))
        end = before[end]
    return cycle


class ComponentFlows:
    """The flows of connected components, computed on demand.

    An edge is a component, a group of either release, the rows of each, and the number of the finest labels of the two.
    """

    def __init__(self, edges: Sequence[tuple[int, ...]], budget: StepBudget) -> None:
        self._edges = defaultdict[int, list[Edge]](list)
        self._firsts, self._seconds = defaultdict[int, dict[int, int]](dict), defaultdict[int, dict[int, int]](dict)
        self.by_finest = defaultdict[int, dict[int, list[Edge]]](lambda: defaultdict(list))
        for component, first, second, first_rows, second_rows, finest_id in edges:
            self._edges[component].append((first, second))
            self._firsts[component][first], self._seconds[component][second] = first_rows, second_rows
            self.by_finest[finest_id][component].append((first, second))
        self._flows, self.budget = dict[int, OverlapFlows](), budget

    @property
    def largest(self) -> int:
        return max(map(len, self._edges.values()))

    def flows_of(self, component: int) -> OverlapFlows:
        if component not in self._flows:
            rows = self._firsts[component], self._seconds[component]
            self._flows[component] = OverlapFlows(*rows, self._edges[component], self.budget)
        return self._flows[component]

    def max_shared_rows(self, finest_id: int, known_rows: int, enough: int) -> int:
        """The maximum number of rows that all pairs with these finest labels share, at most ``enough``.

        ``known_rows`` are the rows of the regular components with these labels, which are counted beforehand.
        """
        total = known_rows
        for component, edges in self.by_finest[finest_id].items():
            if total >= enough:
                break
            total += self.flows_of(component).max_rows_together(edges, enough - total)
        return min(total, enough)

    def explain(self, finest_id: int, total: int) -> Iterator[tuple[Edge, int, Bound]]:
        """The pairs of these finest labels that share rows, ``total`` in all, the most rows of each, and the reason."""
        for component, edges in self.by_finest[finest_id].items():
            flows = self.flows_of(component)
            for edge in edges:
                if most := flows.max_rows(edge, total):
                    yield edge, most, flows.bound(edge)

    def bounds(self) -> dict[Edge, int]:
        """The maximum number of rows of the pairs that share fewer rows than the smaller class has."""
        bounds = dict[Edge, int]()
        for component, edges in self._edges.items():
            for first, second in edges:
                smaller = min(self._firsts[component][first], self._seconds[component][second])
                if (most := self.flows_of(component).max_rows((first, second), smaller)) < smaller:
                    bounds[first, second] = most
        return bounds

    def unmatched_groups(self) -> Iterator[tuple[bool, int, int, int]]:
        """The groups that can have new or gone rows: whether they are of the first release, their number, the most such
        rows in any maximum flow, and these rows in one maximum flow (their sum is the same in each)."""
        for component in self._edges:
            flows = self.flows_of(component)
            for is_first, groups in ((True, self._firsts[component]), (False, self._seconds[component])):
                rows_by_group = {group: flows.unmatched_rows(is_first, group) for group in groups}
                if any(rows_by_group.values()):
                    for group, rows in rows_by_group.items():
                        yield is_first, group, flows.max_unmatched_rows(is_first, group), rows
