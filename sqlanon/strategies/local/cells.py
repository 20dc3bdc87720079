"""Cell suppression: rows that a generalization would leave out are released with blanks, as few as may be.

A blank is the attribute's top label. It is a value of its own, as a reader sees it: a row with blanks is in the class
of the rows that read the same, blanks and all. Counting a blank as a wildcard, which matches any value, calls tables
k-anonymous in which a reader finds smaller classes.

Rows that read the same at the generalization are blanked alike, and kept rows stay as they are. What is sought is the
least weight of blanked cells, by the attributes' weights, a suppressed row counting as one that is all blank:

- Of up to `EXACT` failing classes, and where no kept row reads as blank, every partition of them into blocks is
  tried; a block is blanked where its rows differ. That is the least weight there is, if two classes that meet the
  policy meet it as one (all requirements but for persons who are in several combinations).
- Else in rounds, by sets of blanked attributes, the lightest first. Each class chooses, among those of its sets that
  would be in a class that meets the policy if all others chose so too, the lightest, then the largest class. What then
  does meet it stays; if nothing does, the best single class is made. Of more than `MOST_BLANKABLE` attributes the sets
  are those of up to four, and those that leave up to four. There is no bound on how far that is from the
  least (the problem is NP-hard: Meyerson, Williams, "On the complexity of optimal k-anonymity", 2004).

What finds no place is suppressed.

``partition`` numbers the partitions of classes into blocks, ``block`` the blocks of one from 1 on. Block 0 is
suppressed. ``class`` numbers the classes that break the policy; ``node_i`` is the node that a reader sees, so that one
whose label is the top label is the root; ``pattern`` is a set of blanked attributes, a bit for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.local.finish import on_combinations
from sqlanon.strategies.local.nodes import NODE, Tree, agree, node_name, released_name, released_nodes
from sqlanon.strategies.local.placement import judged_groups
from sqlanon.strategies.local.task import LocalOutcome, LocalTask
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import (
    aliased,
    all_of,
    col,
    fragment,
    is_there,
    named,
    number,
    star,
    subquery,
    template,
    union_all,
)

_AS_READ = template("SELECT c.combination, c.n FROM :combinations AS c")
_ROOT_OR_OWN = fragment("""
    CASE WHEN :label = (SELECT label FROM :nodes WHERE node = :root) THEN :root ELSE :own END
""")


def as_read(combinations: exp.Table, trees: Sequence[Tree], levels: Levels) -> exp.Select:
    """The combinations at a generalization, as readers see them: ``combination``, ``n``, ``node_i``."""
    query = _AS_READ(combinations=combinations)
    for i, (tree, level) in enumerate(zip(trees, levels, strict=True)):
        own = col(node_name(i, level), "c")
        query = query.join(aliased(tree.nodes, f"v{i}"), on=own.eq(col(NODE, f"v{i}")), copy=False)
        node = _ROOT_OR_OWN(label=col("label", f"v{i}"), nodes=tree.nodes, root=tree.root, own=own)
        query = query.select(named(node, released_name(i)), copy=False)
    return query


_IS_RELEASED = template("SELECT released FROM :nodes WHERE node = :root")


def is_released(task: LocalTask, tree: Tree) -> bool:
    """Whether an attribute may be blanked: its top label may be released."""
    return bool(task.engine.rows(_IS_RELEASED(nodes=tree.nodes, root=tree.root))[0][0])


# The combinations as read, with ``kept`` of their class, and the number of the class.
_WITH_CLASSES = template("""
    SELECT *, (dense_rank() OVER (PARTITION BY kept ORDER BY :nodes))::INTEGER AS class
    FROM (
        SELECT r.combination, r.n, :nodes_of_rows, j.kept
        FROM :seen AS r
        JOIN :judged AS j ON :same
    ) AS w
