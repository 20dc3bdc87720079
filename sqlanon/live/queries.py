"""A live view: one generalization of a table, made and suppressed whenever it is read.

The names in it, all ours: ``source`` (the rows with ``value_j`` for the columns that it reads), ``rows`` (those
whose values all have a label, with the codes of `coding` and ``label_i``), ``frequency``, ``classes``; and of
sensitive attribute ``s`` ``values_s``, ``domain_s``, ``nodes_s`` and ``distribution_s_n``.

What is shown is ``CASE WHEN kept THEN ... END``: a reader's condition that the engine evaluates early finds NULL in
suppressed rows, whatever it does there. ``TRY`` around it hides the statistics that an engine keeps of a column, its
least and its greatest value: no optimizer passes them through. The rows come in the order of a hash of what is shown of
them: that of the table would tell who came when. (Not in random order: DuckDB 2.0.0 fails where a subquery that depends
on another row looks into a secure view with something volatile in it.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.frequency import distribution
from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.hierarchies import Hierarchy
from sqlanon.requirements import Distribution, Requirements
from sqlanon.requirements.base import SHARE, VALUE
from sqlanon.strategies.lattice.classes import judged_classes
from sqlanon.support.coding import Levels, code_column, dense_rank, levels_below_top
from sqlanon.support.expressions import (
    aliased,
    all_of,
    anonymous,
    as_column,
    col,
    fragment,
    ident,
    null_safe_equal,
    subquery,
    table,
    template,
    text,
    union_all,
)

_ENUM = r"ENUM\(('([^']|'')*'(, )?)*\)"

_LABELS = template("SELECT value, :code AS code, label FROM :labels AS l")
_KNOWN_LABELS = template("SELECT level_0 AS value, :label AS label FROM :hierarchy")
_IS_VALUE = fragment("NOT level_0 IS NULL")
_MAY_BE_SHOWN = fragment("NOT coalesce(:label::VARCHAR IN (:forbidden), FALSE)")
_NULL_LABEL = template("SELECT NULL AS value, :label AS label")
_NODES = template("""
    SELECT level_0 AS value, :codes
    FROM (
        SELECT :levels FROM :hierarchy WHERE NOT level_0 IS NULL
        UNION ALL
        SELECT :nulls
    ) AS l
""")

_VIEW = template("""
    SELECT :shown
    FROM "rows" AS r
    JOIN classes AS c ON :same
    WHERE c.kept
    ORDER BY :order
""")
_VIEW_OF_ONE_CLASS = template("""
    SELECT :shown
    FROM "rows" AS r
    CROSS JOIN classes AS c
    WHERE c.kept
    ORDER BY :order
""")
_SHOWN = fragment("CASE WHEN c.kept THEN :value END")
_STATUS = template("""
    SELECT s.rows, s.rows - s.kept AS suppressed, p.persons, p.suppressed_persons
    FROM (
        SELECT
            (SELECT count(*) FROM :base) AS rows,
            coalesce((SELECT sum(class_size)::BIGINT FROM classes WHERE kept), 0) AS kept
    ) AS s
    CROSS JOIN :persons AS p
""")
_NO_PERSONS = template("SELECT NULL::BIGINT AS persons, NULL::BIGINT AS suppressed_persons")
_PERSONS = template("""
    SELECT count(*) AS persons, count(*) FILTER (WHERE coalesce(k.n, 0) < b.n) AS suppressed_persons
    FROM (SELECT mover, count(*) AS n FROM (SELECT :mover AS mover FROM :base) AS m GROUP BY mover) AS b
    LEFT JOIN (
        SELECT r.mover, count(*) AS n
        FROM "rows" AS r
        JOIN classes AS c ON :same
        WHERE c.kept
        GROUP BY r.mover
    ) AS k ON b.mover = k.mover
