"""A text form of values, and hashes of texts, that are the same in DuckDB, PostgreSQL and Spark."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase

from sqlglot import exp

from sqlanon.engines.dialects.postgres import catalog_function, collate_bytewise
from sqlanon.engines.values import strip_white_space
from sqlanon.support.expressions import anonymous, cast, fragment, number, text

TEXT_TYPES = {"duckdb": "VARCHAR", "postgres": "TEXT", "spark": "STRING"}
"""The dialects with this text form, and their type of texts."""

_GROUP_REFERENCES = {"duckdb": r"\{}", "postgres": r"\{}", "spark": "${}"}
_BYTE_LENGTHS = {"duckdb": "strlen", "spark": "octet_length"}

HEX_FROM = 17
"""The position of the first MD5 digit of the 64 bits that are kept."""

_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_MAX_EXACT_INTEGER = 10**15

_REWRITES = (
    ("^[+]?(-?)0*([0-9]+)([.]0*)?$", (1, 2)),  # a whole number
    ("^[+]?(-?)0*([0-9]+[.][0-9]*[1-9])0*$", (1, 2)),  # a decimal number
    ("^[{]?([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})[}]?$", (1, 2, 3, 4, 5)),  # a UUID
    ("^([0-9]{4}-[0-9]{2}-[0-9]{2})[ t]00:00:00([.]0+)?$", (1,)),  # a day
)


def canonical_text(value: exp.Expr, type_: str, dialect: str) -> exp.Expr:
    """A value of one of DuckDB's types as a text that is the same in every engine."""
    plain = cast(value.copy(), TEXT_TYPES[dialect])
    if type_ in _WHOLE:
        return plain
    if type_ in ("FLOAT", "DOUBLE"):
        whole = cast(cast(value.copy(), "BIGINT"), TEXT_TYPES[dialect])
        return fragment("CASE WHEN :value = floor(:value) AND abs(:value) < :largest THEN :whole ELSE :plain END")(
            value=value, largest=_MAX_EXACT_INTEGER, whole=whole, plain=plain
        )
    word = _in_lower_case(strip_white_space(_bytewise(plain, dialect)), dialect)
    for pattern, groups in _REWRITES:
        word = rewrite_text(word, pattern, groups, dialect)
    return _bytewise(word, dialect)


def _in_lower_case(word: exp.Expr, dialect: str) -> exp.Expr:
    """ASCII letters in lower case: engines differ on other letters."""
    if dialect == "postgres":
        return catalog_function("lower", collate_bytewise(word))
    # Translating takes ten times as long.
    return fragment("CASE WHEN :bytes = :length THEN :lower ELSE :translated END")(
        bytes=anonymous(_BYTE_LENGTHS[dialect], word.copy()),
        length=anonymous("length", word.copy()),
        lower=anonymous("lower", word.copy()),
        translated=anonymous("translate", word.copy(), text(ascii_uppercase), text(ascii_lowercase)),
    )


def rewrite_text(word: exp.Expr, pattern: str, groups: Sequence[int], dialect: str) -> exp.Expr:
    """Replace a match of a regular expression by some of its groups."""
    replacement = "".join(_GROUP_REFERENCES[dialect].format(group) for group in groups)
    return _call(dialect, "regexp_replace", word, text(pattern), text(replacement))


def hash_text(value: exp.Expr, key: exp.Expr, dialect: str) -> exp.Expr:
    """The MD5 digits of a text with a key, 64 bits."""
    message = exp.DPipe(this=key.copy(), expression=exp.DPipe(this=text(":"), expression=value))
    return _bytewise(_call(dialect, "substr", _call(dialect, "md5", message), number(HEX_FROM)), dialect)


def _call(dialect: str, function: str, *arguments: exp.Expr) -> exp.Expr:
    return catalog_function(function, *arguments) if dialect == "postgres" else anonymous(function, *arguments)


def _bytewise(word: exp.Expr, dialect: str) -> exp.Expr:
    return collate_bytewise(word) if dialect == "postgres" else word
