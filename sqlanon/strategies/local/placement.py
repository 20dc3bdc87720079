"""From what a local strategy placed to the release: groups of combinations judged, what readers see of them, and the
statement that makes the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.statements import MOVER
from sqlanon.requirements import Distribution, Requirements
from sqlanon.requirements.base import SHARE, VALUE
from sqlanon.strategies.lattice.classes import judged_classes
from sqlanon.strategies.local.nodes import NODE, Tree, agree, may_be_shown, node_name, released_name
from sqlanon.strategies.recoding import MASKED, order_by_class
from sqlanon.support.coding import KNOWN, ROWS, Coded, Column, code_name
from sqlanon.support.expressions import aliased, all_of, cast, col, fragment, named, same, subquery, template, text


@dataclass(frozen=True)
class Members:
    """What is counted of combinations, and the requirements of each group of them."""

    requirements: Requirements
    persons: exp.Table | None = None  # ``combination``, ``persons`` and, with movers, ``mover``
    moving: bool = False
    sensitive: Mapping[Distribution, SensitiveTable] | None = None  # with ``combination`` in place of codes


_JUDGED = template("SELECT :keys, class_size, class_count, kept FROM :judged AS j")
_GROUPS = template("SELECT :keys, p.n AS n FROM :placed AS p")
_GROUPS_OF_PERSONS = template("""
    SELECT :keys, c.n AS n, c.persons AS persons, :movers
    FROM :placed AS p
    JOIN :persons AS c ON p.combination = c.combination
""")
_GROUPS_OF_VALUES = template("""
    SELECT :keys, :counts
    FROM :placed AS p
    JOIN :sensitive AS s ON p.combination = s.combination
""")


def judged_groups(members: Members, placed: exp.Expr, keys: Sequence[str]) -> exp.Select:
    """The groups that a relation makes of combinations, judged: the keys, ``class_size`` (rows), ``class_count`` (rows
    or persons) and ``kept``."""
    # To the queries of classes, the keys are attributes at their ground level.
    codes = [code_name(i, 0) for i in range(len(keys))]
    renamed = [named(col(key, "p"), code) for key, code in zip(keys, codes, strict=True)]
    if members.persons is None:
        frequency = _GROUPS(keys=renamed, placed=placed)
    else:
        # Rows are counted once for each combination, persons for each of its movers.
        movers = [named(col(MOVER, "c"), MOVER)] if members.moving else []
        frequency = _GROUPS_OF_PERSONS(keys=renamed, movers=movers, placed=placed, persons=members.persons)

    def of_values(table: SensitiveTable) -> SensitiveTable:
        names = [*(f"o{i}" for i in range(table.inner)), VALUE, SHARE, ROWS, *([MOVER] if members.moving else [])]
        counts = [col(name, "s") for name in names]
        groups = _GROUPS_OF_VALUES(keys=renamed, counts=counts, placed=placed, sensitive=table.table)
        return replace(table, table=subquery(groups, "f"))

    space = ClassSpace(
        subquery(frequency, "f"),
        (1,) * len(keys),
        members.requirements,
        sensitive={one: of_values(table) for one, table in (members.sensitive or {}).items()},
        persons=members.persons is not None,
        moving=members.moving,
    )
    extra: list[exp.Expr] = [named(col(code), key) for code, key in zip(codes, keys, strict=True)]
    return _JUDGED(keys=[col(key) for key in keys], judged=subquery(judged_classes(space, (0,) * len(keys), extra)))


class_figures = template("""
    SELECT
        count(*) AS classes,
        coalesce(sum(class_size)::BIGINT, 0) AS rows,
        coalesce(min(class_size), 0) AS smallest,
        coalesce(min(class_count), 0) AS fewest,
        coalesce(sum(pow(class_size::DOUBLE, 2))::DOUBLE, 0) AS squares,
        coalesce(sum(class_count)::BIGINT, 0) AS count,
        count(*) FILTER (WHERE class_count = 1) AS singles
    FROM :judged AS j
    WHERE kept
