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

from sqlanon.coding import ROWS, Levels
from sqlanon.expressions import (
    aliased,
    all_of,
    cast,
    col,
    drop_table,
    is_there,
    named,
    number,
    select,
    subquery,
    total,
    union_all,
    where,
)
from sqlanon.recode.local.nodes import COMBINATION, NODE, Tree, node_name, released_name
from sqlanon.recode.local.placement import Members, judged_groups
from sqlanon.recode.local.task import LocalOutcome, LocalTask, on_combinations
from sqlanon.requirements.base import CLASS_SIZE
from sqlanon.search.budget import LimitReachedError
from sqlanon.search.classes import KEPT

SCALE = 10**12
"""The cost of a row that shows nothing. Beside its loss a value costs 1 for each level, so that of two nodes that stand
for the same ground values the lower one is released."""

COST, EXTRA, GROUND, OTHER, SPLIT = "cost", "extra", "ground", "other", "split"
PRICE, LOST = "price", "lost"


def suppressed_cost(trees: Sequence[Tree]) -> int:
    """What a suppressed row costs: more than one that shows nothing."""
    return SCALE + sum(tree.height for tree in trees) + 1


def _costs(trees: Sequence[Tree], attribute: int) -> exp.Select:
    """The nodes of an attribute with what they cost: ``node``, ``cost``, ``released``."""
    tree = trees[attribute]
    share = tree.weight / sum(one.weight for one in trees)
    each = SCALE * share / (tree.leaves - 1) if tree.leaves > 1 else 0.0
    rounded = cast(exp.Round(this=col("leaves") * number(each)), "BIGINT")
    cost = rounded + col("level")
    return select([col(NODE), named(cost, COST), col("released")], tree.nodes.copy())


def ground_name(trees: Sequence[Tree], attribute: int) -> str:
    """The column with an attribute's ground nodes."""
    return node_name(attribute, trees[attribute].floor)


def _columns(trees: Sequence[Tree], alias: str) -> list[exp.Expr]:
    grounds = [col(ground_name(trees, i), alias) for i in range(len(trees))]
    return [col(COMBINATION, alias), col(ROWS, alias), *grounds]


def cutting_at(combinations: exp.Table, trees: Sequence[Tree], levels: Levels) -> exp.Select:
    """The cutting of a generalization."""
    query = exp.Select().from_(aliased(combinations, "c"), copy=False)
    nodes: list[exp.Expr] = []
    cost: exp.Expr = number(0)
    for i, level in enumerate(levels):
        node = col(node_name(i, level), "c")
        on = node.eq(col(NODE, f"v{i}"))
        query = query.join(subquery(_costs(trees, i), f"v{i}"), on=on, copy=False)
        nodes.append(named(node, released_name(i)))
        cost = cost + col(COST, f"v{i}")
    return query.select(*_columns(trees, "c"), *nodes, named(cost, COST), copy=False)


def splits(combinations: exp.Table, trees: Sequence[Tree], attribute: int) -> exp.Query:
    """How the nodes of an attribute are split: ``node``, ``ground``, ``other`` (the highest node below that may be
    released and that stands for the ground value), ``extra`` (what that costs beside the node, below 0).

    Only nodes all of whose ground values have such a node can be split.
    """
    tree = trees[attribute]
    parts = [
        _pairs(combinations, trees, attribute, level, range(level - 1, tree.floor - 1, -1))
        for level in range(tree.floor + 1, tree.height + 1)
    ]
    if not parts:
        return _none()
    possible = exp.Window(this=exp.LogicalAnd(this=_is_there(OTHER)), partition_by=[col(NODE)])
    marked = select([exp.Star(), named(possible, "possible")], subquery(_union(parts), "s"))
    output: list[exp.Expr] = [col(name) for name in (NODE, GROUND, OTHER, EXTRA)]
    return select(output, subquery(marked, "m")).where(col("possible"), copy=False)


def raises(combinations: exp.Table, trees: Sequence[Tree], attribute: int) -> exp.Query:
    """Each node of an attribute with each above it that may be released: columns as in `splits`."""
    tree = trees[attribute]
    levels = range(tree.floor, tree.height + 1)
    parts = [_pairs(combinations, trees, attribute, low, [high]) for low in levels for high in levels if low < high]
    return select([exp.Star()], subquery(_union(parts), "s")).where(_is_there(OTHER), copy=False) if parts else _none()


