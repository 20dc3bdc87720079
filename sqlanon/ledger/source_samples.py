"""Whether two sources have rows in common, by a sample of the rows of the one: each value as a hash with a secret.

Values decide, in their text form, not names or types: columns are paired by name, or where that fails by the values of
the sample that they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import (
    aliased,
    all_of,
    anonymous,
    cast,
    col,
    is_null,
    is_there,
    named,
    native_type,
    number,
    same,
    select,
    subquery,
    text,
    total,
    where,
)

HASHES = "hashes"

HEX_FROM = 17
"""From here on the digits of MD5 are the 64 bits that are kept."""


def sample(relation: exp.Expr, columns: Sequence[str], secret: str, rows: int) -> exp.Select:
    """Rows taken at random, as `HASHES`: one a column."""
    texts: list[exp.Expr] = [named(_text_of(name), f"c{i}") for i, name in enumerate(columns)]
    taken = select(texts, relation.copy())
    taken.set("sample", exp.TableSample(method=exp.Var(this="RESERVOIR"), size=number(rows)))
    hashes = exp.Array(expressions=[_hash(col(f"c{i}"), secret) for i in range(len(columns))])
    return select([named(hashes, HASHES)], subquery(taken, "s"))


def _text_of(column: str) -> exp.Expr:
    """A value as text, which is the same whatever type the column has got: of 1, 1.0 and '1'; of a date and its first
    moment; of a word in other case or between spaces. (In other case of ASCII: engines do not agree on other letters.)
    """
    own = cast(col(column), "VARCHAR")
    as_number = cast(exp.TryCast(this=own, to=native_type("DOUBLE")), "VARCHAR")
    as_time = cast(exp.TryCast(this=own.copy(), to=native_type("TIMESTAMP")), "VARCHAR")
    trimmed = anonymous("trim", own.copy())
    is_ascii = anonymous("strlen", own.copy()).eq(anonymous("length", own.copy()))
    lowered = exp.If(this=is_ascii, true=anonymous("lower", trimmed), false=_ascii_lowered(trimmed.copy()))
    return exp.Coalesce(this=as_number, expressions=[as_time, lowered])


def _ascii_lowered(value: exp.Expr) -> exp.Expr:
    return anonymous("translate", value, text(ascii_uppercase), text(ascii_lowercase))


def _hash(value: exp.Expr, secret: str) -> exp.Expr:
    """64 bits of a value in its text form; NULL is a value."""
    present = exp.DPipe(this=text(":"), expression=value)
    known = exp.Coalesce(this=present, expressions=[text("NULL")])
    return _of_digits(
        anonymous("substr", anonymous("md5", exp.DPipe(this=text(secret), expression=known)), number(HEX_FROM))
    )


def _of_digits(digits: exp.Expr) -> exp.Expr:
    return cast(exp.DPipe(this=text("0x"), expression=digits), "UBIGINT")


def values_of(relation: exp.Expr, column: str, secret: str) -> exp.Select:
    """The values of a column in their text form, ``v``, and their hashes, ``h``."""
    value = _text_of(column)
    distinct = exp.Select(expressions=[named(value, "v")], distinct=exp.Distinct()).from_(relation.copy(), copy=False)
    return select([col("v"), named(_hash(col("v"), secret), "h")], subquery(distinct, "d"))


def known_values(sampled: exp.Expr, place: int, values: exp.Expr) -> exp.Select:
    """One row: the hashes of a column of a sample, and how many of them a column has."""
    hashes = exp.Select(expressions=[named(_at(place), "h")], distinct=exp.Distinct())
    hashes = hashes.from_(sampled.copy(), copy=False)
    on = col("h", "s").eq(col("h", "o"))
    query = select([exp.Count(this=col("h", "s")), exp.Count(this=col("h", "o"))], subquery(hashes, "s"))
    return query.join(aliased(values, "o"), on=on, join_type="left", copy=False)


def _at(place: int) -> exp.Expr:
    return exp.Bracket(this=col(HASHES), expressions=[number(place)], offset=0)


def combinations(relation: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """What rows have in some columns, in text form, ``c0`` .., and in how many rows."""
    values: list[exp.Expr] = [named(_text_of(name), f"c{i}") for i, name in enumerate(columns)]
    texts = select(values, relation.copy())
    by: list[exp.Expr] = [col(f"c{i}") for i in range(len(columns))]
    return select([*by, named(exp.Count(this=exp.Star()), ROWS)], subquery(texts, "t"), [one.copy() for one in by])


def frequencies(combined: exp.Expr) -> exp.Select:
    """One row: all rows, the combinations of one row, and those of two."""
    counts: list[exp.Expr] = [total(col(ROWS))]
    for n in (1, 2):
        once = col(ROWS).eq(number(n))
        counts.append(exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=once)))
    return select(counts, combined.copy())


def found(sampled: exp.Expr, places: Sequence[int], values: Sequence[exp.Expr], combined: exp.Expr) -> exp.Select:
    """One row: the rows of a sample, and those whose combination exactly one row has; of the sample's combinations
    those that no row has, one, and two.
    """
    hashes: list[exp.Expr] = [named(_at(place), f"h{i}") for i, place in enumerate(places)]
    by: list[exp.Expr] = [one.this.copy() for one in hashes]
    taken = select([*hashes, named(exp.Count(this=exp.Star()), "m")], sampled.copy(), by)
    rows, there = total(col("m", "s")), col(ROWS, "x")
    once = there.eq(1)
    output: list[exp.Expr] = [rows, exp.Coalesce(this=total(col("m", "s"), once), expressions=[number(0)])]
    for condition in (is_null(there.copy()), once.copy(), there.eq(2)):
        output.append(where(exp.Count(this=exp.Star()), condition))
    query = select(output, subquery(taken, "s"))
    for i, own in enumerate(values):
        on = col(f"h{i}", "s").eq(col("h", f"v{i}"))
        query = query.join(aliased(own, f"v{i}"), on=on, join_type="left", copy=False)
    paired = [same(col("v", f"v{i}"), col(f"c{i}", "x")) for i in range(len(places))]
    # What has no value here would read as NULL.
    known = [is_there(col("h", f"v{i}")) for i in range(len(places))]
    return query.join(aliased(combined, "x"), on=all_of([*paired, *known]), join_type="left", copy=False)


def sampled_combinations(sampled: exp.Expr, places: Sequence[int], secret: str) -> exp.Select:
    """One row: the hashes of what the rows of a sample have in some columns, as digits with commas.

    Of several values at a time: nobody can guess one of them alone by these.
    """
    digits = [anonymous("format", text("{:016x}"), _at(place)) for place in places]
    message = anonymous("concat", text(secret), *digits)
    each = anonymous("substr", anonymous("md5", message), number(HEX_FROM))
    return select([exp.GroupConcat(this=each, separator=text(","))], sampled.copy())


def least_known(sampled: exp.Expr, place: int, values: exp.Expr, is_whole: bool) -> exp.Select:
    """`known_values`, of a column of which there are only the least hashes: of the sampled ones that are no greater."""
    query = known_values(sampled, place, values)
    if is_whole:
        return query
    greatest = subquery(select([exp.Max(this=col("h"))], values.copy()))
    return query.where(col("h", "s") <= greatest, copy=False)


def arrived_sample(arrow: exp.Expr, columns: int) -> exp.Select:
    """`HASHES` of digits that have come as ``h0`` .."""
    return select([named(exp.Array(expressions=[_of_digits(col(f"h{i}")) for i in range(columns)]), HASHES)], arrow)


def arrived_values(arrow: exp.Expr) -> exp.Select:
    """Hashes, ``h``, of digits that have come, and the number of all values, ``d``."""
    return select([named(_of_digits(col("h")), "h"), col("d")], arrow)
