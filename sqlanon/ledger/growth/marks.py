"""Mark the rows of a source that earlier releases contain: one bit for each release.

With a key, the hashes in the ledger identify the rows. Without a key, rows are matched by the columns that both have:
if the source has five equal rows, and the release three, three of the five are marked. Rows that other releases contain
come first, then the order of their values, so that the result is repeatable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.errors import RelabelledError
from sqlanon.ledger.released_hierarchies import copy_released_hierarchies, count_changed_labels
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.release.manifest import Manifest
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.coding import CodedAttribute
from sqlanon.support.expressions import (
    aliased,
    all_of,
    anonymous,
    as_column,
    cast,
    col,
    cols,
    create_table,
    fragment,
    is_not_null,
    null_safe_equal,
    number,
    same_values,
    subquery,
    template,
    text,
)
from sqlanon.support.names import EARLIER_RELEASES_COLUMN

KEY_HASH = "key_hash"

# The column of the marks is `EARLIER_RELEASES_COLUMN`.
_MARKED = template("""
    SELECT
        :columns,
        CAST(r."sqlanon earlier releases" + CASE WHEN :is_released THEN :bit ELSE 0 END AS BIGINT)
            AS "sqlanon earlier releases"
    FROM :rows AS r
    LEFT JOIN :release AS e ON :same
