"""Compared releases with their hierarchies and labels, and the link of their rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.hierarchies.build import released_column
from sqlanon.hierarchies.parts import TOP
from sqlanon.ledger.joint.label_pairs import (
    LinkedAttribute,
    find_ranges,
    find_sets,
    member_levels,
    order_nodes,
    select_labels,
)
from sqlanon.ledger.joint.row_matching import ReleaseLink
from sqlanon.policy import PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.release.manifest import Manifest, has_open_ends
from sqlanon.requirements import guaranteed_k
from sqlanon.support.expressions import (
    aliased,
    all_of,
    as_column,
    cast,
    col,
    cols,
    fragment,
    null_safe_equal,
    select,
    subquery,
    table,
    template,
    text,
)

_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_DIGITS = {
    **dict.fromkeys(("TINYINT", "UTINYINT"), 3),
    **dict.fromkeys(("SMALLINT", "USMALLINT"), 5),
    **dict.fromkeys(("INTEGER", "UINTEGER"), 10),
    **{"BIGINT": 19, "UBIGINT": 20, "HUGEINT": 39, "UHUGEINT": 39, "BIGNUM": 10**6},
}
"""Maximum number of digits of whole numbers of a type."""
_FLOATING = ("FLOAT", "DOUBLE")  # the coarser first
_MOMENT = re.compile(r"DATE|TIMESTAMP.*")

MAX_RANGES = 4000
"""Maximum number of ranges, or sets, of an attribute that are compared with other labels: each matches many."""

UNCOMPARED = f"medians, more than {MAX_RANGES:,} ranges or sets, or labels that its hierarchy does not have"
"""The labels that cannot be compared."""

_TOP = -1
"""The level of the top of an unknown hierarchy."""

# A list has the values of a set, or the single label of a class without a set.
_SET_TEXT = fragment(r"""
    CASE
        WHEN length(:members) = 1 THEN :members[1]
        ELSE '{' || array_to_string(
            [
                CASE
                    WHEN regexp_matches(member, '[,{}"]|^\s|\s$|^$') THEN '"' || replace(member, '"', '""') || '"'
                    ELSE member
                END
                FOR member IN :members
            ],
            ', '
        ) || '}'
    END