def _pairs(
    combinations: exp.Table, trees: Sequence[Tree], attribute: int, level: int, others: Sequence[int]
) -> exp.Select:
    """The nodes at a level, and for each ground value the first of the nodes at other levels that may be released
    and stands for other values."""
    ground, nodes = ground_name(trees, attribute), {one: node_name(attribute, one) for one in (level, *others)}
    names = dict.fromkeys([ground, *nodes.values()])
    paths = exp.Select(expressions=[col(name) for name in names], distinct=exp.Distinct())
    query = exp.Select().from_(subquery(paths.from_(combinations.copy(), copy=False), "c"), copy=False)
    for one, name in nodes.items():
        on = col(name, "c").eq(col(NODE, f"v{one}"))
        query = query.join(subquery(_costs(trees, attribute), f"v{one}"), on=on, copy=False)
    other, cost = exp.Case(), exp.Case()
    for one in others:
        # A node that costs the same stands for the same values.
        differs = col(COST, f"v{one}").neq(col(COST, f"v{level}"))
        is_other = col("released", f"v{one}") & differs
        other = other.when(is_other, col(nodes[one], "c"))
        cost = cost.when(is_other.copy(), col(COST, f"v{one}"))
    extra = cost - col(COST, f"v{level}")
    output: list[exp.Expr] = [
        named(col(nodes[level], "c"), NODE),
        named(col(ground, "c"), GROUND),
        named(other, OTHER),
        named(extra, EXTRA),
    ]
    return query.select(*output, copy=False).where(col("released", f"v{level}"), copy=False)


def _is_there(name: str) -> exp.Expr:
    return is_there(col(name))


def _none() -> exp.Select:
    """No moves: of an attribute whose hierarchy has one level."""
    columns = [(name, "INTEGER") for name in (NODE, GROUND, OTHER)] + [(EXTRA, "BIGINT")]
    output: list[exp.Expr] = [named(cast(exp.null(), type_), name) for name, type_ in columns]
    return exp.Select(expressions=output).where(exp.false(), copy=False)


def _union(parts: Sequence[exp.Select]) -> exp.Query:
    query: exp.Query = union_all(*parts)
    return query


def _same_value(trees: Sequence[Tree], attribute: int) -> list[exp.Expr]:
    """A row ``p`` of a cutting and a move ``s`` of its node."""
    return [
        col(NODE, "s").eq(col(released_name(attribute), "p")),
        col(GROUND, "s").eq(col(ground_name(trees, attribute), "p")),
    ]


def all_split(cutting: exp.Table, trees: Sequence[Tree], attribute: int, moves: exp.Table) -> exp.Select:
    """The rows of a cutting whose nodes of an attribute can be split, with all of them split.

    ``split`` has the former node.
    """
    nodes: list[exp.Expr] = [col(released_name(i), "p") for i in range(len(trees))]
    split = named(nodes[attribute], SPLIT)
    nodes[attribute] = named(col(OTHER, "s"), released_name(attribute))
    cost = named(col(COST, "p") + col(EXTRA, "s"), COST)
    query = select([*_columns(trees, "p"), *nodes, split, cost], aliased(cutting, "p"))
    return query.join(aliased(moves, "s"), on=all_of(_same_value(trees, attribute)), copy=False)


def moved(
    cutting: exp.Table, trees: Sequence[Tree], attribute: int, moves: exp.Table, column: str, nodes: Sequence[int]
) -> exp.Select:
    """A cutting with some of an attribute's nodes replaced."""
    columns: list[exp.Expr] = [col(released_name(i), "p") for i in range(len(trees))]
    new = exp.Coalesce(this=col(OTHER, "s"), expressions=[columns[attribute]])
    columns[attribute] = named(new, released_name(attribute))
    extra = exp.Coalesce(this=col(EXTRA, "s"), expressions=[number(0)])
    cost = named(col(COST, "p") + extra, COST)
    only = exp.In(this=col(column, "s"), expressions=[number(node) for node in nodes])
    query = select([*_columns(trees, "p"), *columns, cost], aliased(cutting, "p"))
    on = all_of([*_same_value(trees, attribute), only])
    return query.join(aliased(moves, "s"), on=on, join_type="left", copy=False)


