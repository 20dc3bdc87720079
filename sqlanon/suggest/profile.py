"""Profiles of columns: figures that `propose` decides by, without values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from sqlanon.engines.dialects.kinds import is_nested
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.hierarchies.partial_dates import PARTIAL_DATE
from sqlanon.hierarchies.parts import ZONED_NANOSECONDS, ColumnKind, column_kind
from sqlanon.sources.column_figures import (
    NEARLY_UNIQUE_SHARE,
    approximate_counts_query,
    column_figures_query,
    content_figures_query,
    exact_counts_query,
    has_many_values,
    sample_query,
)
from sqlanon.sources.column_kinds import ICD, KINDS, MENTION_PATTERNS
from sqlanon.sources.run import Run
from sqlanon.suggest.groupings import create_vocabulary, find_groupings
from sqlanon.support.expressions import col, template

_PROFILED_ROWS = 50_000  # about this many rows of a larger table are profiled
_MATCHED_ROWS = 10_000  # about this many of these are compared with patterns
_MAX_WORDS = 1000  # distinct texts of categories
_MOSTLY = 0.8  # of the texts
_MAX_FLAG_TEXTS = 4  # texts: yes, no, and both in capitals
_FEW_VALUES = 20  # that they are all different says little

# Numbers of patterns other than those of `KINDS`, which are 0, 1, ...
CODES, NUMBERS, WHOLE_NUMBERS, MISSING, YES_OR_NO, PARTIAL_DATES = range(-1, -7, -1)
_FIRST_MENTION = -10

MISSING_WORDS = r"(?i)(\*+|#?n/?a|n\.a\.|nan|null|\?+|-+|\.+|unknown|missing|-9|-99|98|99|998|999|9998|9999)"
"""Texts that often stand for a missing value."""
_WHOLE = r"-?(0|[1-9]\d{0,14})"
_NUMBER = _WHOLE + r"(\.\d{1,15})?"
_MISSING = r"(?i)\s*(#?n/?a|n\.a\.|nan|null|none|nil|\?+|-+|\.+|unknown|missing|k\.?\s?a\.?|s/?d|n\.?d\.?|" + (
    r"unbekannt|inconnue?|desconocid[oa]|desconhecid[oa]|sconosciut[oa]|onbekend)?\s*"
)
_PATTERNS: Mapping[int, str] = {
    **{i: kind.content for i, kind in enumerate(KINDS) if kind.content is not None},
    CODES: r"[A-Z0-9][A-Z0-9 ./_-]{0,11}",
    NUMBERS: _NUMBER,
    WHOLE_NUMBERS: _WHOLE,
    MISSING: _MISSING,
    YES_OR_NO: r"(?i)\s*([01](\.0+)?|[ynjtfsox]|yes|no|true|false|ja|nein|oui|non|s[ií]|sì|n[aã]o|sim|nee|)\s*",
    PARTIAL_DATES: PARTIAL_DATE,
    **{_FIRST_MENTION - i: pattern for i, (pattern, _) in enumerate(MENTION_PATTERNS.values())},
}
_NUMERIC = (ColumnKind.INTEGER, ColumnKind.DECIMAL, ColumnKind.FLOATING)


@dataclass(frozen=True)
class Profile:
    """Figures of a column: its values that are not NULL, and about how many are distinct.

    Texts have their lengths, the share of values that match a pattern (``likes``, by its number), and a known grouping
    with its share of the rows. Numbers and dates (in seconds) have the quantiles of `column_figures`.
    """

    name: str
    type: str
    rows: int
    values: int = 0
    distinct: int = 0
    longest: int = 0
    mean_length: float = 0.0
    likes: Mapping[int, float] = field(default_factory=dict)
    quantiles: tuple[float, ...] | None = None
    grouping: str | None = None
    grouping_share: float = 0.0

    @property
    def kind(self) -> ColumnKind:
        return column_kind(self.type)

    @property
    def is_numeric(self) -> bool:
        return self.kind in _NUMERIC

    @property
    def has_written_numbers(self) -> bool:
        """Whether its texts are numbers, except for a few words such as NA."""
        return _MOSTLY <= self.likes.get(NUMBERS, 0.0) < 1 or self.has_numbers_or_missing

    @property
    def has_numbers_or_missing(self) -> bool:
        """Whether its texts are numbers and words for missing values, and nothing else."""
        numbers, missing = self.likes.get(NUMBERS, 0.0), self.likes.get(MISSING, 0.0)
        return missing > 0 and numbers > missing and math.isclose(numbers + missing, 1)

    @property
    def has_partial_dates(self) -> bool:
        """Whether its texts are dates, some of them partial, such as 1980-05."""
        return math.isclose(self.likes.get(PARTIAL_DATES, 0.0), 1) and self.likes.get(NUMBERS, 0.0) < 1

    @property
    def mentions(self) -> tuple[str, float] | None:
        """A kind of identifier that some of its texts mention among other words, and the share of these texts."""
        shares = {name: self.likes.get(_FIRST_MENTION - i, 0.0) for i, name in enumerate(MENTION_PATTERNS)}
        return next(((name, share) for name, share in shares.items() if share > MENTION_PATTERNS[name][1]), None)

    @property
    def has_icd_codes(self) -> bool:
        return any(kind.name == ICD and self.likes.get(i, 0.0) >= kind.share for i, kind in enumerate(KINDS))

    @property
    def is_flag(self) -> bool:
        """Whether its values are yes and no, 0 and 1, or true and false."""
        if self.kind is ColumnKind.TEXT:
            return 0 < self.distinct <= _MAX_FLAG_TEXTS and math.isclose(self.likes.get(YES_OR_NO, 0.0), 1)
        if not self.is_numeric or self.quantiles is None:
            return self.type == "BOOLEAN"
        return self.distinct <= 2 and {self.quantiles[0], self.quantiles[-1]} <= {0, 1}

    @property
    def is_nested(self) -> bool:
        return is_nested(self.type)

    @property
    def is_nearly_unique(self) -> bool:
        return self.values >= _FEW_VALUES and self.distinct >= NEARLY_UNIQUE_SHARE * self.values

    @property
    def has_many_values(self) -> bool:
        """Whether it has too many distinct values for categories."""
        return has_many_values(self.distinct, self.values)

    @property
    def is_constant(self) -> bool:
        """Whether all rows have the same value, or NULL."""
        return self.rows > 1 and (self.values == 0 or (self.distinct == 1 and self.values == self.rows))


@dataclass(frozen=True)
class TableProfile:
    """The profiles of a table's columns, about every ``step``-th row of it as ``sample``, and the words of known
    ``groupings``."""

    rows: int
    step: int
    sample: exp.Table
    groupings: exp.Table
    profiles: tuple[Profile, ...]


def profile_table(run: Run) -> TableProfile:
    """Profile the source of a run; its sample in the work schema is ``profiled_rows``."""
    steps, types = StatementRunner(run.engine), run.source.columns
    rows = steps.count(run.source.relation)
    step = max(1, rows // _PROFILED_ROWS)
    columns = {i: name for i, (name, type_) in enumerate(types.items()) if not is_nested(type_)}
    if not columns:
        raise SourceError("all columns are nested: make their parts columns, in a view")
    sample = steps.create_table(run.work("profiled_rows"), sample_query(run.source.relation, [*columns.values()], step))
    kinds = {i: column_kind(types[name]) for i, name in columns.items()}

    def columns_of(*wanted: ColumnKind) -> dict[int, str]:
        return {i: name for i, name in columns.items() if kinds[i] in wanted}

    texts, numbers = columns_of(ColumnKind.TEXT), columns_of(*_NUMERIC)
    # DuckDB cannot distinguish finite nanoseconds with a zone.
    moments = columns_of(ColumnKind.DATE, ColumnKind.ZONED)
    dates = {i: name for i, name in moments.items() if types[name] != ZONED_NANOSECONDS}
    other_columns = {i: name for i, name in columns.items() if not (i in texts or i in numbers or i in dates)}
    figures = steps.fetch_figures(column_figures_query(sample, texts, numbers, dates, other_columns))
    vocabulary = create_vocabulary(steps, run.work)
    words = {i: name for i, name in columns.items() if i in texts or types[name].startswith("ENUM")}
    words = {i: name for i, name in words.items() if 1 < figures[f"distinct_{i}"] <= _MAX_WORDS}
    groupings = find_groupings(steps, vocabulary, sample, words)
    matches: Mapping[str, Any] = {}
    if texts:
        matched_rows = sample_query(sample, [*texts.values()], rows // step // _MATCHED_ROWS)
        matches = steps.fetch_figures(content_figures_query(matched_rows, texts, _PATTERNS))
    counts = {i: (figures[f"distinct_{i}"], figures[f"values_{i}"]) for i in columns}
    if step > 1:
        counts = _count_all_rows(steps, run.source.relation, columns)

    def profile(i: int, name: str, type_: str) -> Profile:
        if i not in columns:
            return Profile(name, type_, rows)
        likes = {}
        if seen := matches.get(f"seen_{i}"):
            likes = {pattern: matches[f"like_{i}_{pattern}"] / seen for pattern in _PATTERNS}
        quantiles = figures.get(f"quantiles_{i}") or ()
        return Profile(
            name,
            type_,
            rows,
            values=counts[i][1],
            distinct=min(counts[i]),
            longest=figures.get(f"longest_{i}") or 0,
            mean_length=figures.get(f"mean_{i}") or 0.0,
            likes=likes,
            quantiles=tuple(quantiles) if quantiles and None not in quantiles else None,
            grouping=groupings[i][0] if i in groupings else None,
            grouping_share=groupings[i][1] if i in groupings else 0.0,
        )

    profiles = tuple(profile(i, name, type_) for i, (name, type_) in enumerate(types.items()))
    return TableProfile(rows, step, sample, vocabulary, profiles)


def _count_all_rows(
    steps: StatementRunner, relation: exp.Table, columns: Mapping[int, str]
) -> dict[int, tuple[int, int]]:
    """The numbers of distinct values and of values in all rows, by column. The former are estimates above 1."""
    estimates = iter(steps.fetch_rows(approximate_counts_query(relation, [*columns.values()]), [])[0])
    counts = {i: (next(estimates), next(estimates)) for i in columns}
    # An estimate of 1 may be 2, and a constant column is released unchanged: count these columns exactly.
    constant = {i: columns[i] for i, (distinct, _) in counts.items() if distinct <= 1}
    if constant:
        exact = steps.fetch_rows(exact_counts_query(relation, [*constant.values()]), [])[0]
        counts |= {i: (distinct, counts[i][1]) for i, distinct in zip(constant, exact, strict=True)}
    return counts


def find_number_types(run: Run, columns: Sequence[str]) -> dict[str, str]:
    """The columns of texts that hold only numbers and words for missing values in all rows, with their types."""
    steps, texts = StatementRunner(run.engine), dict(enumerate(columns))
    if not texts:
        return {}
    patterns = {0: f"{_NUMBER}|{_MISSING}", 1: f"{_WHOLE}|{_MISSING}"}
    rows = template("SELECT :columns FROM :rows")(columns=[col(name) for name in columns], rows=run.source.relation)
    figures = steps.fetch_figures(content_figures_query(rows, texts, patterns))
    return {
        name: "BIGINT" if figures[f"like_{i}_1"] == figures[f"seen_{i}"] else "DOUBLE"
        for i, name in texts.items()
        if figures[f"like_{i}_0"] == figures[f"seen_{i}"]
    }
