"""Hierarchies for columns of texts: known groupings in the policy, new files that people edit, and existing files.

A file has one line for each value, leaf to root. It is private, because it has the values of the table.
"""

from __future__ import annotations

import csv
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
from sqlanon.suggest.propose import SUPPRESS, Proposal, Rule, is_measured, propose_intervals

MAX_CATEGORIES = 60
"""Maximum number of values of categories in the policy itself."""

_ALPHABET_LEVELS = (60, 1_000, 20_000)  # with more distinct values, another first letter is a level
_RARE = (0.02, 0.1)  # of the rows
_CHAPTERS = """
    A00-B99 infections, C00-D49 neoplasms, D50-D89 blood, E00-E90 metabolism, F00-F99 mind, G00-G99 nerves, H00-H59 eye,
    H60-H95 ear, I00-I99 circulation, J00-J99 respiration, K00-K95 digestion, L00-L99 skin,
    M00-M99 muscles and bones, N00-N99 kidneys and genitals, O00-O9A pregnancy, P00-P96 around birth,
    Q00-Q99 malformations, R00-R99 symptoms, S00-T98 injuries, U00-U99 special codes, V00-Y99 external causes,
    Z00-Z99 contacts
"""
_ICD_10 = [chapter.strip() for chapter in _CHAPTERS.split(",")]
"""The chapters of ICD-10: their first and last categories, and a short name."""


@dataclass(frozen=True)
class FileFolder:
    """The folder of existing hierarchy files, and the folder for new ones; None: no files."""

    source: Path | None = None
    output: Path | None = None

    def find_file(self, column: str) -> Path | None:
        name = file_name(column)
        folders = [folder for folder in (self.output, self.source) if folder is not None]
        return next((file for folder in folders if name and (file := folder / name).is_file()), None)


def file_name(column: str) -> str | None:
    """The name of a column's hierarchy file; None if file systems do not support it.

    >>> file_name("native-country"), file_name("../x")
    ('hierarchy_native-country.csv', None)
    """
    is_odd = set(column) & set('/\\:*?"<>|') or any(unicodedata.category(char)[0] == "C" for char in column)
    return None if is_odd or len(column.encode()) > 200 else f"hierarchy_{column}.csv"


def use_files(proposals: Sequence[Proposal], folder: FileFolder, show_path: Callable[[Path], str]) -> list[Proposal]:
    """The proposals with existing files in place of their hierarchies."""
    files = [folder.find_file(proposal.column.name) if proposal.role == "quasi" else None for proposal in proposals]
    return [
        proposal if file is None else replace(proposal, hierarchy={"file": str(file)}, shown={"file": show_path(file)})
        for proposal, file in zip(proposals, files, strict=True)
    ]


def needs_labels(proposal: Proposal) -> bool:
    """Whether a column of texts has no hierarchy between its values and their suppression, and might have one."""
    column = proposal.column
    is_text = column.kind is ColumnKind.TEXT or column.type.startswith("ENUM")
    is_plain = proposal.hierarchy == SUPPRESS or column.has_icd_codes or is_measured(column)
    return proposal.role == "quasi" and is_text and is_plain and column.distinct > 2


def can_write_file(proposal: Proposal) -> bool:
    """Whether ``--hierarchies`` writes a file for a column."""
    return needs_labels(proposal) and file_name(proposal.column.name) is not None


def add_categories(proposal: Proposal, values: Sequence[Labelled]) -> Proposal:
    """The proposal with the known grouping of its values as categories, if it has all of them."""
    grouping = proposal.column.grouping
    if grouping is None or len(values) > MAX_CATEGORIES or not all(value.labels for value in values):
        return proposal
    categories: dict[str, object] = {}
    depth = min(len(value.labels) for value in values)
    for value in sorted(values, key=lambda value: (value.labels[depth - 1], value.value)):
        node = categories
        for label in reversed(value.labels[1:depth]):
            node = node.setdefault(label, {})  # type: ignore[assignment]
        node.setdefault(value.labels[0], []).append(value.value)  # type: ignore[attr-defined]
    rule: Rule = {"categories": categories}
    return replace(proposal, hierarchy=rule, reason=f"{proposal.reason}; {grouping} {RULES[grouping]}")


