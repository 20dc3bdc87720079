"""What can be wrong with a hierarchy: each check is a query that returns the violating rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from sqlglot import exp

from sqlanon.expressions import aliased, col, ident, is_null, named, number, select, subquery, text, union_all
from sqlanon.hierarchies import messages
from sqlanon.hierarchies.messages import Finding
from sqlanon.hierarchies.parts import (
    VALUE,
    Draft,
    Generated,
    Listed,
    Part,
    choose,
    is_known,
    keys_name,
    keys_query,
    keys_table,
    to_type,
)

_SHOWN = 5
_Texts: TypeAlias = tuple[exp.Expr | None, exp.Expr | None, exp.Expr | None]


@dataclass(frozen=True)
class Check:
    """Something that must not be.

    Attributes
    ----------
    query:
        Makes the query of violating rows, with the columns of `Finding`.
    message:
        Says it, from the first findings and the number of all.
    probe:
        Makes a query of as many rows that is faster, if there is one.
    """

    query: Callable[[], exp.Select]
    message: Callable[[list[Finding], int], str]
    probe: Callable[[], exp.Select] | None = None


class Summary(NamedTuple):
    """What a hierarchy's table holds.

    Attributes
    ----------
    leaves, ground, distinct:
        Its rows, its ground values, and how many of them differ.
    nulls:
        1 where the column has NULLs itself, 0 where none has or a population alone.
    top, last_top:
        Its least and its greatest top.
    wrong:
        How much `usual_checks` found.
    """

    leaves: int
    ground: int
    distinct: int
    top: str | None
    last_top: str | None
    wrong: int
    nulls: int


def summary(draft: Draft, target: exp.Table, usual: Sequence[Check]) -> exp.Select:
    """Return the query of a table's `Summary`: one statement tells that nothing is wrong, which is the usual case."""
    top = to_type(col(f"level_{draft.height}"), "VARCHAR")
    ground = exp.Count(this=col("level_0"))
    # Values of a column differ; keys that are listed need not.
    distinct = exp.Count(this=exp.Distinct(expressions=[col("level_0")])) if draft.listed else ground.copy()
    findings: list[exp.Expr] = [
        subquery(select([_rows()], subquery((check.probe or check.query)(), "f"))) for check in usual
    ]
    wrong = reduce(_add, findings) if findings else number(0)
    ends = exp.Min(this=top), exp.Max(this=top.copy())
    null = is_null(col(VALUE)), col("rows") > 0
    own = select([_rows()], draft.values.copy()).where(*null, copy=False)
    nulls = subquery(own) if draft.nullable else number(0)
    return select([_rows(), ground, distinct, *ends, wrong, nulls], target.copy())