""")
# The rows of failing classes that have no place yet.
_WAITING = template("SELECT r.class, r.combination, r.n, :nodes FROM :read AS r WHERE NOT r.kept")
# The kept rows that read as blank somewhere: blanked rows may be in a class with them.
_HELPERS = template("SELECT combination, n, :nodes FROM :read WHERE kept AND (:is_blank)")


_PATTERNS = template("""
    SELECT *, row_number() OVER (ORDER BY bucket, pattern) AS place
    FROM (
        SELECT *, ceil(round(weight / :mean, 9))::INTEGER AS bucket
        FROM (
            SELECT pattern, :weight AS weight
            FROM :sets AS m
        ) AS w
    ) AS p
""")
_ALL_SETS = template("SELECT (:bits)::BIGINT AS pattern FROM range(1, :end)")
# The sets of one to four attributes, all, and all but one to four.
_SMALL_SETS = template("""
    WITH
        bits AS MATERIALIZED (SELECT unnest(:bits)::BIGINT AS bit UNION ALL SELECT 0),
        few AS MATERIALIZED (
            SELECT a.bit + b.bit + c.bit + d.bit AS pattern
            FROM bits AS a
            JOIN bits AS b ON b.bit < a.bit
            JOIN bits AS c ON c.bit < b.bit OR (c.bit = 0 AND b.bit = 0)
            JOIN bits AS d ON d.bit < c.bit OR (d.bit = 0 AND c.bit = 0)
        )
    SELECT pattern
    FROM (
        SELECT pattern FROM few
        UNION
        SELECT :every - pattern FROM few WHERE pattern < :every
        UNION
        SELECT :every
    ) AS s
""")
_BIT = fragment("((range >> :place) & 1) * :bit")
_IF_BLANK = fragment("CASE WHEN (:pattern & :bit) <> 0 THEN :yes ELSE :no END")


def blank_patterns(trees: Sequence[Tree], blankable: Sequence[int]) -> exp.Select:
    """The sets of blanked attributes, of many the small and the large ones: ``pattern``, ``weight`` and ``bucket``, the
    weight in mean weights, rounded up.

    With equal weights the bucket is the number of blanks.
    """
    weight: exp.Expr = number(0.0)
    bits: exp.Expr = number(0)
    for place, i in enumerate(blankable):
        weight = weight + _if_blank(i, number(float(trees[i].weight)), number(0.0))
        bits = bits + _BIT(place=place, bit=1 << i)
    mean = sum(trees[i].weight for i in blankable) / len(blankable)
    sets: exp.Query = _ALL_SETS(bits=bits, end=1 << len(blankable))
    if len(blankable) > MOST_BLANKABLE:
        every = [1 << i for i in blankable]
        sets = _SMALL_SETS(bits=exp.Array(expressions=[number(bit) for bit in every]), every=sum(every))
    return _PATTERNS(mean=mean, weight=weight, sets=subquery(sets))


def _if_blank(attribute: int, yes: exp.Expr, no: exp.Expr, alias: str | None = None) -> exp.Expr:
    return _IF_BLANK(pattern=col("pattern", alias), bit=1 << attribute, yes=yes, no=no)


_TRIES = template("""
    SELECT w.class, w.combination, w.n, :nodes, p.weight, p.pattern
    FROM :rows AS w
    JOIN :patterns AS p ON p.place BETWEEN :first AND :last AND :shows
