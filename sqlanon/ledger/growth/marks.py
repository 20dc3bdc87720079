"""Mark the rows of a source that earlier releases contain: one bit for each release.

Without a key, a release does not identify the rows of the source, neither for readers nor for sqlanon. So rows are
matched by the columns that both have: if the source has five equal rows, and the release three, three of the five are
marked. Rows that other releases contain come first, then the order of their values, so that the result is repeatable.
With a key, the hashes in the ledger identify the rows.
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
from sqlanon.support.coding import ROWS, CodedAttribute
from sqlanon.support.expressions import (
    aliased,
    all_of,
    anonymous,
    as_column,
    cast,
    col,
    create_table,
    fragment,
    is_not_null,
    null_safe_equal,
    number,
    subquery,
    template,
    text,
)
from sqlanon.support.names import EARLIER_RELEASES_COLUMN

KEY_HASH = "key_hash"

# The column of the marks is `EARLIER_RELEASES_COLUMN`.
_UNMARKED = template('SELECT :columns, 0::BIGINT AS "sqlanon earlier releases" FROM :source')
_LABELLED = template("SELECT :values FROM :rows")
_RANK = fragment('row_number() OVER (PARTITION BY :keys ORDER BY s."sqlanon earlier releases" DESC, :order)')
_MARKED = template("""
    SELECT
        :columns,
        CAST(r."sqlanon earlier releases" + CASE WHEN :there THEN :bit ELSE 0 END AS BIGINT)
            AS "sqlanon earlier releases"
    FROM :rows AS r
    LEFT JOIN :release AS e ON :same
""")
_IN_BOTH = template("""
    SELECT coalesce(sum(least(r.n, e.n)), 0)::BIGINT
    FROM (SELECT :keys, count(*) AS n FROM :labelled GROUP BY :names) AS r
    JOIN :release AS e ON :same