""")
Subject = TypeVar("Subject", bound="ComparedRelease")


@dataclass(frozen=True)
class ComparedRelease:
    """A release that is compared with others: its manifest and its rows."""

    path: Path
    manifest: Manifest
    relation: exp.Table | exp.Subquery
    excludes_masked_rows: bool = field(default=False, kw_only=True)

    @property
    def sensitive(self) -> list[str]:
        return [column.name for column in self.manifest.columns if column.role == "sensitive"]

    @property
    def promised_k(self) -> int:
        """The fewest rows of a class that its policy guarantees."""
        # The requirements of a later version may be unknown, but its k is not.
        if self.privacy is None:
            return int(self.manifest.policy["privacy"].get("k") or 2)
        return guaranteed_k(self.privacy, self.manifest.quasi_identifiers)

    @property
    def privacy(self) -> PrivacySection | None:
        """The requirements of its policy; None if this version does not know some of them."""
        return read_part(PrivacySection, self.manifest.policy["privacy"], "privacy", {})[0]

    @property
    def k(self) -> int:
        """The k of its policy; the rows of its smallest class if there is none."""
        return int(self.manifest.policy["privacy"].get("k") or self.manifest.fewest_rows)

    @property
    def columns(self) -> dict[str, str]:
        """The types of columns without noise, by name in lower case."""
        noisy = {name.lower() for name in self.manifest.noise or ()}
        types = {
            column.name.lower(): column.type for column in self.manifest.columns if column.name.lower() not in noisy
        }
        return types | dict.fromkeys(self._lists, "VARCHAR")

    @property
    def _lists(self) -> frozenset[str]:
        """The columns with sets as lists, in lower case."""
        if self.manifest.policy["search"].get("sets") != "list":
            return frozenset()
        lists = {column.name.lower() for column in self.manifest.columns if column.type == "VARCHAR[]"}
        return frozenset(name for name in lists if self.member_level(name) is not None)

    @property
    def with_sets_as_text(self: Subject) -> Subject:
        """The release with lists of set members as texts."""
        if not self._lists:
            return self
        names = [column.name for column in self.manifest.columns if column.name.lower() in self._lists]
        return self.replace_columns({name: as_column(_SET_TEXT(members=col(name)), name) for name in names})

    def rename_columns(self: Subject, names: Mapping[str, str]) -> Subject:
        """The release with other names of unchanged columns."""
        if not names:
            return self
        columns = tuple(replace(column, name=names.get(column.name, column.name)) for column in self.manifest.columns)
        renamed = self.replace_columns({name: as_column(col(name), new_name) for name, new_name in names.items()})
        return replace(renamed, manifest=replace(self.manifest, columns=columns))

    def replace_columns(self: Subject, output: Mapping[str, exp.Expr]) -> Subject:
        """The release with other expressions for some columns."""
        columns = [output.get(column.name, col(column.name)) for column in self.manifest.columns]
        return replace(self, relation=subquery(select(columns, self.relation.copy()), "release"))

    def without_masked_rows(self: Subject, hierarchies: Mapping[str, ComparedHierarchy]) -> Subject:
        """The release without its masked rows: those with the top label of every quasi-identifier."""
        if not self.shows_masked_rows:
            return self
        tops = []
        for name in self.manifest.quasi_identifiers:
            hierarchy = hierarchies.get(name.lower())
            # The labels of a NULL are NULL below the top: such rows are not masked.
            tops.append(null_safe_equal(cast(col(name), "VARCHAR"), text(TOP) if hierarchy is None else hierarchy.top))
        query = select([exp.Star()], self.relation.copy()).where(exp.not_(all_of(tops)), copy=False)
        return replace(self, relation=subquery(query, "release"), excludes_masked_rows=True)

    def column(self, name: str) -> str | None:
        """The spelling of a column without noise, by name in lower case."""
        if name not in self.columns:
            return None
        return next(column.name for column in self.manifest.columns if column.name.lower() == name)

    def is_quasi(self, name: str) -> bool:
        return name in {column.lower() for column in self.manifest.quasi_identifiers}

    def level(self, name: str, height: int) -> int | None:
        """The level of a column's labels in a hierarchy; None if there are several, also because of masked rows."""
        if not self.is_quasi(name):
            return 0
        if self.shows_masked_rows:
            return None
        return _lower(self.manifest.levels({name: height})).get(name)

    def levels(self, name: str, height: int) -> tuple[int, ...]:
        """The possible levels of a column's labels."""
        if not self.is_quasi(name):
            return (0,)
        level = _lower(self.manifest.levels({name: height})).get(name)
        if level is None:
            return tuple(range(height + 1))
        return (level, height) if self.shows_masked_rows and level < height else (level,)

    @property
    def shows_masked_rows(self) -> bool:
        """Whether it may show masked rows."""
        has_masked_rows = self.manifest.policy.get("suppressed") == "mask" and self.manifest.suppressed_rows > 0
        return has_masked_rows and not self.excludes_masked_rows

    @property
    def can_be_base(self) -> bool:
        """Whether a release can be based on it: each of its quasi-identifiers has one level, and all rows are real."""
        levels = [self.level(name, 0) for name in self.columns if self.is_quasi(name)]
        return None not in levels and not self.shows_masked_rows and not self.manifest.decoys

    def member_level(self, name: str) -> int | None:
        """The lowest level of the members of a column's sets; None if its policy makes no sets."""
        attribute = _lower(self.manifest.policy["attributes"]).get(name)
        if attribute is None or self.manifest.policy["search"].get("summary") != "set" or not self.is_quasi(name):
            return None
        return int(attribute.get("min_level", 0))

    def rule(self, name: str) -> Any:
        """The hierarchy rule of a column in the manifest; None if it is not generalized."""
        attribute = _lower(self.manifest.policy["attributes"]).get(name)
        return None if attribute is None or not self.is_quasi(name) else attribute.get("hierarchy")


