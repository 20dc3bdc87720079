"""The links between tables: the columns that reference rows of another table, and the table of persons.

Declared foreign keys come first. Without any, a column is a reference if its values occur in a column that
identifies the rows of another table, and its name says so: by chance, small numbers occur everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies.parts import ColumnKind, column_kind
from sqlanon.sources.column_figures import NEARLY_UNIQUE_SHARE, exact_counts_query
from sqlanon.sources.column_kinds import (
    AGE,
    BIRTH,
    FAMILY,
    NAME,
    NUMBER_WORDS,
    RACE,
    SEX,
    find_kind,
    is_person_number,
    split_words,
)
from sqlanon.sources.constraints import Constraints
from sqlanon.sources.run import Run
from sqlanon.suggest.profile import Profile, TableProfile
from sqlanon.suggest.suggest import Location
from sqlanon.support.expressions import all_of, as_column, col, select, subquery, template

_MIN_SHARE = 0.9
"""The least share of the values of a column, named like the key of a table, that occur in this key."""
_MIN_VALUES = 20  # distinct texts that occur in another table by more than chance
_TRAITS = (AGE, BIRTH, FAMILY, NAME, RACE, SEX)
_GENERIC = re.compile(r"(?:id|uid|pid|nr|no|num|number|nummer|key|code|uuid|guid)")
"""Names of keys that say nothing about their table."""
_KEY_KINDS = (ColumnKind.INTEGER, ColumnKind.TEXT)
_PREFIXES = re.compile(r"^(?:tbl|dim|fact|t|dbo|src|raw|stg)_")
_IRREGULAR = {"people": "person", "personen": "person"}


def singular_words(name: str) -> str:
    """The words of the name of a table in the singular.

    >>> [singular_words(name) for name in ("Patients", "tbl_diagnoses", "visit", "labResults")]
    ['patient', 'diagnosis', 'visit', 'lab_result']
    """
    words = _PREFIXES.sub("", split_words(name))
    if words in _IRREGULAR:
        return _IRREGULAR[words]
    for ending, singular in (("ies", "y"), ("noses", "nosis"), ("sses", "ss"), ("ss", "ss"), ("s", "")):
        if words.endswith(ending):
            return words.removesuffix(ending) + singular
    return words


@dataclass(frozen=True)
class ProfiledTable:
    """A table of the source: its name in the policy, its profile, and the columns that identify its rows."""

    name: str
    location: Location
    run: Run
    profile: TableProfile
    constraints: Constraints
    keys: tuple[tuple[str, ...], ...]
    """The declared keys, or else the columns that are unique in all rows; the key that names its rows comes first."""

    @property
    def rows(self) -> int:
        return self.profile.rows

    @property
    def columns(self) -> Mapping[str, Profile]:
        return {column.name: column for column in self.profile.profiles}

    @property
    def singular(self) -> str:
        """The words of its name in the singular."""
        return singular_words(self.name)

    def row_names(self, key: str) -> frozenset[str]:
        """The names, other than its key's, of columns that reference its rows."""
        names = {self.singular, *(f"{self.singular}_{end}" for end in (key, "id", "nr", "no", "key"))}
        return frozenset(names | {name.replace("_", "") for name in names})

    @property
    def is_named_like_persons(self) -> bool:
        """Whether its name or its key names the persons whom the tables are about."""
        return is_person_number(f"{self.singular}_id") or any(map(is_person_number, chain.from_iterable(self.keys[:1])))

    @property
    def traits(self) -> frozenset[str]:
        """The kinds of its columns that describe persons."""
        kinds = (find_kind(name) for name in self.columns)
        return frozenset(kind.name for kind in kinds if kind is not None and kind.name in _TRAITS)


@dataclass(frozen=True)
class Link:
    """Columns of a table that reference rows of another table by its key.

    ``orphans`` is the number of rows whose reference matches no key, and ``reason`` says how the link was found.
    ``further`` columns reference ancestors of a row: by column, the table of the ancestor.
    """

    child: str
    columns: tuple[str, ...]
    parent: str
    key: tuple[str, ...]
    orphans: int
    reason: str
    further: Mapping[str, str] = field(default_factory=dict)

    @property
    def references(self) -> dict[str, str]:
        """The table whose row each column names."""
        return {**dict.fromkeys(self.columns, self.parent), **self.further}


