"""Cell suppression: rows that a generalization would suppress are released with as few blank cells as possible.

A blank is the attribute's top label, a value like any other. Rows that read the same at the generalization are blanked
alike, and kept rows stay unchanged. The aim is the least weight of blanked cells; a suppressed row counts as all blank:

- With up to `EXACT` infeasible classes, and without kept rows that read as blank, every partition of the classes into
  blocks is tried; a block is blanked where its rows differ.
- Otherwise in rounds, by sets of blanked attributes, the lightest first. Each class chooses the lightest, then the
  largest class among those that would be feasible if all others chose it too. Choices that then are feasible stay; if
  none is, the best single class is made. The distance from the least weight is not bounded (the problem is NP-hard).

``partition`` numbers the partitions of classes into blocks, ``block`` the blocks of one from 1 on. Block 0 is
suppressed. ``class`` numbers the infeasible classes; ``node_i`` is the node that a reader sees: the root, if the label
is the top label. ``pattern`` is a set of blanked attributes, a bit for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.local.core.evaluation import feasible_rows
from sqlanon.strategies.local.core.finish import on_combinations
from sqlanon.strategies.local.core.nodes import NODE, Tree, equal_columns, join_levels, node_column, node_columns
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import (
    aliased,
    all_of,
    as_column,
    col,
    fragment,
    is_not_null,
    number,
    select_star,
    subquery,
    template,
    union_all,
)

EXACT = 8
"""Maximum number of infeasible classes for which every partition is tried: 21,147."""

MAX_BLANKABLE = 16
"""With more attributes that may be blanked, not all of their 2ⁿ sets are tried."""

MAX_TRIES = 2_000_000
"""Maximum number of rows tried in one statement: waiting combinations times sets of blanks, or times partitions."""


def readable_at(combinations: exp.Table, trees: Sequence[Tree], levels: Levels) -> exp.Select:
    """The combinations at a generalization, as readers see them: ``combination``, ``row_count``, ``node_i``."""
    query = template("SELECT c.combination, c.row_count FROM :combinations AS c")(combinations=combinations)
    query, nodes = join_levels(query, trees, levels)
    for i, (tree, node) in enumerate(zip(trees, nodes, strict=True)):
        query = query.join(aliased(tree.nodes, f"v{i}"), on=node.eq(col(NODE, f"v{i}")), copy=False)
        readable = fragment("""
            CASE WHEN :label = (SELECT label FROM :nodes WHERE node = :root) THEN :root ELSE :node END
        """)(label=col("label", f"v{i}"), nodes=tree.nodes, root=tree.root, node=node)
        query = query.select(as_column(readable, node_column(i)), copy=False)
    return query


def can_be_blanked(task: LocalTask, tree: Tree) -> bool:
    """Whether the top label of an attribute may be released."""
    query = template("SELECT released FROM :nodes WHERE node = :root")(nodes=tree.nodes, root=tree.root)
    return bool(task.fetch_value(query))


# Rows of infeasible classes that have no choice yet.
_WAITING = template("SELECT r.class, r.combination, r.row_count, :nodes FROM :classified AS r WHERE NOT r.kept")
# Feasible choices of waiting classes, if all classes make all of their tries: a row for each class and pattern.
_OPTIONS = template("""
    SELECT t.class, :nodes_tried, t.weight, t.pattern, j.class_size
    FROM (SELECT DISTINCT class, :nodes, weight, pattern FROM :tried) AS t
    JOIN :evaluated AS j ON :same_class
    WHERE j.kept
""")
# The option of each waiting class: the least weight, then the largest class, so that many choose the same one.
_BEST_OPTIONS = template("""
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
# The best option of all, for all classes that would be one class with it.
_BEST_OPTION = template("""
    SELECT o.class, :nodes
    FROM :options AS o
    JOIN (
        SELECT * FROM :options ORDER BY round(weight, 9), class_size DESC, pattern, class LIMIT 1
    ) AS b ON :same_class
""")