""")


def tries(
    rows: exp.Table, all_patterns: exp.Table, trees: Sequence[Tree], blankable: Sequence[int], first: int, last: int
) -> exp.Select:
    """Waiting rows with some patterns of blanks, those from one place to another: columns as in `waiting`, ``weight``
    and ``pattern``.

    Only what is not blank is blanked.
    """
    nodes: list[exp.Expr] = []
    shows: list[exp.Expr] = []
    for i, tree in enumerate(trees):
        own = col(released_name(i), "w")
        if i not in blankable:
            nodes.append(own)
            continue
        nodes.append(named(_if_blank(i, number(tree.root), own, "p"), released_name(i)))
        shows.append(_if_blank(i, own.neq(number(tree.root)), exp.true(), "p"))
    return _TRIES(nodes=nodes, rows=rows, patterns=all_patterns, first=first, last=last, shows=all_of(shows))


_ROWS = template("SELECT combination, n, :nodes FROM :rows")


# Where waiting classes may be placed, all of them together: a row for each class and each pattern that would be in a
# class that meets the policy.
_OPTIONS = template("""
    SELECT t.class, :nodes_tried, t.weight, t.pattern, j.class_size
    FROM (SELECT DISTINCT class, :nodes, weight, pattern FROM :tried) AS t
    JOIN :judged AS j ON :same
    WHERE j.kept
""")
# What each waiting class chooses. The least weight is the best; then the largest class, so that many choose the same.
_CHOSEN = template("""
    SELECT class, :nodes
    FROM (
        SELECT
            *,
            row_number() OVER (
                PARTITION BY class ORDER BY round(weight, 9), class_size DESC, pattern
            ) AS rank
        FROM :options
    ) AS r
    WHERE rank = 1
""")
# The best option, with all that would be in one class with it.
_SINGLE_BEST = template("""
    SELECT o.class, :nodes
    FROM :options AS o
    JOIN (
        SELECT * FROM :options ORDER BY round(weight, 9), class_size DESC, pattern, class LIMIT 1
    ) AS b ON :same
""")
# The rows of the classes of a choice, where it places them.
_PLACED_ROWS = template("""
    SELECT w.combination, w.n, :nodes
    FROM :rows AS w
    JOIN :choice AS d ON w.class = d.class
""")
# What of a choice is in a class that meets the policy.
_GOOD = template("SELECT d.class, :nodes FROM :choice AS d JOIN :judged AS j ON :same WHERE j.kept")


# All that is released: the kept rows as they are, and those of a choice with their blanks.
_RELEASED = template("""
    SELECT c.combination, :nodes
    FROM :combinations AS c
    JOIN :read AS r ON c.combination = r.combination
    LEFT JOIN :choice AS d ON r.class = d.class AND NOT r.kept
    WHERE r.kept OR d.class IS NOT NULL
""")
_BLANK_OR_OWN = fragment("(CASE WHEN :chosen <> :before THEN :root ELSE :own END)::INTEGER")


# No partition yet, before the first class: ``last`` is the number of blocks.
_NO_PARTITION = template("SELECT 0 AS last")
# The partitions of one class more: it is in a block that is there, in one of its own, or in none, block 0, which is
# suppressed.
_MORE_PARTITIONS = template("""
    SELECT :blocks, greatest(w.last, b.range::INTEGER) AS last
    FROM :partitions AS w
    JOIN range(:end) AS b ON b.range <= w.last + 1
""")
_NEW_BLOCK = fragment("b.range::INTEGER")


# The partitions, a row for each class: ``partition``, ``class`` and ``block``.
_PARTED = template("SELECT * FROM :classes AS e")
_CLASS_OF_EACH = template("""
    SELECT partition, :class AS class, :block AS block
    FROM (SELECT *, row_number() OVER (ORDER BY :blocks) AS partition FROM :partitions) AS n
""")


# Where the partitions place each class, with blanks where its block differs. A block that differs in what cannot be
# blanked is left out.
_BLOCKS = template("""
    SELECT *
    FROM (
        SELECT p.partition, p.class, :nodes
        FROM :parts AS p
        JOIN (SELECT DISTINCT class, :nodes_of_rows FROM :rows) AS r ON p.class = r.class
        WHERE p.block > 0
    ) AS b
""")
_COMMON_OR_BLANK = fragment("""
    CASE
        WHEN min(:node) OVER (PARTITION BY p.partition, p.block) = max(:node) OVER (PARTITION BY p.partition, p.block)
            THEN min(:node) OVER (PARTITION BY p.partition, p.block)
        ELSE :blank
    END
