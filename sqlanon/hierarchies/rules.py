"""From the rules of a policy to the parts of a hierarchy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.expressions import aliased, col, ident, named, select, text
from sqlanon.hierarchies.files import file_query, inspect_file
from sqlanon.hierarchies.intervals import intervals_part
from sqlanon.hierarchies.labels import dates_part, mask_part
from sqlanon.hierarchies.parts import Flaw, Generated, Labelled, Listed, Part, to_type
from sqlanon.policy.names import table_parts
from sqlanon.policy.rules import (
    CategoriesRule,
    DatesRule,
    FileRule,
    IntervalsRule,
    MaskRule,
    Rule,
    SuppressRule,
    TableRule,
)


@dataclass(frozen=True)
class _Offer:
    """What a rule has to give.

    Attributes
    ----------
    levels:
        How many levels.
    make:
        Makes a part of the first so many of them; the flag tells whether ``*`` stands above.
    own_top:
        Whether the last of them is its own top.
    """

    levels: int
    make: Callable[[int, bool], Part]
    own_top: bool = False

    def used(self, levels: int | None, last: bool) -> tuple[int, bool]:
        """Return how many levels are used, and whether ``*`` stands above them, if the rule is the last one.

        A rule before the last one gives its levels without its top, or as many as it is told to.
        """
        used = self.levels if levels is None else min(levels, self.levels)
        if not last and self.own_top and levels is None:
            used = max(0, used - 1)
        return used, not self.own_top or used < self.levels


def resolve(
    rules: Sequence[Rule], column_type: str, engine: Engine | None = None, longest: int = 1
) -> tuple[list[Part], list[str]]:
    """Make the parts of a hierarchy from an attribute's rules; no rows are read, but hierarchy files are."""
    parts: list[Part] = []
    flaws: list[str] = []
    for index, rule in enumerate(rules):
        try:
            offer = _offer(rule, column_type, engine, longest)
            parts.append(offer.make(*offer.used(_levels(rule), index == len(rules) - 1)))
        except Flaw as flaw:
            flaws.append(str(flaw))
    return parts, flaws


def known_height(rules: Sequence[Rule], engine: Engine | None = None, longest: int | None = None) -> int | None:
    """Tell a hierarchy's height without reading rows of data.

    Examples
    --------
    >>> known_height([IntervalsRule(intervals=[5, 10])])
    3
    >>> known_height([MaskRule(mask="right")])
    >>> known_height([MaskRule(mask="right", levels=2)], longest=5)
    3
    """
    height = 0
    for index, rule in enumerate(rules):
        if longest is None and isinstance(rule, MaskRule):
            return None
        last = index == len(rules) - 1
        try:
            used, top = _offer(rule, "", engine, longest or 1).used(_levels(rule), last)
        except Flaw:
            return None
        height += used + (last and top)
    return height


def _levels(rule: Rule) -> int | None:
    return None if isinstance(rule, SuppressRule) else rule.levels


def _offer(rule: Rule, column_type: str, engine: Engine | None, longest: int) -> _Offer:
    """Find out what a rule has to give. A file or the schema of a table is read here, once."""
    offer: _Offer
    match rule:
        case MaskRule():
            offer = _Offer(longest - 1, lambda used, _: mask_part(rule.mask, used, longest))
        case IntervalsRule():
            offer = _Offer(len(rule.widths), lambda used, _: intervals_part(rule, used, column_type))
        case DatesRule():
            offer = _Offer(len(rule.dates), lambda used, _: dates_part(rule.dates[:used], column_type))
        case SuppressRule():
            offer = _Offer(0, lambda *_: Generated("suppress", 0, _unlabelled, total=True))
        case CategoriesRule():
            query, one_root = _categories_query(rule), len(rule.categories) == 1
            offer = _listed("categories", rule.depth, query, lines=len(rule.rows), own_top=one_root)
        case FileRule():
            file = inspect_file(rule.file)
            offer = _listed(f"file {rule.file}", file.width - 1, file_query(file), lines=file.lines)
        case TableRule():
            names = _table_columns(rule, engine)
            offer = _listed(f"table {rule.table}", len(names) - 1, _table_query(rule, names))
    return offer


def _unlabelled(query: exp.Select, prefix: str) -> Labelled:
    del prefix
    return Labelled(query, ())


def _listed(what: str, width: int, query: exp.Select, *, own_top: bool = True, lines: int | None = None) -> _Offer:
    return _Offer(width, lambda used, top: Listed(what, used, width, query, top, lines), own_top)


def _categories_query(rule: CategoriesRule) -> exp.Select:
    names = [f"c{i}" for i in range(rule.depth + 1)]
    rows = [exp.Tuple(expressions=[text(_leaf_text(value)) for value in row]) for row in rule.rows]
    alias = exp.TableAlias(this=ident("categories"), columns=[ident(name) for name in names])
    return select([col(name) for name in names], exp.Values(expressions=rows, alias=alias))


def _leaf_text(leaf: Any) -> str:
    """Write a ground value as SQL would."""
    if isinstance(leaf, bool):
        return str(leaf).lower()
    return leaf.isoformat() if isinstance(leaf, date) else str(leaf)


def named_table(name: str) -> exp.Table:
    """Read a table's name: ``table``, ``schema.table`` or ``database.schema.table``, in double quotes or not.

    It is taken apart here and never parsed as SQL.

    Examples
    --------
    >>> named_table('geo."my table"').sql("duckdb")
    '"geo"."my table"'
    """
    parts = [ident(part) for part in table_parts(name)]
    if not parts:
        raise Flaw(f"{name!r} is no name of a table: write table, schema.table or database.schema.table")
    return exp.Table(
        this=parts[-1],
        db=parts[-2] if len(parts) > 1 else None,
        catalog=parts[-3] if len(parts) > 2 else None,
    )


def _table_columns(rule: TableRule, engine: Engine | None) -> list[str]:
    if engine is None:
        raise Flaw(f"the columns of table {rule.table} are not known")
    table = named_table(rule.table)
    try:
        return list(engine.columns(table))
    except Exception as error:  # each engine has errors of its own
        reason = str(error).partition("\n")[0]
        raise Flaw(f"table {rule.table} cannot be read: {reason}") from None


def _label(column: exp.Column) -> exp.Expr:
    """A label as text, of which readers see the case, whatever the column's collation."""
    return exp.Collate(this=to_type(column, "VARCHAR"), expression=ident("binary"))


def _table_query(rule: TableRule, names: Sequence[str]) -> exp.Select:
    columns: list[exp.Expr] = [named(_label(col(name, "t")), f"c{i}") for i, name in enumerate(names)]
    return select(columns, aliased(named_table(rule.table), "t"))