""")
_CLASSES = template("SELECT :keys, class_size, kept FROM :judged AS j")
_SOURCE = template("SELECT :values FROM :base WHERE :fits")
_VALUE = fragment("CASE WHEN :fits THEN :value END")
_SOURCE_WITH_NODES = template("SELECT s.* FROM :source AS s")
_ROWS = template("SELECT s.*, :labels FROM source AS s")
_FREQUENCY = template("""
    SELECT :keys, count(*) AS n
    FROM "rows"
    GROUP BY :keys
""")
_FREQUENCY_OF_PERSONS = template("""
    SELECT :keys, mover, count(*) AS n, 0 AS persons
    FROM "rows"
    GROUP BY :keys, mover
""")
_PAIRS = template("SELECT :value AS value FROM source")
_PAIRS_OF_PERSONS = template("SELECT :value AS value, 0 AS n, :mover AS mover FROM source")
_DISTRIBUTION = template("""
    SELECT :named, :count AS n
    FROM "rows" AS r
    JOIN :nodes AS v ON :same
    GROUP BY :keys
""")


@dataclass(frozen=True)
class LiveColumn:
    """A column of the private table when the view is made: its type by `type_text`, its value by `fixed_column`."""

    name: str
    type: str
    value: exp.Expr

    @property
    def fits(self) -> exp.Expr:
        """Whether the column still has its type: the same for all rows, known before any is read."""
        now = col(self.name)
        type_ = type_text(now) if "ENUM" in self.type else anonymous("TYPEOF", now)
        return type_.eq(text(self.type))


@dataclass(frozen=True)
class LiveTree:
    """The hierarchy of an attribute in a live view: its ``column`` by number, the table that `live_labels` or, of a
    sensitive attribute, `live_nodes` makes, the level that is shown, and the top; ``open_ends``: level 0 has labels."""

    column: int
    table: exp.Table
    level: int
    height: int
    open_ends: bool = False

    @property
    def shows_values(self) -> bool:
        """Whether the view shows the values of the table."""
        return self.level == 0 and not self.open_ends


@dataclass(frozen=True)
class LiveRecipe:
    """A live view of a table, by a name that the view's own database knows.

    ``shown`` has the number of the column, its name, and the number of the quasi-identifier or None; ``quasi`` is in
    the policy's order; ``sensitive`` has the attributes that requirements need, by name and column; ``trees`` those of
    them with a hierarchy. The requirements hold nothing that was counted before.
    """

    base: exp.Table
    columns: tuple[LiveColumn, ...]
    shown: tuple[tuple[int, str, int | None], ...]
    quasi: tuple[LiveTree, ...]
    sensitive: tuple[tuple[str, int], ...]
    trees: Mapping[str, LiveTree]
    requirements: Requirements
    person: int | None = None

    @property
    def levels(self) -> Levels:
        return tuple(tree.level for tree in self.quasi)

    @property
    def heights(self) -> Levels:
        return tuple(tree.height for tree in self.quasi)

    @property
    def keys(self) -> list[str]:
        return [code_column(i, level) for i, level in levels_below_top(self.levels, self.heights)]


def type_text(value: exp.Expr) -> exp.Expr:
    """The type of a value; of an ENUM without its dictionary: it may grow, and a view's text is no place for it."""
    return anonymous("REGEXP_REPLACE", anonymous("TYPEOF", value), text(_ENUM), text("ENUM"), text("g"))


def live_labels(hierarchy: Hierarchy, level: int, forbidden: Sequence[str]) -> exp.Select:
    """The labels of an attribute at a level: ``value``, ``code`` (one a label) and ``label``, and a row for NULL.

    Values whose label no release may show are left out: rows that have them are suppressed.
    """
    label, height, top = col(hierarchy.released_column(level)), hierarchy.height, hierarchy.top
    known = _KNOWN_LABELS(label=label, hierarchy=hierarchy.table)
    if height:
        known = known.where(_IS_VALUE(), copy=False)
    if forbidden:
        known = known.where(_MAY_BE_SHOWN(label=label, forbidden=[text(one) for one in forbidden]), copy=False)
    parts: list[exp.Query] = [known]
    if height and not (level == height and top in forbidden):  # of a single value there is no NULL beside it
        parts.append(_NULL_LABEL(label=text(top or "") if level == height else exp.null()))
    return _LABELS(code=dense_rank([col("label")]), labels=union_all(*parts))


