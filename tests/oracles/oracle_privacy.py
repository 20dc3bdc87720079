"""Every privacy requirement in plain Python, and exhaustive search with them: the slow and obvious way.

It imports nothing from sqlanon. A policy's ``[privacy]`` is the tree of its TOML; a source is a list of rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

from oracles import oracle
from oracles import oracle_distances as distances
from oracles.oracle import Figures, Hierarchy, Levels, Row, Solution, Table, Unknown, Value
from oracles.oracle_distances import TOLERANCE, Counts, Shares, exact

Record = Mapping[str, Value]
Privacy = Mapping[str, Any]


def of_persons(records: Sequence[Record], person: str | None) -> int:
    """The rows, or the distinct persons; all without an id together are one."""
    return len(records) if person is None else len({record[person] for record in records})


def by_class(records: Sequence[Record], quasi: Mapping[str, Hierarchy], levels: Levels) -> dict[Row, list[Record]]:
    """The records by their generalized quasi-identifiers, including unknown values."""
    return _by_label(records, quasi, levels, lambda tree, value, level: tree.label(value, level))


def people_by_class(
    people: Sequence[Record], quasi: Mapping[str, Hierarchy], levels: Levels
) -> dict[Row, list[Record]]:
    """A population likewise, except that only ``*`` covers unknown values, and no other top label."""

    def label(tree: Hierarchy, value: Value, level: int) -> Value:
        is_missed = value is not None and not tree.knows(value)
        return Unknown(value) if is_missed and tree.top != "*" else tree.label(value, level)

    return _by_label(people, quasi, levels, label)


def _by_label(
    records: Sequence[Record],
    quasi: Mapping[str, Hierarchy],
    levels: Levels,
    label: Callable[[Hierarchy, Value, int], Value],
) -> dict[Row, list[Record]]:
    classes: dict[Row, list[Record]] = defaultdict(list)
    seen: list[dict[Value, Value]] = [{} for _ in quasi]
    places = list(zip(quasi.items(), levels, seen, strict=True))
    for record in records:
        labels = []
        for (name, tree), level, domain in places:
            value = record[name]
            if value not in domain:
                domain[value] = label(tree, value, level)
            labels.append(domain[value])
        classes[tuple(labels)].append(record)
    return dict(classes)


@dataclass(frozen=True)
class Source:
    """A private table, and perhaps a population.

    Attributes
    ----------
    rows, population:
        One mapping a row, values by column.
    quasi, sensitive:
        The attributes of these roles in the policy's order, with their hierarchies.
    person, population_person:
        The columns that say whose row it is.
    """

    rows: list[Record]
    quasi: Mapping[str, Hierarchy]
    sensitive: Mapping[str, Hierarchy | None] = field(default_factory=dict)
    person: str | None = None
    population: list[Record] | None = None
    population_person: str | None = None

    @cached_property
    def table(self) -> Table:
        return Table.of((tuple([row[name] for name in self.quasi]) for row in self.rows), self.quasi)

    @cached_property
    def known(self) -> list[Record]:
        """The rows without unknown values; the others are always suppressed."""
        return [row for row in self.rows if all(tree.knows(row[name]) for name, tree in self.quasi.items())]

    @cached_property
    def people(self) -> list[Record]:
        """The population. Where the source has no NULL, that of the population is a value that the hierarchy misses."""
        assert self.population is not None
        complete = {name for name in self.quasi if all(row[name] is not None for row in self.rows)}
        return [
            {name: Unknown(None) if value is None and name in complete else value for name, value in record.items()}
            for record in self.population
        ]

    def count(self, records: Sequence[Record]) -> int:
        return of_persons(records, self.person)

    def values(self, records: Sequence[Record], attribute: str) -> Counts:
        """The number of occurrences of each value: in rows, or in distinct pairs of person and value."""
        if self.person is None:
            return Counter(record[attribute] for record in records)
        return Counter(value for _, value in {(record[self.person], record[attribute]) for record in records})

    @cached_property
    def distributions(self) -> dict[str, Shares]:
        """Distribution of each sensitive attribute over the whole source."""
        return {name: distances.shares(self.values(self.rows, name)) for name in self.sensitive}


# --- requirements on a class ------------------------------------------------------------------------


def is_diverse(counts: Counts, spec: Mapping[str, Any]) -> bool:
    if spec["kind"] == "distinct":
        return len(counts) >= spec["l"]
    if spec["kind"] == "entropy":
        return distances.is_entropy_diverse(counts, spec["l"])
    return distances.is_recursive_diverse(counts, spec["c"], spec["l"])


def l_diversity(source: Source, records: Sequence[Record], spec: Mapping[str, Any]) -> bool:
    """Counts of the class, or of each of its parts that agrees in all other sensitive attributes."""
    parts: dict[Row, list[Record]] = defaultdict(list)
    names = [name for name in source.sensitive if spec.get("joint") and name != spec["attribute"]]
    for record in records:
        parts[tuple([record[name] for name in names])].append(record)
    return all(is_diverse(source.values(part, spec["attribute"]), spec) for part in parts.values())


def distance(source: Source, records: Sequence[Record], attribute: str, kind: str) -> Fraction:
    """From the class to the whole source."""
    p, q = distances.shares(source.values(records, attribute)), source.distributions[attribute]
    if kind == "equal":
        return distances.equal_distance(p, q)
    if kind == "ordered":
        return distances.ordered_distance(p, q)
    tree = source.sensitive[attribute]
    assert tree is not None
    return distances.hierarchical_distance(p, q, tree)


def t_closeness(source: Source, records: Sequence[Record], spec: Mapping[str, Any]) -> bool:
    return distance(source, records, spec["attribute"], spec["distance"]) <= exact(spec["t"]) + TOLERANCE


def delta_disclosure(source: Source, records: Sequence[Record], spec: Mapping[str, Any]) -> bool:
    p = distances.shares(source.values(records, spec["attribute"]))
    return distances.discloses_at_most(p, source.distributions[spec["attribute"]], spec["delta"])


def beta_likeness(source: Source, records: Sequence[Record], spec: Mapping[str, Any]) -> bool:
    p, q = distances.shares(source.values(records, spec["attribute"])), source.distributions[spec["attribute"]]
    return distances.is_beta_like(p, q, spec["beta"], spec.get("kind", "enhanced"))


def alpha_k(source: Source, records: Sequence[Record], spec: Mapping[str, Any]) -> bool:
    greatest = max(distances.shares(source.values(records, spec["attribute"])).values())
    return greatest <= exact(spec["alpha"]) + TOLERANCE


OF_VALUES: dict[str, Callable[[Source, Sequence[Record], Mapping[str, Any]], bool]] = {
    "l_diversity": l_diversity,
    "t_closeness": t_closeness,
    "delta_disclosure": delta_disclosure,
    "beta_likeness": beta_likeness,
    "alpha_k": alpha_k,
}


# --- a generalization with suppression --------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """A source generalized to ``levels``, without the rows that requirements suppress.

    ``table``, ``levels``, ``kept``, ``suppressed`` and ``suppressed_rows`` are what the measures look at.
    """

    source: Source
    levels: Levels
    privacy: Privacy

    @property
    def table(self) -> Table:
        return self.source.table

    @cached_property
    def classes(self) -> dict[Row, list[Record]]:
        """The classes of the rows with known values."""
        return by_class(self.source.known, self.source.quasi, self.levels)

    @cached_property
    def population(self) -> dict[Row, int]:
        """The rows, or persons, of the population by class; unknown values form separate classes."""
        classes = people_by_class(self.source.people, self.source.quasi, self.levels)
        return {labels: of_persons(some, self.source.population_person) for labels, some in classes.items()}

    def presence(self, labels: Row) -> Fraction | None:
        """Released / population; None for an empty population."""
        population_count = self.population.get(labels, 0)
        return Fraction(self.source.count(self.classes[labels]), population_count) if population_count else None

    def meets(self, labels: Row) -> bool:
        """Whether a class meets every requirement on a class by itself."""
        privacy, source, records = self.privacy, self.source, self.classes[labels]
        if source.count(records) < privacy.get("k", 1):
            return False
        if "k_map" in privacy and self.population.get(labels, 0) < privacy["k_map"]:
            return False
        if "delta_presence" in privacy and not self._is_within(self.presence(labels)):
            return False
        return all(holds(source, records, spec) for name, holds in OF_VALUES.items() for spec in privacy.get(name, ()))

    def _is_within(self, presence: Fraction | None) -> bool:
        limits = self.privacy["delta_presence"]
        if presence is None:
            return False
        return exact(limits.get("min", 0)) - TOLERANCE <= presence <= exact(limits["max"]) + TOLERANCE

    @cached_property
    def kept_records(self) -> dict[Row, list[Record]]:
        """The classes that meet all conditions, without those that a shield suppresses, until it suppresses none."""
        retained = {labels: records for labels, records in self.classes.items() if self.meets(labels)}
        while True:
            broken = {
                labels for shield in self.privacy.get("k_anonymity", ()) for labels in self._breaking(shield, retained)
            }
            if not broken:
                return retained
            retained = {labels: records for labels, records in retained.items() if labels not in broken}

    def _breaking(self, shield: Mapping[str, Any], retained: Mapping[Row, list[Record]]) -> Iterator[Row]:
        places = [list(self.source.quasi).index(name) for name in shield["quasi"]]
        merged: dict[Row, list[Record]] = defaultdict(list)
        for labels, records in retained.items():
            merged[tuple([labels[i] for i in places])].extend(records)
        for labels in retained:
            if self.source.count(merged[tuple([labels[i] for i in places])]) < shield["k"]:
                yield labels

    @cached_property
    def kept(self) -> dict[Row, int]:
        """The kept classes with their rows."""
        return {labels: len(records) for labels, records in self.kept_records.items()}

    @cached_property
    def suppressed(self) -> int:
        return len(self.source.rows) - sum(self.kept.values())

    @cached_property
    def suppressed_persons(self) -> int:
        """The number of persons with a suppressed row; all rows without an id are one person."""
        assert self.source.person is not None
        retained = Counter(record[self.source.person] for records in self.kept_records.values() for record in records)
        return len(Counter(record[self.source.person] for record in self.source.rows) - retained)

    @property
    def partly_released_persons(self) -> int:
        """The number of suppressed persons who also have a kept row."""
        person = self.source.person
        assert person is not None
        released = {record[person] for records in self.kept_records.values() for record in records}
        return self.suppressed_persons + len(released) - self.source.count(self.source.rows)

    def suppressed_rows(self) -> Iterator[tuple[Row, int]]:
        """The distinct rows of quasi-identifiers that are left out, with counts."""
        rows = {row for row, _ in self.table.known_rows}
        for row, n in self.table.rows.items():
            if row not in rows or self.table.generalize(row, self.levels) not in self.kept:
                yield row, n

    def released(self, columns: Sequence[str]) -> Counter[Row]:
        """The rows of the release: the labels of a class, and of ``columns`` the values as they are."""
        return Counter(
            (*labels, *(record[name] for name in columns))
            for labels, records in self.kept_records.items()
            for record in records
        )

    @cached_property
    def counts(self) -> list[int]:
        """Size of the kept classes: rows, or persons."""
        return [self.source.count(records) for records in self.kept_records.values()]

    def holds_as_a_whole(self) -> bool:
        """The conditions on the kept table, and on missing people of the population for δ-presence."""
        privacy, counts = self.privacy, self.counts

        def allowed_share(key: str) -> Fraction:
            return exact(privacy[key]["max"]) + TOLERANCE

        if (
            "average_risk" in privacy
            and Fraction(len(counts), sum(counts)) > exact(privacy["average_risk"]) + TOLERANCE
        ):
            return False
        if "sample_uniqueness" in privacy:
            uniqueness = Fraction(counts.count(1), sum(counts))
            if uniqueness > exact(privacy["sample_uniqueness"]) + TOLERANCE:
                return False
        if "null_map" in privacy and Fraction(self.null_map, sum(self.kept.values())) > allowed_share("null_map"):
            return False
        if "wrong_map" in privacy and Fraction(self.wrong_map, sum(self.kept.values())) > allowed_share("wrong_map"):
            return False
        if "delta_presence" in privacy and privacy["delta_presence"].get("min", 0) > 0:
            return all(labels in self.kept for labels in self.population)
        return True

    @property
    def null_map(self) -> int:
        """Released rows whose class matches no row of the population."""
        return sum(n for labels, n in self.kept.items() if labels not in self.population)

    @property
    def wrong_map(self) -> int:
        """Released rows whose class matches rows of the population, but not their own person; NULL does not match."""
        source = self.source
        assert source.person is not None and source.population_person is not None
        people = people_by_class(source.people, source.quasi, self.levels)
        wrong = 0
        for labels, records in self.kept_records.items():
            members = {record[source.population_person] for record in people.get(labels, ())} - {None}
            wrong += sum(labels in people and record[source.person] not in members for record in records)
        return wrong


def satisfies(release: Release, suppression_limit: Decimal | str) -> bool:
    """Few enough rows are left out, some are not, and the conditions on the kept table hold. With persons, few enough
    of them lose a row."""
    source = release.source
    allowed = oracle.allowed_rows(suppression_limit, source.count(source.rows))
    lost = release.suppressed if source.person is None else release.suppressed_persons
    return lost <= allowed and bool(release.kept) and release.holds_as_a_whole()


def satisfying(
    source: Source,
    privacy: Privacy,
    suppression_limit: Decimal | str,
    measure: str,
    *,
    aggregate: str | None = "mean",
    weights: Mapping[str, float] | None = None,
) -> list[Figures]:
    """Every generalization that satisfies the requirements, in lexicographic order."""
    releases = (Release(source, levels, privacy) for levels in oracle.lattice(source.table))
    return [
        Figures(r.levels, oracle.score(r, measure, aggregate, weights), r.suppressed, len(r.kept))
        for r in releases
        if satisfies(r, suppression_limit)
    ]


def solve(
    source: Source, privacy: Privacy, suppression_limit: Decimal | str, measure: str, **options: Any
) -> Solution | None:
    """The best feasible generalization; ``None`` without one. Options as ``satisfying``."""
    return oracle.best(satisfying(source, privacy, suppression_limit, measure, **options), measure)


def k_minimal(
    source: Source, privacy: Privacy, suppression_limit: Decimal | str, measure: str, **options: Any
) -> Solution | None:
    """The best of those that satisfy while no strictly lower one does; they are its ``satisfying``."""
    figures = satisfying(source, privacy, suppression_limit, measure, **options)
    minimal = [f for f in figures if not any(oracle.strictly_lower(g.levels, f.levels) for g in figures)]
    return oracle.best(minimal, measure)
