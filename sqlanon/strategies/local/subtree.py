"""Strategy ``subtree``: a cut of each attribute's hierarchy, the same for all rows: a subtree is generalized or not.

Full-domain generalization gives all values of an attribute one level; here each ground value is released as the one
node of the cut that stands above it, or as itself, so that a part of the hierarchy where values are rare may be
generalized further than another. Classes that break the policy are suppressed, whole, at most as many rows as may be.

It starts at the optimal full-domain generalization and goes

- top-down: a node of a cut is *split* into those below it. One statement tells for all nodes of an attribute what
  splitting gains and how many rows it suppresses beside. The split with the most gain for each suppressed row is next.
  A split of one attribute mostly takes from what the splits of the others gain, so that those are looked at again only
  once they are next, and at the end;
- bottom-up: where no split is left, a node above a cut is *raised* to replace what is below it, and all that can be
  split is split again, itself last. Of the `TRIED` cheapest such moves the best is made, until none is worth it.

The price is the mean loss with the attributes' weights; a suppressed row costs a little more than one that shows
nothing. It never rises, so that the result is never worse than its start. It is no proven optimum.

Sources: top-down specialization by information gained per anonymity lost, Fung, Wang, Yu, "Top-down specialization for
information and privacy preservation" (2005); bottom-up, by information lost per anonymity gained, Wang, Yu,
Chakraborty, "Bottom-up generalization: a data mining solution to privacy protection" (2004); cuts, Iyengar,
"Transforming data to satisfy privacy constraints" (2002). Theirs take one direction each, and start at an end of the
lattice.

Cuts of hierarchies: each ground value of an attribute is released as one node above it, or as itself, in all rows.

A *cutting* is a table of the combinations with the nodes that a cut of each attribute's hierarchy gives them. Names of
columns, all ours: ``combination``, ``n``, the ground nodes ``q{i}_n{floor}``, the released ones ``node_i``, and
``cost``: the loss of a row, in whole numbers, so that sums of it do not depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.frequency.statements import MOVER, PERSONS, class_count
from sqlanon.strategies.lattice.limits import FIRST_GRACE, LimitReachedError
from sqlanon.strategies.local.finish import on_combinations
from sqlanon.strategies.local.nodes import COMBINATION, NODE, Tree, agree, node_name, released_name, released_nodes
from sqlanon.strategies.local.placement import Members, judged_groups
from sqlanon.strategies.local.task import LocalOutcome, LocalTask
from sqlanon.support.coding import ROWS, Levels
from sqlanon.support.expressions import aliased, col, fragment, named, number, subquery, template

SCALE = 10**12
"""The cost of a row that shows nothing. Beside its loss a value costs 1 for each level, so that of two nodes that stand
for the same ground values the lower one is released."""

COST, OTHER, SPLIT = "cost", "other", "split"


def suppressed_cost(trees: Sequence[Tree]) -> int:
    """What a suppressed row costs: more than one that shows nothing."""
    return SCALE + sum(tree.height for tree in trees) + 1


_COSTS = template("""
    SELECT node, level, round(leaves * :each)::BIGINT + level AS cost, released
    FROM :nodes
""")


def _costs(trees: Sequence[Tree], attribute: int) -> exp.Select:
    """The nodes of an attribute with what they cost: ``node``, ``level``, ``cost``, ``released``."""
    tree = trees[attribute]
    share = tree.weight / sum(one.weight for one in trees)
    each = SCALE * share / (tree.leaves - 1) if tree.leaves > 1 else 0.0
    return _COSTS(each=each, nodes=tree.nodes)


def ground_name(trees: Sequence[Tree], attribute: int) -> str:
    """The column with an attribute's ground nodes."""
    return node_name(attribute, trees[attribute].floor)


def _columns(trees: Sequence[Tree], alias: str) -> list[exp.Expr]:
    grounds = [col(ground_name(trees, i), alias) for i in range(len(trees))]
    return [col(COMBINATION, alias), col(ROWS, alias), *grounds]


_CUTTING = template("SELECT :columns, :nodes, :cost AS cost FROM :combinations AS c")


def cutting_at(combinations: exp.Table, trees: Sequence[Tree], levels: Levels) -> exp.Select:
    """The cutting of a generalization."""
    cost: exp.Expr = number(0)
    for i in range(len(trees)):
        cost = cost + col(COST, f"v{i}")
    nodes = [col(node_name(i, level), "c") for i, level in enumerate(levels)]
    released = [named(node, released_name(i)) for i, node in enumerate(nodes)]
    query = _CUTTING(columns=_columns(trees, "c"), nodes=released, cost=cost, combinations=combinations)
    for i, node in enumerate(nodes):
        on = node.eq(col(NODE, f"v{i}"))
        query = query.join(subquery(_costs(trees, i), f"v{i}"), on=on, copy=False)
    return query


