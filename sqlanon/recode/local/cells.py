"""Cell suppression: rows that a generalization would leave out are released with blanks, as few as may be.

A blank is the attribute's top label. It is a value of its own, as a reader sees it: a row with blanks is in the class
of the rows that read the same, blanks and all. Counting a blank as a wildcard, which matches any value, calls tables
k-anonymous in which a reader finds smaller classes.

Rows that read the same at the generalization are blanked alike, and kept rows stay as they are. What is sought is the
least weight of blanked cells, by the attributes' weights, a suppressed row counting as one that is all blank:

- Of up to `EXACT` failing classes, and where no kept row reads as blank, every way to part them into blocks is tried;
  a block is blanked where its rows differ. That is the least weight there is, if two classes that meet the policy meet
  it as one (all requirements but for persons who are in several combinations).
- Else in rounds, by sets of blanked attributes, the lightest first. Each class chooses, among those of its sets that
  would be in a class that meets the policy if all others chose so too, the lightest, then the largest class. What then
  does meet it stays; if nothing does, the best single class is made. There is no bound on how far that is from the
  least (the problem is NP-hard: Meyerson, Williams, "On the complexity of optimal k-anonymity", 2004).

What finds no place is suppressed.

``way`` numbers the ways to part classes, ``block`` the blocks of a way from 1 on. Block 0 is suppressed.
Names of columns, all ours: ``class`` numbers the classes that break the policy; ``node_i`` is the node that a
reader sees, so that one whose label is the top label is the root; ``pattern`` is a set of blanked attributes, a bit for
each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from sqlanon.coding import ROWS, Levels
from sqlanon.expressions import (
    aliased,
    all_of,
    anonymous,
    cast,
    col,
    drop_table,
    greatest,
    is_there,
    named,
    number,
    select,
    star,
    subquery,
    total,
    union_all,
)
from sqlanon.recode.local.nodes import COMBINATION, NODE, Tree, node_name, released_name
from sqlanon.recode.local.placement import judged_groups
from sqlanon.recode.local.task import LocalOutcome, LocalTask, local_task
from sqlanon.requirements.base import CLASS_SIZE
from sqlanon.search.budget import LimitReachedError
from sqlanon.search.classes import KEPT
from sqlanon.search.full_domain import SearchTask

CLASS, PATTERN, WEIGHT, BUCKET = "class", "pattern", "weight", "bucket"


def nodes_of(attributes: int, alias: str | None = None) -> list[exp.Expr]:
    """``node_0``, ``node_1``, ..."""
    return [col(released_name(i), alias) for i in range(attributes)]


def agree(attributes: int, one: str, other: str) -> exp.Expr:
    """Whether rows of two relations read the same."""
    pairs = zip(nodes_of(attributes, one), nodes_of(attributes, other), strict=True)
    return all_of(a.eq(b) for a, b in pairs)


def as_read(combinations: exp.Table, trees: Sequence[Tree], levels: Levels) -> exp.Select:
    """The combinations at a generalization, as readers see them: ``combination``, ``n``, ``node_i``."""
    query = exp.Select().from_(aliased(combinations, "c"), copy=False)
    nodes: list[exp.Expr] = []
    for i, (tree, level) in enumerate(zip(trees, levels, strict=True)):
        own = col(node_name(i, level), "c")
        query = query.join(aliased(tree.nodes, f"v{i}"), on=own.eq(col(NODE, f"v{i}")), copy=False)
        is_root = col(NODE).eq(number(tree.root))
        top = exp.Subquery(this=select([col("label")], tree.nodes.copy()).where(is_root, copy=False))
        reads_top = col("label", f"v{i}").eq(top)
        nodes.append(named(exp.If(this=reads_top, true=number(tree.root), false=own.copy()), released_name(i)))
    return query.select(col(COMBINATION, "c"), col(ROWS, "c"), *nodes, copy=False)


def is_released(tree: Tree) -> exp.Select:
    """Whether an attribute may be blanked: its top label may be released."""
    return select([col("released")], tree.nodes.copy()).where(col(NODE).eq(number(tree.root)), copy=False)


def with_classes(read: exp.Table, judged: exp.Query, attributes: int) -> exp.Select:
    """The combinations as read, with ``kept`` of their class, and the number of the class."""
    order = exp.Order(expressions=[exp.Ordered(this=node) for node in nodes_of(attributes)])
    rank = exp.Window(this=exp.DenseRank(), partition_by=[col(KEPT)], order=order)
    output = [col(COMBINATION, "r"), col(ROWS, "r"), *nodes_of(attributes, "r"), col(KEPT, "j")]
    query = select(output, aliased(read, "r"))
    query = query.join(subquery(judged, "j"), on=agree(attributes, "r", "j"), copy=False)
    return select([exp.Star(), named(cast(rank, "INTEGER"), CLASS)], subquery(query, "w"))


def waiting(read: exp.Table, attributes: int, placed: exp.Table | None = None) -> exp.Select:
    """The rows of failing classes that have no place yet: ``class``, ``combination``, ``n``, ``node_i``."""
    output = [col(CLASS, "r"), col(COMBINATION, "r"), col(ROWS, "r"), *nodes_of(attributes, "r")]
    query = select(output, aliased(read, "r"))
    query = query.where(~col(KEPT, "r"), copy=False)
    if placed is None:
        return query
    same = col(CLASS, "r").eq(col(CLASS, "d"))
    return query.join(aliased(placed, "d"), on=same, join_type="anti", copy=False)


def helpers(read: exp.Table, trees: Sequence[Tree], blankable: Sequence[int]) -> exp.Select:
    """The kept rows that read as blank somewhere: blanked rows may be in a class with them."""
    blank: exp.Expr = exp.false()
    for i in blankable:
        blank = blank | col(released_name(i)).eq(number(trees[i].root))
    query = select([col(COMBINATION), col(ROWS), *nodes_of(len(trees))], read.copy())
    return query.where(col(KEPT), exp.Paren(this=blank), copy=False)


def blank_patterns(trees: Sequence[Tree], blankable: Sequence[int]) -> exp.Select:
    """All sets of blanked attributes: ``pattern``, ``weight``, and ``bucket``, the weight in mean weights, rounded up.

    With equal weights the bucket is the number of blanks.
    """
    weight: exp.Expr = number(0.0)
    for i in blankable:
        weight = weight + _if_blank(i, number(float(trees[i].weight)), number(0.0))
    mean = sum(trees[i].weight for i in blankable) / len(blankable)
    bits: exp.Expr = number(0)
    for bit_number, i in enumerate(blankable):
        shifted = exp.BitwiseRightShift(this=col("range"), expression=number(bit_number))
        bit = exp.Paren(this=exp.BitwiseAnd(this=exp.Paren(this=shifted), expression=number(1)))
        bits = bits + (bit * number(1 << i))
    every = exp.Table(this=anonymous("range", number(1), number(1 << len(blankable))))
    masks = select([named(cast(bits, "BIGINT"), PATTERN)], every)
    weighed = select([col(PATTERN), named(weight, WEIGHT)], subquery(masks, "m"))
    rounded = exp.Round(this=col(WEIGHT) / number(mean), decimals=number(9))
    bucket = named(cast(exp.Ceil(this=rounded), "INTEGER"), BUCKET)
    order = exp.Order(expressions=[exp.Ordered(this=col(name)) for name in (BUCKET, PATTERN)])
    place = named(exp.Window(this=exp.RowNumber(), order=order), "place")
    return select([exp.Star(), place], subquery(select([exp.Star(), bucket], subquery(weighed, "w")), "p"))


def _if_blank(attribute: int, yes: exp.Expr, no: exp.Expr, alias: str | None = None) -> exp.Expr:
    masked = exp.BitwiseAnd(this=col(PATTERN, alias), expression=number(1 << attribute))
    return exp.If(this=exp.Paren(this=masked).neq(0), true=yes, false=no)


def tries(
    rows: exp.Table, all_patterns: exp.Table, trees: Sequence[Tree], blankable: Sequence[int], first: int, last: int
) -> exp.Select:
    """Waiting rows with some patterns of blanks, those from one place to another: columns as in `waiting`, ``weight``
    and ``pattern``.

    Only what is not blank is blanked.
    """
    nodes: list[exp.Expr] = []
    conditions: list[exp.Expr] = [exp.Between(this=col("place", "p"), low=number(first), high=number(last))]
    for i, tree in enumerate(trees):
        own = col(released_name(i), "w")
        if i in blankable:
            nodes.append(named(_if_blank(i, number(tree.root), own, "p"), released_name(i)))
            shows = own.neq(number(tree.root))
            conditions.append(_if_blank(i, shows, exp.true(), "p"))
        else:
            nodes.append(own)
    output = [col(CLASS, "w"), col(COMBINATION, "w"), col(ROWS, "w"), *nodes, col(WEIGHT, "p"), col(PATTERN, "p")]
    query = select(output, aliased(rows, "w"))
    return query.join(aliased(all_patterns, "p"), on=all_of(conditions), copy=False)


def together(tried: exp.Expr, fixed: Sequence[exp.Expr], attributes: int) -> exp.Subquery:
    """What is tried and what has its place: ``combination``, ``n``, ``node_i``."""
    columns = [col(COMBINATION), col(ROWS), *nodes_of(attributes)]
    parts = [select([column.copy() for column in columns], one.copy()) for one in (tried, *fixed)]
    query: exp.Query = union_all(*parts)
    return subquery(query, "t")


def options(tried: exp.Table, judged: exp.Query, attributes: int) -> exp.Select:
    """Where waiting classes may be placed, all of them together: a row for each class and each pattern that would be in
    a class that meets the policy: ``class``, ``node_i``, ``weight``, ``pattern``, ``class_size``."""
    names = [CLASS, *(released_name(i) for i in range(attributes)), WEIGHT, PATTERN]
    each = exp.Select(expressions=[col(name) for name in names], distinct=exp.Distinct())
    query = select([*(col(name, "t") for name in names), col(CLASS_SIZE, "j")], subquery(each.from_(tried.copy()), "t"))
    query = query.join(subquery(judged, "j"), on=agree(attributes, "t", "j"), copy=False)
    return query.where(col(KEPT, "j"), copy=False)


def _best_first(*last: str) -> exp.Order:
    """The least weight; then the largest class, so that many choose the same."""
    weight = exp.Round(this=col(WEIGHT), decimals=number(9))
    size = exp.Ordered(this=col(CLASS_SIZE), desc=True)
    return exp.Order(expressions=[exp.Ordered(this=weight), size, *(exp.Ordered(this=col(name)) for name in last)])


def chosen_nodes(possible: exp.Table, attributes: int) -> exp.Select:
    """What each waiting class chooses: ``class`` and ``node_i``."""
    rank = exp.Window(this=exp.RowNumber(), partition_by=[col(CLASS)], order=_best_first(PATTERN))
    ranked = select([exp.Star(), named(rank, "rank")], possible.copy())
    first = col("rank").eq(1)
    return select([col(CLASS), *nodes_of(attributes)], subquery(ranked, "r")).where(first, copy=False)


def placed_rows(rows: exp.Table, choice: exp.Table, attributes: int) -> exp.Select:
    """The rows of the classes of a choice, where it places them."""
    same = col(CLASS, "w").eq(col(CLASS, "d"))
    query = select([col(COMBINATION, "w"), col(ROWS, "w"), *nodes_of(attributes, "d")], aliased(rows, "w"))
    return query.join(aliased(choice, "d"), on=same, copy=False)


def good(choice: exp.Table, judged: exp.Query, attributes: int) -> exp.Select:
    """What of a choice is in a class that meets the policy."""
    query = select([col(CLASS, "d"), *nodes_of(attributes, "d")], aliased(choice, "d"))
    query = query.join(subquery(judged, "j"), on=agree(attributes, "d", "j"), copy=False)
    return query.where(col(KEPT, "j"), copy=False)


def single_best(possible: exp.Table, attributes: int) -> exp.Select:
    """The best option, with all that would be in one class with it."""
    best = star(possible.copy())
    best.set("order", _best_first(PATTERN, CLASS))
    query = select([col(CLASS, "o"), *nodes_of(attributes, "o")], aliased(possible, "o"))
    one = subquery(best.limit(1, copy=False), "b")
    return query.join(one, on=agree(attributes, "o", "b"), copy=False)


def both(before: exp.Table, accepted: exp.Table) -> exp.Query:
    """Two choices in one."""
    return union_all(star(before.copy()), star(accepted.copy()))


def released(
    combinations: exp.Table, read: exp.Table, choice: exp.Table, trees: Sequence[Tree], levels: Levels
) -> exp.Select:
    """All that is released: the kept rows as they are, and those of a choice with their blanks."""
    query = exp.Select().from_(aliased(combinations, "c"), copy=False)
    same = col(COMBINATION, "c").eq(col(COMBINATION, "r"))
    query = query.join(aliased(read, "r"), on=same, copy=False)
    in_choice = col(CLASS, "r").eq(col(CLASS, "d")) & (~col(KEPT, "r"))
    query = query.join(aliased(choice, "d"), on=in_choice, join_type="left", copy=False)
    output: list[exp.Expr] = [col(COMBINATION, "c")]
    for i, (tree, level) in enumerate(zip(trees, levels, strict=True)):
        blank = col(released_name(i), "d").neq(col(released_name(i), "r"))
        node = exp.If(this=blank, true=number(tree.root), false=col(node_name(i, level), "c"))
        output.append(named(cast(node, "INTEGER"), released_name(i)))
    there = is_there(col(CLASS, "d"))
    either = col(KEPT, "r") | there
    return query.select(*output, copy=False).where(either, copy=False)


WAY, BLOCK, LAST = "way", "block", "last"


def first_ways() -> exp.Select:
    """No way yet, before the first class: ``last`` is the number of blocks."""
    return exp.Select(expressions=[named(number(0), LAST)])


def more_ways(ways: exp.Table, classes: int) -> exp.Select:
    """The ways to part classes into blocks, with one class more: it is in a block that is there, in one of its own, or
    in none, block 0, which is suppressed."""
    block = cast(col("range", "b"), "INTEGER")
    last = greatest(col(LAST, "w"), block)
    output: list[exp.Expr] = [col(f"block_{i}", "w") for i in range(classes)]
    output.append(named(block.copy(), f"block_{classes}"))
    every = aliased(exp.Table(this=anonymous("range", number(classes + 2))), "b")
    on = col("range", "b") <= (col(LAST, "w") + 1)
    return select([*output, named(last, LAST)], aliased(ways, "w")).join(every, on=on, copy=False)


def parted(ways: exp.Table, classes: int) -> exp.Select:
    """The ways, a row for each class: ``way``, ``class`` and ``block``."""
    order = exp.Order(expressions=[exp.Ordered(this=col(f"block_{i}")) for i in range(classes)])
    numbered = select([exp.Star(), named(exp.Window(this=exp.RowNumber(), order=order), WAY)], ways.copy())
    each = [
        select([col(WAY), named(number(i + 1), CLASS), named(col(f"block_{i}"), BLOCK)], subquery(numbered.copy(), "n"))
        for i in range(classes)
    ]
    query: exp.Query = each[0] if classes == 1 else union_all(*each)
    return star(subquery(query, "e"))


def blocks(parts: exp.Table, rows: exp.Table, trees: Sequence[Tree], blankable: Sequence[int]) -> exp.Select:
    """Where the ways place each class: ``way``, ``class`` and ``node_i``, with blanks where its block differs.

    A block that differs in what cannot be blanked is left out.
    """
    names = [CLASS, *(released_name(i) for i in range(len(trees)))]
    each = exp.Select(expressions=[col(name) for name in names], distinct=exp.Distinct()).from_(rows.copy())
    query = exp.Select().from_(aliased(parts, "p"), copy=False)
    query = query.join(subquery(each, "r"), on=col(CLASS, "p").eq(col(CLASS, "r")), copy=False)
    output: list[exp.Expr] = [col(WAY, "p"), col(CLASS, "p")]
    conditions: list[exp.Expr] = []
    for i, tree in enumerate(trees):
        low, high = (
            exp.Window(this=extreme(this=col(released_name(i), "r")), partition_by=[col(WAY, "p"), col(BLOCK, "p")])
            for extreme in (exp.Min, exp.Max)
        )
        blank = number(tree.root) if i in blankable else exp.null()
        node = exp.If(this=low.eq(high), true=low.copy(), false=blank)
        output.append(named(node, released_name(i)))
        conditions.append(is_there(col(released_name(i))))
    query = query.select(*output, copy=False).where(col(BLOCK, "p") > 0, copy=False)
    return star(subquery(query, "b")).where(*conditions, copy=False)


def best_way(
    parts: exp.Table, placed: exp.Table, judged: exp.Query, rows: exp.Table, trees: Sequence[Tree]
) -> exp.Select:
    """The number of the way that blanks least, a suppressed row counting as one that is all blank.

    Of equals, the one that suppresses fewest rows; then the first.
    """
    count = len(trees)
    keys: list[exp.Expr] = [col(CLASS), *nodes_of(count)]
    sizes = select([*keys, named(total(col(ROWS)), ROWS)], rows.copy(), [key.copy() for key in keys])
    query = exp.Select().from_(aliased(parts, "p"), copy=False)
    query = query.join(subquery(sizes, "r"), on=col(CLASS, "p").eq(col(CLASS, "r")), copy=False)
    on = all_of(col(name, "p").eq(col(name, "b")) for name in (WAY, CLASS))
    query = query.join(aliased(placed, "b"), on=on, join_type="left", copy=False)
    in_class = col(WAY, "b").eq(col(WAY, "j")) & agree(count, "b", "j")
    query = query.join(subquery(judged, "j"), on=in_class, join_type="left", copy=False)
    blanks: exp.Expr = number(0.0)
    for i, tree in enumerate(trees):
        is_blank = col(released_name(i), "b").neq(col(released_name(i), "r"))
        blanks = blanks + exp.If(this=is_blank, true=number(float(tree.weight)), false=number(0.0))
    kept = exp.Coalesce(this=col(KEPT, "j"), expressions=[exp.false()])
    all_blank = number(float(sum(tree.weight for tree in trees)))
    each = col(ROWS, "r") * exp.If(this=kept, true=blanks, false=all_blank)
    lost = exp.Sum(this=exp.If(this=kept.copy(), true=number(0), false=col(ROWS, "r")))
    query = query.select(col(WAY, "p"), copy=False).group_by(col(WAY, "p"), copy=False)
    price = exp.Round(this=exp.Sum(this=each), decimals=number(6))
    query = query.order_by(exp.Ordered(this=price), exp.Ordered(this=lost), col(WAY, "p"), copy=False)
    return query.limit(1, copy=False)


def of_way(placed: exp.Table, judged: exp.Query, way: int, attributes: int) -> exp.Select:
    """What a way places, where it is in a class that meets the policy: a choice."""
    query = select([col(CLASS, "b"), *nodes_of(attributes, "b")], aliased(placed, "b"))
    in_class = [col(WAY, "b").eq(col(WAY, "j")), agree(attributes, "b", "j")]
    query = query.join(subquery(judged, "j"), on=all_of(in_class), copy=False)
    return query.where(col(WAY, "b").eq(number(way)), col(KEPT, "j"), copy=False)


EXACT = 8
"""Of so many failing classes every way is tried: 21,147."""

TRIES = 2_000_000
"""So many rows are tried in one statement, at most: waiting combinations times sets of blanks, or times ways."""


def cells(task: LocalTask, levels: Levels) -> LocalOutcome:
    """Blank cells of the rows that a generalization would suppress."""
    return _Cells(task, levels).run()


def blanked_beside(task: SearchTask) -> LocalOutcome:
    """Search with the policy's strategy of the full domain, and blank cells of the rows that it would suppress."""
    local = local_task(task.engine, task.prepared, task.work, task.progress)
    search, levels = local.start(task.prepared.policy.search.strategy)
    return replace(cells(local, levels), search=search)


