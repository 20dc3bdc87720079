"""Bound the rows that two overlapping classes of two releases have in common, given the counts of all classes.

Where classes overlap without containment, counts alone can reveal them: with the ages 0-14 in one release and 0-9 and
10-19 in the other, the rows of ages 10 to 14 are those that 0-14 has in excess of 0-9. The assignment of rows of the
first release to classes of the second is a flow in a bipartite graph. Tables hardly change between two releases, so
readers assume as few new or gone rows as the counts allow: the greatest flows.

The flow of an edge can change only along a cycle of the residual graph, and so is the same in all greatest flows where
the ends of the edge are in different strongly connected components of that graph.

Only this module iterates over classes in Python: SQL cannot compute flows, and few components need them
(`overlaps.MOST_OVERLAPS`).

Source: R. K. Ahuja, T. L. Magnanti, J. B. Orlin, Network Flows, Prentice Hall 1993, sections 2.4 and 6.3. A class with
one remaining edge is matched along it first: R. M. Karp, M. Sipser, Maximum matchings in sparse random graphs, FOCS
1981.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

Edge = tuple[int, int]

MOST_STEPS = 15_000_000
"""The most arcs of residual graphs that are followed for two releases: five to ten seconds."""

FEW_STEPS = 1_000_000
"""The most arcs that are followed to find more attacks on releases that are refused already."""


class TooManyStepsError(Exception):
    """The flows of two releases take more than `MOST_STEPS` steps."""


class StepBudget:
    """The steps that are left for all graphs of two releases."""

    def __init__(self) -> None:
        self._left = MOST_STEPS

    def leave_few(self) -> None:
        self._left = min(self._left, FEW_STEPS)

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooManyStepsError


@dataclass(frozen=True)
class Unmatched:
    """A group of a release with rows that no row of the other release can be.

    Attributes
    ----------
    most:
        The most such rows in any greatest flow.
    rows:
        The rows in one greatest flow: their sum over all groups is the same in each flow.
    """

    is_first: bool
    group: int
    most: int
    rows: int


@dataclass(frozen=True)
class Bound:
    """Why a pair of classes can have no more rows.

    The classes ``seconds`` of the second release contain only the rows of the classes ``firsts`` of the first, the rows
    of the pair, and rows that are new or gone.

    The rows of the pair are those of ``seconds`` minus those of ``firsts``, plus ``changed``.
    """

    firsts: Set[int]
    seconds: Set[int]
    changed: int


class OverlapFlows:
    """A greatest flow between overlapping classes, and the most rows of an edge.

    Parameters
    ----------
    first, second:
        The rows of each class of either release.
    edges:
        The pairs of a class of the first and one of the second that can have rows in common.
    budget:
        The steps that are left; by default those of two releases.

    Raises
    ------
    TooManyStepsError
        The graph is too large.

    Examples
    --------
    Ages 0-9, 10-19 and 20-29, then 0-14 and 15-29: one row is of 10 to 14 years.

    >>> flows = OverlapFlows({0: 6, 1: 10, 2: 8}, {0: 7, 1: 17}, [(0, 0), (1, 0), (1, 1), (2, 1)])
    >>> [flows.most((1, 0), enough=5), flows.most((1, 1), enough=5)]
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
        self._places = {(True, class_id): i for i, class_id in enumerate(self._firsts)}
        self._places |= {(False, class_id): i for i, class_id in enumerate(self._seconds, len(first))}
        self._source, self._sink = len(self._places), len(self._places) + 1
        self._rows = [*first.values(), *second.values()]
        self._unmatched = [*self._rows]
        self._neighbours: list[list[int]] = [[] for _ in self._rows]
        for a, b in edges:
            self._neighbours[self._places[True, a]].append(self._places[False, b])
            self._neighbours[self._places[False, b]].append(self._places[True, a])
        self._flow: dict[Edge, int] = {}
        self._budget = budget or StepBudget()
        self._match_leaves_first()
        while self._fill_shortest_paths():
            pass
        self._components = self._strong_components()

    @property
    def rows(self) -> int:
        """The rows of the greatest flow."""
        return sum(self._flow.values())

    def most(self, edge: Edge, enough: int) -> int:
        """The most rows of a pair of classes in any greatest flow; ``enough``, where it can have as many."""
        a, b = self._places[True, edge[0]], self._places[False, edge[1]]
        enough = min(enough, self._rows[a], self._rows[b])
        if self._components[a] == self._components[b]:
            while (flow := self._flow.get((a, b), 0)) < enough and (path := self._path(b, a, {(b, a)})):
                self._push([*path, (a, b)], min(enough - flow, *(self._room(*arc) for arc in path)))
        return min(self._flow.get((a, b), 0), enough)

    def most_together(self, edges: Sequence[Edge], enough: int) -> int:
        """The most rows that pairs of classes have together in any greatest flow; ``enough``, where they can have as
        many.

        Examples
        --------
        Each of two classes can have both rows of the one class that they meet, but not in the same flow.

        >>> flows = OverlapFlows({0: 2, 1: 2}, {0: 2}, [(0, 0), (1, 0)])
        >>> [flows.most((0, 0), enough=5), flows.most((1, 0), enough=5)]
        [2, 2]
        >>> flows.most_together([(0, 0), (1, 0)], enough=5)
        2
        """
        pairs = {(self._places[True, a], self._places[False, b]) for a, b in edges}
        closed = {(b, a) for a, b in pairs}
        for a, b in pairs:  # first without taking rows from other pairs: that is often enough
            if self._components[a] == self._components[b]:
                while (rows := self._rows_of(pairs)) < enough and (path := self._path(b, a, closed)):
                    self._push([*path, (a, b)], min(enough - rows, *(self._room(*arc) for arc in path)))
        while (rows := self._rows_of(pairs)) < enough and (cycle := self._gaining_cycle(pairs)):
            self._push(cycle, min(self._room(*arc) for arc in cycle))
        return min(rows, enough)

    def _rows_of(self, pairs: Set[Edge]) -> int:
        self._budget.spend(len(pairs))
        return sum(self._flow.get(pair, 0) for pair in pairs)

    def _gaining_cycle(self, pairs: Set[Edge]) -> list[Edge]:
        """The arcs of a cycle of the residual graph along which these pairs gain rows; none if they have the most
        (M. Klein 1967). The search for longest paths of R. Bellman and L. Ford finds it.
        """
        queue = deque(a for a, b in pairs if self._components[a] == self._components[b])
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

    def unmatched(self, is_first: bool, number: int) -> int:
        """The rows of a class that are new or gone in the current flow."""
        return self._unmatched[self._places[is_first, number]]

    def most_unmatched(self, is_first: bool, number: int) -> int:
        """The most rows of a class that are new or gone, in any greatest flow."""
        node = self._places[is_first, number]
        start, goal = (self._source, node) if is_first else (node, self._sink)
        if self._components[start] == self._components[goal]:
            while (matched := self._rows[node] - self._unmatched[node]) and (
                path := self._path(start, goal, {(start, goal)})
            ):
                self._push([*path, (goal, start)], min(matched, *(self._room(*arc) for arc in path)))
        return self._unmatched[node]

    def bound(self, edge: Edge) -> Bound:
        """Why a pair of classes can have no more rows than `most` says.

        Once the pair has its most rows, more can flow from its second class only to the classes that are reached. So
        all matched rows of the reached classes of the second release come from the reached classes of the first, or are
        those of the pair.
        """
        self.most(edge, sum(self._rows))
        reached = self._find_reached(self._places[False, edge[1]], self._places[True, edge[0]])
        firsts = [i for i in reached if i < len(self._firsts)]
        seconds = [i for i in reached if len(self._firsts) <= i < self._source]
        return Bound(
            {self._firsts[i] for i in firsts},
            {self._seconds[i - len(self._firsts)] for i in seconds},
            sum(self._unmatched[i] for i in firsts) - sum(self._unmatched[i] for i in seconds),
        )

    def _match_leaves_first(self) -> None:
        """Match rows greedily; classes with one remaining edge come first."""
        left = [{*nodes} for nodes in self._neighbours]
        leaves = deque(i for i, nodes in enumerate(left) if len(nodes) == 1)
        for node in range(len(left)):
            while left[node] or leaves:
                leaf = leaves.popleft() if leaves else node
                if not left[leaf]:
                    continue
                neighbour = next(iter(left[leaf]))
                pushed = min(self._unmatched[leaf], self._unmatched[neighbour])
                a, b = min(leaf, neighbour), max(leaf, neighbour)
                self._flow[a, b] = pushed
                for i, matched in ((leaf, neighbour), (neighbour, leaf)):
                    self._unmatched[i] -= pushed
                    left[i].discard(matched)
                    if len(left[i]) == 1:
                        leaves.append(i)

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
                self._push(arcs, min(self._room(*arc) for arc in arcs))
                del path[next(i for i, arc in enumerate(arcs, 1) if not self._room(*arc)) :]
                continue
            if node not in left:
                left[node] = [end for end in self._open_arcs(node) if levels.get(end) == levels[node] + 1]
            while left[node] and not self._room(node, left[node][-1]):
                left[node].pop()
            if left[node]:
                path.append(left[node][-1])
            elif path.pop() != self._source:
                left[path[-1]].pop()
        return True

    def _room(self, start: int, end: int) -> int:
        """The residual capacity of an arc."""
        firsts = len(self._firsts)
        if start == self._source or end == self._sink:
            return self._unmatched[end if start == self._source else start]
        if start == self._sink or end == self._source:
            node = end if start == self._sink else start
            return self._rows[node] - self._unmatched[node]
        return self._rows[start] + self._rows[end] if start < firsts else self._flow.get((end, start), 0)

    def _neighbours_of(self, node: int) -> Sequence[int]:
        """The nodes that share an arc with a node."""
        firsts = len(self._firsts)
        if node == self._source:
            ends: Sequence[int] = range(firsts)
        elif node == self._sink:
            ends = range(firsts, self._source)
        else:
            ends = (*self._neighbours[node], self._source if node < firsts else self._sink)
        self._budget.spend(len(ends))
        return ends

    def _open_arcs(self, node: int) -> Iterator[int]:
        """The ends of the arcs of a node with residual capacity."""
        return (end for end in self._neighbours_of(node) if self._room(node, end))

    def _path(self, start: int, goal: int, closed: Set[Edge]) -> list[Edge]:
        """The arcs of a shortest path with residual capacity, without closed arcs; none if there is no path.

        The search proceeds from both ends, each time from the one whose last step reached fewer nodes.
        """
        before, after = {start: start}, {goal: goal}
        forward, backward = [start], [goal]
        while forward and backward:
            is_forward = len(forward) <= len(backward)
            nodes, reached, opposite = (forward, before, after) if is_forward else (backward, after, before)
            following = list[int]()
            for node in nodes:
                for end in self._neighbours_of(node):
                    arc = (node, end) if is_forward else (end, node)
                    if end in reached or arc in closed or not self._room(*arc):
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

    def _find_reached(self, start: int, goal: int) -> set[int]:
        """The nodes that more can flow to from a start, except along the arc from start to goal."""
        reached, queue = {start}, [start]
        while queue:
            node = queue.pop()
            for end in self._open_arcs(node):
                if end not in reached and (node, end) != (start, goal):
                    reached.add(end)
                    queue.append(end)
        return reached

    def _push(self, path: Iterable[Edge], rows: int) -> None:
        firsts = len(self._firsts)
        for start, end in path:
            if start == self._source or end == self._sink:
                self._unmatched[end if start == self._source else start] -= rows
            elif start == self._sink or end == self._source:
                self._unmatched[end if start == self._sink else start] += rows
            elif start < firsts:
                self._flow[start, end] = self._flow.get((start, end), 0) + rows
            else:
                self._flow[end, start] -= rows

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
    """The arcs of a cycle through a node, given the node before each; none if there is no cycle.

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

    Parameters
    ----------
    edges:
        Component, group of the first release, group of the second, the rows of each, and the number of the finest
        values of the two.
    budget:
        The steps that are left for the two releases.
    """

    def __init__(self, edges: Sequence[tuple[int, ...]], budget: StepBudget) -> None:
        self._edges = defaultdict[int, list[Edge]](list)
        self._firsts, self._seconds = defaultdict[int, dict[int, int]](dict), defaultdict[int, dict[int, int]](dict)
        self.by_values = defaultdict[int, dict[int, list[Edge]]](lambda: defaultdict(list))
        for component, a, b, n_a, n_b, values in edges:
            self._edges[component].append((a, b))
            self._firsts[component][a], self._seconds[component][b] = n_a, n_b
            self.by_values[values][component].append((a, b))
        self._flows, self.budget = dict[int, OverlapFlows](), budget

    @property
    def largest(self) -> int:
        return max(map(len, self._edges.values()))

    def of(self, component: int) -> OverlapFlows:
        if component not in self._flows:
            rows = self._firsts[component], self._seconds[component]
            self._flows[component] = OverlapFlows(*rows, self._edges[component], self.budget)
        return self._flows[component]

    def most_rows(self, values: int, known_rows: int, enough: int) -> int:
        """The most rows that all pairs of these finest labels share, including ``known_rows``; at most ``enough``."""
        total = known_rows
        for component, edges in self.by_values[values].items():
            if total >= enough:
                break
            total += self.of(component).most_together(edges, enough - total)
        return min(total, enough)

    def bounds(self) -> dict[Edge, int]:
        """The most rows of the pairs that share fewer rows than the smaller class has."""
        bounds = dict[Edge, int]()
        for component, edges in self._edges.items():
            for a, b in edges:
                smaller = min(self._firsts[component][a], self._seconds[component][b])
                if (most := self.of(component).most((a, b), smaller)) < smaller:
                    bounds[a, b] = most
        return bounds

    def unmatched(self) -> Iterator[Unmatched]:
        """The groups that can have new or gone rows."""
        for component in self._edges:
            flows = self.of(component)
            for is_first, groups in ((True, self._firsts[component]), (False, self._seconds[component])):
                rows = {group: flows.unmatched(is_first, group) for group in groups}
                if any(rows.values()):
                    for group, n in rows.items():
                        yield Unmatched(is_first, group, flows.most_unmatched(is_first, group), n)