@dataclass(frozen=True)
class ComparedHierarchy:
    """A hierarchy: one row per ground value, ``level_0`` to the top.

    ``below`` is 1 where releases show open ends at their level 0: values are then one level below it.
    """

    table: exp.Expr
    height: int
    below: int = 0

    @classmethod
    def from_table(cls, table: exp.Expr, height: int, open_ends: bool) -> ComparedHierarchy:
        """The hierarchy of a table, which has ``label_0`` with open ends."""
        if not open_ends:
            return cls(table, height)
        labels = [released_column(level, open_ends) for level in range(height + 1)]
        output: list[exp.Expr] = [as_column(col(name), f"level_{i}") for i, name in enumerate(["level_0", *labels])]
        return cls(subquery(select(output, table.copy()), "h"), height + 1, below=1)

    @property
    def top(self) -> exp.Expr:
        """The label of its top."""
        query = template("SELECT any_value(:label)::VARCHAR FROM :hierarchy")
        return subquery(query(label=col(f"level_{self.height}"), hierarchy=self.table.copy()))

    def level(self, release: ComparedRelease, name: str) -> int | None:
        """The level of a column's labels in a release; None if there are several, also because of masked rows."""
        level = release.level(name, self.height - self.below)
        return level if level is None or not release.is_quasi(name) else level + self.below

    def levels(self, release: ComparedRelease, name: str) -> tuple[int, ...]:
        """The possible levels of a column's labels in a release."""
        below = self.below if release.is_quasi(name) else 0
        return tuple(level + below for level in release.levels(name, self.height - self.below))

    def member_level(self, release: ComparedRelease, name: str) -> int | None:
        """The level of the members of a column's sets; None if a release has no sets."""
        level = release.member_level(name)
        return None if level is None else min(level + self.below, self.height)


@dataclass(frozen=True)
class CrossedHierarchies:
    """The two hierarchies of an attribute in two releases.

    ``table`` has a row for each common ground value: the levels of the first hierarchy, then those of the second.
    """

    first: ComparedHierarchy
    second: ComparedHierarchy
    table: exp.Expr

    @property
    def height(self) -> int:
        return self.first.height + self.second.height + 1

    def second_level(self, level: int) -> int:
        """The level in the table of a level of the second hierarchy."""
        return self.first.height + 1 + level


def cross_hierarchies(first: ComparedHierarchy, second: ComparedHierarchy, types: tuple[str, str]) -> exp.Select:
    """The table of `CrossedHierarchies`; ``types`` are those of the ground values in both."""
    levels = cols((f"level_{level}" for level in range(first.height + 1)), "a")
    for level in range(second.height + 1):
        levels.append(as_column(col(f"level_{level}", "b"), f"level_{first.height + 1 + level}"))
    return template("""
        SELECT :levels
        FROM :first
        JOIN :second ON :same AND (a.level_0 IS NULL) = (b.level_0 IS NULL)
    """)(
        levels=levels,
        first=aliased(first.table.copy(), "a"),
        second=aliased(second.table.copy(), "b"),
        same=null_safe_equal(
            comparable_value(col("level_0", "a"), *types), comparable_value(col("level_0", "b"), *reversed(types))
        ),
    )


@dataclass(frozen=True)
class ComparedHierarchies:
    """The known hierarchies of two releases, by attribute in lower case."""

    hierarchies: Mapping[str, ComparedHierarchy]
    rules: Mapping[str, Sequence[Any]]  # their rules in the manifests
    crossing: Mapping[str, CrossedHierarchies] = field(default_factory=dict)  # attributes with two hierarchies

    def find(self, name: str, rules: Sequence[Any]) -> ComparedHierarchy | None:
        """The hierarchy of a column with these rules in manifests."""
        known_rules = self.rules.get(name, ())
        is_known = all(any(_is_same_rule(rule, known_rule) for known_rule in known_rules) for rule in rules)
        return self.hierarchies.get(name) if is_known else None

    def for_release(self, is_first: bool) -> dict[str, ComparedHierarchy]:
        """The hierarchies of one of the releases."""
        crossed = {name: pair.first if is_first else pair.second for name, pair in self.crossing.items()}
        return {**self.hierarchies, **crossed}


NO_HIERARCHIES = ComparedHierarchies({}, {})


def _lower(by_name: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in by_name.items()}


def _is_same_rule(rule: Any, other_rule: Any) -> bool:
    return bool(json.loads(json.dumps(rule)) == json.loads(json.dumps(other_rule)))


