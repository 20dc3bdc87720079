"""The query of a live view: one generalization of a table, computed and suppressed whenever it is read.

Its tables: ``source`` (the rows with ``value_j`` for the columns that it reads), ``rows`` (those whose values all have
a label, with the codes of `coding` and ``label_i``), ``frequency``, ``classes``; and for sensitive attribute ``s``
``values_s``, ``domain_s``, ``nodes_s`` and ``distribution_s_n``.

The view shows ``CASE WHEN kept THEN ... END``: a reader's condition that the engine evaluates early finds NULL in
suppressed rows. ``TRY`` around it hides the statistics of a column, its minimum and maximum, because optimizers do not
pass them through. The rows are ordered by a hash of their shown values, because the order of the table would reveal who
came when. (A random order does not work: DuckDB 2.0.0 fails if a correlated subquery reads a secure view with a
volatile function.)
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
from sqlanon.strategies.lattice.classes import evaluated_classes
from sqlanon.support.coding import Levels, code_column, dense_rank, inner_column, levels_below_top
from sqlanon.support.expressions import (
    aliased,
    all_of,
    anonymous,
    as_column,
    col,
    fragment,
    ident,
    null_safe_equal,
    number,
    subquery,
    table,
    template,
    text,
    union_all,
)

_ENUM = r"ENUM\(('([^']|'')*'(, )?)*\)"

_LABELS = template("SELECT value, :code AS code, label FROM :labels AS l")

_VIEW = template("""
    SELECT :output
    FROM "rows" AS r
    JOIN classes AS c ON :same
    WHERE c.kept
    ORDER BY :order
""")
_STATUS = template("""
    SELECT s.rows, s.rows - s.kept AS suppressed, p.persons, p.suppressed_persons
    FROM (
        SELECT
            (SELECT count(*) FROM :base) AS rows,
            coalesce((SELECT sum(class_size)::BIGINT FROM classes WHERE kept), 0) AS kept
    ) AS s
    CROSS JOIN :persons AS p
""")
_VALUE = fragment("CASE WHEN :fits THEN :value END")
_DISTRIBUTION = template("""
    SELECT :named, :count AS row_count
    FROM "rows" AS r
    JOIN :nodes AS v ON :same
    GROUP BY :keys
""")


@dataclass(frozen=True)
class LiveColumn:
    """A column of the source table when the view is created: its type by `type_text`, its value by `fixed_column`."""

    name: str
    type: str
    value: exp.Expr

    @property
    def has_expected_type(self) -> exp.Expr:
        """Whether the column still has its type; the same for all rows, and known before any is read."""
        current = col(self.name)
        type_ = type_text(current) if "ENUM" in self.type else anonymous("TYPEOF", current)
        return type_.eq(text(self.type))


@dataclass(frozen=True)
class LiveHierarchy:
    """The hierarchy of an attribute in a live view: its ``column`` by number, the table of `live_labels`, or of
    `live_nodes` for a sensitive attribute, the shown level, and the height; ``open_ends``: level 0 has labels."""

    column: int
    table: exp.Table
    level: int
    height: int
    open_ends: bool = False

    @property
    def shows_values(self) -> bool:
        return self.level == 0 and not self.open_ends


@dataclass(frozen=True)
class LiveRecipe:
    """The parts of a live view of the table ``base``, as the view's database names it.

    ``output`` has the number of the column, its name, and the number of the quasi-identifier or None; ``quasi`` is in
    the policy's order; ``sensitive`` has the attributes that requirements need, by name and column, and
    ``hierarchies`` their hierarchies. The requirements do not depend on earlier counts.
    """

    base: exp.Table
    columns: tuple[LiveColumn, ...]
    output: tuple[tuple[int, str, int | None], ...]
    quasi: tuple[LiveHierarchy, ...]
    sensitive: tuple[tuple[str, int], ...]
    hierarchies: Mapping[str, LiveHierarchy]
    requirements: Requirements
    person: int | None = None

    @property
    def levels(self) -> Levels:
        return tuple(hierarchy.level for hierarchy in self.quasi)

    @property
    def heights(self) -> Levels:
        return tuple(hierarchy.height for hierarchy in self.quasi)

    @property
    def keys(self) -> list[str]:
        return [code_column(i, level) for i, level in levels_below_top(self.levels, self.heights)]


def type_text(value: exp.Expr) -> exp.Expr:
    """The type of a value; an ENUM without its dictionary, which may grow and must not be in the view's text."""
    return anonymous("REGEXP_REPLACE", anonymous("TYPEOF", value), text(_ENUM), text("ENUM"), text("g"))