def blank_patterns(trees: Sequence[Tree], blankable: Sequence[int]) -> exp.Select:
    """The sets of blanked attributes, or the small and the large ones if there are many: ``pattern``, ``weight`` and
    ``bucket``, the weight in mean weights, rounded up.

    With equal weights the bucket is the number of blanks.
    """
    weight: exp.Expr = number(0.0)
    bits: exp.Expr = number(0)
    for place, i in enumerate(blankable):
        weight = weight + _if_blank(i, number(float(trees[i].weight)), number(0.0))
        bits = bits + fragment("((range >> :place) & 1) * :bit")(place=place, bit=1 << i)
    patterns: exp.Query = template("SELECT (:bits)::BIGINT AS pattern FROM range(1, :end)")(
        bits=bits, end=1 << len(blankable)
    )
    if len(blankable) > MAX_BLANKABLE:
        values = [1 << i for i in blankable]
        bits = exp.Array(expressions=[number(value) for value in values])
        # The sets of one to four attributes, all attributes, and all but one to four.
        patterns = template("""
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
                SELECT :all_attributes - pattern FROM few WHERE pattern < :all_attributes
                UNION
                SELECT :all_attributes
            ) AS s
        """)(bits=bits, all_attributes=sum(values))
    mean_weight = sum(trees[i].weight for i in blankable) / len(blankable)
    return template("""
        WITH
            weights AS (SELECT pattern, :weight AS weight FROM :patterns AS m),
            buckets AS (SELECT *, ceil(round(weight / :mean_weight, 9))::INTEGER AS bucket FROM weights)
        SELECT *, row_number() OVER (ORDER BY bucket, pattern) AS place
        FROM buckets
    """)(mean_weight=mean_weight, weight=weight, patterns=patterns)


def _if_blank(attribute: int, blank: exp.Expr, value: exp.Expr, alias: str | None = None) -> exp.Expr:
    return fragment("CASE WHEN (:pattern & :bit) <> 0 THEN :blank ELSE :value END")(
        pattern=col("pattern", alias), bit=1 << attribute, blank=blank, value=value
    )


def tries(
    waiting: exp.Table, patterns: exp.Table, trees: Sequence[Tree], blankable: Sequence[int], first: int, last: int
) -> exp.Select:
    """Waiting rows with some patterns of blanks: the columns of waiting rows, ``weight`` and ``pattern``.

    Cells that are blank already are not blanked.
    """
    nodes: list[exp.Expr] = []
    blanks_are_new: list[exp.Expr] = []
    for i, tree in enumerate(trees):
        node, root = col(node_column(i), "w"), number(tree.root)
        if i not in blankable:
            nodes.append(node)
            continue
        nodes.append(as_column(_if_blank(i, root, node, "p"), node_column(i)))
        blanks_are_new.append(_if_blank(i, node.neq(root), exp.true(), "p"))
    return template("""
        SELECT w.class, w.combination, w.row_count, :nodes, p.weight, p.pattern
        FROM :waiting AS w
        JOIN :patterns AS p ON p.place BETWEEN :first AND :last AND :blanks_are_new
    """)(nodes=nodes, waiting=waiting, patterns=patterns, first=first, last=last, blanks_are_new=all_of(blanks_are_new))


_ROWS = template("SELECT combination, row_count, :nodes FROM :rows")


_COMMON_OR_BLANK = fragment("""
    CASE
        WHEN min(:node) OVER (PARTITION BY p.partition, p.block) = max(:node) OVER (PARTITION BY p.partition, p.block)
            THEN min(:node) OVER (PARTITION BY p.partition, p.block)
        ELSE :blank
    END
""")


def suppress_cells(task: LocalTask, levels: Levels) -> LocalOutcome:
    """Blank cells of the rows that a generalization would suppress."""
    return _CellSuppression(task, levels).run()


