"""Checks of the levels of labels in a release, as far as a reader can see them, and their digest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.hierarchies.bounds import RangeKind, label_bounds
from sqlanon.release.contents import ATTACHED
from sqlanon.release.label_levels import LEVELS, LEVELS_COLUMNS
from sqlanon.release.manifest import Manifest
from sqlanon.release.metadata import generalized_columns
from sqlanon.release.reader import SUBJECT
from sqlanon.support.expressions import col, fragment, table, template, text, union_all
from sqlanon.support.names import labels_table

RANGE_KINDS: Mapping[str, RangeKind] = {"BIGINT": "integer", "DOUBLE": "number", "DATE": "date"}
"""Kinds of ranges by the type of the bounds in a table of labels."""

_UNRELATED_LABELS = template("""
    WITH "sqlanon released" AS MATERIALIZED (:released)
    SELECT count(*)
    FROM :levels AS l
    WHERE NOT coalesce((attribute, label) IN (SELECT (attribute, label) FROM "sqlanon released" AS r), FALSE)
        AND NOT coalesce((attribute, label) IN (
            SELECT (attribute, ancestor)
            FROM :levels AS a
            WHERE (attribute, label) IN (SELECT (attribute, label) FROM "sqlanon released" AS r)
        ), FALSE)
""")
_AMBIGUOUS_ANCESTORS = template("""
    SELECT count(*)
    FROM (
        SELECT 1
        FROM :levels AS l
        GROUP BY attribute, label, level
        HAVING count(*) > 1 OR level IS NULL OR level < 0 OR bool_or(ancestor IS NULL)
    ) AS r
""")
_CONTRADICTING_ANCESTORS = template("""
    SELECT count(*)
    FROM :levels AS a
    JOIN :levels AS b ON a.attribute = b.attribute AND a.label = b.label AND a.level <= b.level
    JOIN :levels AS c ON c.attribute = a.attribute AND c.label = a.ancestor AND c.level = b.level
    WHERE c.ancestor <> b.ancestor
""")
_IS_RANGE_WITHIN = fragment("coalesce(:low >= :from_, :from_ IS NULL) AND coalesce(:high <= :to_, :to_ IS NULL)")
_IS_MASKED_BY = {
    "right": fragment("""
        ancestor = '*' OR length(label) <= length(ancestor)
            AND starts_with(rpad(label, length(ancestor)::INTEGER, '*'), rtrim(ancestor, '*'))
    """),
    "left": fragment("""
        ancestor = '*' OR length(label) <= length(ancestor)
            AND ends_with(lpad(label, length(ancestor)::INTEGER, '*'), ltrim(ancestor, '*'))
    """),
}
_DIGEST = template("""
    SELECT md5(coalesce(string_agg(md5(concat_ws(chr(10), attribute, level, length(label), label, ancestor)), ''
        ORDER BY attribute, label, level, ancestor), ''))
    FROM :levels AS l
""")


def levels_digest(engine: DuckDBEngine, levels: exp.Expr) -> str:
    """The digest of all levels of labels, independent of their order."""
    digest: str = engine.rows(_DIGEST(levels=levels))[0][0]
    return digest


def find_level_faults(engine: DuckDBEngine, manifest: Manifest) -> Iterator[str]:
    """Find faults in the levels of labels that the release alone shows.

    Each label is released, or an ancestor of a released one; ancestors of a label are ancestors of one another; ranges,
    masks and suppressed values lie under their ancestors. Groups from a file can only be compared with the source.
    """
    levels = table(LEVELS, "sqlanon", ATTACHED)
    if engine.columns(levels) != LEVELS_COLUMNS:
        yield f"{LEVELS!r} has not the columns {', '.join(LEVELS_COLUMNS)}"
        return
    names = generalized_columns(manifest)
    labels = [
        template("SELECT :name AS attribute, :column::VARCHAR AS label FROM :rows GROUP BY :column")(
            name=text(name), column=col(name), rows=SUBJECT.copy()
        )
        for name in names
    ]
    released = union_all(*(labels or [template("SELECT '' AS attribute, '' AS label LIMIT 0")()]))
    for fault, query in (
        ("labels that are neither released nor above one that is", _UNRELATED_LABELS(levels=levels, released=released)),
        ("labels with two labels at one level, or none", _AMBIGUOUS_ANCESTORS(levels=levels)),
        ("labels above one another that contradict each other", _CONTRADICTING_ANCESTORS(levels=levels)),
    ):
        if count := engine.rows(query)[0][0]:
            yield f"{LEVELS!r}: {count:,} rows have {fault}"
    rules = {name.lower(): spec.get("hierarchy") or () for name, spec in manifest.policy["attributes"].items()}
    for name in names:
        for is_under in _ancestor_conditions(engine, name, rules[name.lower()]):
            query = template("SELECT count(*) FROM :levels AS l WHERE attribute = :name AND NOT (:is_under)")(
                levels=levels, name=text(name), is_under=is_under
            )
            if count := engine.rows(query)[0][0]:
                yield f"{LEVELS!r}: {count:,} rows have a label of {name!r} that is not under the one above it"


def _ancestor_conditions(engine: DuckDBEngine, name: str, rules: Sequence[Mapping[str, str]]) -> Iterator[exp.Expr]:
    """The condition that a label lies under its ancestor, if the rules of the hierarchy imply one."""
    kinds = {rule["rule"] for rule in rules}
    masks = [rule for rule in rules if rule["rule"] == "mask"]
    if kinds & {"intervals", "dates"} and kinds <= {"intervals", "dates", "suppress"}:
        columns = engine.columns(table(labels_table(name), "main", ATTACHED))
        kind = RANGE_KINDS.get(columns.get(f"{name}_low", ""))
        if kind is None:
            return
        low, high = label_bounds(col("label"), kind)
        from_, to_ = label_bounds(col("ancestor"), kind)
        yield _IS_RANGE_WITHIN(low=low, high=high, from_=from_, to_=to_)
    elif kinds == {"suppress"}:
        yield col("ancestor").isin(col("label"), text("*"))
    elif kinds <= {"mask", "suppress"} and len(masks) == 1:
        yield _IS_MASKED_BY[masks[0].get("mask", "right")]()
