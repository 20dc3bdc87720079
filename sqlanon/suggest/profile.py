"""What is known of the columns of a table before anybody says what they are: figures, no values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
from sqlanon.suggest.groupings import find_groupings, make_vocabulary
from sqlanon.support.expressions import col, template

ENOUGH = 50_000
"""About this many rows of a larger table are profiled: every n-th one."""

_CLOSER = 10_000
"""About this many of these are compared with the patterns of kinds."""

CODES = -1
"""The number of the pattern of short codes."""

NUMBERS, WHOLE_NUMBERS, MISSING, YES_OR_NO, PARTIAL_DATES = -2, -3, -4, -5, -6
"""The numbers of the patterns of numbers, of whole ones, of words for a missing value, of yes and no, and of partial
dates."""

_FIRST_MENTION = -10

_WHOLE = r"-?(0|[1-9]\d{0,14})"
_NUMBER = _WHOLE + r"(\.\d{1,15})?"
MISSING_WORDS = r"(?i)(\*+|#?n/?a|n\.a\.|nan|null|\?+|-+|\.+|unknown|missing|-9|-99|98|99|998|999|9998|9999)"
"""Texts that often stand for a missing value."""

_MISSING = r"(?i)\s*(#?n/?a|n\.a\.|nan|null|none|nil|\?+|-+|\.+|unknown|missing|k\.?\s?a\.?|s/?d|n\.?d\.?|" + (
    r"unbekannt|inconnue?|desconocid[oa]|desconhecid[oa]|sconosciut[oa]|onbekend)?\s*"
)
_YES_OR_NO = r"(?i)\s*([01](\.0+)?|[ynjtfsox]|yes|no|true|false|ja|nein|oui|non|s[ií]|sì|n[aã]o|sim|nee|)\s*"
_CODE = r"[A-Z0-9][A-Z0-9 ./_-]{0,11}"
_ARE_NUMBERS = (ColumnKind.INTEGER, ColumnKind.DECIMAL, ColumnKind.FLOATING)
_WORDS = 1000  # distinct texts: more of them are no categories
_MOSTLY = 0.8  # of the texts
_MOST_FLAGS = 4  # texts: yes, no, and both in capitals
_SOME = 20  # values: of fewer, that they are all different says little


@dataclass(frozen=True)
class Profile:
    """A column in figures: its values that are not NULL, and about how many are distinct; of texts their lengths and
    the share of values that look like a kind, by its number in `KINDS`, or like `CODES`, and a known
    grouping of them with its share of the rows; of numbers and dates (in seconds) their `column_figures` quantiles."""

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
    def written_numbers(self) -> bool:
        """Whether its texts are numbers, but for a few words such as NA."""
        return _MOSTLY <= self.likes.get(NUMBERS, 0.0) < 1 or self.numbers_or_missing

    @property
    def numbers_or_missing(self) -> bool:
        """Whether its texts are numbers, and words for missing values, and nothing else."""
        numbers, missing = self.likes.get(NUMBERS, 0.0), self.likes.get(MISSING, 0.0)
        return missing > 0 and numbers > missing and math.isclose(numbers + missing, 1)

    @property
    def has_partial_dates(self) -> bool:
        """Whether all of its texts are partial dates, such as 1980-05, or whole ones."""
        return math.isclose(self.likes.get(PARTIAL_DATES, 0.0), 1) and self.likes.get(NUMBERS, 0.0) < 1

    @property
    def mentions(self) -> tuple[str, float] | None:
        """What some of its texts mention among other words, such as e-mail addresses, and the share of them."""
        shares = {name: self.likes.get(_FIRST_MENTION - j, 0.0) for j, name in enumerate(MENTION_PATTERNS)}
        return next(((name, share) for name, share in shares.items() if share > MENTION_PATTERNS[name][1]), None)

    @property
    def icd(self) -> bool:
        """Whether its values look like codes of ICD-10."""
        return any(kind.name == ICD and self.likes.get(i, 0.0) >= kind.share for i, kind in enumerate(KINDS))

    @property
    def is_flag(self) -> bool:
        """Whether its values are yes and no, 0 and 1, or true and false."""
        if self.type == "BOOLEAN":
            return True
        if self.kind is ColumnKind.TEXT:
            return 0 < self.distinct <= _MOST_FLAGS and math.isclose(self.likes.get(YES_OR_NO, 0.0), 1)
        is_number = self.kind in _ARE_NUMBERS
        return (
            is_number
            and self.quantiles is not None
            and self.distinct <= 2
            and {self.quantiles[0], self.quantiles[-1]} <= {0, 1}
        )

    @property
    def nested(self) -> bool:
        return is_nested(self.type)

    @property
    def nearly_unique(self) -> bool:
        return self.values >= _SOME and self.distinct >= NEARLY_UNIQUE_SHARE * self.values

    @property
    def many(self) -> bool:
        """Whether values are too many for categories."""
        return has_many_values(self.distinct, self.values)

    @property
    def constant(self) -> bool:
        """Whether all rows have the same, be it NULL."""
        return self.rows > 1 and (self.values == 0 or (self.distinct == 1 and self.values == self.rows))


@dataclass(frozen=True)
class TableProfile:
    """A table in figures: its rows, about every ``step``-th of which is in the ``sample``, and its columns in order;
    the words of known ``groupings``."""

    rows: int
    step: int
    sample: exp.Table
    groupings: exp.Table
    profiles: tuple[Profile, ...]


def profile_table(run: Run) -> TableProfile:
    """Profile the source of a run; its sample in the work schema is ``looked_rows``."""
    steps, columns = StatementRunner(run.engine), run.source.columns
    rows = steps.count(run.source.relation)
    step = max(1, rows // ENOUGH)
    plain = {i: name for i, (name, type_) in enumerate(columns.items()) if not is_nested(type_)}
    if not plain:
        raise SourceError("all columns are nested: give their parts as columns of their own, in a view")
    sample = steps.create_table(run.work("looked_rows"), sample_query(run.source.relation, [*plain.values()], step))
    kinds = {i: column_kind(columns[name]) for i, name in plain.items()}
    texts = {i: name for i, name in plain.items() if kinds[i] is ColumnKind.TEXT}
    numbers = {i: name for i, name in plain.items() if kinds[i] in _ARE_NUMBERS}
    moments = {i: name for i, name in plain.items() if kinds[i] in (ColumnKind.DATE, ColumnKind.ZONED)}
    # DuckDB does not say which of these are finite.
    dates = {i: name for i, name in moments.items() if columns[name] != ZONED_NANOSECONDS}
    others = {i: name for i, name in plain.items() if i not in texts and i not in numbers and i not in dates}
    found = steps.fetch_figures(column_figures_query(sample, texts, numbers, dates, others))
    vocabulary = make_vocabulary(steps, run.work)
    words = {i: name for i, name in plain.items() if i in texts or columns[name].startswith("ENUM")}
    words = {i: name for i, name in words.items() if 1 < found[f"distinct_{i}"] <= _WORDS}
    groupings = find_groupings(steps, vocabulary, sample, words)
    likes = _likes(steps, sample_query(sample, [*texts.values()], rows // step // _CLOSER), texts) if texts else {}
    if step > 1:  # how many values there are, is of all rows
        counts = iter(steps.fetch_rows(approximate_counts_query(run.source.relation, [*plain.values()]), [])[0])
        whole = {i: (next(counts), next(counts)) for i in plain}
        # An estimate of 1 may be 2, and a constant column is released as it is: count those exactly.
        same = {i: plain[i] for i, (distinct, _) in whole.items() if distinct <= 1}
        exact = iter(steps.fetch_rows(exact_counts_query(run.source.relation, [*same.values()]), [])[0] if same else ())
        whole |= {i: (next(exact), whole[i][1]) for i in same}
    else:
        whole = {i: (found[f"distinct_{i}"], found[f"values_{i}"]) for i in plain}

    def profile(i: int, name: str, type_: str) -> Profile:
        if i not in plain:
            return Profile(name, type_, rows)
        return Profile(
            name,
            type_,
            rows,
            values=whole[i][1],
            distinct=min(whole[i]),
            longest=(found[f"longest_{i}"] or 0) if i in texts else 0,
            mean_length=(found[f"mean_{i}"] or 0.0) if i in texts else 0.0,
            likes=likes.get(i, {}),
            quantiles=_quantiles(found.get(f"quantiles_{i}")),
            grouping=groupings[i][0] if i in groupings else None,
            grouping_share=groupings[i][1] if i in groupings else 0.0,
        )

    profiles = tuple(profile(i, name, type_) for i, (name, type_) in enumerate(columns.items()))
    return TableProfile(rows, step, sample, vocabulary, profiles)


_TEXTS = template("SELECT :columns FROM :rows")


def number_types(run: Run, columns: Sequence[str]) -> dict[str, str]:
    """Of columns of texts those that hold numbers, and words for missing values, in all rows; and the type for each."""
    steps, texts = StatementRunner(run.engine), dict(enumerate(columns))
    if not texts:
        return {}
    patterns = {0: f"{_NUMBER}|{_MISSING}", 1: f"{_WHOLE}|{_MISSING}"}
    rows = _TEXTS(columns=[col(name) for name in columns], rows=run.source.relation)
    found = steps.fetch_figures(content_figures_query(rows, texts, patterns))
    return {
        name: "BIGINT" if found[f"like_{i}_1"] == found[f"seen_{i}"] else "DOUBLE"
        for i, name in texts.items()
        if found[f"like_{i}_0"] == found[f"seen_{i}"]
    }


def _quantiles(found: Sequence[float | None] | None) -> tuple[float, ...] | None:
    known = tuple(one for one in found or () if one is not None)
    return known if found and len(known) == len(found) else None


def _likes(steps: StatementRunner, rows: exp.Select, texts: Mapping[int, str]) -> dict[int, dict[int, float]]:
    """By column of texts: the share of its values that look like each kind."""
    patterns = {j: kind.content for j, kind in enumerate(KINDS) if kind.content is not None}
    patterns |= {CODES: _CODE, NUMBERS: _NUMBER, WHOLE_NUMBERS: _WHOLE, MISSING: _MISSING, YES_OR_NO: _YES_OR_NO}
    patterns[PARTIAL_DATES] = PARTIAL_DATE
    patterns |= {_FIRST_MENTION - j: pattern for j, (pattern, _) in enumerate(MENTION_PATTERNS.values())}
    found = steps.fetch_figures(content_figures_query(rows, texts, patterns))
    return {i: {j: found[f"like_{i}_{j}"] / seen for j in patterns} for i in texts if (seen := found[f"seen_{i}"])}
