"""Compared releases with their hierarchies and labels, and the link of their rows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
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
    number_values,
    order_nodes,
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
    fragment,
    null_safe_equal,
    select,
    subquery,
    table,
    template,
    text,
    union_all,
)

_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_DIGITS = {
    **dict.fromkeys(("TINYINT", "UTINYINT"), 3),
    **dict.fromkeys(("SMALLINT", "USMALLINT"), 5),
    **dict.fromkeys(("INTEGER", "UINTEGER"), 10),
    **{"BIGINT": 19, "UBIGINT": 20, "HUGEINT": 39, "UHUGEINT": 39, "BIGNUM": 10**6},
}
"""The most digits of whole numbers of a type."""
_FLOATING = ("FLOAT", "DOUBLE")  # the coarser first
_MOMENT = re.compile(r"DATE|TIMESTAMP.*")

MOST_RANGES = 4000
"""The most ranges, or sets, of an attribute that are compared with other labels: each matches many."""

UNCOMPARED = f"medians, more than {MOST_RANGES:,} ranges or sets, or labels that its hierarchy does not have"
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
# A decimal as text: 1.50 is 1.5, and 2.00 is 2.
_WITHOUT_ZEROS = fragment("rtrim(rtrim(:text, '0'), '.')")
_TOP_LABEL = template("SELECT any_value(:label)::VARCHAR FROM :hierarchy")
_LABEL_COUNTS = template("SELECT :counts FROM :release AS r")
_LABELS = template("SELECT DISTINCT :label::VARCHAR AS label FROM :release AS r")
_STRANGE_LABELS = template("""
    WITH "sqlanon nodes 0" AS (:nodes)
    SELECT
        count(*) FILTER (WHERE NOT r.label IS NULL) AS ranges,
        count(*) FILTER (WHERE r.label IS NULL) AS others
    FROM (SELECT DISTINCT :label::VARCHAR AS label FROM :release AS r) AS l
    ANTI JOIN "sqlanon nodes 0" AS n ON l.label = n.label
    LEFT JOIN :ranges AS r ON l.label = r.label
    WHERE NOT l.label IS NULL
""")
_KNOWN_LABELS = template("""
    SELECT count(l.label), count(n.node)
    FROM (SELECT DISTINCT :label::VARCHAR AS label FROM :release AS r) AS l
    LEFT JOIN (SELECT DISTINCT node FROM :nodes AS e) AS n ON l.label = n.node
""")
_NODE = template("SELECT :label::VARCHAR AS node FROM :hierarchy")
_DISTINCT_NODES = template("SELECT DISTINCT node AS label FROM :nodes AS e")
# A node whose label begins with a brace could be read as a set: then no label is.
_SET_LABELS = template("""
    SELECT
        count(*) FILTER (WHERE unknown = 0) AS sets,
        (SELECT count(*) FROM :nodes AS n WHERE starts_with(label, '{')) AS braces
    FROM (
        SELECT s.label, count(*) FILTER (WHERE v.label IS NULL) AS unknown
        FROM :sets AS s
        LEFT JOIN (SELECT DISTINCT label FROM :members AS m) AS v ON s.member = v.label
        GROUP BY s.label
    ) AS x
""")
_CROSSED = template("""
    SELECT :levels
    FROM :first
    JOIN :second ON :same AND (a.level_0 IS NULL) = (b.level_0 IS NULL)
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
        output: list[exp.Expr] = [
            as_column(_SET_TEXT(members=col(column.name)), column.name)
            if column.name.lower() in self._lists
            else col(column.name)
            for column in self.manifest.columns
        ]
        return replace(self, relation=subquery(select(output, self.relation.copy()), "release"))

    def rename_columns(self: Subject, names: Mapping[str, str]) -> Subject:
        """The release with other names of unchanged columns."""
        if not names:
            return self
        output: list[exp.Expr] = [
            as_column(col(column.name), names[column.name]) if column.name in names else col(column.name)
            for column in self.manifest.columns
        ]
        columns = tuple(replace(column, name=names.get(column.name, column.name)) for column in self.manifest.columns)
        return replace(
            self,
            manifest=replace(self.manifest, columns=columns),
            relation=subquery(select(output, self.relation.copy()), "release"),
        )

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
        return not self.excludes_masked_rows and self.has_masked_rows

    @property
    def has_masked_rows(self) -> bool:
        return self.manifest.policy.get("suppressed") == "mask" and self.manifest.suppressed_rows > 0

    @property
    def can_be_base(self) -> bool:
        """Whether a release can be based on it: each of its quasi-identifiers has one level, and all rows are real."""
        levels = [self.level(name, 0) for name in self.columns if self.is_quasi(name)]
        return None not in levels and not self.shows_masked_rows and not self.manifest.decoys

    @property
    def shows_medians(self) -> bool:
        """Whether classes show their median, which does not reveal their other values."""
        return bool(self.manifest.policy["search"].get("summary") == "median")

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
    def of(cls, table: exp.Expr, height: int, open_ends: bool) -> ComparedHierarchy:
        """The hierarchy of a table, which has ``label_0`` with open ends."""
        if not open_ends:
            return cls(table, height)
        labels = [released_column(level, open_ends) for level in range(height + 1)]
        output: list[exp.Expr] = [as_column(col(name), f"level_{i}") for i, name in enumerate(["level_0", *labels])]
        return cls(subquery(select(output, table.copy()), "h"), height + 1, below=1)

    @property
    def top(self) -> exp.Expr:
        """The label of its top."""
        return subquery(_TOP_LABEL(label=col(f"level_{self.height}"), hierarchy=self.table.copy()))

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
    levels: list[exp.Expr] = [col(f"level_{level}", "a") for level in range(first.height + 1)]
    levels += [
        as_column(col(f"level_{level}", "b"), f"level_{first.height + 1 + level}") for level in range(second.height + 1)
    ]
    return _CROSSED(
        levels=levels,
        first=aliased(first.table.copy(), "a"),
        second=aliased(second.table.copy(), "b"),
        same=null_safe_equal(
            comparable_value(col("level_0", "a"), *types),
            comparable_value(col("level_0", "b"), *reversed(types)),
        ),
    )


