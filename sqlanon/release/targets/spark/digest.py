"""Content digests in Spark SQL. The digest of rows equals that of ``sqlanon.digest`` in DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce

from sqlglot import exp

from sqlanon.release.digests import INTEGER_TYPES, column_multipliers
from sqlanon.support.expressions import (
    aliased,
    all_of,
    anonymous,
    as_column,
    cast,
    col,
    fragment,
    null_safe_equal,
    select,
    subquery,
    template,
    text,
)

_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")

_SPECIAL_NUMBERS = {
    **{"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"},
    # Java writes at least two digits.
    **{"4.9E-324": "5e-324", "-4.9E-324": "-5e-324", "9.9E-324": "1e-323", "-9.9E-324": "-1e-323"},
}
"""DuckDB's text of a number by Java's, where no rule converts it."""

_DATE_PATTERN = r"^-?([0-9]+)(-[0-9][0-9]-[0-9][0-9])(.*)$"

_spark = partial(fragment, dialect="spark")

# Jackson is part of every Spark; Java's own text of a number has superfluous digits before Java 19. The method fails on
# NULL.
_SHORTEST_DOUBLE = _spark("""
    if(
        :value IS NULL,
        NULL,
        reflect(
            'com.fasterxml.jackson.core.io.schubfach.DoubleToDecimal', 'toString', CAST(coalesce(:value, 0) AS DOUBLE)
        )
    )
""")
# DuckDB writes an exponent only below -4 or above 15.
_DOUBLE_TEXT = _spark("""
    CASE
        WHEN NOT contains(:java_text, 'E') THEN :java_text
        WHEN CAST(substring_index(:java_text, 'E', -1) AS INT) BETWEEN -4 AND 15 THEN
            regexp_replace(
                regexp_replace(CAST(CAST(:java_text AS DECIMAL(38,21)) AS STRING), '0+$', ''), '[.]$', '.0'
            )
        ELSE concat(
            regexp_replace(substring_index(:java_text, 'E', 1), '[.]0$', ''),
            'e',
            format_string('%+03d', CAST(substring_index(:java_text, 'E', -1) AS INT))
        )
    END
""")
# The year of a date or time may have more than four digits, or be before Christ.
_TIME_TEXT = _spark("""
    CASE
        WHEN startswith(:spark_text, '-') OR startswith(:spark_text, '0000') THEN concat(
            format_string('%04d', CAST(regexp_extract(:spark_text, :date, 1) AS INT) + 1),
            regexp_extract(:spark_text, :date, 2),
            ' (BC)',
            regexp_extract(:spark_text, :date, 3)
        )
        WHEN startswith(:spark_text, '+') THEN substring(:spark_text, 2)
        ELSE :spark_text
    END
""")
_FRACTION_TEXT = _spark("regexp_replace(:spark_text, '^(-?)0[.]', '$1.')")
_UTC_TEXT = _spark("(:time_text || '+00')")

_TEXT_HASH = _spark("md5(concat('=', :text))")
_LAST_BYTES = _spark("CAST(conv(substring(:hash, 25, 8), 16, 10) AS BIGINT)")
# The upper 31 bits of an MD5 whose bytes are read from the last to the first, times N.
_TEXT_CELL = _spark("""
    coalesce(
        shiftright(
            (
                shiftleft((:last & CAST(255 AS BIGINT)), 24)
                + shiftleft((:last & CAST(65280 AS BIGINT)), 8)
                + (shiftright(:last, 8) & CAST(65280 AS BIGINT))
                + shiftright(:last, 24)
            ),
            1
        ) * CAST(:high AS BIGINT),
        CAST(0 AS BIGINT)
    )
""")
_INTEGER_CELL = _spark("""
    coalesce(
        (((:value & CAST(2147483647 AS BIGINT)) + CAST(1431655765 AS BIGINT)) * CAST(:high AS BIGINT))
        ^ (shiftright(:value, 31) * CAST(:low AS BIGINT)),
        CAST(0 AS BIGINT)
    )