def find_keys(run: Run, profile: TableProfile, constraints: Constraints) -> tuple[tuple[str, ...], ...]:
    """The keys of a table: declared ones, else the columns that differ in all rows, those named like keys first."""
    if constraints.keys:
        return constraints.keys
    candidates = [
        column.name
        for column in profile.profiles
        if (column_kind(column.type) in _KEY_KINDS or column.type == "UUID")
        and column.values == profile.rows
        and column.distinct >= NEARLY_UNIQUE_SHARE * profile.rows
        and ((kind := find_kind(column.name)) is None or kind.role == "identifying")
    ]
    if not candidates or not profile.rows:
        return ()
    (counts,) = StatementRunner(run.engine).fetch_rows(exact_counts_query(run.source.relation, candidates), [])
    unique = [name for name, distinct in zip(candidates, counts, strict=True) if distinct == profile.rows]
    unique.sort(key=lambda name: NUMBER_WORDS.fullmatch(split_words(name)) is None)
    return tuple((name,) for name in unique)


def find_links(tables: Sequence[ProfiledTable]) -> list[Link]:
    """The references between tables: of each table the declared ones, else those that names and values show."""
    by_name = {table.location.table or table.name: table for table in tables}
    links: list[Link] = []
    for child in tables:
        declared = [
            Link(
                child.name,
                foreign_key.columns,
                parent.name,
                foreign_key.key,
                count_orphans(child, foreign_key.columns, parent, foreign_key.key),
                "as its foreign key declares",
            )
            for foreign_key in child.constraints.foreign_keys
            if (parent := by_name.get(foreign_key.table)) is not None and parent is not child
        ]
        links += declared or [link for parent in tables for link in _find_references(child, parent)]
    return links


def _find_references(child: ProfiledTable, parent: ProfiledTable) -> Iterator[Link]:
    """The columns of a table whose names and values say that they name rows of another table."""
    if child is parent or not child.rows:
        return
    for key in parent.keys:
        if len(key) != 1:
            continue
        target = parent.columns[key[0]]
        for column in child.profile.profiles:
            if not column.values or not _are_comparable(column, target) or _names_own_rows(column.name, child):
                continue
            match = _compare_names(column.name, parent, key[0])
            is_text = column_kind(column.type) is ColumnKind.TEXT or column.type == "UUID"
            if match == 0 and not (is_text and column.distinct >= _MIN_VALUES and _may_number(column)):
                continue
            orphans = count_orphans(child, (column.name,), parent, key)
            missing = orphans - (child.rows - column.values)
            if missing == 0 or (match > 1 and missing <= (1 - _MIN_SHARE) * column.values):
                reason = "by its name and its values" if match else "by its values"
                yield Link(child.name, (column.name,), parent.name, key, orphans, reason)


def _names_own_rows(column: str, table: ProfiledTable) -> bool:
    """Whether a column is a key of its table, and named after it."""
    words = split_words(column)
    return (column,) in table.keys and words in table.row_names(words)


def _may_number(column: Profile) -> bool:
    kind = find_kind(column.name)
    return kind is None or kind.role == "identifying"


def _are_comparable(column: Profile, target: Profile) -> bool:
    kind = column_kind(column.type)
    return kind is column_kind(target.type) and (kind in _KEY_KINDS or column.type == target.type == "UUID")


def _compare_names(column: str, parent: ProfiledTable, key: str) -> int:
    """The score of a column's name as a reference to a table: 2 by the name of its key or of the table, 1 by its
    ending, 0 otherwise."""
    words, key_words = split_words(column), split_words(key)
    is_generic = _GENERIC.fullmatch(key_words) is not None
    row_names = parent.row_names(key_words)
    if words in row_names or (words == key_words and not is_generic):
        return 2
    ends = row_names if is_generic else {*row_names, key_words}
    return int(any(words.endswith(f"_{end}") for end in ends))


def count_orphans(child: ProfiledTable, columns: Sequence[str], parent: ProfiledTable, key: Sequence[str]) -> int:
    """The rows of a table whose columns name no row of another table."""
    keys: list[exp.Expr] = [as_column(col(name), f"key_{i}") for i, name in enumerate(key)]
    query = template("""
        SELECT count(*)
        FROM :rows AS child
        ANTI JOIN :keys AS parent ON :same
    """)(
        rows=child.run.source.relation,
        keys=subquery(select(keys, parent.run.source.relation.copy())),
        same=all_of(col(name, "child").eq(col(f"key_{i}", "parent")) for i, name in enumerate(columns)),
    )
    return int(StatementRunner(child.run.engine).fetch_rows(query, [])[0][0])