_PATHS = template("""
    SELECT d.ground, v.node, v.level, v.cost
    FROM (
        SELECT ground, unnest(:nodes) AS node
        FROM (SELECT DISTINCT :ground AS ground, :nodes_of_levels FROM :combinations) AS g
    ) AS d
    JOIN :costs AS v ON d.node = v.node
    WHERE v.released
""")
_SPLITS = template("""
    SELECT node, ground, other, extra
    FROM (
        SELECT *, bool_and(other IS NOT NULL) OVER (PARTITION BY node) AS possible
        FROM (
            SELECT
                node,
                ground,
                lag(node) OVER (PARTITION BY ground ORDER BY level) AS other,
                lag(cost) OVER (PARTITION BY ground ORDER BY level) - cost AS extra
            FROM :paths AS p
        ) AS s
    ) AS m
    WHERE possible
""")
_RAISES = template("""
    SELECT low.node, low.ground, high.node AS other, high.cost - low.cost AS extra
    FROM :paths AS low
    JOIN :paths AS high ON low.ground = high.ground AND low.level < high.level
""")


def paths(combinations: exp.Table, trees: Sequence[Tree], attribute: int) -> exp.Select:
    """The nodes above each ground value of an attribute that may be released: ``ground``, ``node``, ``level`` and
    ``cost``, which rises with the level."""
    tree = trees[attribute]
    nodes = [col(node_name(attribute, level)) for level in range(tree.floor, tree.height + 1)]
    return _PATHS(
        nodes=exp.Array(expressions=nodes),
        ground=col(ground_name(trees, attribute)),
        nodes_of_levels=[node.copy() for node in nodes],
        combinations=combinations,
        costs=subquery(_costs(trees, attribute)),
    )


def splits(node_paths: exp.Table) -> exp.Select:
    """How the nodes of an attribute are split: ``node``, ``ground``, ``other`` (the highest node below that may be
    released and that stands for the ground value), ``extra`` (what that costs beside the node, below 0).

    Only nodes all of whose ground values have such a node can be split.
    """
    return _SPLITS(paths=node_paths)


def raises(node_paths: exp.Table) -> exp.Subquery:
    """Each node of an attribute with each above it that may be released: columns as in `splits`.

    It is no table: of a tall hierarchy it has a row for each pair of levels.
    """
    return subquery(_RAISES(paths=node_paths))


_IS_MOVE = fragment("s.node = :node AND s.ground = :ground")


def _is_move(trees: Sequence[Tree], attribute: int) -> exp.Expr:
    """Whether ``s`` is a move of the node of a row ``p`` of a cutting."""
    return _IS_MOVE(node=col(released_name(attribute), "p"), ground=col(ground_name(trees, attribute), "p"))


_ALL_SPLIT = template("""
    SELECT :columns, :nodes, :former AS split, p.cost + s.extra AS cost
    FROM :cutting AS p
    JOIN :moves AS s ON :is_move
""")


def all_split(cutting: exp.Table, trees: Sequence[Tree], attribute: int, moves: exp.Table) -> exp.Select:
    """The rows of a cutting whose nodes of an attribute can be split, with all of them split; ``split`` has the former
    node."""
    nodes = released_nodes(len(trees), "p")
    former, nodes[attribute] = nodes[attribute], named(col(OTHER, "s"), released_name(attribute))
    columns, is_move = _columns(trees, "p"), _is_move(trees, attribute)
    return _ALL_SPLIT(columns=columns, nodes=nodes, former=former, cutting=cutting, moves=moves, is_move=is_move)


_MOVED = template("""
    SELECT :columns, :nodes, p.cost + coalesce(s.extra, 0) AS cost
    FROM :cutting AS p
    LEFT JOIN :moves AS s ON :is_move AND :column IN (:chosen)
""")
_NEW_NODE = fragment("coalesce(s.other, :node)")