""")
# The sum of signed products of 62 bits. Each is summed in pieces of 21 bits, so that no BIGINT overflows below 2 ** 42
# rows; the first piece has the sign.
_DIGEST = template(
    """
    SELECT
        count(*) AS rows,
        CAST((
            CAST(coalesce(sum(shiftright(product, 42)), 0) AS DECIMAL(28,0)) * 4398046511104
            + CAST(coalesce(sum((shiftright(product, 21) & CAST(2097151 AS BIGINT))), 0) AS DECIMAL(28,0)) * 2097152
            + CAST(coalesce(sum((product & CAST(2097151 AS BIGINT))), 0) AS DECIMAL(28,0))
        ) AS STRING) AS digest
    FROM (
        SELECT shiftright(line, 32) * (line & CAST(2147483647 AS BIGINT)) AS product
        FROM :lines AS lines
    ) AS products
    """,
    dialect="spark",
)

_LENGTH_AND_TEXT = _spark("coalesce(concat(octet_length(:text), ':', :text), '-')")
_BUCKET_HASHES = template(
    """
    SELECT left(row_hash, 3) AS bucket, sha2(concat_ws('', :sorted_hashes), 256) AS rows_hash
    FROM (SELECT sha2(concat(:cells), 256) AS row_hash FROM :texts AS texts) AS hashed
    GROUP BY left(row_hash, 3)
    """,
    dialect="spark",
)


def bucket_hashes(relation: exp.Expr, types: Mapping[str, str]) -> exp.Select:
    """The SHA-256 of the sorted row hashes of each of 4,096 buckets, for `sqlanon.release.digests.hash_buckets`."""
    cells = [(f"c{i}", name, type_) for i, (name, type_) in enumerate(types.items())]
    values = select([as_column(_spark_value(col(name), type_), cell) for cell, name, type_ in cells], relation.copy())
    duckdb_texts = (
        cast(col(cell), "STRING") if type_ in INTEGER_TYPES else _duckdb_text(col(cell), type_)
        for cell, _, type_ in cells
    )
    texts = select(
        [as_column(value, cell) for value, (cell, _, _) in zip(duckdb_texts, cells, strict=True)],
        subquery(values, "raw"),
    )
    return _BUCKET_HASHES(
        sorted_hashes=anonymous("array_sort", _spark("collect_list(row_hash)")()),
        cells=[_LENGTH_AND_TEXT(text=col(cell)) for cell, _, _ in cells],
        texts=texts,
    )


def digest_query(
    relation: exp.Expr,
    types: Mapping[str, str],
    groups: Sequence[Sequence[str]] = (),
    combinations: exp.Expr | None = None,
) -> exp.Select:
    """Count the rows of a relation and compute their digest: one row, ``rows`` and ``digest``.

    Each combination of the texts of a group of columns is hashed once, and joined to the rows. The combinations must be
    few enough to send them to all executors.
    """
    rows, hashed_columns = exp.Select().from_(aliased(relation, "r"), copy=False), set[str]()
    for j, group in enumerate(groups):
        assert combinations is not None
        texts = select([col(name) for name in group], combinations.copy()).distinct(copy=False)
        numbers = _row_numbers(
            exp.Select().from_(subquery(texts, "r"), copy=False), {name: types[name] for name in group}, keys=group
        )
        on = all_of(null_safe_equal(col(name, "r"), col(f"k{i}", f"h{j}")) for i, name in enumerate(group))
        rows = rows.join(subquery(numbers, f"h{j}"), on=on, copy=False)
        hashed_columns.update(group)
    if groups:
        rows.set("hint", exp.Hint(expressions=[anonymous("BROADCAST", *(col(f"h{j}") for j, _ in enumerate(groups)))]))
    row_types = {name: type_ for name, type_ in types.items() if name not in hashed_columns}
    return _DIGEST(lines=_row_numbers(rows, row_types, groups=len(groups)))


def _row_numbers(rows: exp.Select, types: Mapping[str, str], keys: Sequence[str] = (), groups: int = 0) -> exp.Select:
    """Compute ``line``, the number of each row: the XOR of the numbers of its values, and of those of joined groups.

    ``rows`` is a query of the relation ``r``, without columns. The key columns are returned as ``k0``, ``k1``, ...
    """
    cells = {f"c{i}": (name, type_) for i, (name, type_) in enumerate(types.items())}
    lines, key_names = [f"line{j}" for j in range(groups)], [f"k{i}" for i, _ in enumerate(keys)]
    # One stage each: Spark would evaluate `reflect` again for every use of its result in the same stage.
    raw = rows.select(
        *(as_column(_spark_value(col(name, "r"), type_), cell) for cell, (name, type_) in cells.items()),
        *(as_column(col(key, "r"), name) for key, name in zip(keys, key_names, strict=True)),
        *(as_column(col("line", f"h{j}"), line) for j, line in enumerate(lines)),
        copy=False,
    )
    hashed = select(
        [
            *(as_column(_integer_or_hash(col(cell), type_), cell) for cell, (_, type_) in cells.items()),
            *map(col, [*key_names, *lines]),
        ],
        subquery(raw, "raw"),
    )
    numbers = [exp.Paren(this=_cell_number(col(cell), name, type_)) for cell, (name, type_) in cells.items()]
    line = reduce(lambda left, right: exp.BitwiseXor(this=left, expression=right), [*numbers, *map(col, lines)])
    return select([as_column(line, "line"), *map(col, key_names)], subquery(hashed, "hashed"))


def is_digestible(type_: str) -> bool:
    """Whether Spark can write the values of a DuckDB type as DuckDB does.

    Not FLOAT: DuckDB's text of some values has superfluous digits.

    >>> [is_digestible(type_) for type_ in ("VARCHAR", "DECIMAL(8,2)", "DOUBLE", "FLOAT", "INTEGER[]")]
    [True, True, True, False, False]
    """
    return type_ in (*INTEGER_TYPES, "VARCHAR", "DOUBLE", *_TIMES) or _is_decimal(type_)


def _is_decimal(type_: str) -> bool:
    return type_.startswith("DECIMAL(") and type_.endswith(")")


def _spark_value(value: exp.Expr, type_: str) -> exp.Expr:
    """An integer as BIGINT, any other value as Spark's text of it."""
    if type_ == "DOUBLE":
        return _SHORTEST_DOUBLE(value=value)
    if type_ in INTEGER_TYPES:
        return cast(value, "BIGINT")
    return value if type_ == "VARCHAR" else cast(value, "STRING")