def live_nodes(hierarchy: exp.Table, height: int) -> exp.Select:
    """The nodes above the values of a sensitive attribute: ``value``, ``code_0`` .. ``code_{h-1}``, a row for NULL."""
    names = [f"level_{level}" for level in range(height)] or ["level_0"]
    return _NODES(
        codes=[as_column(dense_rank([col(name)]), f"code_{level}") for level, name in enumerate(names)],
        levels=[col(name) for name in names],
        hierarchy=hierarchy,
        nulls=[as_column(exp.null(), name) for name in names],
    )


def live_view(recipe: LiveRecipe) -> exp.Select:
    values = [
        col(f"value_{j}" if quasi is None or recipe.quasi[quasi].shows_values else f"label_{quasi}", "r")
        for j, _, quasi in recipe.shown
    ]
    shown = [
        as_column(anonymous("TRY", _SHOWN(value=value)), name)
        for value, (_, name, _) in zip(values, recipe.shown, strict=True)
    ]
    order = anonymous("HASH", *values)
    keys = [null_safe_equal(col(key, "r"), col(f"class {key}", "c"), nullable=False) for key in recipe.keys]
    if not keys:
        return _with_parts(_VIEW_OF_ONE_CLASS(shown=shown, order=order), recipe)
    return _with_parts(_VIEW(shown=shown, same=all_of(keys), order=order), recipe)


def live_status(recipe: LiveRecipe) -> exp.Select:
    """One row: the ``rows`` of the table, and how many of them the view leaves out, ``suppressed``; where persons are
    counted ``persons``, and those with a suppressed row, ``suppressed_persons``."""
    return _with_parts(_STATUS(base=recipe.base, persons=subquery(_persons(recipe))), recipe)


def _persons(recipe: LiveRecipe) -> exp.Select:
    if recipe.person is None:
        return _NO_PERSONS()
    column = recipe.columns[recipe.person]
    person = _VALUE(fits=column.fits, value=column.value)
    same_class = all_of(null_safe_equal(col(key, "r"), col(f"class {key}", "c"), nullable=False) for key in recipe.keys)
    return _PERSONS(mover=anonymous("HASH", person), base=recipe.base, same=same_class)


def _with_parts(query: exp.Select, recipe: LiveRecipe) -> exp.Select:
    parts: dict[str, exp.Query] = {"source": _source(recipe), "rows": _rows(recipe), "frequency": _frequency(recipe)}
    sensitive: dict[Distribution, SensitiveTable] = {}
    for wanted in recipe.requirements.distributions:
        needed, sensitive[wanted] = _distribution(recipe, wanted, len(sensitive))
        parts |= {name: part for name, part in needed.items() if name not in parts}
    persons = recipe.person is not None
    classes = ClassSpace(
        table("frequency"), recipe.heights, recipe.requirements, False, sensitive, persons=persons, moving=persons
    )
    # What is judged has columns of the keys' own names, too.
    keys = {f"class {key}": col(key) for key in recipe.keys}
    judging = judged_classes(classes, recipe.levels, [as_column(key, name) for name, key in keys.items()])
    parts["classes"] = _CLASSES(keys=[col(name) for name in keys], judged=judging)
    for name, part in parts.items():
        query = query.with_(ident(name), as_=part, copy=False)
    return query


def _source(recipe: LiveRecipe) -> exp.Select:
    """The rows of the table; not those with a sensitive value that is new to its hierarchy: it has no place there.

    None where a column has got another type: to compare its values to what there was before, the engine would cast
    them, and show those in its error that cannot be. No value of another type is read here, in whatever order the
    engine evaluates it.
    """
    values = [
        as_column(_VALUE(fits=column.fits, value=column.value), f"value_{j}") for j, column in enumerate(recipe.columns)
    ]
    query = _SOURCE(values=values, base=recipe.base, fits=all_of(column.fits for column in recipe.columns))
    if not recipe.trees:
        return query
    query = _SOURCE_WITH_NODES(source=query)
    for i, tree in enumerate(recipe.trees.values()):
        on = null_safe_equal(col(f"value_{tree.column}", "s"), col("value", f"t{i}"))
        query = query.join(aliased(tree.table, f"t{i}"), on=on, join_type="semi", copy=False)
    return query


