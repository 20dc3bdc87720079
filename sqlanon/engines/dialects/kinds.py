"""What kind of value an expression has, as far as it can be told without the types of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

from sqlglot import exp

ValueKind: TypeAlias = Literal["whole", "double", "decimal", "text", "date", "boolean", "null"]
"""``whole``: an integer of any width. ``double``: a binary floating point number."""

INTEGER_TYPES = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "INT", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
)
"""DuckDB's types of integers."""

_BY_TYPE: dict[str, ValueKind] = {
    **dict.fromkeys(INTEGER_TYPES, "whole"),
    "FLOAT": "double",
    "DOUBLE": "double",
    "VARCHAR": "text",
    "TEXT": "text",
    "DATE": "date",
    "BOOLEAN": "boolean",
}
_ALWAYS: dict[type[exp.Expr], ValueKind] = {
    **dict.fromkeys((exp.Count, exp.RowNumber, exp.DenseRank, exp.ApproxDistinct), "whole"),
    **dict.fromkeys((exp.Div, exp.Ln, exp.Exp, exp.Sqrt, exp.Pow, exp.Avg), "double"),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.Not, exp.And, exp.Or), "boolean"),
    exp.Boolean: "boolean",
    exp.Null: "null",
    exp.DPipe: "text",
}
_DOUBLE_FUNCTIONS = frozenset({"LOG2", "RANDOM", "LIST_SUM"})


def is_nested(type_: str) -> bool:
    """Whether a type of DuckDB's has values within values: lists and the like.

    >>> [is_nested(one) for one in ("DECIMAL(8,2)", "INTEGER[]", "STRUCT(b DATE)")]
    [False, True, True]
    """
    return type_.endswith("]") or type_.startswith(("STRUCT(", "MAP(", "UNION(", "TUPLE(", "VARIANT"))


class ValueKinds:
    def __init__(self) -> None:
        self._known: dict[int, ValueKind | None] = {}
        self._kept: list[exp.Expr] = []  # so that no other node gets the number of one that is gone

    def of(self, node: exp.Expr | None) -> ValueKind | None:
        return None if node is None else self._known.get(id(node))

    def put(self, node: exp.Expr, kind: ValueKind | None) -> None:
        self._known[id(node)] = kind
        self._kept.append(node)

    def replaced(self, old: exp.Expr, new: exp.Expr) -> None:
        self.put(new, self.of(old))


def value_kinds(nodes: Sequence[exp.Expr]) -> ValueKinds:
    """The kinds of nodes, which stand behind those that they are parts of."""
    kinds = ValueKinds()
    for node in reversed(nodes):
        kinds.put(node, _kind(node, kinds))
    return kinds


def cast_type(node: exp.Cast) -> str:
    """The type that a cast is to, in DuckDB's spelling.

    >>> from sqlanon.support.expressions import cast, col
    >>> cast_type(cast(col("x"), "DECIMAL(8,2)"))
    'DECIMAL(8,2)'
    """
    return node.to.sql("duckdb").upper().replace(", ", ",")


def _kind(node: exp.Expr, kinds: ValueKinds) -> ValueKind | None:
    rule = _RULES.get(type(node))
    return _ALWAYS.get(type(node)) if rule is None else rule(node, kinds)


def _of_literal(node: exp.Expr, kinds: ValueKinds) -> ValueKind | None:
    if node.args.get("is_string"):
        return "text"
    if node.name.isdigit():
        return "whole"
    # Beside a DOUBLE it becomes one, and is written as one; a cast takes it for the decimal that it is.
    is_decimal = "e" not in node.name.lower() and isinstance(node.parent, exp.Cast)
    return "decimal" if is_decimal else "double"


def _of_cast(node: exp.Expr, kinds: ValueKinds) -> ValueKind | None:
    assert isinstance(node, exp.Cast)
    type_ = cast_type(node)
    return "decimal" if type_.startswith("DECIMAL") else _BY_TYPE.get(type_)


def _of_part(node: exp.Expr, kinds: ValueKinds) -> ValueKind | None:
    return "double" if node.args.get("decimals") else kinds.of(node.this)


def _of_sum(node: exp.Expr, kinds: ValueKinds) -> ValueKind | None:
    return "whole" if isinstance(node.this, exp.Column) else kinds.of(node.this)  # a column that is added up: counts


def _of_choice(node: exp.Expr, kinds: ValueKinds) -> ValueKind | None:
    ends = [node.args.get(name) for name in ("true", "false", "default")]
    parts = [*node.args.get("ifs", ()), *node.expressions, *(end for end in ends if end is not None)]
    if isinstance(node, (exp.Coalesce, exp.Nullif)):
        parts.append(node.this)
    return _together(map(kinds.of, parts))


def _of_call(node: exp.Expr, kinds: ValueKinds) -> ValueKind | None:
    name = node.name.upper()
    return _of_choice(node, kinds) if name in ("GREATEST", "LEAST") else "double" if name in _DOUBLE_FUNCTIONS else None


def _of_arithmetic(node: exp.Expr, kinds: ValueKinds) -> ValueKind | None:
    left, right = kinds.of(node.this), kinds.of(node.expression)
    if "date" in (left, right):
        return ("whole" if left == right else "date") if isinstance(node, (exp.Add, exp.Sub)) else None
    if "double" in (left, right):
        return "double"
    return "whole" if left == right == "whole" else None


def _together(parts: Iterable[ValueKind | None]) -> ValueKind | None:
    found = set(parts) - {"null"}
    if found == {"whole", "double"}:
        return "double"
    return found.pop() if len(found) == 1 else None


_RULES: dict[type[exp.Expr], Callable[[exp.Expr, ValueKinds], ValueKind | None]] = {
    **dict.fromkeys((exp.Cast, exp.TryCast), _of_cast),
    **dict.fromkeys((exp.Paren, exp.Filter, exp.Window, exp.Neg, exp.Abs, exp.Min, exp.Max, exp.AnyValue), _of_part),
    **dict.fromkeys((exp.Round, exp.Ceil, exp.Floor), _of_part),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Mod), _of_arithmetic),
    **dict.fromkeys((exp.Coalesce, exp.Nullif, exp.If, exp.Case), _of_choice),
    exp.Literal: _of_literal,
    exp.Sum: _of_sum,
    exp.Anonymous: _of_call,
}
