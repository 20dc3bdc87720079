"""Hierarchies for columns of texts: known groupings in the policy, or in files that people edit; files that are there.

A file has one line for each value, leaf to root, and is private: it has the values of the table.
"""

from __future__ import annotations

import csv
import io
import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal
from itertools import islice
from pathlib import Path

from sqlanon.hierarchies.parts import TOP, ColumnKind
from sqlanon.suggest.groupings import RULES, Labelled
from sqlanon.suggest.profile import Profile
from sqlanon.suggest.propose import SUPPRESS, Proposal, Rule, intervals, is_measured

INLINE = 60
"""The most values of categories that stand in the policy itself."""

_BY_FREQUENCY = 60  # distinct values; of more than these, the alphabet groups
_RARE = (0.02, 0.1)  # of the rows
_BY_TWO_LETTERS, _BY_THREE_LETTERS = 1_000, 20_000  # distinct values from which so many letters are a level, too

_ICD_10 = (
    ("A00", "B99", "infections"), ("C00", "D49", "neoplasms"), ("D50", "D89", "blood"), ("E00", "E90", "metabolism"),
    ("F00", "F99", "mind"), ("G00", "G99", "nerves"), ("H00", "H59", "eye"), ("H60", "H95", "ear"),
    ("I00", "I99", "circulation"), ("J00", "J99", "respiration"), ("K00", "K95", "digestion"), ("L00", "L99", "skin"),
    ("M00", "M99", "muscles and bones"), ("N00", "N99", "kidneys and genitals"), ("O00", "O9A", "pregnancy"),
    ("P00", "P96", "around birth"), ("Q00", "Q99", "malformations"), ("R00", "R99", "symptoms"),
    ("S00", "T98", "injuries"), ("U00", "U99", "special codes"), ("V00", "Y99", "external causes"),
    ("Z00", "Z99", "contacts"),
)  # fmt: skip
"""The chapters of ICD-10: their first and last categories, and a short name."""


@dataclass(frozen=True)
class FileFolder:
    """Where hierarchy files are: those to use, and the folder for new ones (None: none are written)."""

    beside: Path | None = None
    written: Path | None = None

    def existing(self, column: str) -> Path | None:
        """The file of a column that is there."""
        name = file_name(column)
        folders = [one for one in (self.written, self.beside) if one is not None]
        return next((file for one in folders if name and (file := one / name).is_file()), None)


def file_name(column: str) -> str | None:
    """The name of a column's hierarchy file; None where its name cannot be a file's.

    >>> file_name("native-country"), file_name("../x")
    ('hierarchy_native-country.csv', None)
    """
    odd = set(column) & set('/\\:*?"<>|') or any(unicodedata.category(one)[0] == "C" for one in column)
    return None if odd or len(column.encode()) > 200 else f"hierarchy_{column}.csv"


def use_files(proposals: Sequence[Proposal], folder: FileFolder, shown: Callable[[Path], str]) -> list[Proposal]:
    """The proposals with the files that are there in place of their hierarchies."""
    found = []
    for one in proposals:
        file = folder.existing(one.column.name) if one.role == "quasi" else None
        if file is None:
            found.append(one)
        else:
            found.append(replace(one, hierarchy={"file": str(file)}, shown={"file": shown(file)}))
    return found


def needs_labels(one: Proposal) -> bool:
    """Whether a proposal has no better hierarchy than the value or nothing, and might have one."""
    column = one.column
    texts = column.kind is ColumnKind.TEXT or column.type.startswith("ENUM")
    is_plain = one.hierarchy == SUPPRESS or column.icd or is_measured(column)
    return one.role == "quasi" and texts and is_plain and column.distinct > 2


def can_write_file(one: Proposal) -> bool:
    """Whether ``--hierarchies`` writes a file for a column."""
    return needs_labels(one) and file_name(one.column.name) is not None


def with_labels(
    one: Proposal, values: Sequence[Labelled], folder: Path | None, shown: Callable[[Path], str]
) -> Proposal:
    """A proposal with labels for its values: in a new file of a folder, or without one in the policy."""
    return _from_grouping(one, values) if folder is None else _write_file(one, values, folder, shown)


def _from_grouping(one: Proposal, values: Sequence[Labelled]) -> Proposal:
    """The known grouping of a column's values, as categories in the policy: only where it has all of them."""
    grouping = one.column.grouping
    if grouping is None or len(values) > INLINE or not all(value.labels for value in values):
        return one
    tree: dict[str, object] = {}
    depth = min(len(value.labels) for value in values)
    for value in sorted(values, key=lambda one: (one.labels[depth - 1], one.value)):
        node = tree
        for label in reversed(value.labels[1:depth]):
            node = node.setdefault(label, {})  # type: ignore[assignment]
        node.setdefault(value.labels[0], []).append(value.value)  # type: ignore[attr-defined]
    rule: Rule = {"categories": tree}
    return replace(one, hierarchy=rule, reason=f"{one.reason}; {grouping} {RULES[grouping]}")