class _Cells:
    def __init__(self, task: LocalTask, levels: Levels) -> None:
        self.task, self.levels = task, levels
        self.count = len(task.trees)
        self.nodes = [released_name(i) for i in range(self.count)]
        self.rounds = 0
        self._made = 0

    def run(self) -> LocalOutcome:
        task, trees = self.task, self.task.trees
        seen = self._make("seen", as_read(task.combinations, trees, self.levels))
        # What the generalization keeps is kept as it is: here the shields are asked for as they are.
        members = replace(task.members, requirements=task.prepared.requirements)
        judged = judged_groups(members, aliased(seen, "s"), self.nodes)
        self.read = self._make("read", with_classes(seen, judged, self.count))
        self.blankable = [
            i
            for i, (tree, level) in enumerate(zip(trees, self.levels, strict=True))
            if level < tree.height and task.engine.rows(is_released(tree))[0][0]
        ]
        self.helpers = self._make("helpers", helpers(self.read, trees, self.blankable))
        self.rows = self._make("rows", waiting(self.read, self.count))
        choice = self._choice()
        placed = task.steps.make(
            task.work("cells_placed"), released(task.combinations, self.read, choice, trees, self.levels)
        )
        return LocalOutcome(task, placed, rounds=self.rounds)

    def _choice(self) -> exp.Table:
        """Where the rows of failing classes are placed: ``class`` and ``node_i``."""
        none = select([col(CLASS), *(col(node) for node in self.nodes)], self.rows.copy())
        nowhere = self._make("choice", none.where(exp.false(), copy=False))
        failing: list[exp.Expr] = [exp.Count(this=exp.Distinct(expressions=[col(CLASS)])), exp.Count(this=exp.Star())]
        classes, combinations = self.task.engine.rows(select(failing, self.rows.copy()))[0]
        if not classes or not self.blankable:
            return nowhere
        helped = self.task.steps.count(self.helpers)
        if classes <= EXACT and not helped and combinations * _ways(classes) <= TRIES:
            return self._exactly(classes)
        return self._in_rounds(nowhere)

    def _exactly(self, classes: int) -> exp.Table:
        trees, judged = self.task.trees, self.task.judged
        ways = self._make("ways", first_ways())
        for done in range(classes):
            ways = self._make("ways", more_ways(ways, done))
        parts = self._make("parts", parted(ways, classes))
        placed = self._make("blocks", blocks(parts, self.rows, trees, self.blankable))
        query = placed_rows(self.rows, placed, self.count).select(col(WAY, "d"), copy=False)
        groups = self._make("groups", judged(subquery(query), [WAY, *self.nodes]))
        self.rounds += 1
        best = self.task.engine.rows(best_way(parts, placed, star(groups.copy()), self.rows, trees))
        return self._make("choice", of_way(placed, star(groups.copy()), best[0][0], self.count))

    def _in_rounds(self, choice: exp.Table) -> exp.Table:
        patterns = self._make("patterns", blank_patterns(self.task.trees, self.blankable))
        sizes = select([col(BUCKET), exp.Count(this=exp.Star())], patterns.copy(), [col(BUCKET)])
        first = 1
        for _, many in self.task.engine.rows(sizes.order_by(col(BUCKET), copy=False)):
            end = first + many
            while first < end:
                rows = self._make("waiting", waiting(self.read, self.count, choice))
                left = self.task.steps.count(rows)
                if not left:
                    return choice
                self.task.progress(left, self.rounds, None)
                last = min(first + max(TRIES // left, 1), end) - 1
                choice = self._place(choice, patterns, first, last)
                first = last + 1
        return choice

    def _place(self, choice: exp.Table, patterns: exp.Table, first: int, last: int) -> exp.Table:
        """Place all that can be with some of the patterns; the choice with it."""
        trees = self.task.trees
        while True:
            try:
                self.task.clock.spend()
            except LimitReachedError:
                return choice
            self.rounds += 1
            rows = self._make("waiting", waiting(self.read, self.count, choice))
            tried = self._make("tried", tries(rows, patterns, trees, self.blankable, first, last))
            fixed: list[exp.Expr] = [self.helpers, subquery(placed_rows(self.rows, choice, self.count))]
            judged = self._judged(tried, fixed)
            possible = self._make("options", options(tried, judged, self.count))
            if not self.task.steps.count(possible):
                self._drop(rows, tried, possible)
                return choice
            chosen = self._make("chosen", chosen_nodes(possible, self.count))
            there = self._judged(subquery(placed_rows(rows, chosen, self.count)), fixed)
            accepted = self._make("accepted", good(chosen, there, self.count))
            if not self.task.steps.count(accepted):
                accepted = self._make("accepted", single_best(possible, self.count))
            choice = self._make("choice", both(choice, accepted))
            self._drop(rows, tried, possible)

    def _judged(self, tried: exp.Expr, fixed: list[exp.Expr]) -> exp.Select:
        return self.task.judged(together(tried, fixed, self.count), self.nodes)

    def _make(self, name: str, query: exp.Query) -> exp.Table:
        self._made += 1
        return self.task.steps.make(self.task.work(f"cells_{name}_{self._made}"), query)

    def _drop(self, *tables: exp.Table) -> None:
        for table in tables:
            self.task.engine.execute(drop_table(table.copy()))


def _ways(classes: int) -> int:
    """How many ways there are to part so many classes into blocks, of which one may be suppressed: a Bell number.

    >>> [_ways(classes) for classes in range(1, 9)]
    [2, 5, 15, 52, 203, 877, 4140, 21147]
    """
    row = [1]
    for _ in range(classes):
        following = [row[-1]]
        for value in row:
            following.append(following[-1] + value)
        row = following
    return row[-1]