""")


@dataclass(frozen=True)
class EarlierAttribute:
    """A quasi-identifier in an earlier release."""

    attribute: CodedAttribute  # its coded values in the source
    level: int
    top: str | None  # the label of the top
    column: str  # its column in the release

    @property
    def is_looked_up(self) -> bool:
        return self.attribute.has_inner_labels(self.level)

    def label(self, i: int) -> exp.Expr:
        """The label of a row of the source in the release."""
        if self.is_looked_up:
            return col(f"label_{self.level}", f"h{i}")
        return text(self.top or "") if self.level else col(self.attribute.column, "s")


def add_empty_marks(source: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """The source without marks: its columns, and `EARLIER_RELEASES_COLUMN`, 0."""
    query = template('SELECT :columns, 0::BIGINT AS "sqlanon earlier releases" FROM :source')
    return query(columns=cols(columns), source=source)


def mark_rows_by_values(
    rows: exp.Table,
    columns: Sequence[str],
    attributes: Sequence[EarlierAttribute],
    shared: Sequence[tuple[str, str]],
    release: exp.Expr,
    bit: int,
) -> exp.Select:
    """Set a bit in `EARLIER_RELEASES_COLUMN` for the rows that the release contains."""
    prefix = _free_prefix(columns)
    labels = {f"{prefix}label {i}": attribute.label(i) for i, attribute in enumerate(attributes)}
    shared_names = [name for name, _ in shared]
    rank = fragment('row_number() OVER (PARTITION BY :keys ORDER BY s."sqlanon earlier releases" DESC, :order)')(
        keys=[*labels.values(), *cols(shared_names, "s")] or [number(1)], order=cols(columns, "s")
    )
    values = cols((*columns, EARLIER_RELEASES_COLUMN), "s")
    values += [as_column(value, name) for name, value in {**labels, f"{prefix}rank": rank}.items()]
    marked_keys = cols((*labels, *shared_names), "r")
    return _MARKED(
        columns=cols(columns, "r"),
        is_released=col(f"{prefix}rank", "r") <= col("row_count", "e"),
        bit=bit,
        rows=_select_labels(values, rows, attributes),
        release=_count_released_rows(attributes, shared, release),
        same=all_of(null_safe_equal(key, col(f"key_{i}", "e")) for i, key in enumerate(marked_keys)),
    )


def count_rows_in_both(
    rows: exp.Table, attributes: Sequence[EarlierAttribute], shared: Sequence[tuple[str, str]], release: exp.Expr
) -> exp.Select:
    """One number: the rows that `mark_rows_by_values` would mark."""
    labels = [attribute.label(i) for i, attribute in enumerate(attributes)]
    labels += [col(name, "s") for name, _ in shared]
    keys = [as_column(label, f"key_{i}") for i, label in enumerate(labels or [number(1)])]
    return template("""
        SELECT coalesce(sum(least(r.row_count, e.row_count)), 0)::BIGINT
        FROM (SELECT :keys, count(*) AS row_count FROM :labelled GROUP BY :keys) AS r
        JOIN :release AS e ON :same
    """)(
        keys=cols(key.alias for key in keys),
        labelled=_select_labels(keys, rows, attributes),
        release=_count_released_rows(attributes, shared, release),
        same=same_values((f"key_{i}" for i in range(len(labels))), "r", "e"),
    )


def _select_labels(values: Sequence[exp.Expr], rows: exp.Table, attributes: Sequence[EarlierAttribute]) -> exp.Subquery:
    """Values of the rows ``s``, joined to the coded values of attributes whose labels are looked up."""
    labelled = template("SELECT :values FROM :rows")(values=values, rows=aliased(rows, "s"))
    for i, attribute in enumerate(attributes):
        if attribute.is_looked_up:
            on = null_safe_equal(col(attribute.attribute.column, "s"), col("value", f"h{i}"))
            labelled = labelled.join(aliased(attribute.attribute.table, f"h{i}"), on=on, join_type="left", copy=False)
    return subquery(labelled)


def _count_released_rows(
    attributes: Sequence[EarlierAttribute], shared: Sequence[tuple[str, str]], release: exp.Expr
) -> exp.Select:
    """The rows of a release, counted by the columns in common with the source: ``key_0`` .., and ``row_count``."""
    columns = cols([*(attribute.column for attribute in attributes), *(column for _, column in shared)])
    keys = [as_column(column.copy(), f"key_{i}") for i, column in enumerate(columns)]
    query = template("SELECT :keys, count(*) AS row_count FROM :release GROUP BY :columns")
    return query(keys=keys, release=release, columns=columns)


def mark_rows_by_hash(
    rows: exp.Table, columns: Sequence[str], hashed: exp.Expr, hashes: exp.Table, name: str, bit: int
) -> exp.Select:
    """Set a bit in `EARLIER_RELEASES_COLUMN` for the rows ``r`` whose key or person is among the hashes of a release,
    in their column ``name``."""
    is_released = is_not_null(col(name, "e"))
    return _MARKED(
        columns=cols(columns, "r"),
        is_released=is_released,
        bit=bit,
        rows=rows,
        release=hashes,
        same=hashed.eq(col(name, "e")),
    )


def key_hash(key: Sequence[str], secret: str, alias: str | None = None) -> exp.Expr:
    """The hash of a key: 128 bits of a SHA-256 with a secret, and of the SHA-256 of the key with it.

    The lengths of values are hashed as well: ``('a', 'bc')`` differs from ``('ab', 'c')``.
    """
    parts: list[exp.Expr] = [text(secret)]
    for name in key:
        value = cast(col(name, alias), "VARCHAR")
        parts += [anonymous("COALESCE", cast(anonymous("LENGTH", value), "VARCHAR"), text("NULL")), text(":")]
        parts += [anonymous("COALESCE", value.copy(), text("")), text(";")]
    inner = anonymous("SHA256", anonymous("CONCAT", *parts))
    outer = anonymous("SHA256", anonymous("CONCAT", text(secret), inner))
    return cast(anonymous("SUBSTRING", outer, number(1), number(32)), "UUID")


def count_marked_rows(rows: exp.Expr, releases: int) -> exp.Select:
    """One row: the number of rows, and of rows with the mark of each release."""
    has_mark = fragment('count(*) FILTER (WHERE ("sqlanon earlier releases" & :bit) > 0)')
    return template("SELECT count(*), :counts FROM :rows")(
        counts=[has_mark(bit=1 << i) for i in range(releases)], rows=rows
    )


def _free_prefix(columns: Sequence[str]) -> str:
    """A prefix for added columns that no given column has."""
    prefix = "sqlanon "
    while any(name.lower().startswith(prefix) for name in columns):
        prefix += "_"
    return prefix


def select_released_rows(marked: exp.Table) -> exp.Select:
    """The rows that the first earlier release contains: it has bit 1."""
    return template("SELECT * FROM :rows WHERE NOT (:mark & 1) = 0")(rows=marked, mark=col(EARLIER_RELEASES_COLUMN))


def recode_released_rows(run: Run, search_input: SearchInput, levels: Mapping[str, int]) -> FullDomainRecoding:
    """The recoding of the source's rows that the first earlier release contains.

    Makes ``released_rows``.
    """
    rows = run.work("released_rows")
    run.engine.execute(create_table(rows.copy(), select_released_rows(search_input.source.relation)))
    tops = tuple(hierarchy.top for hierarchy in search_input.hierarchies)
    return FullDomainRecoding(rows, search_input.released_columns, search_input.attributes, tops, (*levels.values(), 0))


def refuse_changed_labels(run: Run, search_input: SearchInput, manifest: Manifest, run_id: str) -> None:
    """Refuse a source whose values would get other labels than in a full-domain release."""
    released_hierarchies = copy_released_hierarchies(run, search_input.policy, run_id)
    released_levels = manifest.levels({name: hierarchy.height for name, hierarchy in released_hierarchies.items()})
    current_levels = manifest.levels(search_input.heights)
    counts = {}
    for name, hierarchy in zip(search_input.policy.generalized_attributes, search_input.hierarchies, strict=False):
        released_hierarchy = released_hierarchies.get(name.lower())
        released_level, level = released_levels.get(name), current_levels.get(name)
        if not released_level or level is None or released_hierarchy is None:
            continue
        label = col(f"level_{level}", "c") if level <= hierarchy.height else exp.null()
        released_label = col(f"level_{released_level}", "e")
        query = count_changed_labels(released_hierarchy.table, hierarchy.table, released_label, label)
        if count := run.engine.rows(query)[0][0]:
            counts[name] = int(count)
    if counts:
        raise RelabelledError(counts)