def link_releases(first: ComparedRelease, second: ComparedRelease, hierarchies: ComparedHierarchies) -> ReleaseLink:
    """Link two releases: labels at different levels match by the hierarchies of a policy."""
    names = [name for name in first.columns if first.is_quasi(name)]
    names += [name for name in second.columns if second.is_quasi(name) and name not in names]
    shared = [name for name in first.columns if name in second.columns and name not in names]
    attributes, missing = list[LinkedAttribute](), list[str]()
    for name in names:
        attribute = _link_attribute(name, first, second, hierarchies)
        if attribute is None:
            missing.append(first.column(name) or name)
        else:
            attributes.append(attribute)
    common = [name for name in (*names, *shared) if name in first.columns and name in second.columns]
    different = {name for name in common if first.columns[name] != second.columns[name]}
    return ReleaseLink(
        _cast(first, different, second.columns),
        _cast(second, different, first.columns),
        tuple(first.column(name) or name for name in shared),
        tuple(attributes),
        tuple(missing),
    )


def _link_attribute(
    name: str, first: ComparedRelease, second: ComparedRelease, hierarchies: ComparedHierarchies
) -> LinkedAttribute | None:
    """Link a quasi-identifier of two releases; None if its labels cannot be compared without a hierarchy."""
    columns = first.column(name), second.column(name)
    title = columns[0] or columns[1] or name
    if None in columns:
        return LinkedAttribute(title, *columns)
    rules = [release.rule(name) for release in (first, second) if release.is_quasi(name)]
    crossed = hierarchies.crossing.get(name) if len(rules) == 2 else None
    if crossed is not None:  # labels of two hierarchies match if they have values in common
        first_levels, second_levels = crossed.first.levels(first, name), crossed.second.levels(second, name)
        members = crossed.first.member_level(first, name), crossed.second.member_level(second, name)
        return LinkedAttribute(
            title,
            *columns,
            first_levels,
            tuple(map(crossed.second_level, second_levels)),
            crossed.table,
            crossed.height,
            ranges=True,
            sets=_levels_of_sets(members[0], None if members[1] is None else crossed.second_level(members[1])),
            is_nested=False,
        )
    hierarchy = hierarchies.find(name, rules)
    if hierarchy is None and len(rules) == 2 and not _is_same_rule(*rules):
        return None
    level, other_level = (
        release.level(name, _TOP) if hierarchy is None else hierarchy.level(release, name)
        for release in (first, second)
    )
    shows_values = len(rules) == 1 and has_open_ends(rules[0])  # while the other release shows open ends
    has_equal_labels = not shows_values if hierarchy is None else level == 0
    if level is not None and level == other_level and has_equal_labels:
        return LinkedAttribute(title, *columns)
    if hierarchy is None:
        return None
    return LinkedAttribute(
        title,
        *columns,
        hierarchy.levels(first, name),
        hierarchy.levels(second, name),
        hierarchy.table,
        hierarchy.height,
        ranges=True,
        sets=_levels_of_sets(hierarchy.member_level(first, name), hierarchy.member_level(second, name)),
    )


def _levels_of_sets(first: int | None, second: int | None) -> tuple[int, int] | None:
    """The lowest levels of the members of sets in both releases, if one of them has sets."""
    return None if first is None and second is None else (first or 0, second or 0)


def prepare_comparison(
    engine: Engine, link: ReleaseLink, ranges: Set[int], sets: Set[int] = frozenset()
) -> ReleaseLink:
    """Make a link cheaper to compare: attributes with few labels come first, and ranges and sets are only compared if a
    release has any."""
    multilevel, attributes, counts = link.multilevel_attributes, list(link.attributes), []
    if not multilevel:
        return link
    for is_first in (True, False):
        release, columns = link.side(is_first)
        names = dict(columns)
        label_counts = [fragment("count(DISTINCT :label)")(label=col(names[i], "r")) for i, _ in multilevel]
        query = template("SELECT :counts FROM :release AS r")(counts=label_counts, release=release)
        counts.append(engine.rows(query)[0])
    for (i, attribute), first, second in zip(multilevel, *counts, strict=True):
        attributes[i] = replace(
            attribute, pairs=first * second, ranges=i in ranges, sets=attribute.sets if i in sets else None
        )
    return replace(link, attributes=tuple(attributes))


