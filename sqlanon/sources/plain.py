"""Plain columns: equality is what a reader sees, and a type carries nothing but its values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from sqlanon.engines.values import FLOATING, one_form
from sqlanon.errors import SourceError
from sqlanon.policy import PopulationSection, SourceSection
from sqlanon.support.expressions import anonymous, cast, col, ident, is_there, native_type, number, text

_NESTED = ("list", "array", "struct", "tuple", "map", "union")


def refuse_ambiguous(names: Sequence[str], where: str) -> None:
    """SQL does not tell names apart that differ in case only."""
    counts = Counter(name.lower() for name in names)
    if twice := [name for name in names if counts[name.lower()] > 1]:
        raise SourceError(
            f"{where}: columns {', '.join(map(repr, twice))} have the same name, or differ in case only; rename them"
        )


def refuse_query(section: SourceSection | PopulationSection) -> None:
    if section.query is not None:
        raise SourceError(
            "source.query: works in databases only, and this source is files or a data frame; leave it out"
        )


def types_here(own: Sequence[tuple[str, str, str | None]], wanted: Container[str], more: str = "") -> dict[str, str]:
    """DuckDB's types of another engine's columns, of which it has name, own type, and DuckDB's if there is an equal; of
    columns that are not wanted the engine's own."""
    refuse_ambiguous([name for name, _, _ in own], "the source")
    if strange := [f"{name!r} ({kind})" for name, kind, type_ in own if type_ is None and name.lower() in wanted]:
        raise SourceError(
            f"columns of types that DuckDB does not have: {', '.join(strange)}; cast them with query = ... under "
            f"[source]{more}"
        )
    return {name: type_ or kind for name, kind, type_ in own}


def plain_column(name: str, type_: DuckDBPyType) -> exp.Expr:
    """A column whose equality is what a reader sees, and which carries no dictionary."""
    return _plain(col(name), type_)


def fixed_column(name: str, type_: DuckDBPyType) -> exp.Expr:
    """The same, of the type that the column has now, whatever it gets later: what does not fit then is NULL."""
    return _plain(exp.TryCast(this=col(name), to=native_type(plain_type(type_))), type_)


def _plain(value: exp.Expr, type_: DuckDBPyType) -> exp.Expr:
    if type_.id in _NESTED:
        return _rebuilt(value, type_)
    plain = plain_type(type_)
    return one_form(value if plain == str(type_) else cast(value, plain), plain)


def plain_type(type_: DuckDBPyType) -> str:
    """The spelling of a type with VARCHAR for every ENUM, and every VARIANT, in it.

    A VARIANT takes 1, 1.0 and 1::TINYINT for equal, and keeps them apart: their texts differ.
    """
    if type_.id in ("enum", "variant"):
        return "VARCHAR"
    if type_.id == "null":
        return "INTEGER"
    return _plain_nested(type_) if type_.id in _NESTED else str(type_)


def _plain_nested(type_: DuckDBPyType) -> str:
    children = [(name, plain_type(child)) for name, child in _children(type_)]
    if type_.id == "list":
        return f"{children[0][1]}[]"
    if type_.id == "array":
        return f"{children[0][1]}[{dict(type_.children)['size']}]"
    if type_.id == "map" or _is_tuple(type_):
        return f"{type_.id.upper()}({', '.join(child for _, child in children)})"
    fields = [f"{ident(name).sql('duckdb')} {child}" for name, child in children]
    return f"{type_.id.upper()}({', '.join(fields)})"


def _children(type_: DuckDBPyType) -> list[tuple[str, Any]]:
    """The types in a nested one, with their names; the size of an array, and the tag of a UNION, are none."""
    children = list(type_.children)
    return children[:1] if type_.id == "array" else children[1:] if type_.id == "union" else children


def _is_tuple(type_: DuckDBPyType) -> bool:
    """Whether it is a struct whose fields have no names: DuckDB 2.0 has a type for these."""
    return type_.id == "tuple" or (type_.id == "struct" and type_.children[0][0] == "")


