"""Small faults on given lines of Python files: in the code, and in the SQL of its templates.

A fault replaces one token: a comparison by its neighbour, ``and`` by ``or``, a number by the next one, ``min`` by
``max``, ``LEFT JOIN`` by ``JOIN``. Docstrings, comments, types and messages stay as they are.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_OPERATORS: Mapping[str, str] = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "+", "//": "*",
    "&": "|", "|": "&",
}  # fmt: skip
_WORDS: Mapping[str, str] = {
    "and": "or", "or": "and", "not": "", "min": "max", "max": "min", "any": "all", "all": "any", "True": "False",
    "False": "True", "continue": "pass", "break": "pass",
}  # fmt: skip
_IN_SQL: Mapping[str, str] = {
    r"(?<![<>!=])<(?![=>])": "<=", r"<=": "<", r"(?<![<>!=-])>(?!=)": ">=", r">=": ">", r"<>": "=",
    r"\bAND\b": "OR", r"\bOR\b(?! REPLACE)": "AND", r"\bNOT (?!NULL|DISTINCT)": "", r"\bLEFT JOIN\b": "JOIN",
    r"\bANTI JOIN\b": "SEMI JOIN", r"\bSEMI JOIN\b": "ANTI JOIN", r"\bIS NOT DISTINCT FROM\b": "=",
    r"\bIS DISTINCT FROM\b": "<>", r"\bIS NULL\b": "IS NOT NULL", r"\bIS NOT NULL\b": "IS NULL",
    r"\bDISTINCT (?!FROM|ON)": "", r"\bUNION ALL\b": "UNION", r"\bUNION(?! ALL)\b": "UNION ALL", r"\bASC\b": "DESC",
    r"\bDESC\b": "ASC", r"\bmin\(": "max(", r"\bmax\(": "min(", r"\bleast\(": "greatest(",
    r"\bgreatest\(": "least(", r"\bsum\(": "max(", r"\bbool_and\(": "bool_or(", r"\bbool_or\(": "bool_and(",
    r"\bcount\(\*\)": "1", r"\bFILTER \(WHERE [^()]*\)": "", r"\bcoalesce\(([^(),]+), [^(),]+\)": r"\1",
    r"(?<= )\+(?= )": "-", r"(?<= )-(?= )": "+", r"(?<=[ (])1(?=[ ),])": "2", r"(?<=[ (])0(?=[ ),])": "1",
}  # fmt: skip
_SQL = re.compile(r"\b(SELECT|FROM|WHERE|CASE|FILTER|OVER|AND|OR|coalesce|sum|count|least|greatest)\b|:[a-z]")


@dataclass(frozen=True)
class Mutant:
    """One fault: at an offset of a file's text ``old`` becomes ``new``."""

    file: Path
    line: int
    column: int
    offset: int
    old: str
    new: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.old.strip()!r} -> {self.new.strip()!r}"

    def applied(self, text: str) -> str:
        assert text.startswith(self.old, self.offset)
        return text[: self.offset] + self.new + text[self.offset + len(self.old) :]


def mutants_of(file: Path, text: str, lines: Collection[int] | None = None) -> Iterator[Mutant]:
    """The faults that compile, on some lines or on all.

    >>> [mutant.name for mutant in mutants_of(Path("x.py"), "def f(a: int = 1) -> bool:\\n    return a < 2\\n")]
    ["x.py:1:16: '1' -> '2'", "x.py:2:14: '<' -> '<='", "x.py:2:16: '2' -> '3'"]
    """
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    for line, offset, old, new in _faults(text, starts):
        mutant = Mutant(file, line, 1 + offset - starts[line - 1], offset, old, new)
        if (lines is None or line in lines) and _compiles(mutant.applied(text)):
            yield mutant


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _faults(text: str, starts: list[int]) -> Iterator[tuple[int, int, str, str]]:
    excluded = _excluded_spans(text)
    statements = _statements(text)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        (line, column), old = token.start, token.string
        offset = starts[line - 1] + column
        if any(first <= (line, column) < last for first, last in excluded):
            continue
        if token.type == tokenize.OP and old in _OPERATORS:
            yield line, offset, old, _OPERATORS[old]
        elif token.type == tokenize.NAME and old in _WORDS:
            yield line, offset, old, _WORDS[old]
        elif token.type == tokenize.NUMBER and old.isdecimal():
            yield line, offset, old, str(int(old) + 1)
        elif token.type == tokenize.STRING and (line, column) in statements:
            for pattern, new in _IN_SQL.items():
                for match in re.finditer(pattern, old):
                    at = offset + match.start()
                    yield line + old.count("\n", 0, match.start()), at, match[0], match.expand(new)


_WITHOUT_FAULTS = (ast.Import, ast.ImportFrom, ast.Assert, ast.Raise, ast.JoinedStr)


def _excluded_spans(text: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The spans of types, imports, docstrings and messages, which have no faults."""
    excluded: list[ast.expr | ast.stmt] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            excluded += [
                annotation
                for annotation in (node.returns, *(arg.annotation for arg in node.args.args))
                if annotation is not None
            ]
            excluded += [
                annotation for annotation in (arg.annotation for arg in node.args.kwonlyargs) if annotation is not None
            ]
        elif isinstance(node, ast.AnnAssign):
            excluded.append(node.annotation)
        elif isinstance(node, _WITHOUT_FAULTS):
            excluded.append(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            excluded.append(node.value)
    return [
        ((excluded.lineno, excluded.col_offset), (excluded.end_lineno or 0, excluded.end_col_offset or 0))
        for excluded in excluded
    ]


def _statements(text: str) -> set[tuple[int, int]]:
    """The positions at which the SQL of templates and fragments begins."""
    return {
        (statement.lineno, statement.col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("template", "fragment")
        for statement in ast.walk(node)
        if isinstance(statement, ast.Constant) and isinstance(statement.value, str) and _SQL.search(statement.value)
    }