def moved(
    cutting: exp.Table, trees: Sequence[Tree], attribute: int, moves: exp.Expr, column: str, nodes: Sequence[int]
) -> exp.Select:
    """A cutting with some of an attribute's nodes replaced."""
    columns = released_nodes(len(trees), "p")
    columns[attribute] = named(_NEW_NODE(node=columns[attribute]), released_name(attribute))
    return _MOVED(
        columns=_columns(trees, "p"),
        nodes=columns,
        cutting=cutting,
        moves=moves,
        is_move=_is_move(trees, attribute),
        column=col(column, "s"),
        chosen=[number(node) for node in nodes],
    )


# Judged classes with ``price``, what all their rows cost, and ``lost``, their rows if they are not kept.
_PRICED = template("""
    SELECT
        *,
        class_size::HUGEINT * CASE WHEN kept THEN cost ELSE :suppressed END AS price,
        CASE WHEN kept THEN 0 ELSE class_size END AS lost
    FROM :judged AS j
""")
_WHOLE = template("""
    SELECT sum(price), coalesce(sum(lost)::BIGINT, 0), count(*) FILTER (WHERE kept)
    FROM :classes
""")
# One row for each node that is worth splitting, with the price that it saves and the rows that it loses beside.
_GAINS = template("""
    SELECT b.node, b.price - a.price, a.lost - b.lost
    FROM (SELECT :node AS node, sum(price) AS price, sum(lost)::BIGINT AS lost FROM :classes GROUP BY :node) AS b
    JOIN (
        SELECT split AS node, sum(price) AS price, sum(lost)::BIGINT AS lost
        FROM :split AS s
        GROUP BY split
    ) AS a ON b.node = a.node
    WHERE b.price - a.price > 0
""")
# The members of the combinations whose classes are not kept, and of none.
_LOST = template("SELECT m.* FROM :members AS m ANTI JOIN :kept AS k ON m.combination = k.combination")
_PERSONS = template("SELECT coalesce(:persons, 0) FROM :lost")
# By node, the persons who lose a row if it is split, and lose none as it is.
_LOSERS = template("""
    SELECT s.split, coalesce(:persons, 0)
    FROM :split AS s
    JOIN :judged AS j ON :same
    JOIN :members AS m ON s.combination = m.combination
    WHERE NOT j.kept
        AND NOT m.combination IN (SELECT combination FROM :lost WHERE combination IS NOT NULL)
        AND :is_new
    GROUP BY s.split
""")
_IS_NEW = fragment("coalesce(NOT m.mover IN (SELECT mover FROM :lost WHERE mover IS NOT NULL), TRUE)")
# The nodes above an attribute's cut, each with what all rows cost more if it replaces what is below it.
_UPWARDS = template("""
    SELECT s.other, sum(p.n::HUGEINT * s.extra)
    FROM :cutting AS p
    JOIN :moves AS s ON :is_move
    GROUP BY s.other
""")
# The combinations of kept classes, with their nodes.
_KEPT = template("""
    SELECT p.combination, :nodes
    FROM :cutting AS p
    JOIN :classes AS j ON :same
    WHERE j.kept
""")
_ROW_COUNT = template("SELECT sum(n)::BIGINT FROM :combinations")


TRIED = 32
"""So many of the moves up are tried, those that cost least, before the best of them is made."""


def subtree(task: LocalTask) -> LocalOutcome:
    """Find a cut of each attribute's hierarchy."""
    return _Cuts(task).run()


@dataclass(frozen=True)
class _Cut:
    """A cut of each hierarchy."""

    cutting: exp.Table
    classes: exp.Table  # judged, with prices
    price: int  # of all rows
    lost: int  # suppressed rows
    count: int  # kept classes
    losers: exp.Table | None = None  # where persons are counted, the members of suppressed combinations
    persons: int = 0  # who lose a row, where persons are counted


@dataclass(frozen=True)
class _Split:
    """A node that may be split, what that gains, how many rows it suppresses beside, and how many persons lose a row by
    it who lose none yet."""

    node: int
    gain: int
    lost: int
    persons: int

    @property
    def worth(self) -> float:
        """The gain for each row that is suppressed beside."""
        return self.gain / (1 + max(self.lost, 0))