def _has_forms(type_: DuckDBPyType) -> bool:
    """Whether a type has values in it that come in several forms."""
    if type_.id in _NESTED:
        return any(_has_forms(child) for _, child in _children(type_))
    return type_.id in ("enum", "variant", "null") or str(type_) in (*FLOATING, "VARCHAR", "INTERVAL")


def _rebuilt(value: exp.Expr, type_: DuckDBPyType, depth: int = 0) -> exp.Expr:
    """A value, put together again from parts of one form."""
    if type_.id in _NESTED:
        return cast(_REBUILT[type_.id](value, type_, depth), plain_type(type_)) if _has_forms(type_) else value
    if str(type_) == "VARCHAR":
        # A list takes its collation from where its texts were first: COLLATE does not change that, other bytes do.
        return anonymous("decode", anonymous("encode", value))
    return _plain(value, type_)


def _rebuilt_list(value: exp.Expr, type_: DuckDBPyType, depth: int) -> exp.Expr:
    ((_, child),) = _children(type_)
    listed = value if type_.id == "list" else cast(value, f"{plain_type(child)}[]")
    return _transformed(listed, depth, lambda one: _rebuilt(one, child, depth + 1))


def _rebuilt_map(value: exp.Expr, type_: DuckDBPyType, depth: int) -> exp.Expr:
    (_, key), (_, own) = _children(type_)

    def entry(one: exp.Expr) -> exp.Expr:
        return _packed({"key": _part(one, "key", key, depth + 1), "value": _part(one, "value", own, depth + 1)})

    return anonymous("map_from_entries", _transformed(anonymous("map_entries", value), depth, entry))


def _rebuilt_struct(value: exp.Expr, type_: DuckDBPyType, depth: int) -> exp.Expr:
    children = _children(type_)
    if _is_tuple(type_):
        whole: exp.Expr = anonymous(
            "row", *(_part(value, place, child, depth) for place, (_, child) in enumerate(children, start=1))
        )
    else:
        whole = _packed({name: _part(value, name, child, depth) for name, child in children})
    return exp.Case(ifs=[exp.If(this=is_there(value.copy()), true=whole)])


def _rebuilt_union(value: exp.Expr, type_: DuckDBPyType, depth: int) -> exp.Expr:
    cases = []
    for name, child in _children(type_):
        own = _rebuilt(anonymous("union_extract", value.copy(), text(name)), child, depth)
        made = anonymous("union_value", exp.PropertyEQ(this=ident(name), expression=own))
        is_it = anonymous("union_tag", value.copy()).eq(text(name))
        cases.append(exp.If(this=is_it, true=cast(made, plain_type(type_))))
    return exp.Case(ifs=cases)


_REBUILT: Mapping[str, Callable[[exp.Expr, DuckDBPyType, int], exp.Expr]] = {
    "list": _rebuilt_list,
    "array": _rebuilt_list,
    "map": _rebuilt_map,
    "struct": _rebuilt_struct,
    "tuple": _rebuilt_struct,
    "union": _rebuilt_union,
}


def _part(value: exp.Expr, name: str | int, type_: DuckDBPyType, depth: int) -> exp.Expr:
    place = text(name) if isinstance(name, str) else number(name)
    return _rebuilt(anonymous("struct_extract", value.copy(), place), type_, depth)


def _packed(fields: Mapping[str, exp.Expr]) -> exp.Expr:
    return anonymous(
        "struct_pack", *(exp.PropertyEQ(this=ident(name), expression=value) for name, value in fields.items())
    )


def _transformed(values: exp.Expr, depth: int, body: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    one = f"x{depth}"
    function = exp.Lambda(this=body(exp.column(one)), expressions=[exp.to_identifier(one)], colon=True)
    return anonymous("list_transform", values, function)