@dataclass(frozen=True)
class ComparedHierarchies:
    """The known hierarchies of two releases, by attribute in lower case.

    Attributes
    ----------
    rules:
        Their rules in the manifests.
    crossing:
        The attributes with two different hierarchies.
    """

    hierarchies: Mapping[str, ComparedHierarchy]
    rules: Mapping[str, Sequence[Any]]
    crossing: Mapping[str, CrossedHierarchies] = field(default_factory=dict)

    def find(self, name: str, rules: Sequence[Any]) -> ComparedHierarchy | None:
        """The hierarchy of a column with these rules in manifests."""
        known_rules = self.rules.get(name, ())
        is_known = all(any(_same(rule, known_rule) for known_rule in known_rules) for rule in rules)
        return self.hierarchies.get(name) if is_known else None

    def for_release(self, is_first: bool) -> dict[str, ComparedHierarchy]:
        """The hierarchies of one of the releases."""
        crossed = {name: pair.first if is_first else pair.second for name, pair in self.crossing.items()}
        return {**self.hierarchies, **crossed}


NO_HIERARCHIES = ComparedHierarchies({}, {})


def _lower(by_name: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in by_name.items()}


def _same(rule: Any, other_rule: Any) -> bool:
    return bool(json.loads(json.dumps(rule)) == json.loads(json.dumps(other_rule)))


def link_releases(first: ComparedRelease, second: ComparedRelease, hierarchies: ComparedHierarchies) -> ReleaseLink:
    """Link two releases: labels at different levels match by the hierarchies of a policy."""
    names = [name for name in first.columns if first.is_quasi(name)]
    names += [name for name in second.columns if second.is_quasi(name) and name not in names]
    attributes: list[LinkedAttribute] = []
    missing: list[str] = []
    for name in names:
        first_column, second_column = first.column(name), second.column(name)
        if first_column is None or second_column is None:
            attributes.append(LinkedAttribute(first_column or second_column or name, first_column, second_column))
            continue
        rules = [first_rows.rule(name) for first_rows in (first, second) if first_rows.is_quasi(name)]
        crossed_pair = hierarchies.crossing.get(name) if len(rules) == 2 else None
        if crossed_pair is not None:
            attributes.append(_crossing(first_column, second_column, crossed_pair, first, second))
            continue
        hierarchy = hierarchies.find(name, rules)
        if hierarchy is None and len(rules) == 2 and not _same(*rules):
            missing.append(first_column)
            continue
        if hierarchy is not None:
            levels = hierarchy.level(first, name), hierarchy.level(second, name)
        else:
            levels = first.level(name, _TOP), second.level(name, _TOP)
        shows_values = len(rules) == 1 and has_open_ends(rules[0])  # while the other release shows open ends
        if (
            None not in levels
            and levels[0] == levels[1]
            and (not shows_values if hierarchy is None else levels[0] == 0)
        ):
            attributes.append(LinkedAttribute(first_column, first_column, second_column))
        elif hierarchy is None:
            missing.append(first_column)
        else:
            attributes.append(
                LinkedAttribute(
                    first_column,
                    first_column,
                    second_column,
                    hierarchy.levels(first, name),
                    hierarchy.levels(second, name),
                    hierarchy.table,
                    hierarchy.height,
                    ranges=True,
                    sets=_levels_of_sets(hierarchy.member_level(first, name), hierarchy.member_level(second, name)),
                )
            )
    shared = [
        name
        for name in first.columns
        if name in second.columns and not first.is_quasi(name) and not second.is_quasi(name)
    ]
    first_rows, second_rows = _comparable(first, second, [*names, *shared])
    return ReleaseLink(
        first_rows, second_rows, tuple(first.column(name) or name for name in shared), tuple(attributes), tuple(missing)
    )