def count_unknown_labels(release: exp.Expr, column: str, hierarchy: exp.Expr, height: int) -> exp.Select:
    """One row: the number of ``ranges`` among the labels of a column, and of ``others`` that are not nodes of its
    hierarchy: sets, and unknown values.
    """
    labels, nodes = _distinct_labels(release, column), table("sqlanon nodes 0")
    return template("""
        WITH "sqlanon nodes 0" AS (:nodes)
        SELECT
            count(*) FILTER (WHERE NOT r.label IS NULL) AS ranges,
            count(*) FILTER (WHERE r.label IS NULL) AS others
        FROM :labels AS l
        ANTI JOIN "sqlanon nodes 0" AS n ON l.label = n.label
        LEFT JOIN :ranges AS r ON l.label = r.label
        WHERE NOT l.label IS NULL
    """)(
        nodes=order_nodes(hierarchy, range(height + 1)),
        labels=labels,
        ranges=find_ranges(labels.copy(), nodes, hierarchy),
    )


def _distinct_labels(release: exp.Expr, column: str) -> exp.Select:
    query = template("SELECT DISTINCT :label::VARCHAR AS label FROM :release AS r")
    return query(label=col(column, "r"), release=release)


def _known_labels(release: exp.Expr, column: str, hierarchy: exp.Expr, levels: Iterable[int]) -> exp.Select:
    """One row: the number of labels of a column, and of those that the hierarchy has at some levels."""
    return template("""
        SELECT count(l.label), count(n.label)
        FROM :labels AS l
        LEFT JOIN (SELECT DISTINCT label FROM :nodes AS e) AS n ON l.label = n.label
    """)(labels=_distinct_labels(release, column), nodes=select_labels(hierarchy, levels))


def count_set_labels(release: exp.Expr, column: str, hierarchy: exp.Expr, height: int, level: int) -> exp.Select:
    """One row: the number of ``sets`` of nodes from a level on among the labels of a column, and of nodes that begin
    with ``braces``: then a node could be read as a set, and no label is one."""
    return template("""
        WITH
            members AS (SELECT DISTINCT label FROM :members AS m),
            sets AS (
                SELECT s.label, count(*) FILTER (WHERE m.label IS NULL) AS unknown
                FROM :sets AS s
                LEFT JOIN members AS m ON s.member = m.label
                GROUP BY s.label
            ),
            nodes AS (SELECT DISTINCT label FROM :nodes AS e)
        SELECT
            count(*) FILTER (WHERE unknown = 0) AS sets,
            (SELECT count(*) FROM nodes WHERE starts_with(label, '{')) AS braces
        FROM sets
    """)(
        members=select_labels(hierarchy, member_levels(level, height)),
        sets=find_sets(labels=_distinct_labels(release, column)),
        nodes=select_labels(hierarchy, range(height + 1)),
    )


@dataclass(frozen=True)
class LabelKinds:
    """The kinds of labels of a release."""

    incomparable: list[str]  # the columns with labels that cannot be compared (`UNCOMPARED`)
    ranges: frozenset[int]  # the numbers of the attributes with ranges
    sets: frozenset[int]


def classify_labels(engine: Engine, subject: ComparedRelease, attributes: Sequence[LinkedAttribute]) -> LabelKinds:
    """Find the kinds of labels of a release, the first of a link."""
    incomparable, with_ranges, with_sets = list[str](), set[int](), set[int]()
    for i, attribute in enumerate(attributes):
        if attribute.first is None or attribute.hierarchy is None:
            continue
        source, height = (subject.relation, attribute.first, attribute.hierarchy), attribute.height
        if len(attribute.first_levels) == 1:
            level = attribute.first_levels[0]
            labels, known_labels = engine.rows(_known_labels(*source, [level]))[0]
            # Released values may have left the source; but if no label is known, the labels have another origin.
            is_strange = 0 < level < height and labels > 0 and not known_labels
        else:
            # A median does not reveal the other values of its class.
            is_strange = subject.manifest.policy["search"].get("summary") == "median"
            labels, known_labels = engine.rows(_known_labels(*source, range(height + 1)))[0]
            if labels > known_labels:
                ranges, unknown_labels = engine.rows(count_unknown_labels(*source, height))[0]
                sets = braces = 0
                if unknown_labels and attribute.sets and subject.member_level(attribute.first.lower()) is not None:
                    sets, braces = engine.rows(count_set_labels(*source, height, attribute.sets[0]))[0]
                is_strange |= unknown_labels > sets or bool(sets and (ranges or braces))
                is_strange |= max(ranges, sets) > MAX_RANGES
                with_ranges |= {i} if ranges else set()
                with_sets |= {i} if sets else set()
        if is_strange:
            incomparable.append(attribute.first)
    return LabelKinds(incomparable, frozenset(with_ranges), frozenset(with_sets))


