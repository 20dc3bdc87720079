"""Whether two sources have rows in common, by a sample of the rows of the one: each value as a hash with a secret.

Values decide, in their text form, not names or types: columns are paired by name, or where that fails by the values of
the sample that they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase

from sqlglot import exp

from sqlanon.expressions import (
    aliased,
    all_of,
    anonymous,
    cast,
    col,
    fragment,
    is_there,
    named,
    number,
    same,
    select,
    template,
    text,
)

HASHES = "hashes"

HEX_FROM = 17
"""From here on the digits of MD5 are the 64 bits that are kept."""

# The same whatever type a column has got: of 1, 1.0 and '1'; of a date and its first moment; of a word in other case or
# between spaces. (In other case of ASCII: engines do not agree on other letters.)
_TEXT = fragment("""
    coalesce(
        TRY_CAST(:value AS DOUBLE)::VARCHAR,
        TRY_CAST(:value AS TIMESTAMP)::VARCHAR,
        CASE WHEN strlen(:value) = length(:value) THEN lower(:trimmed) ELSE translate(:trimmed, :upper, :lower) END
    )
""")
# NULL is a value.
_HASH = fragment("('0x' || substr(md5(:secret || coalesce(':' || :value, 'NULL')), :hex_from))::UBIGINT")
_OF_DIGITS = fragment("('0x' || :digits)::UBIGINT")

_SAMPLE = template("SELECT :hashes AS hashes FROM :taken AS s")
_VALUES = template("""
    SELECT v, :hash AS h
    FROM (SELECT DISTINCT :value AS v FROM :relation) AS d
""")
_KNOWN_VALUES = template("""
    SELECT count(s.h), count(o.h)
    FROM (SELECT DISTINCT :value AS h FROM :sampled) AS s
    LEFT JOIN :values AS o ON s.h = o.h
""")
_NO_GREATER = fragment("s.h <= (SELECT max(h) FROM :values)")
_COMBINATIONS = template("""
    SELECT :columns, count(*) AS n
    FROM (SELECT :texts FROM :relation) AS t
    GROUP BY :columns
""")
_FREQUENCIES = template("""
    SELECT sum(n)::BIGINT, count(*) FILTER (WHERE n = 1), count(*) FILTER (WHERE n = 2)
    FROM :combined
""")
_FOUND = template("""
    SELECT
        sum(s.m)::BIGINT,
        coalesce(sum(s.m) FILTER (WHERE x.n = 1)::BIGINT, 0),
        count(*) FILTER (WHERE x.n IS NULL),
        count(*) FILTER (WHERE x.n = 1),
        count(*) FILTER (WHERE x.n = 2)
    FROM (SELECT :hashes, count(*) AS m FROM :sampled GROUP BY :by) AS s
""")
_SAMPLED_COMBINATIONS = template("SELECT string_agg(substr(md5(:message), :hex_from), ',') FROM :sampled")
_ARRIVED_VALUES = template("SELECT ('0x' || h)::UBIGINT AS h, d FROM :arrow")


def sample(relation: exp.Expr, columns: Sequence[str], secret: str, rows: int) -> exp.Select:
    """Rows taken at random, as `HASHES`: one a column."""
    texts = [named(_text_of(name), f"c{i}") for i, name in enumerate(columns)]
    taken = select([*texts], relation.copy())
    taken.set("sample", exp.TableSample(method=exp.Var(this="RESERVOIR"), size=number(rows)))
    return _SAMPLE(hashes=exp.array(*(_hash(col(f"c{i}"), secret) for i in range(len(columns)))), taken=taken)


def _text_of(column: str) -> exp.Expr:
    """A value as text."""
    value = cast(col(column), "VARCHAR")
    return _TEXT(value=value, trimmed=anonymous("trim", value), upper=ascii_uppercase, lower=ascii_lowercase)


def _hash(value: exp.Expr, secret: str) -> exp.Expr:
    """64 bits of a value in its text form."""
    return _HASH(secret=secret, value=value, hex_from=HEX_FROM)


def values_of(relation: exp.Expr, column: str, secret: str) -> exp.Select:
    """The values of a column in their text form, ``v``, and their hashes, ``h``."""
    return _VALUES(hash=_hash(col("v"), secret), value=_text_of(column), relation=relation)


def known_values(sampled: exp.Expr, place: int, values: exp.Expr) -> exp.Select:
    """One row: the hashes of a column of a sample, and how many of them a column has."""
    return _KNOWN_VALUES(value=_at(place), sampled=sampled, values=values)


def _at(place: int) -> exp.Expr:
    return exp.Bracket(this=col(HASHES), expressions=[number(place)], offset=0)


def combinations(relation: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """What rows have in some columns, in text form, ``c0`` .., and in how many rows."""
    return _COMBINATIONS(
        columns=[col(f"c{i}") for i in range(len(columns))],
        texts=[named(_text_of(name), f"c{i}") for i, name in enumerate(columns)],
        relation=relation,
    )


def frequencies(combined: exp.Expr) -> exp.Select:
    """One row: all rows, the combinations of one row, and those of two."""
    return _FREQUENCIES(combined=combined)


def found(sampled: exp.Expr, places: Sequence[int], values: Sequence[exp.Expr], combined: exp.Expr) -> exp.Select:
    """One row: the rows of a sample, and those whose combination exactly one row has; of the sample's combinations
    those that no row has, one, and two.
    """
    hashes = [_at(place) for place in places]
    query = _FOUND(hashes=[named(one, f"h{i}") for i, one in enumerate(hashes)], sampled=sampled, by=hashes)
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
    return _SAMPLED_COMBINATIONS(message=message, hex_from=HEX_FROM, sampled=sampled)


def least_known(sampled: exp.Expr, place: int, values: exp.Expr, is_whole: bool) -> exp.Select:
    """`known_values`, of a column of which there are only the least hashes: of the sampled ones that are no greater."""
    query = known_values(sampled, place, values)
    return query if is_whole else query.where(_NO_GREATER(values=values), copy=False)


def arrived_sample(arrow: exp.Expr, columns: int) -> exp.Select:
    """`HASHES` of digits that have come as ``h0`` .."""
    hashes = exp.array(*(_OF_DIGITS(digits=col(f"h{i}")) for i in range(columns)))
    return select([named(hashes, HASHES)], arrow)


def arrived_values(arrow: exp.Expr) -> exp.Select:
    """Hashes, ``h``, of digits that have come, and the number of all values, ``d``."""
    return _ARRIVED_VALUES(arrow=arrow)