class _CellSuppression:
    def __init__(self, task: LocalTask, levels: Levels) -> None:
        self.task, self.levels = task, levels
        self.columns = [node_column(i) for i in range(len(task.trees))]
        self.rounds = 0
        self._number = 0

    def run(self) -> LocalOutcome:
        task, trees = self.task, self.task.trees
        readable = self._make("readable", readable_at(task.combinations, trees, self.levels))
        # Kept rows stay unchanged, so shields are evaluated as conditions on subsets.
        evaluator = replace(task.evaluator, requirements=task.search_input.requirements)
        query = template("""
            WITH combinations AS (
                SELECT r.combination, r.row_count, :nodes_of_rows, j.kept
                FROM :readable AS r
                JOIN :evaluated AS j ON :same_class
            )
            SELECT *, (dense_rank() OVER (PARTITION BY kept ORDER BY :nodes))::INTEGER AS class
            FROM combinations
        """)(
            nodes=self._nodes(),
            nodes_of_rows=self._nodes("r"),
            readable=readable,
            evaluated=evaluator.evaluate(readable, self.columns),
            same_class=equal_columns(self.columns, "r", "j"),
        )
        self.classified = self._make("classified", query)
        levels = zip(trees, self.levels, strict=True)
        self.blankable = [
            i for i, (tree, level) in enumerate(levels) if level < tree.height and can_be_blanked(task, tree)
        ]
        nodes = self._nodes()
        is_blank: exp.Expr = exp.false()
        for i in self.blankable:
            is_blank = is_blank | nodes[i].eq(trees[i].root)
        # Kept rows that read as blank somewhere: blanked rows may be in a class with them.
        query = template("SELECT combination, row_count, :nodes FROM :classified WHERE kept AND (:is_blank)")(
            nodes=nodes, classified=self.classified, is_blank=is_blank
        )
        self.kept_with_blanks = self._make("kept_with_blanks", query)
        self.infeasible = self._make("infeasible", _WAITING(nodes=self._nodes("r"), classified=self.classified))
        assignment = task.make("cells_assignment", self._released_combinations(self._choose()))
        return LocalOutcome(task, assignment, rounds=self.rounds)

    def _released_combinations(self, choice: exp.Table) -> exp.Select:
        trees = self.task.trees
        # The released rows: the kept ones, and those of a choice with their blanks.
        query = template("""
            SELECT c.combination
            FROM :combinations AS c
            JOIN :classified AS r ON c.combination = r.combination
            LEFT JOIN :choice AS d ON r.class = d.class AND NOT r.kept
            WHERE r.kept OR d.class IS NOT NULL
        """)(combinations=self.task.combinations, classified=self.classified, choice=choice)
        query, nodes = join_levels(query, trees, self.levels)
        for tree, name, node in zip(trees, self.columns, nodes, strict=True):
            blanked = fragment("(CASE WHEN :chosen <> :readable THEN :root ELSE :node END)::INTEGER")(
                chosen=col(name, "d"), readable=col(name, "r"), root=tree.root, node=node
            )
            query = query.select(as_column(blanked, name), copy=False)
        return query

    def _choose(self) -> exp.Table:
        """Make a table of the infeasible classes that are released, with their blanks: ``class`` and ``node_i``."""
        query = template("SELECT class, :nodes FROM :rows WHERE FALSE")(nodes=self._nodes(), rows=self.infeasible)
        no_choice = self._make("choice", query)
        query = template("SELECT count(DISTINCT class), count(*) FROM :rows")(rows=self.infeasible)
        classes, combinations = self.task.fetch_row(query)
        if not classes or not self.blankable:
            return no_choice
        some_kept_have_blanks = self.task.runner.count(self.kept_with_blanks) > 0
        if classes <= EXACT and not some_kept_have_blanks and combinations * _count_partitions(classes) <= MAX_TRIES:
            return self._try_partitions(classes)
        return self._choose_in_rounds(no_choice)

    def _try_partitions(self, classes: int) -> exp.Table:
        names = [f"block_{i}" for i in range(classes)]
        # No partition yet: ``last`` is the number of blocks.
        query = template("SELECT 0 AS last")()
        partitions = self._make("partitions", query)
        for i, name in enumerate(names):
            # The partitions with one more class: in an existing block, in a new one, or suppressed in block 0.
            query = template("""
                SELECT :blocks, greatest(w.last, b.range::INTEGER) AS last
                FROM :partitions AS w
                JOIN range(:end) AS b ON b.range <= w.last + 1
            """)(
                blocks=[*(col(former, "w") for former in names[:i]), as_column(fragment("b.range::INTEGER")(), name)],
                partitions=partitions,
                end=i + 2,
            )
            partitions = self._make("partitions", query)
        columns = [col(name) for name in names]
        block_of_class = template("""
            SELECT partition, :class AS class, :block AS block
            FROM (SELECT *, row_number() OVER (ORDER BY :blocks) AS partition FROM :partitions) AS numbered
        """)
        by_class = [
            block_of_class(**{"class": i + 1}, block=block, blocks=columns, partitions=partitions)
            for i, block in enumerate(columns)
        ]
        blocks = self._make("blocks", select_star(subquery(union_all(*by_class), "e")))
        choices = self._make("block_choices", self._block_choices(blocks))
        rows = self._chosen_rows(self.infeasible, choices).select(col("partition", "d"), copy=False)
        keys = ["partition", *self.columns]
        evaluated = self._make("evaluated", self.task.evaluate(subquery(rows), keys))
        self.rounds += 1
        best = self.task.fetch_value(self._best_partition(blocks, choices, evaluated))
        choice = feasible_rows(choices, evaluated, keys).where(col("partition", "p").eq(number(best)), copy=False)
        query = template("SELECT class, :nodes FROM :choice AS c")(nodes=self._nodes(), choice=choice)
        return self._make("choice", query)

    def _block_choices(self, blocks: exp.Table) -> exp.Select:
        nodes = []
        for i, (name, tree) in enumerate(zip(self.columns, self.task.trees, strict=True)):
            blank = number(tree.root) if i in self.blankable else exp.null()
            nodes.append(as_column(_COMMON_OR_BLANK(node=col(name, "r"), blank=blank), name))
        # The choice of each class by partition, with blanks where its block differs.
        query = template("""
            WITH
                class_nodes AS (
                    SELECT DISTINCT class, :nodes_of_rows FROM :rows
                ),
                choices AS (
                    SELECT p.partition, p.class, :nodes
                    FROM :blocks AS p
                    JOIN class_nodes AS r ON p.class = r.class
                    WHERE p.block > 0
                )
            SELECT * FROM choices
        """)(nodes=nodes, blocks=blocks, nodes_of_rows=self._nodes(), rows=self.infeasible)
        # Blocks that differ in an attribute that cannot be blanked have no choice.
        return query.where(*(is_not_null(node) for node in self._nodes()), copy=False)

    def _best_partition(self, blocks: exp.Table, choices: exp.Table, evaluated: exp.Table) -> exp.Select:
        blank_weight, weights = number(0.0), [float(tree.weight) for tree in self.task.trees]
        for name, weight in zip(self.columns, weights, strict=True):
            blank_weight = blank_weight + fragment("CASE WHEN :chosen <> :readable THEN :weight ELSE 0.0 END")(
                chosen=col(name, "b"), readable=col(name, "r"), weight=weight
            )
        # The partition that blanks least, a suppressed row counting as all blank; then the one that suppresses fewest
        # rows, then the first.
        return template("""
            SELECT p.partition
            FROM :blocks AS p
            JOIN (
                SELECT class, :nodes, sum(row_count)::BIGINT AS row_count FROM :rows GROUP BY class, :nodes
            ) AS r ON p.class = r.class
            LEFT JOIN :choices AS b ON p.partition = b.partition AND p.class = b.class
            LEFT JOIN :evaluated AS j ON b.partition = j.partition AND :same_class
            GROUP BY p.partition
            ORDER BY
                round(
                    sum(r.row_count * CASE WHEN coalesce(j.kept, FALSE) THEN :blank_weight ELSE :total_weight END), 6
                ),
                sum(CASE WHEN coalesce(j.kept, FALSE) THEN 0 ELSE r.row_count END),
                p.partition
            LIMIT 1
        """)(
            blocks=blocks,
            nodes=self._nodes(),
            rows=self.infeasible,
            choices=choices,
            evaluated=evaluated,
            same_class=equal_columns(self.columns, "b", "j"),
            blank_weight=blank_weight,
            total_weight=sum(weights),
        )

    def _choose_in_rounds(self, choice: exp.Table) -> exp.Table:
        patterns = self._make("patterns", blank_patterns(self.task.trees, self.blankable))
        first = 1
        query = template("SELECT bucket, count(*) FROM :patterns GROUP BY bucket ORDER BY bucket")(patterns=patterns)
        for _, pattern_count in self.task.engine.rows(query):
            end = first + pattern_count
            while first < end:
                waiting_count = self.task.runner.count(self._waiting(choice))
                if not waiting_count or self.task.limit_is_reached():
                    return choice
                self.task.progress(waiting_count, self.rounds, None)
                last = min(first + max(MAX_TRIES // waiting_count, 1), end) - 1
                choice = self._extend_choice(choice, patterns, first, last)
                first = last + 1
        return choice

    def _extend_choice(self, choice: exp.Table, patterns: exp.Table, first: int, last: int) -> exp.Table:
        """Choose blanks for all waiting classes that some of the patterns make feasible.

        Each round evaluates all options of the waiting classes at once, and accepts the best options that are still
        feasible when each class takes only its own.
        """
        runner, nodes = self.task.runner, self._nodes()
        while True:
            try:
                self.task.clock.spend()
            except LimitReachedError:
                return choice
            self.rounds += 1
            waiting = self._waiting(choice)
            tried = self._make("tried", tries(waiting, patterns, self.task.trees, self.blankable, first, last))
            released = [self.kept_with_blanks, subquery(self._chosen_rows(self.infeasible, choice))]
            query = _OPTIONS(
                nodes_tried=self._nodes("t"),
                nodes=nodes,
                tried=tried,
                evaluated=self._evaluate(tried, *released),
                same_class=equal_columns(self.columns, "t", "j"),
            )
            options = self._make("options", query)
            if not runner.count(options):
                runner.drop(waiting, tried, options)
                return choice
            chosen = self._make("chosen", _BEST_OPTIONS(nodes=nodes, options=options))
            evaluated = self._evaluate(subquery(self._chosen_rows(waiting, chosen)), *released)
            accepted = self._make("accepted", feasible_rows(chosen, evaluated, self.columns))
            if not runner.count(accepted):
                same_class = equal_columns(self.columns, "o", "b")
                query = _BEST_OPTION(nodes=self._nodes("o"), options=options, same_class=same_class)
                accepted = self._make("accepted", query)
            choice = self._make("choice", union_all(select_star(choice.copy()), select_star(accepted.copy())))
            runner.drop(waiting, tried, options)

    def _waiting(self, choice: exp.Table) -> exp.Table:
        query = _WAITING(nodes=self._nodes("r"), classified=self.classified)
        same_class = col("class", "r").eq(col("class", "d"))
        query = query.join(aliased(choice, "d"), on=same_class, join_type="anti", copy=False)
        return self._make("waiting", query)

    def _chosen_rows(self, rows: exp.Table, choice: exp.Table) -> exp.Select:
        return template("""
            SELECT w.combination, w.row_count, :nodes
            FROM :rows AS w
            JOIN :choice AS d ON w.class = d.class
        """)(nodes=self._nodes("d"), rows=rows, choice=choice)

    def _evaluate(self, *relations: exp.Expr) -> exp.Select:
        """Evaluate the classes of several relations together."""
        rows = union_all(*(_ROWS(nodes=self._nodes(), rows=relation) for relation in relations))
        return self.task.evaluate(subquery(rows, "t"), self.columns)

    def _nodes(self, alias: str | None = None) -> list[exp.Expr]:
        return node_columns(len(self.columns), alias)

    def _make(self, name: str, query: exp.Query) -> exp.Table:
        self._number += 1
        return self.task.make(f"cells_{name}_{self._number}", query)


def _count_partitions(classes: int) -> int:
    """Count the partitions of classes into blocks, where one may be suppressed: a Bell number.

    >>> [_count_partitions(classes) for classes in range(1, 9)]
    [2, 5, 15, 52, 203, 877, 4140, 21147]
    """
    row = [1]
    for _ in range(classes):
        next_row = [row[-1]]
        for value in row:
            next_row.append(next_row[-1] + value)
        row = next_row
    return row[-1]


def search_and_suppress_cells(task: LocalTask) -> LocalOutcome:
    """Search with the policy's full-domain strategy, and blank cells of the rows that it would suppress."""
    search, levels = task.search_full_domain(task.search_input.policy.search.strategy)
    return replace(suppress_cells(task, levels), search=search)


run = on_combinations(search_and_suppress_cells)
