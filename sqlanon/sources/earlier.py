"""Which rows of a source an earlier release has: marks, one bit a release.

Rows of a release do not say which rows of the source they are, and nobody who reads it knows. So rows of the source are
held to be in it as far as they read the same: of five rows of the source that read alike in what both have, where the
release has three, three are in it: those that other releases have, too, then by their values, so that it is the same
whenever it is asked. With a key it is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.coding import ROWS, Coded
from sqlanon.expressions import aliased, all_of, anonymous, cast, col, named, number, same, select, subquery, text
from sqlanon.policy.names import EARLIER

KEY_HASH = "key_hash"

__all__ = [
    "EARLIER",
    "KEY_HASH",
    "EarlierAttribute",
    "key_hash",
    "marked",
    "marked_by_key",
    "marks",
    "repeated_keys",
    "unmarked",
]


@dataclass(frozen=True)
class EarlierAttribute:
    """A quasi-identifier as an earlier release shows it."""

    attribute: Coded  # how the source gives its labels: its coded values, the level, and the label of the top
    level: int
    top: str | None
    column: str  # its column in the release


def unmarked(source: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """The source with no marks: its columns, and `EARLIER`, 0."""
    return select([*map(col, columns), named(cast(number(0), "BIGINT"), EARLIER)], source.copy())


def marked(
    rows: exp.Table,
    columns: Sequence[str],
    shown: Sequence[EarlierAttribute],
    shared: Sequence[tuple[str, str]],
    release: exp.Expr,
    bit: int,
) -> exp.Select:
    """The rows with one bit more in `EARLIER` where the release has them."""
    own = _own_names(columns)
    labels = [named(_label(one, i), f"{own}label {i}") for i, one in enumerate(shown)]
    keys: list[exp.Expr] = [*(one.this.copy() for one in labels), *(col(mine, "s") for mine, _ in shared)]
    order = exp.Order(
        expressions=[exp.Ordered(this=col(EARLIER, "s"), desc=True), *(col(name, "s") for name in columns)]
    )
    rank = exp.Window(this=exp.RowNumber(), partition_by=keys or [number(1)], order=order)
    output: list[exp.Expr] = [*(col(name, "s") for name in (*columns, EARLIER)), *labels, named(rank, f"{own}rank")]
    labelled = exp.Select(expressions=output).from_(aliased(rows, "s"))
    for i, one in enumerate(shown):
        if _is_looked_up(one):
            on = same(col(one.attribute.column, "s"), col("value", f"h{i}"))
            labelled = labelled.join(aliased(one.attribute.table, f"h{i}"), on=on, join_type="left", copy=False)
    theirs: list[exp.Expr] = [named(col(one.column), f"k{i}") for i, one in enumerate(shown)]
    theirs += [named(col(other), f"k{len(shown) + j}") for j, (_, other) in enumerate(shared)]
    grouped: list[exp.Expr] = [one.this.copy() for one in theirs]
    counts = select([*theirs, named(exp.Count(this=exp.Star()), ROWS)], release.copy(), grouped)
    mine: list[exp.Expr] = [col(f"{own}label {i}", "r") for i in range(len(shown))]
    mine += [col(name, "r") for name, _ in shared]
    on = all_of(same(key, col(f"k{i}", "e")) for i, key in enumerate(mine))
    within = col(f"{own}rank", "r") <= col(ROWS, "e")
    query = select(_with_bit(columns, within, bit), subquery(labelled, "r"))
    return query.join(subquery(counts, "e"), on=on, join_type="left", copy=False)


def marked_by_key(
    rows: exp.Table, columns: Sequence[str], key: Sequence[str], secret: str, hashes: exp.Expr, bit: int
) -> exp.Select:
    """The rows with one bit more in `EARLIER` where the hash of their key is among those of a release."""
    on = key_hash(key, secret, "r").eq(col(KEY_HASH, "e"))
    there = ~exp.Is(this=col(KEY_HASH, "e"), expression=exp.null())
    query = select(_with_bit(columns, there, bit), aliased(rows, "r"))
    return query.join(aliased(hashes, "e"), on=on, join_type="left", copy=False)


def key_hash(key: Sequence[str], secret: str, alias: str | None = None) -> exp.Expr:
    """The hash of a key: 128 bits of a SHA-256 with a secret, and of the SHA-256 of the key with it.

    Values are told apart by their lengths: ``('a', 'bc')`` is not ``('ab', 'c')``.
    """
    parts: list[exp.Expr] = [text(secret)]
    for name in key:
        value = cast(col(name, alias), "VARCHAR")
        parts += [anonymous("COALESCE", cast(anonymous("LENGTH", value), "VARCHAR"), text("NULL")), text(":")]
        parts += [anonymous("COALESCE", value.copy(), text("")), text(";")]
    inner = anonymous("SHA256", anonymous("CONCAT", *parts))
    outer = anonymous("SHA256", anonymous("CONCAT", text(secret), inner))
    return cast(anonymous("SUBSTRING", outer, number(1), number(32)), "UUID")


def marks(rows: exp.Expr, releases: int) -> exp.Select:
    """One row: how many rows there are, and how many have the mark of each release."""
    output: list[exp.Expr] = [exp.Count(this=exp.Star())]
    for i in range(releases):
        bits = exp.BitwiseAnd(this=col(EARLIER), expression=number(1 << i))
        has = exp.Paren(this=bits) > 0
        output.append(exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=has)))
    return select(output, rows.copy())


def repeated_keys(source: exp.Expr, key: Sequence[str]) -> exp.Select:
    """One row: the keys that several rows have, and the rows without a whole key."""
    missing = exp.or_(*(exp.Is(this=col(name), expression=exp.null()) for name in key), copy=False)
    columns: list[exp.Expr] = [col(name) for name in key]
    count = named(exp.Count(this=exp.Star()), ROWS)
    each = select([named(missing, "missing"), count], source.copy(), columns)
    several = col(ROWS) > 1
    whole = ~col("missing")
    repeated = exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=all_of([several, whole])))
    without = exp.Filter(this=exp.Sum(this=col(ROWS)), expression=exp.Where(this=col("missing")))
    return select([repeated, exp.Coalesce(this=without, expressions=[number(0)])], subquery(each, "k"))


def _own_names(columns: Sequence[str]) -> str:
    """What names of our own begin with, and none of these columns does."""
    own = "sqlanon "
    while any(name.lower().startswith(own) for name in columns):
        own += "_"
    return own


def _with_bit(columns: Sequence[str], condition: exp.Expr, bit: int) -> list[exp.Expr]:
    added = exp.Case(ifs=[exp.If(this=condition, true=number(bit))], default=number(0))
    mark = cast(col(EARLIER, "r") + added, "BIGINT")
    return [*(col(name, "r") for name in columns), named(mark, EARLIER)]


def _is_looked_up(one: EarlierAttribute) -> bool:
    return 0 < one.level < one.attribute.height


def _label(one: EarlierAttribute, i: int) -> exp.Expr:
    """What the release shows of a row of the source."""
    if one.level == 0:
        return col(one.attribute.column, "s")
    if one.level == one.attribute.height:
        return text(one.top or "")
    return col(f"label_{one.level}", f"h{i}")
