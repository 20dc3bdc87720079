"""Whether the levels of labels in a release are those of its labels, as far as a reader can see; and their digest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.hierarchies.bounds import RangeKind, bounds
from sqlanon.release.contents import ATTACHED
from sqlanon.release.label_levels import LEVELS, LEVELS_COLUMNS
from sqlanon.release.manifest import Manifest
from sqlanon.release.metadata import generalized_columns
from sqlanon.release.reader import SUBJECT
from sqlanon.support.expressions import col, fragment, table, template, text, union_all
from sqlanon.support.names import labels_table

RANGE_KINDS: Mapping[str, RangeKind] = {"BIGINT": "integer", "DOUBLE": "number", "DATE": "date"}
"""By the type of the bounds of a table of labels, what they are ranges of."""

_RELEASED = template("SELECT :name AS attribute, :column::VARCHAR AS label FROM :rows GROUP BY :column")
_NOTHING = template("SELECT '' AS attribute, '' AS label LIMIT 0")
_STRANGE = template("""
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
_REPEATED = template("""
    SELECT count(*)
    FROM (
        SELECT 1 FROM :levels AS l
        GROUP BY attribute, label, level
        HAVING count(*) > 1 OR level IS NULL OR level < 0 OR bool_or(ancestor IS NULL)
    ) AS r
""")
_CONTRADICTED = template("""
    SELECT count(*)
    FROM :levels AS a
    JOIN :levels AS b ON a.attribute = b.attribute AND a.label = b.label AND a.level <= b.level
    JOIN :levels AS c ON c.attribute = a.attribute AND c.label = a.ancestor AND c.level = b.level
    WHERE c.ancestor <> b.ancestor
""")
_NOT_UNDER = template("SELECT count(*) FROM :levels AS l WHERE attribute = :name AND NOT (:under)")
_WITHIN = fragment("coalesce(:low >= :from_, :from_ IS NULL) AND coalesce(:high <= :to_, :to_ IS NULL)")
_MASKED = {
    "right": fragment("""
        ancestor = '*' OR length(label) <= length(ancestor)
            AND starts_with(rpad(label, length(ancestor)::INTEGER, '*'), rtrim(ancestor, '*'))
    """),
    "left": fragment("""
        ancestor = '*' OR length(label) <= length(ancestor)
            AND ends_with(lpad(label, length(ancestor)::INTEGER, '*'), ltrim(ancestor, '*'))
    """),
}
_SUPPRESSED = fragment("ancestor IN (label, '*')")
_DIGEST = template("""
    SELECT md5(coalesce(string_agg(md5(concat_ws(chr(10), attribute, level, length(label), label, ancestor)), ''
        ORDER BY attribute, label, level, ancestor), ''))
    FROM :levels AS l
""")


def levels_digest(engine: DuckDBEngine, levels: exp.Expr) -> str:
    """All of them, whatever their order."""
    digest: str = engine.rows(_DIGEST(levels=levels))[0][0]
    return digest


def released_levels() -> exp.Table:
    return table(LEVELS, "sqlanon", ATTACHED)


def find_level_faults(engine: DuckDBEngine, manifest: Manifest) -> Iterator[str]:
    """What is wrong with them. Each label is released, or above one that is; those above a label are above one another;
    ranges, masks and suppressed values lie under theirs. Which groups of a file lie under which is the source's."""
    if engine.columns(released_levels()) != LEVELS_COLUMNS:
        yield f"{LEVELS!r} has not the columns {', '.join(LEVELS_COLUMNS)}"
        return
    names = generalized_columns(manifest)
    labels = [_RELEASED(name=text(name), column=col(name), rows=SUBJECT.copy()) for name in names]
    released = union_all(*(labels or [_NOTHING()]))
    for words, query in (
        (
            "labels that are neither released nor above one that is",
            _STRANGE(levels=released_levels(), released=released),
        ),
        ("labels with two labels at one level, or none", _REPEATED(levels=released_levels())),
        ("labels above one another that contradict each other", _CONTRADICTED(levels=released_levels())),
    ):
        if count := engine.rows(query)[0][0]:
            yield f"{LEVELS!r}: {count:,} rows have {words}"
    rules = {name.lower(): spec.get("hierarchy") or () for name, spec in manifest.policy["attributes"].items()}
    for name in names:
        for under in _conditions(engine, name, rules[name.lower()]):
            query = _NOT_UNDER(levels=released_levels(), name=text(name), under=under)
            if count := engine.rows(query)[0][0]:
                yield f"{LEVELS!r}: {count:,} rows have a label of {name!r} that is not under the one above it"


def _conditions(engine: DuckDBEngine, name: str, rules: Sequence[Mapping[str, str]]) -> Iterator[exp.Expr]:
    kinds = {rule["rule"] for rule in rules}
    if kinds & {"intervals", "dates"} and kinds <= {"intervals", "dates", "suppress"}:
        ends = engine.columns(table(labels_table(name), "main", ATTACHED))
        kind = RANGE_KINDS.get(ends.get(f"{name}_low", ""))
        if kind is None:
            return
        low, high = bounds(col("label"), kind)
        from_, to_ = bounds(col("ancestor"), kind)
        yield _WITHIN(low=low, high=high, from_=from_, to_=to_)
    elif kinds == {"suppress"}:
        yield _SUPPRESSED()
    elif kinds <= {"mask", "suppress"} and len(masks := [rule for rule in rules if rule["rule"] == "mask"]) == 1:
        yield _MASKED[masks[0].get("mask", "right")]()