def _rows(recipe: LiveRecipe) -> exp.Select:
    below = dict(levels_below_top(recipe.levels, recipe.heights))
    labels: list[exp.Expr] = []
    for i, tree in enumerate(recipe.quasi):
        if i in below:
            labels.append(as_column(col("code", f"h{i}"), code_column(i, tree.level)))
        labels.append(as_column(col("label", f"h{i}"), f"label_{i}"))
    if recipe.person is not None:
        labels.append(as_column(_mover(recipe, "s"), "mover"))
    query = _ROWS(labels=labels)
    for i, tree in enumerate(recipe.quasi):
        on = null_safe_equal(col(f"value_{tree.column}", "s"), col("value", f"h{i}"))
        query = query.join(aliased(tree.table, f"h{i}"), on=on, copy=False)
    return query


def _mover(recipe: LiveRecipe, alias: str | None = None) -> exp.Expr:
    """A number for a person, one for all without an id. Two persons with one number count as one: that is stricter."""
    return anonymous("HASH", col(f"value_{recipe.person}", alias))


def _frequency(recipe: LiveRecipe) -> exp.Select:
    """The combinations with their rows; where persons are counted, of each person: they are all taken for movers."""
    keys = [col(key) for key in recipe.keys]
    return (_FREQUENCY if recipe.person is None else _FREQUENCY_OF_PERSONS)(keys=keys)


def _distribution(recipe: LiveRecipe, wanted: Distribution, n: int) -> tuple[dict[str, exp.Query], SensitiveTable]:
    """The counts of a sensitive attribute's values by combination, and what they are made from."""
    names = [name for name, _ in recipe.sensitive]
    s = names.index(wanted.attribute)
    column, persons = f"value_{recipe.sensitive[s][1]}", recipe.person is not None
    value = col(column)
    mass = _PAIRS_OF_PERSONS(value=value, mover=_mover(recipe)) if persons else _PAIRS(value=value)
    values = table(f"values_{s}")
    parts: dict[str, exp.Query] = {
        values.name: distribution.number_sensitive_values(subquery(mass, "pairs"), persons, is_counted=persons)
    }
    inner = [i for i in range(len(names)) if i != s] if wanted.kind == "joint" else []
    domain, nodes, leaf = None, values, None
    if wanted.kind == "nodes":
        tree = recipe.trees[wanted.attribute]
        nodes, leaf = table(f"nodes_{s}"), col("leaf", "v")
        parts[nodes.name] = distribution.hierarchy_nodes(values, tree.table, tree.height)
    elif wanted.kind == "values":
        domain = table(f"domain_{s}")
        parts[domain.name] = distribution.ordered_domain(values)
    keys: dict[str, exp.Expr] = {key: col(key, "r") for key in recipe.keys}
    keys |= {f"o{i}": col(f"value_{recipe.sensitive[other][1]}", "r") for i, other in enumerate(inner)}
    keys |= {VALUE: col(VALUE, "v"), SHARE: col(SHARE, "v")}
    if persons:  # of a node that has two values of a person, the person counts twice
        mover = col("mover", "r")
        keys["mover"] = anonymous("HASH", mover, leaf) if leaf is not None else mover
    target = table(f"distribution_{s}_{n}")
    parts[target.name] = _DISTRIBUTION(
        named=[as_column(key, name) for name, key in keys.items()],
        count=0 if persons else exp.func("count", exp.Star()),
        nodes=nodes,
        same=null_safe_equal(col(column, "r"), col("value", "v")),
        keys=list(keys.values()),
    )
    return parts, SensitiveTable(target, len(inner), domain)
