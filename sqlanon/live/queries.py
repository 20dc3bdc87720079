"""A live view: one generalization of a table, made and suppressed whenever it is read.

The names in it, all ours: ``source`` (the rows with ``value_j`` for the columns that are looked at), ``rows`` (those
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

from sqlanon.coding import ROWS, Levels, below_top, code_name, rank_of
from sqlanon.expressions import (
    aliased,
    all_columns,
    all_of,
    anonymous,
    cast,
    col,
    ident,
    is_there,
    named,
    number,
    same,
    select,
    subquery,
    table,
    text,
    total,
    union_all,
)
from sqlanon.frequency import distribution as ds
from sqlanon.frequency.statements import MOVER, PERSONS
from sqlanon.requirements import Distribution, Requirements
from sqlanon.requirements.base import CLASS_SIZE, SHARE, VALUE
from sqlanon.search.classes import KEPT, ClassSpace, SensitiveTable, judged

_ENUM = r"ENUM\(('([^']|'')*'(, )?)*\)"


@dataclass(frozen=True)
class LiveColumn:
    """A column of the private table, as it is when the view is made.

    Attributes
    ----------
    name:
        Its name.
    type:
        Its type, as `type_text` tells it.
    value:
        What is looked at, see `sources.fixed_column`.
    """

    name: str
    type: str
    value: exp.Expr

    @property
    def fits(self) -> exp.Expr:
        """Whether the column still has its type: the same for all rows, known before any is read."""
        now = col(self.name)
        told = type_text(now) if "ENUM" in self.type else anonymous("TYPEOF", now)
        return told.eq(text(self.type))


@dataclass(frozen=True)
class LiveTree:
    """What a live view knows of the hierarchy of an attribute.

    Attributes
    ----------
    column:
        The attribute's place among the columns of `LiveRecipe`.
    table:
        Made by `live_labels`, or of a sensitive attribute by `live_nodes`.
    level, height:
        The level that is shown, and the top.
    """

    column: int
    table: exp.Table
    level: int
    height: int


@dataclass(frozen=True)
class LiveRecipe:
    """What a live view is made of.

    Attributes
    ----------
    base:
        The private table, by a name that the view's own database knows.
    columns:
        The columns of it that are looked at.
    shown:
        What the view shows: the number of the column, its name, and the number of the quasi-identifier or None.
    quasi:
        Of the quasi-identifiers, in the policy's order.
    sensitive:
        The sensitive attributes that requirements look at: name and column.
    trees:
        Of those that have a hierarchy, by name.
    requirements:
        What is asked of classes, with nothing in them that was counted before.
    person:
        The column that tells persons apart, or None.
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
        """The generalization."""
        return tuple(tree.level for tree in self.quasi)

    @property
    def heights(self) -> Levels:
        """The tops."""
        return tuple(tree.height for tree in self.quasi)

    @property
    def keys(self) -> list[str]:
        """The columns of `rows` that tell classes apart."""
        return [code_name(i, level) for i, level in below_top(self.levels, self.heights)]


def type_text(value: exp.Expr) -> exp.Expr:
    """The type of a value; of an ENUM without its dictionary: it may grow, and a view's text is no place for it."""
    return anonymous("REGEXP_REPLACE", anonymous("TYPEOF", value), text(_ENUM), text("ENUM"), text("g"))


def live_labels(hierarchy: exp.Table, level: int, height: int, top: str | None, forbidden: Sequence[str]) -> exp.Select:
    """The labels of an attribute at a level: ``value``, ``code`` (one a label) and ``label``, and a row for NULL.

    Values whose label no release may show are left out: rows that have them are suppressed.
    """
    label = col(f"level_{level}")
    known = select([named(col("level_0"), "value"), named(label, "label")], hierarchy.copy())
    if height:
        known = known.where(is_there(col("level_0")), copy=False)
    if forbidden:
        shown = cast(label.copy(), "VARCHAR")
        one_of = exp.In(this=shown, expressions=[text(one) for one in forbidden])
        known = known.where(~exp.Coalesce(this=one_of, expressions=[exp.false()]), copy=False)
    null: exp.Expr = text(top or "") if level == height else exp.null()
    parts: list[exp.Query] = [known]
    if height and not (level == height and top in forbidden):  # of a single value there is no NULL beside it
        parts.append(exp.Select(expressions=[named(exp.null(), "value"), named(null, "label")]))
    code = named(rank_of([col("label")]), "code")
    return select([col("value"), code, col("label")], subquery(union_all(*parts), "l"))