def _write_file(one: Proposal, values: Sequence[Labelled], folder: Path, shown: Callable[[Path], str]) -> Proposal:
    """Write the hierarchy file of a column, and propose it."""
    name = file_name(one.column.name)
    if name is None or not values:
        return one
    rule, lines = _levels(one.column, values)
    file = folder / name
    text = io.StringIO()
    csv.writer(text, delimiter=";", lineterminator="\n").writerows([*line, TOP] for line in lines)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(text.getvalue())
    reason = f"{one.reason}; the file groups {rule}"
    return replace(one, hierarchy={"file": str(file)}, shown={"file": shown(file)}, reason=reason)


def _levels(column: Profile, values: Sequence[Labelled]) -> tuple[str, list[list[str]]]:
    """How values are grouped, in words; and a line for each of them, without the top."""
    if column.grouping is not None:
        depth = min(len(value.labels) for value in values if value.labels)
        lines = [[one.value, *(one.labels or ("other",) * depth)[:depth]] for one in values]
        return f"{column.grouping} {RULES[column.grouping]}", lines
    if column.icd:
        return "codes by ICD-10 category, then chapter", [[one.value, *_icd(one.value)] for one in values]
    if column.written_numbers and (widths := _widths(values)):
        lines = [[one.value, *_by_width(one.value, widths)] for one in values]
        return f"numbers by widths of {', '.join(map(str, widths))}", lines
    if len(values) > _BY_FREQUENCY:
        letters = sum(len(values) > least for least in (_BY_FREQUENCY, _BY_TWO_LETTERS, _BY_THREE_LETTERS))
        rule = (
            "values by their first letter" if letters == 1 else f"values by their first {letters} letters, then fewer"
        )
        return rule, [[one.value, *_by_alphabet(one.value, letters)] for one in values]
    lines = _by_frequency(values)
    return "rare values together" if len(lines[0]) > 1 else "no values yet", lines


def _number(value: str) -> Decimal | None:
    return Decimal(value) if re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", value) else None


def _widths(values: Sequence[Labelled]) -> list[Decimal]:
    """Round widths for the numbers among values; none where all are the same."""
    numbers = sorted(number for one in values if (number := _number(one.value)) is not None)
    last = len(numbers) - 1
    quantiles = [float(numbers[round(share * last)]) for share in (0, 0.01, 0.05, 0.95, 0.99, 1)] if numbers else None
    rule = intervals(quantiles, all(one == int(one) for one in numbers))
    return [Decimal(one) for one in rule["intervals"]] if isinstance(rule, dict) else []


def _by_width(value: str, widths: Sequence[Decimal]) -> list[str]:
    """The intervals of a number, from narrow to wide; of a word, itself.

    >>> _by_width("39.1", [Decimal(1), Decimal(5)]), _by_width("NA", [Decimal(1), Decimal(5)])
    (['[39, 40)', '[35, 40)'], ['NA', 'NA'])
    """
    number = _number(value)
    if number is None:
        return [value] * len(widths)
    lows = [(number / width).to_integral_value(ROUND_FLOOR) * width for width in widths]
    return [f"[{low.normalize():f}, {(low + width).normalize():f})" for low, width in zip(lows, widths, strict=True)]


def _icd(code: str) -> tuple[str, str]:
    """The category of a code, and its chapter.

    >>> _icd("E11.9"), _icd("d50"), _icd("none")
    (('E11', 'E00-E90 metabolism'), ('D50', 'D50-D89 blood'), ('other codes', 'other codes'))
    """
    category = code.strip().upper()[:3]
    is_code = len(category) == 3 and "A" <= category[0] <= "Z" and category[1].isdigit()
    chapters = (f"{first}-{last} {name}" for first, last, name in _ICD_10 if first <= category <= last)
    chapter = next(chapters, None) if is_code else None
    return ("other codes", "other codes") if chapter is None else (category, chapter)


def _by_alphabet(value: str, letters: int = 1) -> list[str]:
    """The first letters of a value, from so many down to one, and its part of the alphabet.

    >>> _by_alphabet("Österreich"), _by_alphabet("2nd street", 2), _by_alphabet("Ås", 3)
    (['O…', 'M–R'], ['2N…', '#…', '#'], ['AS…', 'AS…', 'A…', 'A–F'])
    """
    plain = (one for one in unicodedata.normalize("NFKD", value.strip()).upper() if not unicodedata.combining(one))
    start = "".join(islice(plain, letters))
    prefixes = [f"{start[:length]}…" for length in range(letters, 1, -1)]
    if not "A" <= start[:1] <= "Z":
        return [*prefixes, "#…", "#"]
    part = next(f"{low}–{high}" for low, high in ("AF", "GL", "MR", "SZ") if start[0] <= high)
    return [*prefixes, f"{start[0]}…", part]


def _by_frequency(values: Sequence[Labelled]) -> list[list[str]]:
    """Values that few rows have share a label: one for each threshold that puts more of them together."""
    rows = sum(one.rows for one in values)
    lines, before = [[one.value] for one in values], 1
    for least in _RARE:
        rare = [one.rows < least * rows for one in values]
        if before < sum(rare) < len(values):
            before = sum(rare)
            label = f"(each under {100 * least:.0f} %)"
            for line, is_rare in zip(lines, rare, strict=True):
                line.append(label if is_rare else line[0])
    return lines