def write_file(
    proposal: Proposal, values: Sequence[Labelled], folder: Path, show_path: Callable[[Path], str]
) -> Proposal:
    name = file_name(proposal.column.name)
    if name is None or not values:
        return proposal
    rule, lines = _group_values(proposal.column, values)
    file = folder / name
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
        csv.writer(stream, delimiter=";", lineterminator="\n").writerows([*line, TOP] for line in lines)
    reason = f"{proposal.reason}; the file groups {rule}"
    return replace(proposal, hierarchy={"file": str(file)}, shown={"file": show_path(file)}, reason=reason)


def _group_values(column: Profile, values: Sequence[Labelled]) -> tuple[str, list[list[str]]]:
    """The rule that groups values, in words, and a line for each value, without the root."""
    if column.grouping is not None:
        depth = min(len(value.labels) for value in values if value.labels)
        lines = [[value.value, *(value.labels or ("other",) * depth)[:depth]] for value in values]
        return f"{column.grouping} {RULES[column.grouping]}", lines
    if column.has_icd_codes:
        return "codes by ICD-10 category, then chapter", [[value.value, *_icd(value.value)] for value in values]
    if column.has_written_numbers and (widths := _choose_widths(values)):
        lines = [[value.value, *_by_width(value.value, widths)] for value in values]
        return f"numbers by widths of {', '.join(map(str, widths))}", lines
    letters = sum(len(values) > least for least in _ALPHABET_LEVELS)
    if letters:
        order = "first letter" if letters == 1 else f"first {letters} letters, then fewer"
        return f"values by their {order}", [[value.value, *_by_alphabet(value.value, letters)] for value in values]
    lines = _by_frequency(values)
    return "rare values together" if len(lines[0]) > 1 else "no values yet", lines


def _parse_number(value: str) -> Decimal | None:
    return Decimal(value) if re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", value) else None


def _choose_widths(values: Sequence[Labelled]) -> list[Decimal]:
    """Round widths for the numbers among values; none if all are equal."""
    numbers = sorted(number for value in values if (number := _parse_number(value.value)) is not None)
    last = len(numbers) - 1
    quantiles = [float(numbers[round(share * last)]) for share in (0, 0.01, 0.05, 0.95, 0.99, 1)] if numbers else None
    rule = propose_intervals(quantiles, all(number == int(number) for number in numbers))
    return [Decimal(width) for width in rule["intervals"]] if isinstance(rule, dict) else []


def _by_width(value: str, widths: Sequence[Decimal]) -> list[str]:
    """The intervals of a number, from narrow to wide; a word stays.

    >>> _by_width("39.1", [Decimal(1), Decimal(5)]), _by_width("NA", [Decimal(1), Decimal(5)])
    (['[39, 40)', '[35, 40)'], ['NA', 'NA'])
    """
    number = _parse_number(value)
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
    if len(category) == 3 and "A" <= category[0] <= "Z" and category[1].isdigit():
        for chapter in _ICD_10:
            if chapter[:3] <= category <= chapter[4:7]:
                return category, chapter
    return "other codes", "other codes"


def _by_alphabet(value: str, letters: int = 1) -> list[str]:
    """The first letters of a value, from ``letters`` down to one, and its part of the alphabet.

    >>> _by_alphabet("Österreich"), _by_alphabet("2nd street", 2), _by_alphabet("Ås", 3)
    (['O…', 'M–R'], ['2N…', '#…', '#'], ['AS…', 'AS…', 'A…', 'A–F'])
    """
    plain = (char for char in unicodedata.normalize("NFKD", value.strip()).upper() if not unicodedata.combining(char))
    start = "".join(islice(plain, letters))
    prefixes = [f"{start[:length]}…" for length in range(letters, 1, -1)]
    if not "A" <= start[:1] <= "Z":
        return [*prefixes, "#…", "#"]
    part = next(f"{low}–{high}" for low, high in ("AF", "GL", "MR", "SZ") if start[0] <= high)
    return [*prefixes, f"{start[0]}…", part]


def _by_frequency(values: Sequence[Labelled]) -> list[list[str]]:
    """Values of few rows share a label: one for each threshold that adds values to them."""
    rows = sum(value.rows for value in values)
    lines, joined = [[value.value] for value in values], 1
    for share in _RARE:
        are_rare = [value.rows < share * rows for value in values]
        if joined < sum(are_rare) < len(values):
            joined = sum(are_rare)
            label = f"(each under {100 * share:.0f} %)"
            for line, is_rare in zip(lines, are_rare, strict=True):
                line.append(label if is_rare else line[0])
    return lines