""")
_HAS_MARK = fragment('count(*) FILTER (WHERE ("sqlanon earlier releases" & :bit) > 0)')


@dataclass(frozen=True)
class EarlierAttribute:
    """A quasi-identifier in an earlier release.

    Attributes
    ----------
    attribute:
        Its coded values in the source.
    top:
        The label of the top.
    column:
        Its column in the release.
    """

    attribute: CodedAttribute
    level: int
    top: str | None
    column: str

    @property
    def is_looked_up(self) -> bool:
        return self.attribute.between_ends(self.level)

    def label(self, i: int) -> exp.Expr:
        """The label of a row of the source in the release."""
        if self.is_looked_up:
            return col(f"label_{self.level}", f"h{i}")
        return text(self.top or "") if self.level else col(self.attribute.column, "s")


def add_empty_marks(source: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """The source without marks: its columns, and `EARLIER_RELEASES_COLUMN`, 0."""
    return _UNMARKED(columns=[col(name) for name in columns], source=source)


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
    labels = _labels(prefix, attributes)
    keys = [*labels.values(), *(col(name, "s") for name, _ in shared)]
    rank = _RANK(keys=keys or [number(1)], order=[col(name, "s") for name in columns])
    values: list[exp.Expr] = [col(name, "s") for name in (*columns, EARLIER_RELEASES_COLUMN)]
    values += [as_column(value, name) for name, value in {**labels, f"{prefix}rank": rank}.items()]
    marked_keys = [col(name, "r") for name in (*labels, *(name for name, _ in shared))]
    return _MARKED(
        columns=[col(name, "r") for name in columns],
        there=col(f"{prefix}rank", "r") <= col(ROWS, "e"),
        bit=bit,
        rows=subquery(_select_labels(values, rows, attributes)),
        release=_count_released_rows(attributes, shared, release),
        same=all_of(null_safe_equal(key, col(f"k{i}", "e")) for i, key in enumerate(marked_keys)),
    )


def count_rows_in_both(
    rows: exp.Table, attributes: Sequence[EarlierAttribute], shared: Sequence[tuple[str, str]], release: exp.Expr
) -> exp.Select:
    """One number: the rows that `mark_rows_by_values` would mark."""
    labels = [*_labels("", attributes).values(), *(col(name, "s") for name, _ in shared)] or [number(1)]
    names = [f"k{i}" for i in range(len(labels))]
    return _IN_BOTH(
        keys=[col(name) for name in names],
        names=[col(name) for name in names],
        labelled=subquery(
            _select_labels(
                [as_column(label, name) for name, label in zip(names, labels, strict=True)], rows, attributes
            )
        ),
        release=_count_released_rows(attributes, shared, release),
        same=all_of(null_safe_equal(col(name, "r"), col(name, "e")) for name in names[: len(attributes) + len(shared)]),
    )


def _labels(prefix: str, attributes: Sequence[EarlierAttribute]) -> dict[str, exp.Expr]:
    return {f"{prefix}label {i}": attribute.label(i) for i, attribute in enumerate(attributes)}


def _select_labels(values: list[exp.Expr], rows: exp.Table, attributes: Sequence[EarlierAttribute]) -> exp.Select:
    """Values of the rows ``s``, joined to the coded values of attributes whose labels are looked up."""
    labelled = _LABELLED(values=values, rows=aliased(rows, "s"))
    for i, attribute in enumerate(attributes):
        if attribute.is_looked_up:
            on = null_safe_equal(col(attribute.attribute.column, "s"), col("value", f"h{i}"))
            labelled = labelled.join(aliased(attribute.attribute.table, f"h{i}"), on=on, join_type="left", copy=False)
    return labelled


def _count_released_rows(
    attributes: Sequence[EarlierAttribute], shared: Sequence[tuple[str, str]], release: exp.Expr
) -> exp.Subquery:
    """The rows of a release, counted by the columns in common with the source: ``k0`` .., and ``n``."""
    columns = [col(attribute.column) for attribute in attributes] + [col(column) for _, column in shared]
    keys = [as_column(key.copy(), f"k{i}") for i, key in enumerate(columns)]
    return subquery(
        template("SELECT :named, count(*) AS n FROM :release GROUP BY :columns")(
            named=keys, release=release, columns=columns
        )
    )


def mark_rows_by_key(
    rows: exp.Table, columns: Sequence[str], key: Sequence[str], secret: str, hashes: exp.Expr, bit: int
) -> exp.Select:
    """Set a bit in `EARLIER_RELEASES_COLUMN` for the rows whose key hash is among those of a release."""
    return _MARKED(
        columns=[col(name, "r") for name in columns],
        there=is_not_null(col(KEY_HASH, "e")),
        bit=bit,
        rows=rows,
        release=hashes,
        same=key_hash(key, secret, "r").eq(col(KEY_HASH, "e")),
    )


def mark_rows_by_person(
    rows: exp.Table, columns: Sequence[str], person: exp.Expr, people: exp.Expr, bit: int
) -> exp.Select:
    """Set a bit in `EARLIER_RELEASES_COLUMN` for the rows ``r`` whose person is among those of a release."""
    return _MARKED(
        columns=[col(name, "r") for name in columns],
        there=is_not_null(col("person", "e")),
        bit=bit,
        rows=rows,
        release=people,
        same=person.eq(col("person", "e")),
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
    return template("SELECT count(*), :counts FROM :rows")(
        counts=[_HAS_MARK(bit=1 << i) for i in range(releases)], rows=rows
    )


def _free_prefix(columns: Sequence[str]) -> str:
    """A prefix for added columns that no given column has."""
    prefix = "sqlanon "
    while any(name.lower().startswith(prefix) for name in columns):
        prefix += "_"
    return prefix


# The first earlier release has bit 1.
_RELEASED = template("SELECT * FROM :rows WHERE NOT (:mark & 1) = 0")


def select_released_rows(marked: exp.Table) -> exp.Select:
    return _RELEASED(rows=marked, mark=col(EARLIER_RELEASES_COLUMN))


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
    levels_then = manifest.levels({name: hierarchy.height for name, hierarchy in released_hierarchies.items()})
    levels_now = manifest.levels(search_input.heights)
    counts = {}
    for i, name in enumerate(search_input.policy.generalized_attributes):
        released_hierarchy, hierarchy_now = released_hierarchies.get(name.lower()), search_input.hierarchies[i]
        level, level_now = levels_then.get(name), levels_now.get(name)
        if not level or level_now is None or released_hierarchy is None:
            continue
        label_now = col(f"level_{level_now}", "n") if level_now <= hierarchy_now.height else exp.null()
        query = count_changed_labels(
            released_hierarchy.table, hierarchy_now.table, col(f"level_{level}", "t"), label_now
        )
        if count := run.engine.rows(query)[0][0]:
            counts[name] = int(count)
    if counts:
        raise RelabelledError(counts)