""")
"""One row of figures of the groups that are kept: ``smallest`` has fewest rows, ``fewest`` is the least count (rows or
persons); ``singles`` are those of one."""


_LEAVES = fragment("sum(n::DOUBLE * :leaves)::DOUBLE")
_LEVELS = fragment("sum(n * :level)::BIGINT")


def attribute_figures(kept: exp.Table, attributes: int) -> exp.Select:
    """One row: by attribute, over the kept rows, ``leaves_i`` and ``levels_i`` (sums), ``low_i`` and ``high_i`` (the
    least and the greatest level)."""
    figures: list[exp.Expr] = []
    for i in range(attributes):
        level = col(f"level_{i}")
        figures += [
            named(_LEAVES(leaves=col(f"leaves_{i}")), f"leaves_{i}"),
            named(_LEVELS(level=level), f"levels_{i}"),
            named(exp.Min(this=level.copy()), f"low_{i}"),
            named(exp.Max(this=level.copy()), f"high_{i}"),
        ]
    return _FIGURES(figures=figures, kept=kept)


_FIGURES = template("SELECT :figures FROM :kept")

_SUPPRESSED = template("""
    SELECT DISTINCT :codes, f.known
    FROM :frequency AS f
    ANTI JOIN :kept AS k ON :same
""")
_IS_GROUND = fragment("(:code::INTEGER + :offset) = :ground")


def _is_ground(code: exp.Expr, attribute: int, tree: Tree) -> exp.Expr:
    """Whether a code at the floor is that of the ground node of a kept combination ``k``."""
    return _IS_GROUND(code=code, offset=tree.offsets[0], ground=col(f"ground_{attribute}", "k"))


def suppressed_ground(frequency: exp.Expr, kept: exp.Table, trees: tuple[Tree, ...]) -> exp.Select:
    """The combinations that are not kept, with those of unknown values, as classes of the generalization at the floor:
    ``code_i`` and ``known``."""
    codes = {i: col(code_name(i, tree.floor), "f") for i, tree in enumerate(trees) if tree.floor < tree.height}
    keys = [_is_ground(code, i, trees[i]) for i, code in codes.items()]
    return _SUPPRESSED(
        codes=[named(code, f"code_{i}") for i, code in codes.items()],
        frequency=frequency,
        kept=kept,
        same=all_of([*keys, col(KNOWN, "f")]),
    )


_RELEASED_VALUES = template("""
    SELECT node, (dense_rank() OVER (ORDER BY label NULLS FIRST) - 1)::INTEGER AS code, label, leaves, level
    FROM :nodes
    WHERE node IN (SELECT :released FROM :placed) AND :allowed
""")


def released_values(values: exp.Table, placed: exp.Table, attribute: int, forbidden: Sequence[str]) -> exp.Select:
    """The nodes that an attribute is released as, with what readers see of them; nodes with equal labels have equal
    codes. Labels that are forbidden never are."""
    return _RELEASED_VALUES(
        nodes=values,
        released=col(released_name(attribute)),
        placed=placed,
        allowed=may_be_shown(col("label"), forbidden),
    )


_PLACES = ("first_row", "last_row")
_READABLE = template("""
    SELECT c.combination, c.n
    FROM :placed AS p
    JOIN :combinations AS c ON p.combination = c.combination
""")


def as_read(
    combinations: exp.Table,
    placed: exp.Table,
    values: Sequence[exp.Table],
    trees: Sequence[Tree],
    divides: bool,
) -> exp.Select:
    """Combinations as readers see them: ``combination``, ``n``, the codes of the labels ``code_i``, and by attribute
    ``leaves_i`` and ``level_i``; with the ground nodes ``ground_i`` by which the source's rows find them, and where
    combinations are divided ``first_row`` and ``last_row``."""
    query = _READABLE(placed=placed, combinations=combinations)
    query = query.select(*(col(name, "c") for name in (_PLACES if divides else ())), copy=False)
    for i, (table, tree) in enumerate(zip(values, trees, strict=True)):
        on = col(released_name(i), "p").eq(col(NODE, f"v{i}"))
        query = query.join(aliased(table, f"v{i}"), on=on, copy=False)
        shown = [named(col(name, f"v{i}"), f"{name}_{i}") for name in ("code", "leaves", "level")]
        query = query.select(*shown, named(col(node_name(i, tree.floor), "c"), f"ground_{i}"), copy=False)
    return query


_KEPT = template("""
    SELECT r.*
    FROM :readable AS r
    SEMI JOIN (SELECT * FROM :judged AS g WHERE kept) AS j ON :same