def _crossing(
    first_column: str,
    second_column: str,
    hierarchies: CrossedHierarchies,
    first: ComparedRelease,
    second: ComparedRelease,
) -> LinkedAttribute:
    """An attribute with labels of two hierarchies: labels match if they have values in common."""
    name = first_column.lower()
    members = hierarchies.first.member_level(first, name), hierarchies.second.member_level(second, name)
    return LinkedAttribute(
        first_column,
        first_column,
        second_column,
        hierarchies.first.levels(first, name),
        tuple(hierarchies.second_level(level) for level in hierarchies.second.levels(second, name)),
        hierarchies.table,
        hierarchies.height,
        ranges=True,
        sets=_levels_of_sets(members[0], None if members[1] is None else hierarchies.second_level(members[1])),
        is_nested=False,
    )


def _levels_of_sets(first: int | None, second: int | None) -> tuple[int, int] | None:
    """The lowest levels of the members of sets in both releases, if one of them has sets."""
    return None if first is None and second is None else (first or 0, second or 0)


def prepare_comparison(
    engine: Engine, linked: ReleaseLink, ranges: Set[int], sets: Set[int] = frozenset()
) -> ReleaseLink:
    """Make a link cheaper to compare: attributes with few labels come first, and ranges and sets are only compared if a
    release has any."""
    multilevel = [i for i, _ in linked.multilevel_attributes]
    if not multilevel:
        return linked
    attributes = list(linked.attributes)
    columns = [[attributes[i].first or "" for i in multilevel], [attributes[i].second or "" for i in multilevel]]
    counts = []
    for release, names in zip((linked.first, linked.second), columns, strict=True):
        label_counts = [fragment("count(DISTINCT :label)")(label=col(name, "r")) for name in names]
        counts.append(engine.rows(_LABEL_COUNTS(counts=label_counts, release=release))[0])
    for i, first, second in zip(multilevel, *counts, strict=True):
        attributes[i] = replace(
            attributes[i],
            pairs=first * second,
            ranges=i in ranges,
            sets=attributes[i].sets if i in sets else None,
        )
    return replace(linked, attributes=tuple(attributes))


def count_unknown_labels(release: exp.Expr, column: str, hierarchy: exp.Expr, height: int) -> exp.Select:
    """One row: the number of ``ranges`` among the labels of a column, and of ``others`` that are not nodes of its
    hierarchy: sets, and unknown values.
    """
    label = col(column, "r")
    labels = _LABELS(label=label, release=release)
    return _STRANGE_LABELS(
        nodes=order_nodes(hierarchy, range(height + 1)),
        label=label,
        release=release,
        ranges=find_ranges(labels, table("sqlanon nodes 0"), hierarchy),
    )


def _known_labels(release: exp.Expr, column: str, hierarchy: exp.Expr, levels: Sequence[int]) -> exp.Select:
    """One row: the number of labels of a column, and of those that the hierarchy has at some levels."""
    nodes = union_all(*(_NODE(label=col(f"level_{level}"), hierarchy=hierarchy) for level in levels))
    return _KNOWN_LABELS(label=col(column, "r"), release=release, nodes=nodes)


def count_set_labels(release: exp.Expr, column: str, hierarchy: exp.Expr, height: int, level: int) -> exp.Select:
    """One row: the number of ``sets`` of nodes from a level on among the labels of a column, and of nodes that begin
    with ``braces``."""
    labels = _LABELS(label=col(column, "r"), release=release)
    nodes = [_NODE(label=col(f"level_{level}"), hierarchy=hierarchy) for level in range(height + 1)]
    return _SET_LABELS(
        nodes=subquery(_DISTINCT_NODES(nodes=union_all(*nodes))),
        sets=subquery(find_sets(labels)),
        members=subquery(number_values(hierarchy, member_levels(level, height))),
    )


@dataclass(frozen=True)
class LabelKinds:
    """The kinds of labels of a release.

    Attributes
    ----------
    incomparable:
        The columns with labels that cannot be compared (`UNCOMPARED`).
    ranges, sets:
        The numbers of the attributes with ranges, and with sets.
    """

    incomparable: list[str]
    ranges: frozenset[int]
    sets: frozenset[int]


