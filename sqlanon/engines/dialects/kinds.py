"""The kinds of values of expressions, as far as they are known without the types of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from sqlglot import exp

ValueKind: TypeAlias = Literal["whole", "double", "decimal", "text", "date", "boolean", "null"]
"""``whole``: an integer of any width. ``double``: a binary floating-point number."""

INTEGER_TYPES = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "INT", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
)
"""DuckDB's types of integers."""

_KIND_OF_TYPE: dict[str, ValueKind] = {
    **dict.fromkeys(INTEGER_TYPES, "whole"),
    **{"FLOAT": "double", "DOUBLE": "double", "VARCHAR": "text", "TEXT": "text", "DATE": "date", "BOOLEAN": "boolean"},
}
_KIND_OF_NODE: dict[type[exp.Expr], ValueKind] = {
    **dict.fromkeys((exp.Count, exp.RowNumber, exp.DenseRank, exp.ApproxDistinct, exp.IntDiv), "whole"),
    **dict.fromkeys((exp.Div, exp.Ln, exp.Exp, exp.Sqrt, exp.Pow, exp.Avg), "double"),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.Not, exp.And, exp.Or), "boolean"),
    **{exp.Boolean: "boolean", exp.Null: "null", exp.DPipe: "text"},
}


def is_nested(type_: str) -> bool:
    """Whether a DuckDB type has values within values, as lists do.

    >>> [is_nested(type_) for type_ in ("DECIMAL(8,2)", "INTEGER[]", "STRUCT(b DATE)")]
    [False, True, True]
    """
    return type_.endswith("]") or type_.startswith(("STRUCT(", "MAP(", "UNION(", "TUPLE(", "VARIANT"))


def cast_type(node: exp.Cast) -> str:
    """The target type of a cast, in DuckDB's spelling.

    >>> from sqlanon.support.expressions import cast, col
    >>> cast_type(cast(col("x"), "DECIMAL(8,2)"))
    'DECIMAL(8,2)'
    """
    return node.to.sql("duckdb").upper().replace(", ", ",")


class ValueKinds:
    """The kinds of nodes by identity, also of nodes that were replaced."""

    def __init__(self, nodes: Sequence[exp.Expr] = ()) -> None:
        """Visit nodes in pre-order."""
        # Nodes are retained, so that no new node gets the id of an old one.
        self._kinds: dict[int, tuple[exp.Expr, ValueKind | None]] = {}
        for node in reversed(nodes):
            rule = _RULES.get(type(node))
            self.set(node, _KIND_OF_NODE.get(type(node)) if rule is None else rule(node, self))

    def kind_of(self, node: exp.Expr | None) -> ValueKind | None:
        return self._kinds.get(id(node), (None, None))[1]

    def set(self, node: exp.Expr, kind: ValueKind | None) -> None:
        self._kinds[id(node)] = node, kind


def _literal_kind(node: exp.Expr, kinds: ValueKinds) -> ValueKind | None:
    if node.args.get("is_string"):
        return "text"
    if node.name.isdigit():
        return "whole"
    # In an expression with a DOUBLE, the literal is converted to DOUBLE; in a cast, it stays a decimal.
    return "decimal" if "e" not in node.name.lower() and isinstance(node.parent, exp.Cast) else "double"


def _cast_kind(node: exp.Expr, kinds: ValueKinds) -> ValueKind | None:
    assert isinstance(node, exp.Cast)
    type_ = cast_type(node)
    return "decimal" if type_.startswith("DECIMAL") else _KIND_OF_TYPE.get(type_)


def _choice_kind(node: exp.Expr, kinds: ValueKinds) -> ValueKind | None:
    """The common kind of the results of CASE, COALESCE and the like."""
    parts = [*node.args.get("ifs", ()), *node.expressions, *map(node.args.get, ("true", "false", "default"))]
    if isinstance(node, (exp.Coalesce, exp.Nullif)):
        parts.append(node.this)
    part_kinds = {kinds.kind_of(part) for part in parts if part is not None} - {"null"}
    if part_kinds == {"whole", "double"}:
        return "double"
    return part_kinds.pop() if len(part_kinds) == 1 else None


def _call_kind(node: exp.Expr, kinds: ValueKinds) -> ValueKind | None:
    name = node.name.upper()
    if name in ("GREATEST", "LEAST"):
        return _choice_kind(node, kinds)
    return "double" if name in ("LOG2", "RANDOM", "LIST_SUM") else None


def _arithmetic_kind(node: exp.Expr, kinds: ValueKinds) -> ValueKind | None:
    left, right = kinds.kind_of(node.this), kinds.kind_of(node.expression)
    if "date" in (left, right):
        return ("whole" if left == right else "date") if isinstance(node, (exp.Add, exp.Sub)) else None
    if "double" in (left, right):
        return "double"
    return "whole" if left == right == "whole" else None


_RULES: dict[type[exp.Expr], Callable[[exp.Expr, ValueKinds], ValueKind | None]] = {
    **dict.fromkeys((exp.Cast, exp.TryCast), _cast_kind),
    **dict.fromkeys(
        (exp.Paren, exp.Filter, exp.Window, exp.Neg, exp.Abs, exp.Min, exp.Max, exp.AnyValue, exp.Ceil, exp.Floor),
        lambda node, kinds: kinds.kind_of(node.this),
    ),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Mod), _arithmetic_kind),
    **dict.fromkeys((exp.Coalesce, exp.Nullif, exp.If, exp.Case), _choice_kind),
    exp.Literal: _literal_kind,
    exp.Round: lambda node, kinds: "double" if node.args.get("decimals") else kinds.kind_of(node.this),
    # A column that is summed holds counts.
    exp.Sum: lambda node, kinds: "whole" if isinstance(node.this, exp.Column) else kinds.kind_of(node.this),
    exp.Anonymous: _call_kind,
}
