"""Rules for all tabular sources: distinct column names, the same columns in all files, and rows of totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sqlanon.errors import SourceError
from sqlanon.places.databases import file_name, format_address
from sqlanon.policy import PopulationSection, SourceSection

TOTAL_WORDS = (
    "(?i)(?:(?:(?:grand|sub)[ -]?)?total(?:s|e|en)?|totaal|sums?|summe|(?:ins)?gesamt(?:summe|zahl)?|somme|ensemble|"
    "suma|somma|razem) ?:?"
)
"""A pattern of the first value in a row of totals, without surrounding spaces, for Python and DuckDB."""

_MAX_DIFFERENCES = 5


def refuse_ambiguous_names(names: Sequence[str], where: str) -> None:
    """Refuse names that differ in case only: SQL treats them as equal."""
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


def refuse_different_columns(files: Sequence[tuple[str, Mapping[str, str | None]]], same_case: bool = False) -> None:
    """Refuse files that differ in the names or the types of their columns.

    Each file has its path, and the types of its columns; a type that is None equals every type.
    """
    paths = [path for path, _ in files]
    are_distinct = len(set(map(file_name, paths))) == len(paths)
    labels = [file_name(path) if are_distinct else format_address(path) for path in paths]
    first = {_key(name, same_case): (name, type_) for name, type_ in files[0][1].items()} if files else {}
    differences: list[str] = []
    for label, (_, columns) in zip(labels[1:], files[1:], strict=True):
        current = {_key(name, same_case): (name, type_) for name, type_ in columns.items()}
        differences += _describe_differences(labels[0], first, label, current)
    if not differences:
        return
    examples = differences[:_MAX_DIFFERENCES]
    if more := len(differences) - len(examples):
        examples.append(f"and {more:,} more {'difference' if more == 1 else 'differences'}")
    raise SourceError(
        f"source.files: the files do not have the same columns: {'; '.join(examples)}. Give all files the same "
        "columns, with the same types, or name only files of one layout"
    )


def _key(name: str, same_case: bool) -> str:
    return name if same_case else name.lower()


def _describe_differences(
    first_label: str,
    first: Mapping[str, tuple[str, str | None]],
    label: str,
    columns: Mapping[str, tuple[str, str | None]],
) -> Iterator[str]:
    if missing := [name for key, (name, _) in first.items() if key not in columns]:
        yield f"{label} lacks {', '.join(map(repr, missing))} of {first_label}"
    if extra := [name for key, (name, _) in columns.items() if key not in first]:
        yield f"{label} has {', '.join(map(repr, extra))}, which {first_label} lacks"
    for key, (name, type_) in first.items():
        current_type = columns[key][1] if key in columns else None
        if None not in (type_, current_type) and type_ != current_type:
            yield f"{name!r} is {type_} in {first_label} and {current_type} in {label}"
