"""What can be wrong with a hierarchy: each check is a query that returns the violating rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from sqlglot import exp

from sqlanon.hierarchies.parts import (
    VALUE,
    Draft,
    Generated,
    Listed,
    Part,
    choose,
    is_known,
    is_null,
    keys_name,
    keys_query,
    keys_table,
    to_type,
)
from sqlanon.policy.values import shown
from sqlanon.queries.names import aliased, col, ident, named, number, select, subquery, text

_SHOWN = 5


_Texts: TypeAlias = tuple[exp.Expr | None, exp.Expr | None, exp.Expr | None]


class Finding(NamedTuple):
    """A violating row: what it is about, up to two texts more, and how many there are of it."""

    label: str | None
    first: str | None
    last: str | None
    n: int


@dataclass(frozen=True)
class Check:
    """A query of violating rows (with the columns of `Finding`), and how to say it.

    ``message`` takes the first findings and the number of all.
    """

    query: exp.Select
    message: Callable[[list[Finding], int], str]


def checks(draft: Draft, target: exp.Table, on_unknown: str) -> list[Check]:
    """Return all checks of a hierarchy.

    Parameters
    ----------
    draft:
        The hierarchy.
    target:
        Its table.
    on_unknown:
        ``error``, or ``suppress``: then there may be values without labels.
    """
    found = [
        check
        for index, part in draft.listed.items()
        for check in _listed_checks(part, keys_table(index), draft.column_type)
    ]
    found += _tree_checks(draft.parts, target)
    if not draft.parts[-1].top:
        found.append(_top_check(target, draft.height))
    if draft.height == 0:
        found.append(_null_check(draft.values))
    if on_unknown == "error" and not all(isinstance(part, Generated) and part.total for part in draft.parts):
        found.append(_unknown_check(draft, target))
    return found


def totals(found: Sequence[Check], draft: Draft) -> exp.Select:
    """Return one query over all checks: number of a check and of its findings. No row: nothing is wrong."""
    queries = [
        select([named(number(index), "check")], subquery(check.query.copy(), "f"))
        for index, check in enumerate(found)
    ]
    whole = exp.union(*queries, distinct=False, copy=False) if len(queries) > 1 else queries[0]
    return _with_keys(select([col("check"), _rows()], subquery(whole, "c"), [col("check")]), draft)


def first_findings(check: Check, draft: Draft) -> exp.Select:
    """Return the query of a check's first findings, those with the highest counts."""
    order = [exp.Ordered(this=col("n"), desc=True), exp.Ordered(this=col("label"), nulls_first=True)]
    query = select([exp.Star()], subquery(check.query.copy(), "f")).order_by(*order, copy=False)
    return _with_keys(query.limit(_SHOWN, copy=False), draft)


def _with_keys(query: exp.Select, draft: Draft) -> exp.Select:
    for index, part in draft.listed.items():
        keys = keys_query(part, draft.column_type)
        query = query.with_(ident(keys_name(index)), as_=keys, materialized=True, copy=False)
    return query


def _listed_checks(part: Listed, keys: exp.Table, column_type: str) -> Iterator[Check]:
    """Check a file, table or categories as they are listed."""
    none = (None, None, None)
    size = _finding(keys, none, _rows())
    if part.lines is None:
        size.having(exp.EQ(this=_rows(), expression=number(0)), copy=False)
        yield Check(size, partial(_empty_message, part))
    else:
        size.having(exp.NEQ(this=_rows(), expression=number(part.lines)), copy=False)
        yield Check(size, partial(_lines_message, part))

    odd = _finding(keys, (col("text"), None, None), _rows(), group=col("text"))
    odd.where(is_null(col("key")), copy=False)
    yield Check(odd, partial(_odd_message, part, column_type))

    spelled = exp.Min(this=col("text")), exp.Max(this=col("text"))
    twice = _finding(keys, (to_type(col("key"), "VARCHAR"), *spelled), _rows(), group=col("key"))
    twice.where(is_known(col("key")), copy=False)
    twice.having(exp.GT(this=_rows(), expression=number(1)), copy=False)
    yield Check(twice, partial(_twice_message, part))

    gaps = [(is_null(col(f"c{level}")), text(str(level))) for level in range(1, part.width + 1)]
    if gaps and part.lines is None:  # a file has no NULL
        missing = _finding(keys, (col("text"), choose(gaps), None), number(1))
        missing.where(is_known(choose(gaps).copy()), copy=False)
        yield Check(missing, partial(_missing_message, part))


def _tree_checks(parts: Sequence[Part], target: exp.Table) -> Iterator[Check]:
    """Check that values equal at a level stay equal above it. What one rule computes is a tree by itself."""
    owners = [part for part in parts for _ in range(part.levels)]
    for level, (lower, upper) in enumerate(pairwise(owners), start=1):
        if isinstance(upper, Generated) and lower is upper:
            continue
        label, above = col(f"level_{level}"), f"level_{level + 1}"
        ends = exp.Min(this=col(above)), exp.Max(this=col(above))
        query = _finding(target, (label, *ends), _distinct(col(above)), group=label.copy())
        query.where(is_known(col("level_0")), copy=False)
        # Far faster than to count the distinct parents of every label.
        query.having(exp.NEQ(this=ends[0].copy(), expression=ends[1].copy()), copy=False)
        yield Check(query, partial(_tree_message, level))