def live_labels(hierarchy: Hierarchy, level: int, forbidden: Sequence[str]) -> exp.Select:
    """The labels of an attribute at a level: ``value``, ``code`` (for each label) and ``label``, and a row for NULL.

    Values with a forbidden label are left out, so that their rows are suppressed.
    """
    label, height, top = col(hierarchy.released_column(level)), hierarchy.height, hierarchy.top
    known_labels = template("SELECT level_0 AS value, :label AS label FROM :hierarchy")
    labels = known_labels(label=label, hierarchy=hierarchy.table)
    if height:
        labels = labels.where(fragment("NOT level_0 IS NULL")(), copy=False)
    if forbidden:
        is_allowed = fragment("NOT coalesce(:label::VARCHAR IN (:forbidden), FALSE)")
        labels = labels.where(is_allowed(label=label, forbidden=[*map(text, forbidden)]), copy=False)
    parts: list[exp.Query] = [labels]
    if height and not (level == height and top in forbidden):  # a hierarchy of one value has no NULL
        null_label = template("SELECT NULL AS value, :label AS label")
        parts.append(null_label(label=text(top or "") if level == height else exp.null()))
    return _LABELS(code=dense_rank([col("label")]), labels=union_all(*parts))


def live_nodes(hierarchy: exp.Table, height: int) -> exp.Select:
    """The nodes above the values of a sensitive attribute: ``value``, ``code_0`` .. ``code_{h-1}``, a row for NULL."""
    names = [f"level_{level}" for level in range(height)] or ["level_0"]
    return template("""
        SELECT level_0 AS value, :codes
        FROM (
            SELECT :levels FROM :hierarchy WHERE NOT level_0 IS NULL
            UNION ALL
            SELECT :nulls
        ) AS l
    """)(
        codes=[as_column(dense_rank([col(name)]), f"code_{level}") for level, name in enumerate(names)],
        levels=[col(name) for name in names],
        hierarchy=hierarchy,
        nulls=[as_column(exp.null(), name) for name in names],
    )


def live_view(recipe: LiveRecipe) -> exp.Select:
    values = [
        col(f"value_{j}" if quasi is None or recipe.quasi[quasi].shows_values else f"label_{quasi}", "r")
        for j, _, quasi in recipe.output
    ]
    shown_value = fragment("CASE WHEN c.kept THEN :value END")
    output = [
        as_column(anonymous("TRY", shown_value(value=value)), name)
        for value, (_, name, _) in zip(values, recipe.output, strict=True)
    ]
    order = anonymous("HASH", *values)
    return _add_tables(_VIEW(output=output, same=_is_same_class(recipe), order=order), recipe)


def _is_same_class(recipe: LiveRecipe) -> exp.Expr:
    if not recipe.keys:  # one class has all rows
        return exp.true()
    return all_of(null_safe_equal(col(key, "r"), col(f"class {key}", "c"), nullable=False) for key in recipe.keys)


def live_status(recipe: LiveRecipe) -> exp.Select:
    """One row: the ``rows`` of the table and those that the view leaves out, ``suppressed``; if persons are counted,
    ``persons`` and those with a suppressed row, ``suppressed_persons``."""
    if recipe.person is None:
        persons = template("SELECT NULL::BIGINT AS persons, NULL::BIGINT AS suppressed_persons")()
    else:
        column = recipe.columns[recipe.person]
        person = anonymous("HASH", _VALUE(fits=column.has_expected_type, value=column.value))
        persons = template("""
            SELECT
                count(*) AS persons,
                count(*) FILTER (WHERE coalesce(k.row_count, 0) < b.row_count) AS suppressed_persons
            FROM (SELECT mover, count(*) AS row_count FROM (SELECT :mover AS mover FROM :base) AS m GROUP BY mover) AS b
            LEFT JOIN (
                SELECT r.mover, count(*) AS row_count
                FROM "rows" AS r
                JOIN classes AS c ON :same
                WHERE c.kept
                GROUP BY r.mover
            ) AS k ON b.mover = k.mover
        """)(mover=person, base=recipe.base, same=_is_same_class(recipe))
    return _add_tables(_STATUS(base=recipe.base, persons=subquery(persons)), recipe)


def _add_tables(query: exp.Select, recipe: LiveRecipe) -> exp.Select:
    """Add the tables of the view; if persons are counted, each one is treated as a mover."""
    persons = recipe.person is not None
    frequency = template("""
        SELECT :keys, count(*) AS row_count, :persons
        FROM "rows"
        GROUP BY :keys
    """)(
        keys=[*map(col, recipe.keys), *([col("mover")] if persons else [])],
        persons=[as_column(number(0), "persons")] if persons else [],
    )
    parts: dict[str, exp.Query] = {
        "source": _select_source(recipe), "rows": _label_rows(recipe), "frequency": frequency,
    }  # fmt: skip
    sensitive: dict[Distribution, SensitiveTable] = {}
    for distribution_ in recipe.requirements.distributions:
        tables, sensitive[distribution_] = _count_sensitive_values(recipe, distribution_, len(sensitive))
        parts |= {name: part for name, part in tables.items() if name not in parts}
    space = ClassSpace(
        table("frequency"), recipe.heights, recipe.requirements, False, sensitive, persons=persons, moving=persons
    )
    # The columns of the evaluated classes include some with the names of the keys.
    keys = {f"class {key}": col(key) for key in recipe.keys}
    evaluated = evaluated_classes(space, recipe.levels, [as_column(key, name) for name, key in keys.items()])
    parts["classes"] = template("SELECT :keys, class_size, kept FROM :evaluated AS j")(
        keys=[col(name) for name in keys], evaluated=evaluated
    )
    for name, part in parts.items():
        query = query.with_(ident(name), as_=part, copy=False)
    return query


