"""Validate hierarchies: each check is a query that returns violating rows, and a message with values, counts and the
remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from operator import add
from typing import NamedTuple

from sqlglot import exp

from sqlanon.hierarchies.parts import (
    TOP,
    ColumnKind,
    GeneratedLevels,
    HierarchyDraft,
    ListedLevels,
    Part,
    column_kind,
    keys_table,
)
from sqlanon.support.expressions import cast, col, fragment, template, text, union_all
from sqlanon.support.fields import in_words


class Finding(NamedTuple):
    """A violating row: its label, up to two more texts, and its count."""

    label: str | None
    first: str | None
    last: str | None
    occurrences: int


@dataclass(frozen=True)
class HierarchyCheck:
    """A condition that no row may violate."""

    query: Callable[[], exp.Select]  # the violating rows, with the columns of `Finding`
    problem: str  # the message before the first findings
    remedy: str = ""  # the message after them
    describe: Callable[[Finding], str] = lambda finding: in_words(finding.label)
    separator: str = ", "
    probe: Callable[[], exp.Select] | None = None  # a faster query with the same number of rows, if there is one

    def message(self, findings: Sequence[Finding], total: int) -> str:
        listing = self.separator.join(map(self.describe, findings))
        if total > len(findings):
            listing += f"{' and' if self.separator == ', ' else '; and'} {total - len(findings):,} more"
        return f"{self.problem}{listing}{self.remedy}"


class Summary(NamedTuple):
    leaves: int  # rows
    ground: int  # ground values
    distinct: int  # distinct ground values
    top: str | None
    last_top: str | None  # the least and the greatest label of the top level
    wrong: int  # findings of `usual_checks`
    nulls: int  # 1 if the column of the source has NULLs


def summary(draft: HierarchyDraft, target: exp.Table, usual: Sequence[HierarchyCheck]) -> exp.Select:
    """The query of a table's `Summary`, which suffices in the usual case without findings."""
    ground = col("level_0")
    count_findings = fragment("(SELECT count(*) FROM :findings AS f)")
    findings = [count_findings(findings=(check.probe or check.query)()) for check in usual]
    count_nulls = fragment("(SELECT count(*) FROM :values WHERE value IS NULL AND rows > 0)")
    return template("""
        SELECT count(*), count(level_0), count(:distinct), min(:top::VARCHAR), max(:top::VARCHAR), :wrong, :nulls
        FROM :hierarchy
    """)(
        # Values of a column are distinct; listed keys may repeat.
        distinct=exp.Distinct(expressions=[ground]) if draft.listed_parts else ground,
        top=col(f"level_{draft.height}"),
        wrong=reduce(add, findings) if findings else 0,
        nulls=count_nulls(values=draft.values) if draft.nullable else 0,
        hierarchy=target,
    )


def usual_checks(draft: HierarchyDraft, target: exp.Table, on_unknown: str) -> list[HierarchyCheck]:
    """The checks that a hierarchy needs regardless of its summary."""
    checks = list(_tree_checks(draft.parts, target))
    is_text = column_kind(draft.column_type) is ColumnKind.TEXT
    if is_text and draft.nullable and draft.listed_parts and draft.height > 1:
        labels = [col(f"level_{level}") for level in range(1, draft.height)]
        query = partial(_OF_EMPTY_TEXT, labels=labels, hierarchy=target, values=draft.values)
        problem = "there are labels for the empty text, but the column has no empty text: it has NULL"
        remedy = ", which stays NULL up to the top. Leave the line out; or make the empty text a value: missing = [] "
        remedy += "under [source.csv] of a CSV file, a query in a database"
        checks.append(HierarchyCheck(query, problem, remedy, _rows))
    if is_text and draft.parts[-1].top:
        remedy = ", which is the label of the top: a release could not distinguish them; if it means a missing value, "
        remedy += f'add missing = ["{TOP}"] to the attribute (in a database, make it NULL with query = ...), otherwise '
        remedy += "write the value in another way"
        query = partial(_LIKE_TOP, top=text(TOP), values=draft.values)
        checks.append(HierarchyCheck(query, f"the column has the value {in_words(TOP)}", remedy, _rows))
    if draft.height == 0:
        problem = "the hierarchy has no level above the values, and the column has NULL"
        remedy = ", which becomes the top: add a last level with the same label everywhere, such as *"
        checks.append(HierarchyCheck(partial(_NULLS, values=draft.values), problem, remedy, _rows))
    computed = [part for part in draft.parts if isinstance(part, GeneratedLevels) and not part.total]
    if on_unknown == "error" and (draft.listed_parts or computed):
        suppression = 'on a quasi attribute set on_unknown = "suppress" to leave their rows out'
        problem, remedy = "values missing from the hierarchy: ", f"; add them to it, or {suppression}"
        if not draft.listed_parts:
            problem = f"values that {' and '.join(part.name for part in computed)} have no label for: "
            remedy = f"; make them NULL in the source query, or {suppression}"
        query = partial(_UNKNOWN, values=draft.values, hierarchy=target)
        checks.append(HierarchyCheck(query, problem, remedy, lambda value: in_words(value.label) + _rows(value)))
    return checks