def _add(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return left + right


def usual_checks(draft: Draft, target: exp.Table, on_unknown: str) -> list[Check]:
    """Return the checks that a hierarchy needs whatever its summary says."""
    found = list(_tree_checks(draft.parts, target))
    if draft.height == 0:
        found.append(Check(partial(_nulls, draft.values), messages.null))
    if on_unknown == "error" and not all(isinstance(part, Generated) and part.total for part in draft.parts):
        unknown = partial(_unknown_values, draft.values, target)
        found.append(Check(unknown, partial(messages.unknown, draft.parts)))
    return found


def checks(draft: Draft, target: exp.Table, facts: Summary, usual: Sequence[Check]) -> list[Check]:
    """Return the checks that can find something, after what is known from a hierarchy's summary."""
    found = [
        check
        for index, part in draft.listed.items()
        if not (len(draft.parts) == 1 and facts.ground == facts.distinct == part.lines)
        for check in _listed_checks(part, keys_table(index), draft.column_type)
    ]
    if facts.top != facts.last_top:
        top = partial(_several_tops, target, draft.height)
        found.append(Check(top, partial(messages.top, draft.height)))
    return [*found, *usual] if facts.wrong else found


def totals(found: Sequence[Check], draft: Draft) -> exp.Select:
    """Return one query over all checks: number of a check and of its findings. No row: nothing is wrong."""
    queries = [
        select([named(number(index), "check")], subquery(check.query(), "f")) for index, check in enumerate(found)
    ]
    whole = union_all(*queries) if len(queries) > 1 else queries[0]
    return _with_keys(select([col("check"), _rows()], subquery(whole, "c"), [col("check")]), draft)


def first_findings(check: Check, draft: Draft) -> exp.Select:
    """Return the query of a check's first findings, those with the highest counts."""
    order = [exp.Ordered(this=col("n"), desc=True), exp.Ordered(this=col("label"), nulls_first=True)]
    query = select([exp.Star()], subquery(check.query(), "f")).order_by(*order, copy=False)
    return _with_keys(query.limit(_SHOWN, copy=False), draft)


def _with_keys(query: exp.Select, draft: Draft) -> exp.Select:
    for index, part in draft.listed.items():
        keys = keys_query(part, draft.column_type)
        query = query.with_(ident(keys_name(index)), as_=keys, materialized=True, copy=False)
    return query


def _listed_checks(part: Listed, keys: exp.Table, column_type: str) -> Iterator[Check]:
    """Check a file, table or categories as they are listed."""
    size = messages.empty if part.lines is None else messages.lines
    yield Check(partial(_wrong_size, part, keys), partial(size, part))
    yield Check(partial(_odd_keys, keys), partial(messages.odd, part, column_type))
    yield Check(partial(_keys_listed_twice, keys), partial(messages.twice, part))
    if part.levels and part.lines is None:  # only a table can have NULL
        yield Check(partial(_missing_labels, part, keys), partial(messages.missing, part))


def _wrong_size(part: Listed, keys: exp.Table) -> exp.Select:
    query = _finding(keys, (None, None, None), _rows())
    compared = exp.EQ if part.lines is None else exp.NEQ
    return query.having(compared(this=_rows(), expression=number(part.lines or 0)), copy=False)


def _odd_keys(keys: exp.Table) -> exp.Select:
    query = _finding(keys, (col("text"), None, None), _rows(), group=col("text"))
    return query.where(is_null(col("key")), copy=False)


def _keys_listed_twice(keys: exp.Table) -> exp.Select:
    spelled = exp.Min(this=col("text")), exp.Max(this=col("text"))
    query = _finding(keys, (to_type(col("key"), "VARCHAR"), *spelled), _rows(), group=col("key"))
    query.where(is_known(col("key")), copy=False)
    return query.having(_rows() > 1, copy=False)


def _missing_labels(part: Listed, keys: exp.Table) -> exp.Select:
    levels = range(1, part.levels + 1)
    gap = choose([(is_null(col(f"c{level}")), text(str(level))) for level in levels])
    query = _finding(keys, (col("text"), gap, None), number(1))
    return query.where(is_known(gap.copy()), copy=False)


def _tree_checks(parts: Sequence[Part], target: exp.Table) -> Iterator[Check]:
    """Check that values equal at a level stay equal above it, below the top, which has one value.

    What one rule computes is a tree by itself.
    """
    owners = [part for part in parts for _ in range(part.levels)]
    if not parts[-1].top:
        del owners[-1:]
    for level, (lower, upper) in enumerate(pairwise(owners), start=1):
        if lower is not upper or isinstance(upper, Listed):
            broken = partial(_broken_branches, target, level)
            yield Check(broken, partial(messages.tree, level), partial(broken, counted=False))


def _broken_branches(target: exp.Table, level: int, counted: bool = True) -> exp.Select:
    label, above = col(f"level_{level}"), f"level_{level + 1}"
    return _several(target, above, label, counted)


def _several_tops(target: exp.Table, height: int) -> exp.Select:
    return _several(target, f"level_{height}", None)


def _several(target: exp.Table, column: str, label: exp.Column | None, counted: bool = True) -> exp.Select:
    """Find labels with more than one value in the column; without label, whether the whole table has."""
    value = to_type(col(column), "VARCHAR")
    ends = exp.Min(this=value), exp.Max(this=value.copy())
    several = exp.Count(this=exp.Distinct(expressions=[value.copy()])) if counted else _rows()
    query = _finding(target, (label, *ends), several, group=label.copy() if label else None)
    query.where(is_known(col("level_0")), copy=False)
    # Far faster than to count the distinct values.
    return query.having(ends[0].neq(ends[1]), copy=False)


def _nulls(values: exp.Table) -> exp.Select:
    query = _finding(values, (None, None, None), col("rows"))
    return query.where(is_null(col(VALUE)), copy=False)


def _unknown_values(values: exp.Table, target: exp.Table) -> exp.Select:
    label = to_type(col(VALUE, "v"), "VARCHAR")
    query = _finding(aliased(values, "v"), (label, None, None), col("rows", "v"))
    equal = col(VALUE, "v").eq(col("level_0", "h"))
    query.append("joins", exp.Join(this=aliased(target, "h"), kind="ANTI", on=equal))
    # A value that only a population has is nobody's here: it may stay without a label.
    there = col("rows", "v") > 0
    return query.where(is_known(col(VALUE, "v")), there, copy=False)


def _finding(source: exp.Table, texts: _Texts, n: exp.Expr, *, group: exp.Expr | None = None) -> exp.Select:
    values = [*(value or to_type(exp.null(), "VARCHAR") for value in texts), n]
    columns: list[exp.Expr] = [named(value, name) for name, value in zip(Finding._fields, values, strict=True)]
    return select(columns, source.copy(), [group] if group else None)


def _rows() -> exp.Count:
    return exp.Count(this=exp.Star())