""")


def kept_combinations(readable: exp.Table, judged: exp.Select, attributes: Sequence[int]) -> exp.Select:
    """The rows of `readable` whose class is kept."""
    return _KEPT(
        readable=readable,
        judged=judged,
        same=agree([f"code_{i}" for i in attributes], "r", "j"),
    )


_ONE_LABEL = fragment("min(:code) = max(:code) AND min(:level) > 0")
_LABEL_COUNT = fragment("(SELECT count(DISTINCT code) FROM :labels)")
_LABELS = template("SELECT DISTINCT code, label FROM :labels")
_LISTS = template("SELECT code, :members AS label FROM (SELECT DISTINCT code, label FROM :labels) AS l")
# The values of a set; of any other label a list of one. The macro `members` reads a set in the same way.
_MEMBERS = fragment(r"""
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
    END
""")
_MASKED = fragment("k.combination IS NULL")
_PLACE = fragment("row_number() OVER (PARTITION BY :combination ORDER BY md5(concat_ws('|', :key)), :key)")
_IS_OF_SHARE = fragment("s.place BETWEEN k.first_row AND k.last_row")
_LIST_MASK = fragment("CASE WHEN r.masked THEN [:top] ELSE :value END")
_ONE = fragment("CASE WHEN :value IS NOT NULL THEN [:value::VARCHAR] END")
_MASK = fragment("CASE WHEN r.masked THEN :top ELSE :value::VARCHAR END")


@dataclass(frozen=True)
class LocalRecoding:
    """How a release is made from the source, where each combination has released values of its own.

    Its rows have ``code_i`` for attributes that have labels, and ``value_j`` for the other columns.
    """

    source: exp.Table
    columns: tuple[Column, ...]
    attributes: tuple[Coded, ...]
    tops: tuple[str | None, ...]
    trees: tuple[Tree, ...]
    # The combinations that are released, by their ground nodes ``ground_i``, with the codes of their labels,
    # ``code_i``. All others are suppressed.
    kept: exp.Table
    labels: tuple[exp.Table, ...]  # by attribute ``code`` and ``label``; NULL is a label of its own
    ground: frozenset[int]  # attributes of which nothing above level 0 is released: their values are the source's own
    types: tuple[str | None, ...]  # by attribute the type to which its labels are cast; None: VARCHAR
    mask: bool = False  # suppressed rows stay, with every quasi-identifier at its top
    lists: frozenset[int] = frozenset()  # attributes whose labels are lists, of one value or of those of a set
    # Where combinations are divided, with ``first_row`` and ``last_row`` in ``kept``: the key of the rows. A hash of it
    # gives them their places among equal ones: by released values readers could tell which row came from where.
    divided_by: tuple[str, ...] = ()

    def released_type(self, column: Column, own: str) -> str:
        if column.quasi in self.lists and (self.mask or column.quasi not in self.ground):
            return "VARCHAR[]"
        if column.quasi is None or (not self.mask and (column.quasi in self.ground or self.types[column.quasi])):
            return own
        return "VARCHAR"

    def with_column(self, column: Column) -> LocalRecoding:
        return replace(self, columns=(*self.columns, column))

    def with_source(self, source: exp.Table) -> LocalRecoding:
        return replace(self, source=source)

    @property
    def codes_identify_labels(self) -> bool:
        """Not with a mask, which may read like a label; nor with lists: a value may be spelled like a set of one."""
        return not self.mask and not self.lists

    def class_keys(self) -> dict[int, str]:
        """By attribute its code, or its value where that is the source's own."""
        values = {column.quasi: f"value_{j}" for j, column in enumerate(self.columns) if column.quasi in self.ground}
        return {i: values.get(i, f"code_{i}") for i in range(len(self.attributes))}

    def label_counts(self) -> exp.Select:
        return exp.Select(expressions=[_LABEL_COUNT(labels=table) for table in self.labels])

    def fully_suppressed(self) -> exp.Select:
        flags = [
            exp.false() if i in self.ground else _ONE_LABEL(code=col(f"code_{i}"), level=col(f"level_{i}"))
            for i in range(len(self.attributes))
        ]
        return _FIGURES(figures=flags, kept=self.kept)

    def select(self, shuffled: bool = True) -> exp.Select:
        return order_by_class(self, self.rows()) if shuffled else self.with_labels(subquery(self.rows(), "r"))

    def with_labels(self, rows: exp.Expr) -> exp.Select:
        query = exp.Select().from_(aliased(rows, "r"))
        for i in self._by_label():
            labels = subquery(self._labels_of(i), f"l{i}")
            on = col(f"code_{i}", "r").eq(col("code", f"l{i}"))
            query = query.join(labels, on=on, join_type="left" if self.mask else "", copy=False)
        return query.select(*(named(self._value(j), one.name) for j, one in enumerate(self.columns)), copy=False)

    def _labels_of(self, i: int) -> exp.Select:
        if i in self.lists:
            return _LISTS(members=_MEMBERS(), labels=self.labels[i])
        return _LABELS(labels=self.labels[i])

    def _by_label(self) -> list[int]:
        """The attributes whose values are looked up by their code."""
        return [i for i in range(len(self.attributes)) if i not in self.ground]

    def rows(self) -> exp.Select:
        query, combination, values = self._coded(), self._combination(), self._values_kept()
        if self.divided_by:
            query = exp.Select().from_(subquery(self._numbered(query, combination, values), "s"))
            combination, values = ({name: col(name, "s") for name in some} for some in (combination, values))
        keys = [
            _is_ground(combination[f"ground_{i}"], i, tree)
            for i, tree in enumerate(self.trees)
            if tree.floor < tree.height
        ]
        keys += [combination[f"known_{i}"] for i, attribute in enumerate(self.attributes) if attribute.unknown]
        keys += [_IS_OF_SHARE()] if self.divided_by else []
        kind = "left" if self.mask else "inner"
        query = query.join(aliased(self.kept, "k"), on=all_of(keys), join_type=kind, copy=False)
        output = [named(col(f"code_{i}", "k"), f"code_{i}") for i in self._by_label()]
        output += [named(value, name) for name, value in values.items()]
        if self.mask:
            output.append(named(_MASKED(), MASKED))
        return query.select(*(output or [named(exp.true(), KNOWN)]), copy=False)

    def _coded(self) -> exp.Select:
        """The source's rows ``s``, each with the coded values ``h{i}`` that its combination is known by."""
        query = exp.Select().from_(aliased(self.source, "s"))
        for i, (attribute, tree) in enumerate(zip(self.attributes, self.trees, strict=True)):
            if tree.floor < tree.height or attribute.unknown:
                on = same(col(attribute.column, "s"), col("value", f"h{i}"), attribute.nullable)
                query = query.join(aliased(attribute.table, f"h{i}"), on=on, copy=False)
        return query

    def _combination(self) -> Mapping[str, exp.Expr]:
        """What the combination of a row is known by: codes at the floor, and whether values are known."""
        found: dict[str, exp.Expr] = {}
        for i, (attribute, tree) in enumerate(zip(self.attributes, self.trees, strict=True)):
            if tree.floor < tree.height:
                found[f"ground_{i}"] = col(f"code_{tree.floor}", f"h{i}")
            if attribute.unknown:
                found[f"known_{i}"] = col(KNOWN, f"h{i}")
        return found

    def _values_kept(self) -> Mapping[str, exp.Expr]:
        """The values of a row that are released as they are."""
        return {
            f"value_{j}": self._own_value(column)
            for j, column in enumerate(self.columns)
            if column.quasi is None or column.quasi in self.ground
        }

    def _numbered(
        self, rows: exp.Select, combination: Mapping[str, exp.Expr], values: Mapping[str, exp.Expr]
    ) -> exp.Select:
        """Rows with their places among the equal ones, by their key."""
        key = [cast(col(name, "s"), "VARCHAR") for name in self.divided_by]
        equal = [one.copy() for one in combination.values()] or [exp.true()]
        columns = [named(value, name) for name, value in {**combination, **values}.items()]
        return rows.select(*columns, named(_PLACE(combination=equal, key=key), "place"), copy=False)

    def _own_value(self, column: Column) -> exp.Expr:
        """A value of the source; beside masks its text, where that is not left to the engine."""
        if self.mask and column.quasi is not None and (texts := self.attributes[column.quasi].texts) is not None:
            return col(texts, f"h{column.quasi}")
        return col(column.name, "s")

    def _value(self, j: int) -> exp.Expr:
        """Column ``j`` of the release."""
        quasi = self.columns[j].quasi
        if quasi is None:
            return col(f"value_{j}", "r")
        type_ = self.types[quasi]
        value: exp.Expr = col(f"value_{j}", "r") if quasi in self.ground else col("label", f"l{quasi}")
        if self.mask and quasi in self.lists:
            return _LIST_MASK(
                top=text(self.tops[quasi] or ""), value=_ONE(value=value) if quasi in self.ground else value
            )
        if self.mask:
            return _MASK(top=text(self.tops[quasi] or ""), value=value)
        return cast(value, type_) if type_ is not None and quasi not in self.ground else value