def priced(judged: exp.Query, trees: Sequence[Tree]) -> exp.Select:
    """Judged classes with ``price``, what all their rows cost, and ``lost``, their rows if they are not kept."""
    each = exp.If(this=col(KEPT), true=col(COST), false=number(suppressed_cost(trees)))
    price = cast(col(CLASS_SIZE), "HUGEINT") * each
    lost = exp.If(this=col(KEPT), true=number(0), false=col(CLASS_SIZE))
    return select([exp.Star(), named(price, PRICE), named(lost, LOST)], subquery(judged, "j"))


def whole(classes: exp.Table) -> exp.Select:
    """One row: the price of all rows, the rows that are lost, and the kept classes."""
    kept_classes = where(exp.Count(this=exp.Star()), col(KEPT))
    lost = exp.Coalesce(this=total(col(LOST)), expressions=[number(0)])
    return select([exp.Sum(this=col(PRICE)), lost, kept_classes], classes.copy())


def gains(split: exp.Query, classes: exp.Table, attribute: int) -> exp.Select:
    """What splitting gains: one row for each node that is worth it, with the price that it saves and the rows that it
    loses beside.
    """

    def sums(key: exp.Expr, source: exp.Expr) -> exp.Select:
        price, lost = named(exp.Sum(this=col(PRICE)), PRICE), named(total(col(LOST)), LOST)
        return select([named(key, NODE), price, lost], source, [key.copy()])

    after = subquery(sums(col(SPLIT), subquery(split, "s")), "a")
    before = subquery(sums(col(released_name(attribute)), classes.copy()), "b")
    gain = col(PRICE, "b") - col(PRICE, "a")
    lost = col(LOST, "a") - col(LOST, "b")
    on = col(NODE, "b").eq(col(NODE, "a"))
    query = select([col(NODE, "b"), gain, lost], before).join(after, on=on, copy=False)
    return query.where(gain > 0, copy=False)


def ways_up(cutting: exp.Table, trees: Sequence[Tree], attribute: int, moves: exp.Table) -> exp.Select:
    """The nodes above an attribute's cut, each with what all rows cost more if it replaces what is below it."""
    extra = cast(col(ROWS, "p"), "HUGEINT") * col(EXTRA, "s")
    query = select([col(OTHER, "s"), exp.Sum(this=extra)], aliased(cutting, "p"))
    query = query.join(aliased(moves, "s"), on=all_of(_same_value(trees, attribute)), copy=False)
    return query.group_by(col(OTHER, "s"), copy=False)


def kept(cutting: exp.Table, classes: exp.Table, attributes: int) -> exp.Select:
    """The combinations of kept classes, with their nodes."""
    names = [released_name(i) for i in range(attributes)]
    on = all_of(col(name, "p").eq(col(name, "j")) for name in names)
    query = select([col(COMBINATION, "p"), *(col(name, "p") for name in names)], aliased(cutting, "p"))
    return query.join(aliased(classes, "j"), on=on, copy=False).where(col(KEPT, "j"), copy=False)


TRIED = 32
"""So many of the moves up are tried, those that cost least, before the best of them is made."""


def subtree(task: LocalTask) -> LocalOutcome:
    """Find a cut of each attribute's hierarchy."""
    return _Cuts(task).run()


@dataclass(frozen=True)
class _Cut:
    """A cut of each hierarchy.

    Attributes
    ----------
    cutting, classes:
        Tables of the statements above.
    price, lost, count:
        The price of all rows, the rows that are suppressed, and the kept classes.
    """

    cutting: exp.Table
    classes: exp.Table
    price: int
    lost: int
    count: int