def live_nodes(hierarchy: exp.Table, height: int) -> exp.Select:
    """The nodes above the values of a sensitive attribute: ``value``, ``code_0`` .. ``code_{h-1}``, a row for NULL."""
    names = [f"level_{level}" for level in range(height)] or ["level_0"]
    known = select([*map(col, names)], hierarchy.copy()).where(is_there(col("level_0")), copy=False)
    null = exp.Select(expressions=[named(exp.null(), name) for name in names])
    codes = [named(rank_of([col(name)]), f"code_{level}") for level, name in enumerate(names)]
    return select([named(col("level_0"), "value"), *codes], subquery(union_all(known, null), "l"))


def live_view(recipe: LiveRecipe) -> exp.Select:
    """What the view shows."""
    output: list[exp.Expr] = []
    values = [
        col(f"value_{j}" if quasi is None or recipe.quasi[quasi].level == 0 else f"label_{quasi}", "r")
        for j, _, quasi in recipe.shown
    ]
    for value, (_, name, _) in zip(values, recipe.shown, strict=True):
        kept = exp.Case(ifs=[exp.If(this=col(KEPT, "c"), true=value)])
        output.append(named(anonymous("TRY", kept), name))
    query = select(output, aliased(table("rows"), "r"))
    keys = [same(col(key, "r"), col(f"class {key}", "c"), nullable=False) for key in recipe.keys]
    classes = aliased(table("classes"), "c")
    if keys:
        query = query.join(classes, on=all_of(keys), copy=False)
    else:
        query = query.join(classes, join_type="cross", copy=False)
    query = query.where(col(KEPT, "c"), copy=False).order_by(anonymous("HASH", *values), copy=False)
    return _with_parts(query, recipe)


def live_status(recipe: LiveRecipe) -> exp.Select:
    """One row: the ``rows`` of the table, and how many of them the view leaves out, ``suppressed``."""
    every = select([exp.Count(this=exp.Star())], recipe.base.copy())
    kept = select([total(col(CLASS_SIZE))], table("classes")).where(col(KEPT), copy=False)
    counts = exp.Select(
        expressions=[
            named(subquery(every), "rows"),
            named(exp.Coalesce(this=subquery(kept), expressions=[number(0)]), KEPT),
        ]
    )
    left_out = col("rows") - col(KEPT)
    return _with_parts(select([col("rows"), named(left_out, "suppressed")], subquery(counts, "s")), recipe)


def _with_parts(query: exp.Select, recipe: LiveRecipe) -> exp.Select:
    """A query with the parts that it speaks of."""
    parts: dict[str, exp.Query] = {"source": _source(recipe), "rows": _rows(recipe), "frequency": _frequency(recipe)}
    sensitive: dict[Distribution, SensitiveTable] = {}
    for distribution in recipe.requirements.distributions:
        made, sensitive[distribution] = _distribution(recipe, distribution, len(sensitive))
        parts |= {name: part for name, part in made.items() if name not in parts}
    persons = recipe.person is not None
    classes = ClassSpace(
        table("frequency"), recipe.heights, recipe.requirements, False, sensitive, persons=persons, moving=persons
    )
    names = [f"class {key}" for key in recipe.keys]  # what is judged has columns of the keys' own names, too
    judging = judged(
        classes, recipe.levels, [named(col(key), name) for key, name in zip(recipe.keys, names, strict=True)]
    )
    wanted = select([*map(col, names), col(CLASS_SIZE), col(KEPT)], subquery(judging, "j"))
    for name, part in [*parts.items(), ("classes", wanted)]:
        query = query.with_(ident(name), as_=part, copy=False)
    return query


def _source(recipe: LiveRecipe) -> exp.Select:
    """The rows of the table; not those with a sensitive value that is new to its hierarchy: it has no place there.

    None where a column has got another type: to compare its values to what there was before, the engine would cast
    them, and tell those in its error that cannot be. No value of another type is looked at here, in whatever order the
    engine goes about it.
    """
    values = [
        named(exp.Case(ifs=[exp.If(this=column.fits, true=column.value.copy())]), f"value_{j}")
        for j, column in enumerate(recipe.columns)
    ]
    query = select([*values], recipe.base.copy()).where(*(column.fits for column in recipe.columns), copy=False)
    if not recipe.trees:
        return query
    query = select([all_columns("s")], subquery(query, "s"))
    for i, tree in enumerate(recipe.trees.values()):
        on = same(col(f"value_{tree.column}", "s"), col("value", f"t{i}"))
        query = query.join(aliased(tree.table, f"t{i}"), on=on, join_type="semi", copy=False)
    return query