def _top_check(target: exp.Table, height: int) -> Check:
    """Check that the top level has one value."""
    top = to_type(col(f"level_{height}"), "VARCHAR")
    ends = exp.Min(this=top), exp.Max(this=top.copy())
    query = _finding(target, (None, *ends), _distinct(top.copy()))
    query.where(is_known(col("level_0")), copy=False)
    query.having(exp.NEQ(this=ends[0].copy(), expression=ends[1].copy()), copy=False)
    return Check(query, partial(_top_message, height))


def _null_check(values: exp.Table) -> Check:
    """Check that there are no NULLs, which a hierarchy of height 0 has no top for."""
    query = _finding(values, (None, None, None), col("rows"))
    return Check(query.where(is_null(col(VALUE)), copy=False), _null_message)


def _unknown_check(draft: Draft, target: exp.Table) -> Check:
    """Check that all values of the column are in the hierarchy."""
    label = to_type(col(VALUE, "v"), "VARCHAR")
    query = _finding(aliased(draft.values, "v"), (label, None, None), col("rows", "v"))
    equal = exp.EQ(this=col(VALUE, "v"), expression=col("level_0", "h"))
    query.join(aliased(target, "h"), on=equal, join_type="anti", copy=False)
    query.where(is_known(col(VALUE, "v")), copy=False)
    return Check(query, partial(_unknown_message, draft.parts))


def _finding(source: exp.Table, texts: _Texts, n: exp.Expr, *, group: exp.Expr | None = None) -> exp.Select:
    values = [*(value or to_type(exp.null(), "VARCHAR") for value in texts), n]
    columns: list[exp.Expr] = [
        named(value, name) for name, value in zip(Finding._fields, values, strict=True)
    ]
    return select(columns, source.copy(), [group] if group else None)


def _rows() -> exp.Count:
    return exp.Count(this=exp.Star())


def _distinct(value: exp.Expr) -> exp.Count:
    return exp.Count(this=exp.Distinct(expressions=[value]))


def _listing(findings: list[Finding], total: int, unit: str = "") -> str:
    """Name the first values, with counts, and how many more there are."""
    names = [shown(finding.label) + _counted(finding.n, unit) for finding in findings]
    more = total - len(findings)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


def _counted(n: int, unit: str) -> str:
    return f" ({n:,} {unit}{'s' if n != 1 else ''})" if unit else ""


def _empty_message(part: Listed, findings: list[Finding], total: int) -> str:
    return f"{part.what} is empty: it needs one row per ground value, leaf to root"


def _lines_message(part: Listed, findings: list[Finding], total: int) -> str:
    read = findings[0].n
    return f"{part.what} has {part.lines} lines, but the engine reads {read}: check its quotes and line ends"


def _odd_message(part: Listed, column_type: str, findings: list[Finding], total: int) -> str:
    if findings[0].label is None and total == 1:
        return f"{part.what} has a row without a key: leave it out, NULL stays NULL up to the top"
    named_keys = _listing([finding for finding in findings if finding.label is not None], total)
    hint = "a hierarchy file has no header; " if part.lines is not None else ""
    return (
        f"{part.what}: keys that are no values of type {column_type}: {named_keys}; "
        f"{hint}each key has to be a value that the column can hold"
    )


def _twice_message(part: Listed, findings: list[Finding], total: int) -> str:
    def spelled(finding: Finding) -> str:
        if finding.first == finding.last:
            return ""
        return f", spelled {shown(finding.first)} and {shown(finding.last)}"

    names = [f"{shown(finding.label)} ({finding.n:,} times{spelled(finding)})" for finding in findings]
    more = f" and {total - len(findings):,} more" if total > len(findings) else ""
    return f"{part.what}: keys that are listed more than once: {', '.join(names)}{more}; keep one of each"


def _missing_message(part: Listed, findings: list[Finding], total: int) -> str:
    names = [f"{shown(finding.label)} (level {finding.first})" for finding in findings]
    more = f" and {total - len(findings):,} more" if total > len(findings) else ""
    return f"{part.what}: keys that lack a label: {', '.join(names)}{more}; each needs one for each level"


def _tree_message(level: int, findings: list[Finding], total: int) -> str:
    names = "; ".join(f"{shown(finding.label)} lies under {_parents(finding)}" for finding in findings)
    more = f"; and {total - len(findings):,} more" if total > len(findings) else ""
    return (
        f"no tree between levels {level} and {level + 1}: {names}{more}. "
        "Values equal at a level have to be equal above it: give them one parent, or labels that differ"
    )


def _parents(finding: Finding) -> str:
    others = f", and {finding.n - 2:,} more" if finding.n > 2 else ""
    return f"{shown(finding.first)} and {shown(finding.last)}{others}"


def _top_message(height: int, findings: list[Finding], total: int) -> str:
    return (
        f"the top, level {height}, has {findings[0].n:,} values: {_parents(findings[0])}; "
        "it has to have one: add a last level with the same label everywhere, such as *"
    )


def _null_message(findings: list[Finding], total: int) -> str:
    return (
        f"the hierarchy has no level above the values, and the column has NULL ({findings[0].n:,} rows), "
        "which becomes the top: add a last level with the same label everywhere, such as *"
    )


def _unknown_message(parts: Sequence[Part], findings: list[Finding], total: int) -> str:
    values = _listing(findings, total, "row")
    suppress = 'set on_unknown = "suppress" to leave their rows out'
    if any(isinstance(part, Listed) for part in parts):
        return f"values of the column are missing from the hierarchy: {values}; add them to it, or {suppress}"
    kinds = " and ".join(part.what for part in parts if isinstance(part, Generated) and not part.total)
    return (
        f"values that {kinds} have no label for: {values}; make them NULL in the source query, or {suppress}"
    )
