"""The labels of kept combinations as readers see them, and the statement that makes the released rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.strategies.local.core.nodes import NODE, NODE_OF_CODE, Tree, is_allowed, level_column, node_column
from sqlanon.strategies.recoding import MASKED, ClassRecoding
from sqlanon.support.coding import KNOWN, CodedAttribute, Column, code_column
from sqlanon.support.expressions import (
    aliased,
    all_of,
    as_column,
    cast,
    col,
    fragment,
    is_null,
    null_safe_equal,
    select,
    subquery,
    template,
    text,
)


def _has_ground_node(code: exp.Expr, attribute: int, tree: Tree) -> exp.Expr:
    """Whether a code at the floor is that of the ground node of a kept combination ``k``."""
    return NODE_OF_CODE(code=code, offset=tree.offsets[0]).eq(col(f"ground_{attribute}", "k"))


def suppressed_combinations(frequency: exp.Expr, kept_combinations: exp.Table, trees: tuple[Tree, ...]) -> exp.Select:
    """The combinations that are not kept, and those of unknown values, as classes of the generalization at the floor:
    ``code_i`` and ``known``."""
    codes = {i: col(code_column(i, tree.floor), "f") for i, tree in enumerate(trees) if tree.floor < tree.height}
    return template("""
        SELECT DISTINCT :codes, f.known
        FROM :frequency AS f
        ANTI JOIN :kept AS k ON :same_combination
    """)(
        codes=[as_column(code, f"code_{i}") for i, code in codes.items()],
        frequency=frequency,
        kept=kept_combinations,
        same_combination=all_of([*(_has_ground_node(code, i, trees[i]) for i, code in codes.items()), col(KNOWN, "f")]),
    )


def released_labels(nodes: exp.Table, assignment: exp.Table, attribute: int, forbidden: Sequence[str]) -> exp.Select:
    """The nodes that an attribute is released as, without forbidden labels. Nodes with equal labels have equal codes:
    readers cannot distinguish them."""
    return template("""
        SELECT node, (dense_rank() OVER (ORDER BY label NULLS FIRST) - 1)::INTEGER AS code, label, leaves, level
        FROM :nodes
        WHERE node IN (SELECT :released_node FROM :assignment) AND :is_allowed
    """)(
        nodes=nodes,
        released_node=col(node_column(attribute)),
        assignment=assignment,
        is_allowed=is_allowed(col("label"), forbidden),
    )


def readable_combinations(
    combinations: exp.Table, assignment: exp.Table, labels: Sequence[exp.Table], trees: Sequence[Tree], has_shares: bool
) -> exp.Select:
    """Combinations as readers see them: ``combination``, ``row_count``, the labels' codes ``code_i``, and by attribute
    ``leaves_i`` and ``level_i``; the ground nodes ``ground_i`` that link them to source rows; and where combinations
    are divided into shares ``first_row`` and ``last_row``."""
    row_range = [col(name, "c") for name in ("first_row", "last_row")] if has_shares else []
    query = template("""
        SELECT c.combination, c.row_count, :row_range
        FROM :assignment AS p
        JOIN :combinations AS c ON p.combination = c.combination
    """)(row_range=row_range, assignment=assignment, combinations=combinations)
    for i, (table, tree) in enumerate(zip(labels, trees, strict=True)):
        alias = f"v{i}"
        on = col(node_column(i), "p").eq(col(NODE, alias))
        query = query.join(aliased(table, alias), on=on, copy=False)
        query = query.select(
            *(as_column(col(name, alias), f"{name}_{i}") for name in ("code", "leaves", "level")),
            as_column(col(level_column(i, tree.floor), "c"), f"ground_{i}"),
            copy=False,
        )
    return query


_LABELS = template("SELECT DISTINCT code, label FROM :labels")
# Labels as lists: the values of a set, and one value for any other label. The SQL macro `members` reads sets alike.
_LABELS_AS_LISTS = template(r"""
    SELECT
        code,
        CASE
            WHEN label IS NULL THEN NULL
            WHEN regexp_full_match(label, '\{("([^"]|"")*"|[^",{}\s][^",{}]*)(, ("([^"]|"")*"|[^",{}\s][^",{}]*))*\}')
            THEN CAST(
                '["' || replace(
                    replace(
                        replace(
                            array_to_string(
                                regexp_extract_all(
                                    regexp_replace(
                                        substr(label, 2, length(label) - 2),
                                        '"((?:[^"]|"")*)"|([^",{}\s][^",{}]*)',
                                        '"\1\2"',
                                        'g'
                                    ),
                                    '"((?:[^"]|"")*)"',
                                    1
                                ),
                                ' " '
                            ),
                            '\',
                            '\\'
                        ),
                        '""',
                        '\"'
                    ),
                    ' " ',
                    '", "'
                ) || '"]' AS VARCHAR[]
            )
            ELSE [label]
        END AS label
    FROM (SELECT DISTINCT code, label FROM :labels) AS l