@dataclass(frozen=True)
class _Split:
    """A node that may be split, what that gains, and how many rows it suppresses beside."""

    node: int
    gain: int
    lost: int

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
        self._made = 0
        self._nodes = [released_name(i) for i in self.attributes]

    def run(self) -> LocalOutcome:
        task, work, trees = self.task, self.task.work, self.task.trees
        search, levels = task.start()
        self.down, self.up = (
            [task.steps.make(work(f"subtree_{name}_{i}"), moves(task.combinations, trees, i)) for i in self.attributes]
            for name, moves in (("splits", splits), ("raises", raises))
        )
        # Rows of unknown values are in no combination, and suppressed in any case.
        rows = task.engine.rows(select([total(col(ROWS))], task.combinations.copy()))
        self._allowed = task.allowed_rows - (task.rows - int(rows[0][0] or 0))
        at_levels = cutting_at(task.combinations, trees, levels)
        start = self._cut(at_levels.copy(), replace(task.members, requirements=task.prepared.requirements))
        best = start if self._is_over() or not start.price else self._descend(self._cut(at_levels))
        while best.price and (better := self._exchange(best)) is not None:
            self._drop(best)
            best = self._descend(better)
        # What shields ask of some attributes is asked of all of them on the way, and may be too much.
        best = best if best.lost <= self._allowed and best.price <= start.price else start
        placed = task.steps.make(work("subtree_placed"), kept(best.cutting, best.classes, len(trees)))
        return LocalOutcome(task, placed, rounds=self.checks, search=search)

    def _cut(self, query: exp.Select, members: Members | None = None) -> _Cut:
        """Make a cutting, and judge its classes."""
        task = self.task
        self._made += 1
        self._count()
        cutting = task.steps.make(task.work(f"subtree_cutting_{self._made}"), query)
        judged = judged_groups(members or task.members, aliased(cutting, "p"), [*self._nodes, COST])
        classes = task.steps.make(task.work(f"subtree_classes_{self._made}"), priced(judged, task.trees))
        price, lost, count = task.engine.rows(whole(classes))[0]
        return _Cut(cutting, classes, int(price or 0), lost, count)

    def _count(self) -> None:
        self.checks += 1
        self.task.clock.checks += 1

    def _is_over(self) -> bool:
        """Whether a limit of the search says to end with what there is: it satisfies the policy."""
        try:
            self.task.clock.refuse_more()
        except LimitReachedError:
            return True
        return False

    def _drop(self, cut: _Cut) -> None:
        for table in (cut.cutting, cut.classes):
            self.task.engine.execute(drop_table(table.copy()))

    def _splits(self, cut: _Cut, i: int) -> list[_Split]:
        """The nodes of an attribute that are worth splitting, the best first."""
        self._count()
        task = self.task
        split = all_split(cut.cutting, task.trees, i, self.down[i])
        judged = task.judged(exp.Subquery(this=split), [*self._nodes, SPLIT, COST])
        rows = task.engine.rows(gains(priced(judged, task.trees), cut.classes, i))
        found = [_Split(node, int(gain), int(lost)) for node, gain, lost in rows]
        return sorted(found, key=lambda one: (-one.worth, one.node))

    def _descend(self, cut: _Cut, raised: tuple[int, int] | None = None) -> _Cut:
        """Split until nothing is left to split. The tables of the cut go, and it with them."""
        is_trial = raised is not None
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
            after = self._cut(moved(cut.cutting, self.task.trees, i, self.down[i], NODE, chosen))
            self._drop(cut)
            cut, waiting[i], fresh = after, self._splits(after, i), {i}
        return cut

    def _possible(self, cut: _Cut, splits: list[_Split], i: int, raised: tuple[int, int] | None) -> list[_Split]:
        room = self._allowed - cut.lost
        return [one for one in splits if one.lost <= room and (i, one.node) != raised]

    def _taken(self, cut: _Cut, splits: list[_Split], rival: float) -> Iterator[int]:
        """The first of an attribute's splits, and those after it that would be next anyhow: they are in different
        classes, and worth more than any of another attribute."""
        lost = cut.lost
        for place, one in enumerate(splits):
            lost += max(one.lost, 0)
            if place and (lost > self._allowed or one.worth <= rival):
                return
            yield one.node

    def _exchange(self, cut: _Cut) -> _Cut | None:
        """The best of what a move up and then all splits lead to, if it is better than the cut."""
        best: _Cut | None = None
        ways = sorted(
            (int(extra), i, node)
            for i in self.attributes
            for node, extra in self.task.engine.rows(ways_up(cut.cutting, self.task.trees, i, self.up[i]))
        )
        for place, (_, i, node) in enumerate(ways[:TRIED]):
            if self._is_over():
                break
            self.task.progress(len(ways) - place, self.checks, None)
            after = self._cut(moved(cut.cutting, self.task.trees, i, self.up[i], OTHER, [node]))
            if after.lost <= self._allowed and after.count:
                after = self._descend(after, (i, node))
            if after.lost <= self._allowed and after.count and after.price < (best or cut).price:
                if best is not None:
                    self._drop(best)
                best = after
            else:
                self._drop(after)
        return best


run = on_combinations(subtree)