def classify_labels_of_both(
    engine: Engine, link: ReleaseLink, first: ComparedRelease, second: ComparedRelease
) -> LabelKinds | str:
    """Find the kinds of labels of two releases, or the reason why these cannot be compared."""
    first_kinds = classify_labels(engine, first, link.attributes)
    second_kinds = classify_labels(engine, second, link.in_reverse.attributes)
    for subject, kinds in ((first, first_kinds), (second, second_kinds)):
        if kinds.incomparable:
            return f"{subject.path.name} has {UNCOMPARED}, in {', '.join(kinds.incomparable)}"
    ranges, sets = first_kinds.ranges | second_kinds.ranges, first_kinds.sets | second_kinds.sets
    if mixed := [link.attributes[i].name for i in sorted(ranges & sets)]:
        return f"{', '.join(mixed)} has ranges in one release and sets in the other"
    return LabelKinds([], ranges, sets)


def common_type(first: str, second: str) -> str:
    """The type in which values of two types are compared: 1 equals 1.0, and a day its midnight; else their texts.

    Whole numbers and decimals are compared exactly. A floating column rounds other numbers, so readers of both compare
    rounded values; likewise for a time without nanoseconds.

    >>> [common_type("BIGINT", other) for other in ("INTEGER", "UBIGINT", "DECIMAL(6,2)", "FLOAT", "VARCHAR")]
    ['HUGEINT', 'HUGEINT', 'DECIMAL(21,2)', 'FLOAT', 'VARCHAR']
    """
    types, digits = (first, second), [_digits_of(first), _digits_of(second)]
    exact_digits = [counts for counts in digits if counts is not None]
    floating = [type_ for type_ in _FLOATING if type_ in types]
    if len(exact_digits) + sum(type_ in _FLOATING for type_ in types) == 2:
        return floating[0] if floating else _exact_type(first, second, exact_digits)
    if all(map(_MOMENT.fullmatch, types)):
        return "TIMESTAMP_NS" if "_NS" in first and "_NS" in second else "TIMESTAMP"
    return "VARCHAR"


def _digits_of(type_: str) -> tuple[int, int] | None:
    """The digits before and after the point of an exact type; None for other types."""
    if decimal := _DECIMAL.fullmatch(type_):
        width, scale = map(int, decimal.groups())
        return width - scale, scale
    return (_DIGITS[type_], 0) if type_ in _DIGITS else None


def _exact_type(first: str, second: str, digits: Sequence[tuple[int, int]]) -> str:
    """A type that holds the values of two exact types; VARCHAR if there is none."""
    whole, scale = (max(counts) for counts in zip(*digits, strict=True))
    if not scale and not {"UHUGEINT", "BIGNUM"} & {first, second}:
        return "HUGEINT"
    return f"DECIMAL({whole + scale},{scale})" if whole + scale <= 38 else "VARCHAR"


def comparable_value(value: exp.Expr, type_: str, other_type: str) -> exp.Expr:
    """A value in the type in which it is compared with values of another type."""
    if type_ == other_type:
        return value
    if (shared_type := common_type(type_, other_type)) == "FLOAT":
        return exp.TryCast(this=value, to=exp.DataType.build("FLOAT", dialect="duckdb"))  # 1e300 becomes NULL
    compared = cast(value, shared_type)
    digits = [_digits_of(compared_type) for compared_type in (type_, other_type)]
    if shared_type == "VARCHAR" and None not in digits and digits[0] is not None and digits[0][1]:
        return fragment("rtrim(rtrim(:text, '0'), '.')")(text=compared)  # 1.50 is 1.5, and 2.00 is 2
    return compared


def _cast(subject: ComparedRelease, names: Set[str], types: Mapping[str, str]) -> exp.Expr:
    """The rows with some columns cast for the comparison with another release, which has ``types``."""
    if not names:
        return subject.relation
    output: dict[str, exp.Expr] = {}
    for column in subject.manifest.columns:
        if (key := column.name.lower()) in names:
            value = comparable_value(col(column.name), subject.columns[key], types[key])
            output[column.name] = as_column(value, column.name)
    return subject.replace_columns(output).relation