def _rows(recipe: LiveRecipe) -> exp.Select:
    """The rows whose quasi-identifiers all have a label."""
    below = dict(below_top(recipe.levels, recipe.heights))
    output: list[exp.Expr] = [all_columns("s")]
    query = exp.Select().from_(aliased(table("source"), "s"), copy=False)
    for i, tree in enumerate(recipe.quasi):
        if i in below:
            output.append(named(col("code", f"h{i}"), code_name(i, tree.level)))
        output.append(named(col("label", f"h{i}"), f"label_{i}"))
        on = same(col(f"value_{tree.column}", "s"), col("value", f"h{i}"))
        query = query.join(aliased(tree.table, f"h{i}"), on=on, copy=False)
    if recipe.person is not None:
        output.append(named(_mover(recipe), MOVER))
    return query.select(*output, copy=False)


def _mover(recipe: LiveRecipe) -> exp.Expr:
    """A number for a person, one for all without an id. Two persons with one number count as one: that asks more."""
    return anonymous("HASH", col(f"value_{recipe.person}", "s"))


def _frequency(recipe: LiveRecipe) -> exp.Select:
    """The combinations with their rows; where persons are counted, of each person: they are all taken for movers."""
    keys: list[exp.Expr] = [col(key) for key in recipe.keys]
    counts = [named(exp.Count(this=exp.Star()), ROWS)]
    if recipe.person is None:
        return select([*keys, *counts], table("rows"), [key.copy() for key in keys])
    keys.append(col(MOVER))
    return select([*keys, *counts, named(number(0), PERSONS)], table("rows"), [key.copy() for key in keys])


def _distribution(recipe: LiveRecipe, asked: Distribution, n: int) -> tuple[dict[str, exp.Query], SensitiveTable]:
    """The counts of a sensitive attribute's values by combination, and what they are made from."""
    names = [name for name, _ in recipe.sensitive]
    s = names.index(asked.attribute)
    column, persons = f"value_{recipe.sensitive[s][1]}", recipe.person is not None
    pairs = [named(col(column), "value")]
    if persons:
        pairs += [named(number(0), ROWS), named(_mover_of(recipe), MOVER)]
    values = table(f"values_{s}")
    mass = subquery(select([*pairs], table("source")), "pairs")
    parts: dict[str, exp.Query] = {values.name: ds.sensitive_values(mass, persons, is_counted=persons)}
    inner = [i for i in range(len(names)) if i != s] if asked.kind == "joint" else []
    domain = None
    of, leaf = values, None
    if asked.kind == "nodes":
        tree = recipe.trees[asked.attribute]
        of, leaf = table(f"nodes_{s}"), col("leaf", "v")
        parts[of.name] = ds.nodes(values, tree.table, tree.height)
    elif asked.kind == "values":
        domain = table(f"domain_{s}")
        parts[domain.name] = ds.domain(values)
    keys: dict[str, exp.Expr] = {key: col(key, "r") for key in recipe.keys}
    keys |= {f"o{i}": col(f"value_{recipe.sensitive[other][1]}", "r") for i, other in enumerate(inner)}
    keys |= {VALUE: col(VALUE, "v"), SHARE: col(SHARE, "v")}
    count: exp.Expr = exp.Count(this=exp.Star())
    if persons:  # of a node that has two values of a person, the person counts twice
        mover = col(MOVER, "r")
        keys[MOVER] = anonymous("HASH", mover, leaf) if leaf is not None else mover
        count = number(0)
    joined = select(
        [*(named(value, name) for name, value in keys.items()), named(count, ROWS)], aliased(table("rows"), "r")
    ).join(aliased(of, "v"), on=same(col(column, "r"), col("value", "v")), copy=False)
    target = table(f"distribution_{s}_{n}")
    parts[target.name] = joined.group_by(*(value.copy() for value in keys.values()), copy=False)
    return parts, SensitiveTable(target, len(inner), domain)


def _mover_of(recipe: LiveRecipe) -> exp.Expr:
    return anonymous("HASH", col(f"value_{recipe.person}"))