def checks(
    draft: HierarchyDraft, target: exp.Table, facts: Summary, usual: Sequence[HierarchyCheck]
) -> list[HierarchyCheck]:
    """The checks that can have findings, according to a hierarchy's summary."""
    needed = [
        check
        for index, part in draft.listed_parts.items()
        if not (len(draft.parts) == 1 and facts.ground == facts.distinct == part.lines)
        for check in _listed_checks(part, keys_table(index), draft.column_type)
    ]
    if facts.top != facts.last_top:
        remedy = "; it must have one: add a last level with the same label everywhere, such as *"
        query, problem = partial(_several, target, draft.height, None), f"the top, level {draft.height}, has "
        needed.append(
            HierarchyCheck(query, problem, remedy, lambda top: f"{top.occurrences:,} values: {_parents(top)}")
        )
    return [*needed, *usual] if facts.wrong else needed


_TOTALS = template('SELECT "check", count(*) FROM :findings AS c GROUP BY "check"')


def totals(checks: Sequence[HierarchyCheck], draft: HierarchyDraft) -> exp.Select:
    """One query over all checks: the number of a check and of its findings, for checks with findings."""
    findings_of_check = template('SELECT :number AS "check" FROM :findings AS f')
    findings = [findings_of_check(number=index, findings=check.query()) for index, check in enumerate(checks)]
    return draft.with_keys(_TOTALS(findings=union_all(*findings)), materialized=True)


def first_findings(check: HierarchyCheck, draft: HierarchyDraft) -> exp.Select:
    first = template("SELECT * FROM :findings AS f ORDER BY occurrences DESC, label NULLS FIRST LIMIT 5")
    return draft.with_keys(first(findings=check.query()), materialized=True)


_WRONG_SIZE = template("""
    SELECT NULL::VARCHAR AS label, NULL::VARCHAR AS first, NULL::VARCHAR AS last, count(*) AS occurrences
    FROM :keys
    HAVING :is_wrong
""")
_NULL_KEYS = template("""
    SELECT NULL::VARCHAR AS label, NULL::VARCHAR AS first, NULL::VARCHAR AS last, count(*) AS occurrences
    FROM :keys
    WHERE text IS NULL
    HAVING count(*) > 0
""")
_ODD_KEYS = template("""
    SELECT text AS label, NULL::VARCHAR AS first, NULL::VARCHAR AS last, count(*) AS occurrences
    FROM :keys
    WHERE key IS NULL AND text IS NOT NULL
    GROUP BY text
""")
_LISTED_TWICE = template("""
    SELECT key::VARCHAR AS label, min(text) AS first, max(text) AS last, count(*) AS occurrences
    FROM :keys
    WHERE key IS NOT NULL
    GROUP BY key
    HAVING count(*) > 1
""")
_MISSING_LABELS = template("""
    SELECT text AS label, :gap AS first, NULL::VARCHAR AS last, 1 AS occurrences
    FROM :keys
    WHERE :gap IS NOT NULL
""")


def _listed_checks(part: ListedLevels, keys: exp.Table, column_type: str) -> Iterator[HierarchyCheck]:
    """Checks of a listed file, table or categories."""
    rows = exp.Count(this=exp.Star())
    if part.lines is None:
        query = partial(_WRONG_SIZE, keys=keys, is_wrong=rows.eq(0))
        problem = f"{part.name} is empty: it needs one row per ground value, leaf to root"
        yield HierarchyCheck(query, problem, describe=lambda _: "")
        query = partial(_NULL_KEYS, keys=keys)
        problem = f"{part.name} has a row without a key: leave it out; NULL stays NULL up to the top"
        yield HierarchyCheck(query, problem, describe=lambda _: "")
    else:
        query = partial(_WRONG_SIZE, keys=keys, is_wrong=rows.neq(part.lines))
        problem = f"{part.name} has {part.lines} lines, but the engine reads "
        yield HierarchyCheck(query, problem, ": check its quotes and line ends", lambda size: str(size.occurrences))
    remedy = "; a hierarchy file has no header" if part.name.startswith("file") else ""
    remedy += "; each key must be a value that the column can hold"
    problem = f"{part.name}: keys that are not of type {column_type}: "
    yield HierarchyCheck(partial(_ODD_KEYS, keys=keys), problem, remedy)
    problem = f"{part.name}: keys that are listed more than once: "
    yield HierarchyCheck(partial(_LISTED_TWICE, keys=keys), problem, "; keep one of each", _describe_repeated)
    if part.levels and part.lines is None:  # only a table can have NULL
        gap = exp.Case()
        for level in range(1, part.levels + 1):
            gap = gap.when(col(f"c{level}").is_(exp.null()), exp.Literal.string(str(level)), copy=False)
        query, problem = partial(_MISSING_LABELS, keys=keys, gap=gap), f"{part.name}: keys that lack a label: "
        remedy = "; each needs one for each level"
        yield HierarchyCheck(query, problem, remedy, lambda key: f"{in_words(key.label)} (level {key.first})")


