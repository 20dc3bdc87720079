"""CSV files: how to read them.

The engine's sniffer says how the files are written; then everything is spelled out, so that a column of codes
(02139) stays text, and so that the names in the file are seen before anything renames them.

To sniff a whole file takes longer than to read it. So the first rows tell the types, and the one pass that copies a
file holds every value against them. Where one does not fit (a late 1.5 in a column of whole numbers would be rounded
in silence, a late 02139 would lose its zero), the files are sniffed as a whole and read again: the answer is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.expressions import (
    anonymous,
    cast,
    col,
    create_table,
    drop_table,
    ident,
    is_there,
    literal_path,
    named,
    select,
    star,
    subquery,
    text,
    union_all,
)
from sqlanon.policy.databases import shown_name
from sqlanon.records import dataclass
from sqlanon.sources.plain import refuse_ambiguous
from sqlanon.sources.united import refuse_different_columns

_WHOLE_FILE = -1
_SAMPLE = 4096  # rows: to sniff more takes longer than to read a small file
_FIRST = 2048  # rows that are surely in the sample

_INTEGER = "-?(0|[1-9][0-9]{0,%d})"
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?"
_PLAIN = {
    "BOOLEAN": "(?i)true|false",
    "BIGINT": _INTEGER % 17,
    "HUGEINT": _INTEGER % 36,
    "DOUBLE": _INTEGER % 300 + "([.][0-9]+)?([eE][-+]?[0-9]+)?",
    "DATE": _DAY,
    "TIME": _CLOCK,
    "TIMESTAMP": f"{_DAY}([ T]{_CLOCK})?",
}
"""How values of a type are spelled that are of it wherever they stand in a file. There are other spellings, too."""


@dataclass(frozen=True)
class Layout:
    options: Mapping[str, str | bool | int]  # what ``read_csv`` is told
    columns: Mapping[str, str]  # the type of each column by its name, in order
    orders: Mapping[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)  # the files, by order of columns


def copy_csv(
    engine: DuckDBEngine, paths: list[str], text_columns: Collection[str], wanted: Collection[str], target: exp.Table
) -> Layout:
    """Copy CSV files of one layout to a table, in one pass if their first rows are like the others.

    Where no value of the first rows is quoted, ``"`` is taken for the quote: a later ``'x'`` keeps its apostrophes.
    """
    try:
        layout = _copy_by_sample(engine, paths, text_columns, wanted, target)
    except (duckdb.ConversionException, duckdb.InvalidInputException):
        layout = None  # the first rows misled, or the files are broken: then the sniffer knows more
    if layout is None:
        layout = _layout([_sniff(engine, path, sample_size=_WHOLE_FILE) for path in paths], paths, text_columns)
        output: list[exp.Expr] = [col(name) for name in _wanted(layout, wanted)]
        engine.execute(create_table(target.copy(), _united(layout, output)))
    return layout


def read_every_column(layout: Layout, wanted: Collection[str]) -> exp.Query | None:
    """The query that reads CSV files again with all columns, those that were not copied as text; None where all were
    copied."""
    copied = set(_wanted(layout, wanted))
    if len(copied) == len(layout.columns):
        return None
    types = {name: type_ if name in copied else "VARCHAR" for name, type_ in layout.columns.items()}
    return _united(replace(layout, columns=types), [col(name) for name in types])


def scan_csv(engine: DuckDBEngine, paths: list[str], text_columns: Collection[str]) -> exp.Query:
    """The query that would read CSV files, by their first rows alone: it is for its columns."""
    layout = _layout([_sniff(engine, path) for path in paths], paths, text_columns)
    return _united(layout, [col(name) for name in layout.columns])


def _copy_by_sample(
    engine: DuckDBEngine, paths: list[str], text_columns: Collection[str], wanted: Collection[str], target: exp.Table
) -> Layout | None:
    """As `copy_csv`, by the first rows; None, and no table, where they do not tell enough."""
    sniffed = [_sniff(engine, path, sample_size=_SAMPLE) for path in paths]
    layout = _layout(sniffed, paths, text_columns)
    same_types = all(_by_lower(one.columns) == _by_lower(sniffed[0].columns) for one in sniffed)
    if not same_types or not {"VARCHAR", *_PLAIN}.issuperset(layout.columns.values()):
        return None
    quote = layout.options["quote"] or '"'  # there may be quotes later
    layout = replace(layout, options={**layout.options, "quote": quote, "escape": layout.options["escape"] or quote})
    names = _wanted(layout, wanted)
    engine.execute(create_table(target.copy(), _checked(layout, names)))
    free = [name for name in names if layout.columns[name] == "VARCHAR" and name.lower() not in text_columns]
    if _have_values(engine, target, free):
        return layout
    engine.execute(drop_table(target.copy()))
    return None


def _wanted(layout: Layout, wanted: Collection[str]) -> list[str]:
    return [name for name in layout.columns if name.lower() in wanted] or list(layout.columns)


def _checked(layout: Layout, names: list[str]) -> exp.Query:
    """The query that reads columns as text and casts them, and fails at a value that is not plainly of its type."""
    checked = {name for name in names if _is_checked(layout, name)}
    as_text = {name: "VARCHAR" if name in checked else type_ for name, type_ in layout.columns.items()}
    output = [_plain_only(name, layout.columns[name]) if name in checked else col(name) for name in names]
    return _united(replace(layout, columns=as_text), output)


def _is_checked(layout: Layout, name: str) -> bool:
    type_ = layout.columns[name]
    # With a format of their own, the reader itself refuses all others.
    formats = {"DATE": "dateformat", "TIMESTAMP": "timestampformat"}
    return type_ != "VARCHAR" and formats.get(type_) not in layout.options


def _plain_only(name: str, type_: str) -> exp.Expr:
    plain = anonymous("regexp_full_match", col(name), text(_PLAIN[type_]))
    strange = is_there(col(name))
    cases = [exp.If(this=plain, true=cast(col(name), type_)), exp.If(this=strange, true=anonymous("error", text("")))]
    return named(exp.Case(ifs=cases), name)


def _have_values(engine: DuckDBEngine, target: exp.Table, names: list[str]) -> bool:
    """Whether each column has a value in the first rows: where it has none, they tell nothing of its type."""
    if not names:
        return True
    first = star(target.copy()).limit(_FIRST, copy=False)
    counts = engine.rows(select([exp.Count(this=col(name)) for name in names], subquery(first, "f")))[0]
    return all(counts)


def _layout(sniffed: list[Layout], paths: list[str], text_columns: Collection[str]) -> Layout:
    """The layout of all files: columns are matched by name, and those of several types are text."""
    refuse_different_columns([(path, dict.fromkeys(one.columns)) for path, one in zip(paths, sniffed, strict=True)])
    names = {name.lower(): name for name in sniffed[0].columns}
    types, orders = dict(sniffed[0].columns), dict[tuple[str, ...], tuple[str, ...]]()
    for path, file_layout in zip(paths, sniffed, strict=True):
        order = tuple(names[name.lower()] for name in file_layout.columns)
        orders[order] = (*orders.get(order, ()), path)
        for name, type_ in zip(order, file_layout.columns.values(), strict=True):
            if types[name] != type_ or name.lower() in text_columns:
                types[name] = "VARCHAR"
    return Layout(sniffed[0].options, types, orders)


def _by_lower(columns: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): type_ for name, type_ in columns.items()}


def _united(layout: Layout, output: list[exp.Expr]) -> exp.Query:
    """The rows of all files: each is read in the order of its own columns."""
    parts = [
        (list(paths), replace(layout, columns={name: layout.columns[name] for name in order}))
        for order, paths in layout.orders.items()
    ]
    return union_all(*(select([one.copy() for one in output], _read(paths, part)) for paths, part in parts))


def _sniff(engine: DuckDBEngine, path: str, **options: int) -> Layout:
    call = anonymous("sniff_csv", literal_path(path), *_named_arguments(options))
    names = (
        "Delimiter", "Quote", "Escape", "NewLineDelimiter", "Comment", "SkipRows", "HasHeader", "Columns",
        "DateFormat", "TimestampFormat",
    )  # fmt: skip
    query = select([exp.Column(this=ident(name)) for name in names], exp.Table(this=call))
    delimiter, quote, escape, newline, comment, skip, header, columns, date, timestamp = engine.rows(query)[0]
    written: dict[str, str | bool | int] = {
        "delim": delimiter, "quote": _given(quote), "escape": _given(escape), "comment": _given(comment),
        "skip": int(skip), "header": bool(header),
    }  # fmt: skip
    if newline in ("\\n", "\\r\\n", "\\r"):
        written["new_line"] = newline
    written |= {name: value for name, value in (("dateformat", date), ("timestampformat", timestamp)) if value}
    types = {column["name"]: column["type"] for column in columns}
    if header:
        _refuse_ambiguous_header(engine, path, written, len(types))
    return Layout(written, types)


def _given(value: str | None) -> str:
    return "" if value in (None, "(empty)") else value or ""


def _refuse_ambiguous_header(engine: DuckDBEngine, path: str, written: dict[str, str | bool | int], width: int) -> None:
    """Read the header line as data: a scan renames columns that differ in case only."""
    options = {**written, "header": False}
    options.pop("dateformat", None)
    options.pop("timestampformat", None)
    plain = Layout(options, {f"c{i}": "VARCHAR" for i in range(width)})
    names = [name or "" for name in engine.rows(star(_read([path], plain)).limit(1))[0]]
    refuse_ambiguous(names, shown_name(path))


def _read(paths: list[str], layout: Layout) -> exp.Table:
    columns = exp.Struct(
        expressions=[exp.PropertyEQ(this=ident(name), expression=text(type_)) for name, type_ in layout.columns.items()]
    )
    arguments = [
        exp.Array(expressions=[literal_path(path) for path in paths]),
        *_named_arguments({"auto_detect": False, "hive_partitioning": False, **layout.options}),
        exp.Var(this="columns").eq(columns),
    ]
    return exp.Table(this=anonymous("read_csv", *arguments))


def _named_arguments(options: Mapping[str, str | bool | int]) -> list[exp.Expr]:
    return [exp.Var(this=name).eq(exp.convert(value)) for name, value in options.items()]