def _duckdb_text(spark_text: exp.Expr, type_: str) -> exp.Expr:
    """DuckDB's text of a value by Spark's."""
    if type_ == "DOUBLE":
        number_text = _DOUBLE_TEXT(java_text=spark_text)
        special = [
            exp.If(this=spark_text.eq(text(java_text)), true=text(duckdb_text))
            for java_text, duckdb_text in _SPECIAL_NUMBERS.items()
        ]
        number_text.set("ifs", [*special, *number_text.args["ifs"]])
        return number_text
    if _is_decimal(type_):
        width, scale = type_.removeprefix("DECIMAL(").removesuffix(")").split(",")
        return _FRACTION_TEXT(spark_text=spark_text) if int(width) == int(scale) else spark_text
    if type_ not in _TIMES:
        return spark_text
    time_text = _TIME_TEXT(spark_text=spark_text, date=_DATE_PATTERN)
    return _UTC_TEXT(time_text=time_text) if type_ == "TIMESTAMP WITH TIME ZONE" else time_text


def _integer_or_hash(value: exp.Expr, type_: str) -> exp.Expr:
    return value if type_ in INTEGER_TYPES else _TEXT_HASH(text=_duckdb_text(value, type_))


def _cell_number(integer_or_hash: exp.Expr, name: str, type_: str) -> exp.Expr:
    high, low = column_multipliers(name)
    if type_ in INTEGER_TYPES:
        return _INTEGER_CELL(value=integer_or_hash, high=high, low=low)
    return _TEXT_CELL(last=_LAST_BYTES(hash=integer_or_hash), high=high)