def _select_source(recipe: LiveRecipe) -> exp.Select:
    """The rows of the table, except those with a sensitive value that is missing from its hierarchy.

    Without rows if a column has another type now: to compare its values, the engine would cast them, and its error
    would show those that cannot be cast. No value of another type is read, in whatever order the engine evaluates it.
    """
    values = [
        as_column(_VALUE(fits=column.has_expected_type, value=column.value), f"value_{j}")
        for j, column in enumerate(recipe.columns)
    ]
    query = template("SELECT :values FROM :base WHERE :fits")(
        values=values, base=recipe.base, fits=all_of(column.has_expected_type for column in recipe.columns)
    )
    if not recipe.hierarchies:
        return query
    query = template("SELECT s.* FROM :source AS s")(source=query)
    for i, hierarchy in enumerate(recipe.hierarchies.values()):
        on = null_safe_equal(col(f"value_{hierarchy.column}", "s"), col("value", f"t{i}"))
        query = query.join(aliased(hierarchy.table, f"t{i}"), on=on, join_type="semi", copy=False)
    return query


def _label_rows(recipe: LiveRecipe) -> exp.Select:
    below = dict(levels_below_top(recipe.levels, recipe.heights))
    labels: list[exp.Expr] = []
    for i, hierarchy in enumerate(recipe.quasi):
        if i in below:
            labels.append(as_column(col("code", f"h{i}"), code_column(i, hierarchy.level)))
        labels.append(as_column(col("label", f"h{i}"), f"label_{i}"))
    if recipe.person is not None:
        labels.append(as_column(_mover(recipe, "s"), "mover"))
    query = template("SELECT s.*, :labels FROM source AS s")(labels=labels)
    for i, hierarchy in enumerate(recipe.quasi):
        on = null_safe_equal(col(f"value_{hierarchy.column}", "s"), col("value", f"h{i}"))
        query = query.join(aliased(hierarchy.table, f"h{i}"), on=on, copy=False)
    return query


def _mover(recipe: LiveRecipe, alias: str | None = None) -> exp.Expr:
    """A number for a person, one for all without an id. Two persons with one number count as one, which is stricter."""
    return anonymous("HASH", col(f"value_{recipe.person}", alias))


def _count_sensitive_values(
    recipe: LiveRecipe, requested: Distribution, n: int
) -> tuple[dict[str, exp.Query], SensitiveTable]:
    """The counts of a sensitive attribute's values by combination, and the tables that they need."""
    names = [name for name, _ in recipe.sensitive]
    s = names.index(requested.attribute)
    column, persons = f"value_{recipe.sensitive[s][1]}", recipe.person is not None
    value_rows = template("SELECT :value AS value FROM source")(value=col(column))
    if persons:
        of_persons = template("SELECT :value AS value, 0 AS row_count, :mover AS mover FROM source")
        value_rows = of_persons(value=col(column), mover=_mover(recipe))
    values = table(f"values_{s}")
    parts: dict[str, exp.Query] = {
        values.name: distribution.number_sensitive_values(subquery(value_rows, "pairs"), persons, is_counted=persons)
    }
    inner = [i for i in range(len(names)) if i != s] if requested.kind == "joint" else []
    domain, nodes, leaf = None, values, None
    if requested.kind == "nodes":
        hierarchy = recipe.hierarchies[requested.attribute]
        nodes, leaf = table(f"nodes_{s}"), col("leaf", "v")
        parts[nodes.name] = distribution.hierarchy_nodes(values, hierarchy.table, hierarchy.height)
    elif requested.kind == "values":
        domain = table(f"domain_{s}")
        parts[domain.name] = distribution.ordered_domain(values)
    keys: dict[str, exp.Expr] = {key: col(key, "r") for key in recipe.keys}
    keys |= {inner_column(i): col(f"value_{recipe.sensitive[inner_s][1]}", "r") for i, inner_s in enumerate(inner)}
    keys |= {VALUE: col(VALUE, "v"), SHARE: col(SHARE, "v")}
    if persons:  # a person with two values of a node counts twice
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
