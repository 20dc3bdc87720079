"""The content digest as Spark works it out: the number that ``sqlanon.digest`` gives of the same rows in DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from sqlglot import exp

from sqlanon.release.content_digest import NUMBERS, column_multipliers
from sqlanon.support.expressions import all_of, anonymous, cast, col, fragment, named, same, subquery, template, text

_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")

_SPECIAL = {
    **{"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"},
    # Java writes two digits at least.
    **{"4.9E-324": "5e-324", "-4.9E-324": "-5e-324", "9.9E-324": "1e-323", "-9.9E-324": "-1e-323"},
}
"""Java's text of a number, and DuckDB's."""

_DATE = r"^-?([0-9]+)(-[0-9][0-9]-[0-9][0-9])(.*)$"

_spark = partial(fragment, dialect="spark")
_STAGE = template("SELECT :values FROM :rows")
_BESIDE = template("SELECT :columns FROM :rows AS r")

# In every Spark. Java's own text of a number has digits too many before Java 19. It takes no NULL.
_SHORTEST = _spark("""
    if(
        :value IS NULL,
        NULL,
        reflect(
            'com.fasterxml.jackson.core.io.schubfach.DoubleToDecimal', 'toString', CAST(coalesce(:value, 0) AS DOUBLE)
        )
    )
""")
# Java's text of a number as DuckDB writes it: an exponent below -4 or above 15 is shown, and no other.
_DOUBLE = _spark("""
    CASE
        WHEN NOT contains(:raw, 'E') THEN :raw
        WHEN CAST(substring_index(:raw, 'E', -1) AS INT) BETWEEN -4 AND 15 THEN
            regexp_replace(
                regexp_replace(CAST(CAST(:raw AS DECIMAL(38,21)) AS STRING), '0+$', ''), '[.]$', '.0'
            )
        ELSE concat(
            regexp_replace(substring_index(:raw, 'E', 1), '[.]0$', ''),
            'e',
            format_string('%+03d', CAST(substring_index(:raw, 'E', -1) AS INT))
        )
    END
""")
# A day, or a time, whose year may have more than four digits, or be before Christ.
_YEAR = _spark("""
    CASE
        WHEN startswith(:raw, '-') OR startswith(:raw, '0000') THEN concat(
            format_string('%04d', CAST(regexp_extract(:raw, :date, 1) AS INT) + 1),
            regexp_extract(:raw, :date, 2),
            ' (BC)',
            regexp_extract(:raw, :date, 3)
        )
        WHEN startswith(:raw, '+') THEN substring(:raw, 2)
        ELSE :raw
    END
""")
_BELOW_ONE = _spark("regexp_replace(:raw, '^(-?)0[.]', '$1.')")
_IN_UTC = _spark("(:year || '+00')")
_HASH = _spark("md5(concat('=', :text))")
# The upper 31 bits of an MD5, read as a number whose last byte comes first.
_LAST = _spark("CAST(conv(substring(:digits, 25, 8), 16, 10) AS BIGINT)")
_REVERSED = _spark("""
    shiftright(
        (
            shiftleft((:last & CAST(255 AS BIGINT)), 24)
            + shiftleft((:last & CAST(65280 AS BIGINT)), 8)
            + (shiftright(:last, 8) & CAST(65280 AS BIGINT))
            + shiftright(:last, 24)
        ),
        1
    )
""")
_CELL_OF_TEXT = _spark("coalesce(:number * CAST(:high AS BIGINT), CAST(0 AS BIGINT))")
_CELL_OF_NUMBER = _spark("""
    coalesce(
        (((:value & CAST(2147483647 AS BIGINT)) + CAST(1431655765 AS BIGINT)) * CAST(:high AS BIGINT))
        ^ (shiftright(:value, 31) * CAST(:low AS BIGINT)),
        CAST(0 AS BIGINT)
    )