""")


@dataclass(frozen=True)
class LocalRecoding(ClassRecoding):
    """Builds the statement of a release in which each combination has its own labels.

    Its rows have ``code_i`` for attributes with labels, and ``value_j`` for the other columns.
    """

    attributes: tuple[CodedAttribute, ...]
    tops: tuple[str | None, ...]
    trees: tuple[Tree, ...]
    # The released combinations, with their ground nodes ``ground_i`` and the codes of their labels ``code_i``. Rows of
    # other combinations are suppressed.
    kept_combinations: exp.Table
    labels: tuple[exp.Table, ...]  # for each attribute, a table of ``code`` and ``label``; NULL is a label
    ground: frozenset[int]  # attributes released at level 0 alone, with the source's values
    types: tuple[str | None, ...]  # for each attribute, the type to which its labels are cast; None: VARCHAR
    mask: bool = False  # suppressed rows stay, with every quasi-identifier at its top
    lists: frozenset[int] = frozenset()  # attributes whose labels are lists
    # The key that divides equal rows among shares of a combination, which have ``first_row`` and ``last_row`` in
    # ``kept_combinations``. Rows are ordered by a hash of it: an order by released values would let readers repeat the
    # division.
    division_key: tuple[str, ...] = ()

    def recoded_type(self, column: Column, source_type: str) -> str:
        if column.quasi in self.lists and (self.mask or column.quasi not in self.ground):
            return "VARCHAR[]"
        if column.quasi is None or (not self.mask and (column.quasi in self.ground or self.types[column.quasi])):
            return source_type
        return "VARCHAR"

    @property
    def codes_identify_labels(self) -> bool:
        """False with a mask, which may read like a label, and with lists: a value may be spelled like a set of one."""
        return not self.mask and not self.lists

    def class_keys(self) -> dict[int, str]:
        values = {column.quasi: f"value_{j}" for j, column in enumerate(self.columns) if column.quasi in self.ground}
        return {i: values.get(i, f"code_{i}") for i in range(len(self.attributes))}

    def label_counts(self) -> exp.Select:
        return exp.Select(
            expressions=[fragment("(SELECT count(DISTINCT code) FROM :labels)")(labels=table) for table in self.labels]
        )

    def fully_suppressed(self) -> exp.Select:
        flags = [
            exp.false()
            if i in self.ground
            else fragment("min(:code) = max(:code) AND min(:level) > 0")(code=col(f"code_{i}"), level=col(f"level_{i}"))
            for i in range(len(self.attributes))
        ]
        return select(flags, self.kept_combinations.copy())

    def with_labels(self, rows: exp.Expr) -> exp.Select:
        query = exp.Select().from_(aliased(rows, "r"))
        for i in self._coded_attributes():
            labels = (_LABELS_AS_LISTS if i in self.lists else _LABELS)(labels=self.labels[i])
            on = col(f"code_{i}", "r").eq(col("code", f"l{i}"))
            join_type = "left" if self.mask else ""
            query = query.join(subquery(labels, f"l{i}"), on=on, join_type=join_type, copy=False)
        return query.select(
            *(as_column(self._value(j), column.name) for j, column in enumerate(self.columns)), copy=False
        )

    def _coded_attributes(self) -> list[int]:
        """The attributes whose labels are looked up by their code."""
        return [i for i in range(len(self.attributes)) if i not in self.ground]

    def rows(self) -> exp.Select:
        query = exp.Select().from_(aliased(self.source, "s"))
        combination: dict[str, exp.Expr] = {}  # codes at the floor, and whether values are known
        for i, (attribute, tree) in enumerate(zip(self.attributes, self.trees, strict=True)):
            if tree.floor < tree.height or attribute.unknown:
                on = null_safe_equal(col(attribute.column, "s"), col("value", f"h{i}"), attribute.nullable)
                query = query.join(aliased(attribute.table, f"h{i}"), on=on, copy=False)
            if tree.floor < tree.height:
                combination[f"ground_{i}"] = col(f"code_{tree.floor}", f"h{i}")
            if attribute.unknown:
                combination[f"known_{i}"] = col(KNOWN, f"h{i}")
        values = {
            f"value_{j}": self._source_value(column)
            for j, column in enumerate(self.columns)
            if column.quasi is None or column.quasi in self.ground
        }
        if self.division_key:
            position = fragment(
                "row_number() OVER (PARTITION BY :combination ORDER BY md5(concat_ws('|', :key)), :key)"
            )(
                combination=[value.copy() for value in combination.values()] or [exp.true()],
                key=[cast(col(name, "s"), "VARCHAR") for name in self.division_key],
            )
            columns = [as_column(value, name) for name, value in {**combination, **values}.items()]
            query = query.select(*columns, as_column(position, "position"), copy=False)
            query = exp.Select().from_(subquery(query, "s"))
            combination = {name: col(name, "s") for name in combination}
            values = {name: col(name, "s") for name in values}
        keys = [
            _has_ground_node(combination[f"ground_{i}"], i, tree)
            for i, tree in enumerate(self.trees)
            if tree.floor < tree.height
        ]
        keys += [combination[f"known_{i}"] for i, attribute in enumerate(self.attributes) if attribute.unknown]
        keys += [fragment("s.position BETWEEN k.first_row AND k.last_row")()] if self.division_key else []
        kind = "left" if self.mask else "inner"
        query = query.join(aliased(self.kept_combinations, "k"), on=all_of(keys), join_type=kind, copy=False)
        output = [as_column(col(f"code_{i}", "k"), f"code_{i}") for i in self._coded_attributes()]
        output += [as_column(value, name) for name, value in values.items()]
        if self.mask:
            output.append(as_column(is_null(col("combination", "k")), MASKED))
        return query.select(*(output or [as_column(exp.true(), KNOWN)]), copy=False)

    def _source_value(self, column: Column) -> exp.Expr:
        """A value of the source; its text in a column with masks, unless the engine formats it."""
        if self.mask and column.quasi is not None and (texts := self.attributes[column.quasi].texts) is not None:
            return col(texts, f"h{column.quasi}")
        return col(column.name, "s")

    def _value(self, j: int) -> exp.Expr:
        """Column ``j`` of the release."""
        quasi = self.columns[j].quasi
        if quasi is None:
            return col(f"value_{j}", "r")
        is_ground, type_ = quasi in self.ground, self.types[quasi]
        value: exp.Expr = col(f"value_{j}", "r") if is_ground else col("label", f"l{quasi}")
        if self.mask and quasi in self.lists:
            return fragment("CASE WHEN r.masked THEN [:top] ELSE :value END")(
                top=text(self.tops[quasi] or ""),
                value=fragment("CASE WHEN :value IS NOT NULL THEN [:value::VARCHAR] END")(value=value)
                if is_ground
                else value,
            )
        if self.mask:
            return fragment("CASE WHEN r.masked THEN :top ELSE :value::VARCHAR END")(
                top=text(self.tops[quasi] or ""), value=value
            )
        return cast(value, type_) if type_ is not None and not is_ground else value