def classify_labels(engine: Engine, subject: ComparedRelease, attributes: Sequence[LinkedAttribute]) -> LabelKinds:
    """Find the kinds of labels of a release, the first of a link."""
    incomparable, with_ranges, with_sets = list[str](), set[int](), set[int]()
    for i, attribute in enumerate(attributes):
        if attribute.first is None or attribute.hierarchy is None:
            continue
        if len(attribute.first_levels) == 1:
            level = attribute.first_levels[0]
            query = _known_labels(subject.relation, attribute.first, attribute.hierarchy, [level])
            labels, known_labels = engine.rows(query)[0]
            # Released values may have left the source; but if no label is known, the labels have another origin.
            is_strange = 0 < level < attribute.height and labels > 0 and not known_labels
        else:
            is_strange = subject.shows_medians
            labels, known_labels = engine.rows(
                _known_labels(subject.relation, attribute.first, attribute.hierarchy, range(attribute.height + 1))
            )[0]
            if labels > known_labels:
                query = count_unknown_labels(subject.relation, attribute.first, attribute.hierarchy, attribute.height)
                ranges, unknown_labels = engine.rows(query)[0]
                set_labels_count = braces = 0
                if unknown_labels and attribute.sets and subject.member_level(attribute.first.lower()) is not None:
                    query = count_set_labels(
                        subject.relation, attribute.first, attribute.hierarchy, attribute.height, attribute.sets[0]
                    )
                    set_labels_count, braces = engine.rows(query)[0]
                is_strange |= (
                    unknown_labels > set_labels_count
                    or bool(set_labels_count and (ranges or braces))
                    or max(ranges, set_labels_count) > MOST_RANGES
                )
                with_ranges |= {i} if ranges else set()
                with_sets |= {i} if set_labels_count else set()
        if is_strange:
            incomparable.append(attribute.first)
    return LabelKinds(incomparable, frozenset(with_ranges), frozenset(with_sets))


def classify_labels_of_both(
    engine: Engine, linked: ReleaseLink, first: ComparedRelease, second: ComparedRelease
) -> LabelKinds | str:
    """Find the kinds of labels of two releases, or the reason why these cannot be compared."""
    kinds = (
        classify_labels(engine, first, linked.attributes),
        classify_labels(engine, second, linked.swapped.attributes),
    )
    for subject, label_kinds in zip((first, second), kinds, strict=True):
        if label_kinds.incomparable:
            return f"{subject.path.name} has {UNCOMPARED}, in {', '.join(label_kinds.incomparable)}"
    ranges, sets = (
        frozenset.union(*both)
        for both in zip(*((label_kinds.ranges, label_kinds.sets) for label_kinds in kinds), strict=True)
    )
    if mixed := [linked.attributes[i].name for i in sorted(ranges & sets)]:
        return f"{', '.join(mixed)} has ranges in one release and sets in the other"
    return LabelKinds([], ranges, sets)


def _comparable(first: ComparedRelease, second: ComparedRelease, names: Sequence[str]) -> tuple[exp.Expr, exp.Expr]:
    """The rows of both releases, with columns of different types cast to a common type."""
    both = [name for name in names if name in first.columns and name in second.columns]
    different = {name for name in both if first.columns[name] != second.columns[name]}
    if not different:
        return first.relation, second.relation
    return _cast(first, different, second.columns), _cast(second, different, first.columns)


def common_type(first: str, second: str) -> str:
    """The type in which values of two types are compared: 1 equals 1.0, and a day its midnight; else their texts.

    Whole numbers and decimals are compared exactly. A floating column rounds other numbers, so readers of both compare
    rounded values; likewise for a time without nanoseconds.

    >>> [common_type("BIGINT", other) for other in ("INTEGER", "UBIGINT", "DECIMAL(6,2)", "FLOAT", "VARCHAR")]
    ['HUGEINT', 'HUGEINT', 'DECIMAL(21,2)', 'FLOAT', 'VARCHAR']
    """
    digits = [_digits_of(type_) for type_ in (first, second)]
    if all(
        type_ in _FLOATING or exact_digits is not None
        for type_, exact_digits in zip((first, second), digits, strict=True)
    ):
        for type_ in _FLOATING:
            if type_ in (first, second):
                return type_
        return _exact_type(first, second, [exact_digits for exact_digits in digits if exact_digits is not None])
    if all(map(_MOMENT.fullmatch, (first, second))):
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
        return _WITHOUT_ZEROS(text=compared)
    return compared


def _cast(subject: ComparedRelease, names: Set[str], types: Mapping[str, str]) -> exp.Subquery:
    """The rows with some columns cast for the comparison with another release, which has ``types``."""
    output: list[exp.Expr] = []
    for column in subject.manifest.columns:
        name, value = column.name.lower(), col(column.name)
        if name in names:
            output.append(as_column(comparable_value(value, subject.columns[name], types[name]), column.name))
        else:
            output.append(value)
    return subquery(select(output, subject.relation.copy()))