class _Cuts:
    """The search for cuts; it counts its checks."""

    def __init__(self, task: LocalTask) -> None:
        self.task = task
        self.attributes = range(len(task.trees))
        self.checks = 0
        self._number = 0
        self._nodes = [released_name(i) for i in self.attributes]
        self._allowed_persons = task.prepared.limit.persons  # of 0 persons, no row may be suppressed either

    def run(self) -> LocalOutcome:
        task, trees = self.task, self.task.trees
        with task.clock.in_time(FIRST_GRACE):
            search, levels = task.start()
            # Rows of unknown values are in no combination, and suppressed in any case.
            rows = task.engine.rows(_ROW_COUNT(combinations=task.combinations))
            self._allowed = task.allowed_rows - (task.rows - int(rows[0][0] or 0))
            at_levels = cutting_at(task.combinations, trees, levels)
            start = self._cut(at_levels.copy(), replace(task.members, requirements=task.prepared.requirements))
        best = start if self._is_over() or not start.price else self._improve(start, at_levels)
        # What shields ask of some attributes is asked of all of them on the way, and may be too much.
        best = best if self._is_allowed(best) and best.price <= start.price else start
        placed = task.steps.make(task.work("subtree_placed"), self._kept(best.cutting, best.classes))
        return LocalOutcome(task, placed, rounds=self.checks, search=search)

    def _improve(self, start: _Cut, at_levels: exp.Select) -> _Cut:
        """Go down from a generalization, and up and down from where that leads, until nothing is better."""
        best = start
        try:
            with self.task.clock.in_time():
                self._list_moves()
                best = self._descend(self._cut(at_levels))
                while best.price and not self._is_over() and (better := self._exchange(best)) is not None:
                    former, best = best, better
                    self._drop(former)
                    best = self._descend(best)
        except LimitReachedError:
            pass
        return best

    def _list_moves(self) -> None:
        """Make the tables of the moves down and up."""
        task, work, trees = self.task, self.task.work, self.task.trees
        every_path = [
            task.steps.make(work(f"subtree_paths_{i}"), paths(task.combinations, trees, i)) for i in self.attributes
        ]
        self.down = [task.steps.make(work(f"subtree_splits_{i}"), splits(every_path[i])) for i in self.attributes]
        self.up = [raises(every_path[i]) for i in self.attributes]

    def _cut(self, query: exp.Select, members: Members | None = None) -> _Cut:
        """Make a cutting, and judge its classes."""
        task = self.task
        self._number += 1
        self._count()
        cutting = task.steps.make(task.work(f"subtree_cutting_{self._number}"), query)
        judged = judged_groups(members or task.members, aliased(cutting, "p"), [*self._nodes, COST])
        classes = task.steps.make(task.work(f"subtree_classes_{self._number}"), self._priced(judged))
        price, lost, count = task.engine.rows(_WHOLE(classes=classes))[0]
        losers, persons = None, 0
        if self._allowed_persons and task.members.persons is not None:
            kept = subquery(self._kept(cutting, classes))
            losers = task.steps.make(
                task.work(f"subtree_losers_{self._number}"), _LOST(members=task.members.persons, kept=kept)
            )
            persons = task.engine.rows(_PERSONS(persons=self._persons(), lost=losers))[0][0]
        return _Cut(cutting, classes, int(price or 0), lost, count, losers, persons)

    def _kept(self, cutting: exp.Table, classes: exp.Table) -> exp.Select:
        nodes, same = released_nodes(len(self.task.trees), "p"), agree(self._nodes, "p", "j")
        return _KEPT(nodes=nodes, cutting=cutting, classes=classes, same=same)

    def _persons(self) -> exp.Expr:
        return class_count(PERSONS, MOVER if self.task.members.moving else None)

    def _is_allowed(self, cut: _Cut) -> bool:
        return cut.lost <= self._allowed and cut.persons <= (self._allowed_persons or 0)

    def _priced(self, judged: exp.Query) -> exp.Select:
        return _PRICED(suppressed=suppressed_cost(self.task.trees), judged=subquery(judged))

    def _count(self) -> None:
        self.checks += 1
        self.task.clock.checks += 1

    def _is_over(self) -> bool:
        """Whether a limit of the search says to end with what there is: it satisfies the policy."""
        try:
            self.task.clock.refuse_over_limits()
        except LimitReachedError:
            return True
        return False

    def _drop(self, cut: _Cut) -> None:
        self.task.steps.drop(cut.cutting, cut.classes, *([] if cut.losers is None else [cut.losers]))

    def _splits(self, cut: _Cut, i: int) -> list[_Split]:
        """The nodes of an attribute that are worth splitting, the best first."""
        self._count()
        task = self.task
        split = all_split(cut.cutting, task.trees, i, self.down[i])
        judged = task.judged(subquery(split), [*self._nodes, SPLIT, COST])
        gains = _GAINS(node=col(released_name(i)), classes=cut.classes, split=subquery(self._priced(judged)))
        rows = task.engine.rows(gains)
        persons = self._losers(cut, split, judged) if rows else {}
        found = [_Split(node, int(gain), int(lost), persons.get(node, 0)) for node, gain, lost in rows]
        return sorted(found, key=lambda one: (-one.worth, one.node))

    def _losers(self, cut: _Cut, split: exp.Select, judged: exp.Select) -> dict[int, int]:
        """By node, the persons who lose a row if it is split, and lose none yet."""
        members = self.task.members
        if cut.losers is None or members.persons is None:
            return {}
        losers = _LOSERS(
            persons=self._persons(),
            split=subquery(split),
            judged=subquery(judged),
            same=agree([*self._nodes, SPLIT], "s", "j"),
            members=members.persons,
            lost=cut.losers,
            is_new=_IS_NEW(lost=cut.losers) if members.moving else exp.true(),
        )
        return dict(self.task.engine.rows(losers))

    def _descend(self, cut: _Cut, raised: tuple[int, int] | None = None) -> _Cut:
        """Split until nothing is left to split, or the time is over. The tables of the cut go, and it with them."""
        is_trial = raised is not None
        try:
            with self.task.clock.in_time():
                waiting = {i: self._splits(cut, i) for i in self.attributes}
                fresh = set(self.attributes)
                while not self._is_over():
                    open_ = {i: self._possible(cut, waiting[i], i, raised) for i in self.attributes}
                    order = sorted((i for i in open_ if open_[i]), key=lambda i: (-open_[i][0].worth, i))
                    if not order and raised is not None:
                        raised = None
                        continue
                    # Where rows are suppressed a split may have become worth it: it loses rows that are lost already.
                    stale = order[:1] if order else [] if is_trial else list(self.attributes)
                    if not fresh.issuperset(stale):
                        waiting |= {i: self._splits(cut, i) for i in stale if i not in fresh}
                        fresh.update(stale)
                        continue
                    if not order:
                        break
                    i, rival = order[0], open_[order[1]][0].worth if len(order) > 1 else 0.0
                    chosen = list(self._taken(cut, open_[i], rival))
                    former, cut = cut, self._cut(moved(cut.cutting, self.task.trees, i, self.down[i], NODE, chosen))
                    self._drop(former)
                    waiting[i], fresh = self._splits(cut, i), {i}
        except LimitReachedError:
            pass
        return cut

    def _possible(self, cut: _Cut, splits: list[_Split], i: int, raised: tuple[int, int] | None) -> list[_Split]:
        rows, persons = self._allowed - cut.lost, (self._allowed_persons or 0) - cut.persons
        return [one for one in splits if one.lost <= rows and one.persons <= persons and (i, one.node) != raised]

    def _taken(self, cut: _Cut, splits: list[_Split], rival: float) -> Iterator[int]:
        """The first of an attribute's splits, and those after it that would be next anyhow: they are in different
        classes, and worth more than any of another attribute."""
        lost, persons = cut.lost, cut.persons
        for place, one in enumerate(splits):
            lost += max(one.lost, 0)
            persons += one.persons
            too_many = lost > self._allowed or persons > (self._allowed_persons or 0)
            if place and (too_many or one.worth <= rival):
                return
            yield one.node

    def _upwards(self, cut: _Cut, i: int) -> list[tuple[int, int]]:
        """The nodes above an attribute's cut, with what raising it to them costs."""
        is_move = _is_move(self.task.trees, i)
        rows = self.task.engine.rows(_UPWARDS(cutting=cut.cutting, moves=self.up[i], is_move=is_move))
        return [(node, int(extra)) for node, extra in rows]

    def _exchange(self, cut: _Cut) -> _Cut | None:
        """The best of what a move up and then all splits lead to, if it is better than the cut."""
        best: _Cut | None = None
        try:
            with self.task.clock.in_time():
                upwards = sorted((extra, i, node) for i in self.attributes for node, extra in self._upwards(cut, i))
                for place, (_, i, node) in enumerate(upwards[:TRIED]):
                    if self._is_over():
                        break
                    self.task.progress(len(upwards) - place, self.checks, None)
                    after = self._cut(moved(cut.cutting, self.task.trees, i, self.up[i], OTHER, [node]))
                    if self._is_allowed(after) and after.count:
                        after = self._descend(after, (i, node))
                    worse: _Cut | None = after
                    if self._is_allowed(after) and after.count and after.price < (best or cut).price:
                        worse, best = best, after
                    if worse is not None:
                        self._drop(worse)
        except LimitReachedError:
            pass
        return best


run = on_combinations(subtree)