def _tree_checks(parts: Sequence[Part], target: exp.Table) -> Iterator[HierarchyCheck]:
    """Checks that values equal at a level are equal at all levels above, except at the top, which has one value.

    The levels that one rule computes always form a tree.
    """
    owners = [part for part in parts for _ in range(part.levels)]
    if not parts[-1].top:
        del owners[-1:]
    for level, (lower, upper) in enumerate(pairwise(owners), start=1):
        if lower is not upper or isinstance(upper, ListedLevels):
            query = partial(_several, target, level + 1, col(f"level_{level}"))
            problem = f"no tree between levels {level} and {level + 1}: "
            remedy = ". Values equal at a level must be equal above it: give them one parent, or different labels"
            probe = partial(query, count_distinct=False)
            yield HierarchyCheck(query, problem, remedy, _describe_parents, "; ", probe)


def _several(target: exp.Table, level: int, label: exp.Column | None, count_distinct: bool = True) -> exp.Select:
    """The labels with several values at a level; without label, the whole table is one group."""
    value = col(f"level_{level}")
    # Comparing minimum and maximum is far faster than counting distinct values.
    return template("""
        SELECT
            :label AS label, min(:value::VARCHAR) AS first, max(:value::VARCHAR) AS last,
            count(:values) AS occurrences
        FROM :hierarchy
        WHERE level_0 IS NOT NULL
        GROUP BY :group
        HAVING min(:value::VARCHAR) <> max(:value::VARCHAR)
    """)(
        label=label or cast(exp.null(), "VARCHAR"),
        value=value,
        values=exp.Distinct(expressions=[cast(value.copy(), "VARCHAR")]) if count_distinct else exp.Star(),
        hierarchy=target,
        group=[label] if label else [],
    )


_NULLS = template("""
    SELECT NULL::VARCHAR AS label, NULL::VARCHAR AS first, NULL::VARCHAR AS last, rows AS occurrences
    FROM :values
    WHERE value IS NULL
""")
# Labels of the empty text may be intended for NULL, which has none below the top.
_OF_EMPTY_TEXT = template("""
    SELECT level_0 AS label, NULL::VARCHAR AS first, NULL::VARCHAR AS last, v.occurrences
    FROM :hierarchy AS h
    CROSS JOIN (
        SELECT sum(rows) FILTER (WHERE value IS NULL) AS occurrences, count(*) FILTER (WHERE value = '') AS empty
        FROM :values
    ) AS v
    WHERE level_0 = '' AND concat(:labels) <> '' AND v.occurrences > 0 AND v.empty = 0
""")
_LIKE_TOP = template("""
    SELECT value AS label, NULL::VARCHAR AS first, NULL::VARCHAR AS last, rows AS occurrences
    FROM :values
    WHERE value = :top AND rows > 0
""")
# Values that only the population has need no label.
_UNKNOWN = template("""
    SELECT v.value::VARCHAR AS label, NULL::VARCHAR AS first, NULL::VARCHAR AS last, v.rows AS occurrences
    FROM :values AS v
    ANTI JOIN :hierarchy AS h ON v.value = h.level_0
    WHERE v.value IS NOT NULL AND v.rows > 0
""")


def _rows(finding: Finding) -> str:
    return f" ({finding.occurrences:,} row{'s' if finding.occurrences != 1 else ''})"


def _describe_repeated(key: Finding) -> str:
    spellings = "" if key.first == key.last else f", spelled {in_words(key.first)} and {in_words(key.last)}"
    return f"{in_words(key.label)} ({key.occurrences:,} times{spellings})"


def _describe_parents(label: Finding) -> str:
    return f"{in_words(label.label)} lies under {_parents(label)}"


def _parents(finding: Finding) -> str:
    more = f", and {finding.occurrences - 2:,} more" if finding.occurrences > 2 else ""
    return f"{in_words(finding.first)} and {in_words(finding.last)}{more}"