""")
_PRODUCT = _spark("shiftright(line, 32) * (line & CAST(2147483647 AS BIGINT))")
# The sum of products of 62 bits and a sign, as text: in pieces of 21 bits, so that no BIGINT overflows before there are
# 2 ** 42 rows. The first piece has the sign.
_TOTAL = _spark("""
    CAST((
        CAST(coalesce(sum(shiftright(product, 42)), 0) AS DECIMAL(28,0)) * 4398046511104
        + CAST(coalesce(sum((shiftright(product, 21) & CAST(2097151 AS BIGINT))), 0) AS DECIMAL(28,0)) * 2097152
        + CAST(coalesce(sum((product & CAST(2097151 AS BIGINT))), 0) AS DECIMAL(28,0))
    ) AS STRING)
""")
_ROWS = _spark("count(*)")

_HASHED_CELL = _spark("coalesce(concat(octet_length(:text), ':', :text), '-')")
_HASHED_ROW = _spark("sha2(concat(:cells), 256)")
_LIST_OF_HASHES = _spark("collect_list(row_hash)")
_BUCKETS = template(
    """
    SELECT left(row_hash, 3) AS bucket, sha2(concat_ws('', :sorted), 256) AS rows_hash
    FROM :rows
    GROUP BY left(row_hash, 3)
    """,
    dialect="spark",
)


def bucket_hashes(relation: exp.Expr, types: Mapping[str, str]) -> exp.Select:
    """The SHA-256 of the sorted hashes of rows, for each of 4,096 buckets: for `release.rows_hash`."""
    cells = [(f"c{i}", name, type_) for i, (name, type_) in enumerate(types.items())]
    raw = _STAGE(values=[named(_raw(col(name), type_), cell) for cell, name, type_ in cells], rows=relation.copy())
    texts = [cast(col(cell), "STRING") if type_ in NUMBERS else _text(col(cell), type_) for cell, _, type_ in cells]
    spelled = [named(value, cell) for value, (cell, _, _) in zip(texts, cells, strict=True)]
    shown = _STAGE(values=spelled, rows=subquery(raw, "raw"))
    row_hash = _HASHED_ROW(cells=[_HASHED_CELL(text=col(cell)) for cell, _, _ in cells])
    hashed = _STAGE(values=[named(row_hash, "row_hash")], rows=subquery(shown, "shown"))
    in_order = anonymous("array_sort", _LIST_OF_HASHES())
    return _BUCKETS(sorted=in_order, rows=subquery(hashed, "hashed"))


@dataclass(frozen=True)
class HashedTexts:
    """Combinations of texts, each once, that are hashed and then joined to the rows: few enough to be sent to all
    executors."""

    combinations: exp.Expr
    nullable: Mapping[str, bool]  # by column, whether it may be NULL


def digest_query(relation: exp.Expr, types: Mapping[str, str], texts: Sequence[HashedTexts] = ()) -> exp.Select:
    """The rows of a relation, and its digest; ``texts`` are those that are not hashed with each row."""
    columns: list[tuple[exp.Expr, str, str]] = [(col(name), name, type_) for name, type_ in types.items()]
    if not texts:
        lines = _lines(relation, columns)
    else:
        once = frozenset[str]().union(*(one.nullable for one in texts))
        others = [(f"v{i}", name, type_) for i, (_, name, type_) in enumerate(columns) if name not in once]
        parts = [f"part{j}" for j, _ in enumerate(texts)]
        output = [named(col(name, "r"), value) for value, name, _ in others]
        output += [named(col("line", f"c{j}"), part) for j, part in enumerate(parts)]
        beside = _BESIDE(columns=output, rows=relation)
        for j, each in enumerate(texts):
            names = each.nullable
            hashed = _lines(each.combinations, [one for one in columns if one[1] in names], list(names))
            keys = [same(col(name, "r"), col(f"k{i}", f"c{j}"), null) for i, (name, null) in enumerate(names.items())]
            beside = beside.join(subquery(hashed, f"c{j}"), on=all_of(keys), copy=False)
        sent = anonymous("BROADCAST", *(col(f"c{j}") for j, _ in enumerate(texts)))
        beside.set("hint", exp.Hint(expressions=[sent]))
        own: list[tuple[exp.Expr, str, str]] = [(col(value), name, type_) for value, name, type_ in others]
        lines = _lines(subquery(beside, "beside"), own, parts=parts)
    product = _STAGE(values=[named(_PRODUCT(), "product")], rows=subquery(lines, "lines"))
    return _STAGE(values=[named(_ROWS(), "rows"), named(_TOTAL(), "digest")], rows=subquery(product, "rows"))


def _lines(
    relation: exp.Expr,
    columns: Sequence[tuple[exp.Expr, str, str]],
    keys: Sequence[str] = (),
    parts: Sequence[str] = (),
) -> exp.Select:
    """``line``: the number of a row, by its columns (their values, names and types), and by what is known as parts of
    it. Beside it ``k0``, ``k1`` .., its keys."""
    cells = [(f"c{i}", *one) for i, one in enumerate(columns)]
    numbers = [
        (cell, col(cell) if type_ in NUMBERS else _HASH(text=_text(col(cell), type_))) for cell, _, _, type_ in cells
    ]
    beside: list[exp.Expr] = [col(f"k{i}") for i, _ in enumerate(keys)]
    beside += map(col, parts)
    first: list[exp.Expr] = [named(col(key), f"k{i}") for i, key in enumerate(keys)]
    first += map(col, parts)
    raw = [*(named(_raw(value, type_), cell) for cell, value, _, type_ in cells), *first]
    hashed = [*(named(number, cell) for cell, number in numbers), *beside]
    own: list[exp.Expr] = [exp.Paren(this=_cell(col(cell), name, type_)) for cell, _, name, type_ in cells]
    own += map(col, parts)
    line = reduce(lambda left, right: exp.BitwiseXor(this=left, expression=right), own)
    rows = subquery(_STAGE(values=raw, rows=relation.copy()), "raw")
    rows = subquery(_STAGE(values=hashed, rows=rows), "hashed")
    return _STAGE(values=[named(line, "line"), *(col(f"k{i}") for i, _ in enumerate(keys))], rows=rows)


def is_digestible(type_: str) -> bool:
    """Whether a type of DuckDB's has a text in Spark that is the same.

    Numbers of 32 bits have none: DuckDB's text of a few of them has more digits than is needed.

    >>> [is_digestible(one) for one in ("VARCHAR", "DECIMAL(8,2)", "DOUBLE", "FLOAT", "INTEGER[]")]
    [True, True, True, False, False]
    """
    return type_ in (*NUMBERS, "VARCHAR", "DOUBLE", *_TIMES) or _is_decimal(type_)


def _is_decimal(type_: str) -> bool:
    return type_.startswith("DECIMAL(") and type_.endswith(")")


def _raw(value: exp.Expr, type_: str) -> exp.Expr:
    """A value as Spark writes it. (What `reflect` gives is worked out once: a stage of its own.)"""
    if type_ == "DOUBLE":
        return _SHORTEST(value=value)
    if type_ in NUMBERS:
        return cast(value, "BIGINT")
    return value if type_ == "VARCHAR" else cast(value, "STRING")


def _text(raw: exp.Expr, type_: str) -> exp.Expr:
    """The same as DuckDB writes it."""
    if type_ == "DOUBLE":
        plain = _DOUBLE(raw=raw)
        special = [exp.If(this=raw.eq(text(one)), true=text(ours)) for one, ours in _SPECIAL.items()]
        plain.set("ifs", [*special, *plain.args["ifs"]])
        return plain
    if _is_decimal(type_):
        width, scale = type_.removeprefix("DECIMAL(").removesuffix(")").split(",")
        return _BELOW_ONE(raw=raw) if int(width) == int(scale) else raw
    if type_ not in _TIMES:
        return raw
    year = _YEAR(raw=raw, date=_DATE)
    return _IN_UTC(year=year) if type_ == "TIMESTAMP WITH TIME ZONE" else year


def _cell(value: exp.Expr, name: str, type_: str) -> exp.Expr:
    """A cell's number, of an integer or of the digits of its text's MD5."""
    high, low = column_multipliers(name)
    if type_ in NUMBERS:
        return _CELL_OF_NUMBER(value=value, high=high, low=low)
    return _CELL_OF_TEXT(number=_REVERSED(last=_LAST(digits=value)), high=high)