""")


# The partition that blanks least, a suppressed row counting as one that is all blank. Of equals, the one that
# suppresses fewest rows; then the first.
_BEST = template("""
    SELECT p.partition
    FROM :parts AS p
    JOIN (SELECT class, :nodes, sum(n)::BIGINT AS n FROM :rows GROUP BY class, :nodes) AS r ON p.class = r.class
    LEFT JOIN :placed AS b ON p.partition = b.partition AND p.class = b.class
    LEFT JOIN :judged AS j ON b.partition = j.partition AND :same
    GROUP BY p.partition
    ORDER BY
        round(sum(r.n * CASE WHEN coalesce(j.kept, FALSE) THEN :blanks ELSE :all_blank END), 6),
        sum(CASE WHEN coalesce(j.kept, FALSE) THEN 0 ELSE r.n END),
        p.partition
    LIMIT 1
""")
_BLANK_WEIGHT = fragment("CASE WHEN :placed <> :read THEN :weight ELSE 0.0 END")


# What a partition places, where it is in a class that meets the policy: a choice.
_OF_PARTITION = template("""
    SELECT b.class, :nodes
    FROM :placed AS b
    JOIN :judged AS j ON b.partition = j.partition AND :same
    WHERE b.partition = :chosen AND j.kept
""")


_NO_CHOICE = template("SELECT class, :nodes FROM :rows WHERE FALSE")
_FAILING = template("SELECT count(DISTINCT class), count(*) FROM :rows")
_BUCKETS = template("SELECT bucket, count(*) FROM :patterns GROUP BY bucket ORDER BY bucket")

EXACT = 8
"""Of so many failing classes every partition is tried: 21,147."""

MOST_BLANKABLE = 16
"""Of more attributes that may be blanked, not all of their 2ⁿ sets are tried."""

TRIES = 2_000_000
"""So many rows are tried in one statement, at most: waiting combinations times sets of blanks, or times partitions."""


def cells(task: LocalTask, levels: Levels) -> LocalOutcome:
    """Blank cells of the rows that a generalization would suppress."""
    return _Cells(task, levels).run()


class _Cells:
    def __init__(self, task: LocalTask, levels: Levels) -> None:
        self.task, self.levels = task, levels
        self.nodes = [released_name(i) for i in range(len(task.trees))]
        self.rounds = 0
        self._number = 0

    def run(self) -> LocalOutcome:
        task, trees = self.task, self.task.trees
        seen = self._make("seen", as_read(task.combinations, trees, self.levels))
        # What the generalization keeps is kept as it is: here the shields are asked for as they are.
        members = replace(task.members, requirements=task.prepared.requirements)
        judged = judged_groups(members, aliased(seen, "s"), self.nodes)
        same, nodes = agree(self.nodes, "r", "j"), self._nodes()
        read = _WITH_CLASSES(nodes=nodes, nodes_of_rows=self._nodes("r"), seen=seen, judged=judged, same=same)
        self.read = self._make("read", read)
        levels = zip(trees, self.levels, strict=True)
        self.blankable = [
            i for i, (tree, level) in enumerate(levels) if level < tree.height and is_released(task, tree)
        ]
        blank: exp.Expr = exp.false()
        for i in self.blankable:
            blank = blank | nodes[i].eq(trees[i].root)
        self.helpers = self._make("helpers", _HELPERS(nodes=nodes, read=self.read, is_blank=blank))
        self.rows = self._make("rows", _WAITING(nodes=self._nodes("r"), read=self.read))
        released = self._released(self._choice())
        return LocalOutcome(task, task.steps.make(task.work("cells_placed"), released), rounds=self.rounds)

    def _released(self, choice: exp.Table) -> exp.Select:
        nodes = []
        for i, (tree, level) in enumerate(zip(self.task.trees, self.levels, strict=True)):
            chosen, before, own = col(self.nodes[i], "d"), col(self.nodes[i], "r"), col(node_name(i, level), "c")
            node = _BLANK_OR_OWN(chosen=chosen, before=before, root=tree.root, own=own)
            nodes.append(named(node, self.nodes[i]))
        return _RELEASED(nodes=nodes, combinations=self.task.combinations, read=self.read, choice=choice)

    def _choice(self) -> exp.Table:
        """Where the rows of failing classes are placed: ``class`` and ``node_i``."""
        nowhere = self._make("choice", _NO_CHOICE(nodes=self._nodes(), rows=self.rows))
        classes, combinations = self.task.engine.rows(_FAILING(rows=self.rows))[0]
        if not classes or not self.blankable:
            return nowhere
        helped = self.task.steps.count(self.helpers)
        if classes <= EXACT and not helped and combinations * _partitions(classes) <= TRIES:
            return self._exactly(classes)
        return self._in_rounds(nowhere)

    def _exactly(self, classes: int) -> exp.Table:
        blocks = [col(f"block_{i}") for i in range(classes)]
        partitions = self._make("ways", _NO_PARTITION())
        for done in range(classes):
            block = [*(col(f"block_{i}", "w") for i in range(done)), named(_NEW_BLOCK(), f"block_{done}")]
            partitions = self._make("ways", _MORE_PARTITIONS(blocks=block, partitions=partitions, end=done + 2))
        each = [
            _CLASS_OF_EACH(**{"class": i + 1}, block=block, blocks=blocks, partitions=partitions)
            for i, block in enumerate(blocks)
        ]
        parts = self._make("parts", _PARTED(classes=union_all(*each)))
        placed = self._make("blocks", self._blocks(parts))
        rows = self._placed_rows(self.rows, placed).select(col("partition", "d"), copy=False)
        groups = star(self._make("groups", self.task.judged(subquery(rows), ["partition", *self.nodes])))
        self.rounds += 1
        best = self.task.engine.rows(self._best_partition(parts, placed, groups))[0][0]
        same, nodes = agree(self.nodes, "b", "j"), self._nodes("b")
        return self._make("choice", _OF_PARTITION(nodes=nodes, placed=placed, judged=groups, same=same, chosen=best))

    def _blocks(self, parts: exp.Table) -> exp.Select:
        nodes = []
        for i, tree in enumerate(self.task.trees):
            blank = number(tree.root) if i in self.blankable else exp.null()
            nodes.append(named(_COMMON_OR_BLANK(node=col(self.nodes[i], "r"), blank=blank), self.nodes[i]))
        query = _BLOCKS(nodes=nodes, parts=parts, nodes_of_rows=self._nodes(), rows=self.rows)
        return query.where(*(is_there(node) for node in self._nodes()), copy=False)

    def _best_partition(self, parts: exp.Table, placed: exp.Table, judged: exp.Query) -> exp.Select:
        blanks, weights = number(0.0), [float(tree.weight) for tree in self.task.trees]
        for name, weight in zip(self.nodes, weights, strict=True):
            blanks = blanks + _BLANK_WEIGHT(placed=col(name, "b"), read=col(name, "r"), weight=weight)
        return _BEST(
            parts=parts,
            nodes=self._nodes(),
            rows=self.rows,
            placed=placed,
            judged=judged,
            same=agree(self.nodes, "b", "j"),
            blanks=blanks,
            all_blank=sum(weights),
        )

    def _in_rounds(self, choice: exp.Table) -> exp.Table:
        patterns = self._make("patterns", blank_patterns(self.task.trees, self.blankable))
        first = 1
        for _, many in self.task.engine.rows(_BUCKETS(patterns=patterns)):
            end = first + many
            while first < end:
                left = self.task.steps.count(self._waiting(choice))
                if not left or self._is_over():
                    return choice
                self.task.progress(left, self.rounds, None)
                last = min(first + max(TRIES // left, 1), end) - 1
                choice = self._place(choice, patterns, first, last)
                first = last + 1
        return choice

    def _is_over(self) -> bool:
        try:
            self.task.clock.refuse_over_limits()
        except LimitReachedError:
            return True
        return False

    def _place(self, choice: exp.Table, patterns: exp.Table, first: int, last: int) -> exp.Table:
        """Place all that can be with some of the patterns; the choice with it."""
        steps, nodes = self.task.steps, self._nodes()
        while True:
            try:
                self.task.clock.spend()
            except LimitReachedError:
                return choice
            self.rounds += 1
            rows = self._waiting(choice)
            tried = self._make("tried", tries(rows, patterns, self.task.trees, self.blankable, first, last))
            fixed = [self.helpers, subquery(self._placed_rows(self.rows, choice))]
            judged, same = self._judged(tried, fixed), agree(self.nodes, "t", "j")
            options = _OPTIONS(nodes_tried=self._nodes("t"), nodes=nodes, tried=tried, judged=judged, same=same)
            possible = self._make("options", options)
            if not steps.count(possible):
                steps.drop(rows, tried, possible)
                return choice
            chosen = self._make("chosen", _CHOSEN(nodes=nodes, options=possible))
            judged, same = self._judged(subquery(self._placed_rows(rows, chosen)), fixed), agree(self.nodes, "d", "j")
            good = _GOOD(nodes=self._nodes("d"), choice=chosen, judged=judged, same=same)
            accepted = self._make("accepted", good)
            if not steps.count(accepted):
                same = agree(self.nodes, "o", "b")
                single = _SINGLE_BEST(nodes=self._nodes("o"), options=possible, same=same)
                accepted = self._make("accepted", single)
            choice = self._make("choice", union_all(star(choice.copy()), star(accepted.copy())))
            steps.drop(rows, tried, possible)

    def _waiting(self, placed: exp.Table) -> exp.Table:
        query = _WAITING(nodes=self._nodes("r"), read=self.read)
        same = col("class", "r").eq(col("class", "d"))
        return self._make("waiting", query.join(aliased(placed, "d"), on=same, join_type="anti", copy=False))

    def _placed_rows(self, rows: exp.Table, choice: exp.Table) -> exp.Select:
        return _PLACED_ROWS(nodes=self._nodes("d"), rows=rows, choice=choice)

    def _judged(self, tried: exp.Expr, fixed: Sequence[exp.Expr]) -> exp.Select:
        """What is tried and what has its place, judged together."""
        rows = union_all(*(_ROWS(nodes=self._nodes(), rows=one) for one in (tried, *fixed)))
        return self.task.judged(subquery(rows, "t"), self.nodes)

    def _nodes(self, alias: str | None = None) -> list[exp.Expr]:
        return released_nodes(len(self.nodes), alias)

    def _make(self, name: str, query: exp.Query) -> exp.Table:
        self._number += 1
        return self.task.steps.make(self.task.work(f"cells_{name}_{self._number}"), query)


def _partitions(classes: int) -> int:
    """How many partitions so many classes have into blocks, of which one may be suppressed: a Bell number.

    >>> [_partitions(classes) for classes in range(1, 9)]
    [2, 5, 15, 52, 203, 877, 4140, 21147]
    """
    row = [1]
    for _ in range(classes):
        following = [row[-1]]
        for value in row:
            following.append(following[-1] + value)
        row = following
    return row[-1]


def blanked_beside(task: LocalTask) -> LocalOutcome:
    """Search with the policy's strategy of the full domain, and blank cells of the rows that it would suppress."""
    search, levels = task.start(task.prepared.policy.search.strategy)
    return replace(cells(task, levels), search=search)


run = on_combinations(blanked_beside)
