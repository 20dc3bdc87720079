"""The risk of a source as it stands: the figures of its classes, and whether they meet the requirements of the policy.

Each distinct combination of quasi-identifiers is a class. Figures and conditions are those of the search, on the
frequency set of the generalization at level 0; without hierarchies, the values are their own codes. If requirements
need sensitive values, classes are joined to them: each combination gets a number, which has no NULLs, as its only
quasi-identifier. Persons of classes add up, because no person is in two rows of such a frequency set that form one
class.

The statements are the same for a dry run, with example figures in place of query results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from sqlglot import exp

from sqlanon.disclosure.dependencies import Narrowing, find_narrowing_in_source
from sqlanon.disclosure.person_column import describe_undecided_person
from sqlanon.disclosure.unprotected_columns import find_unprotected_columns
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.class_sizes import ClassSizes
from sqlanon.frequency.distribution import count_value_pairs, hierarchy_nodes, number_sensitive_values, ordered_domain
from sqlanon.frequency.population import population_size, sampling_fraction
from sqlanon.frequency.scan import population_runner, scan_raw_population, sensitive_domain
from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.statements import PERSON, PERSONS, POPULATION, count_persons, quasi_columns, raw_frequency
from sqlanon.frequency.uncoded import uncoded_distribution, uncoded_frequency_set
from sqlanon.hierarchies.build import AttributeValues
from sqlanon.policy import Policy, RiskSection
from sqlanon.requirements import Domain, KAnonymity, Requirements, attributes_needing_hierarchies, bind_requirements
from sqlanon.requirements.base import ClassCondition, Distribution, KeptClasses, TableCondition
from sqlanon.requirements.wrong_map import wrong_rows
from sqlanon.risk.attackers import (
    JournalistRisk,
    MarketerRisk,
    attackers_by_estimate,
    attackers_by_table,
    population_risk,
    prosecutor_risk,
)
from sqlanon.risk.figures import RequirementRisk, Risk
from sqlanon.risk.individual import measure_individual_risk
from sqlanon.risk.leakage import AttributeSets, CountedSets, Leakage, direct_bits, rank_leakage
from sqlanon.risk.leakage_search import LeakageSearch, search_leakage
from sqlanon.risk.levels import code_levels
from sqlanon.risk.noise_errors import show_noise_errors
from sqlanon.risk.person_sets import person_sets
from sqlanon.risk.priors import read_priors, read_shares, weighted_sets
from sqlanon.sources.columns import Columns, match_columns
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.classes import equivalence_classes
from sqlanon.support.coding import ROW_COUNT, quasi_column, sensitive_column
from sqlanon.support.expressions import (
    all_of,
    as_column,
    cast,
    col,
    fragment,
    null_safe_equal,
    select,
    select_star,
    subquery,
    template,
)
from sqlanon.support.notices import sort_messages

_CLASSES_BY_SIZE = template("""
    SELECT row_count::BIGINT AS class_size, row_count::BIGINT AS class_count, classes::BIGINT AS classes
    FROM :sizes
""")

_SIZES = template("""
    SELECT class_count, count(*), sum(class_size)::BIGINT
    FROM :classes AS c
    WHERE class_size > 0
    GROUP BY class_count
""")


def assess_risk(
    runner: StatementRunner, run: Run, policy: Policy, leakage: int = 3, leakage_seconds: float | None = None
) -> Risk:
    """Assess the risk of a source as it stands."""
    risk = _Assessment(run, policy, runner, leakage, leakage_seconds).risk()
    if runner.dry and policy.noisy_attributes:
        show_noise_errors(runner, run, policy)
    return risk


class _Assessment:
    """One assessment. Creates tables in the work schema of the run, unless one scan of the source is enough."""

    def __init__(
        self, run: Run, policy: Policy, runner: StatementRunner, leakage: int = 3, leakage_seconds: float | None = None
    ) -> None:
        self.run, self.policy, self.runner, self.work = run, policy, runner, run.work
        self.columns: Columns = match_columns(policy, run.source)
        self.counts_persons = self.columns.person is not None
        self.section = policy.risk or RiskSection()
        self.names = (*policy.generalized_attributes, *policy.noisy_attributes)
        self.leakage, self.leakage_seconds = leakage, leakage_seconds

    def risk(self) -> Risk:
        space = self._class_space()
        # Requirements apply to the generalized quasi-identifiers; other figures include those that are to get noise.
        needs_classes = self.columns.noisy or self.counts_persons or space.population or space.sensitive
        sizes_alone = None if needs_classes else _CLASSES_BY_SIZE(sizes=self.attribute_sets.sizes)
        figures = self.runner.fetch_figures(_figures(space, sizes_alone))
        source_figures = figures
        if self.columns.noisy:
            quasi = range(len(self.columns.generalized) + len(self.columns.noisy))
            source_figures = self.runner.fetch_figures(
                _figures(self._uncoded_space(self.rows, quasi, None, Requirements()))
            )
        requirements = space.requirements
        persons = self._person_count if self.counts_persons else None
        sizes = self._class_sizes()
        count = sizes.rows if persons is None else persons
        population, share = population_size(self.policy, count), sampling_fraction(self.policy, lambda: count)
        journalist, marketer = self._population_risks(sizes, space, share)
        leakage, leakage_search = self._search_leakage(sizes.rows)
        unprotected = find_unprotected_columns(
            self.runner, self.policy, self.run.source, self.columns, sizes.rows, persons
        )
        smallest = source_figures["smallest_count"]
        return Risk(
            rows=source_figures["rows"],
            classes=source_figures["classes"],
            smallest_class=smallest,
            uniques=source_figures["single_classes"],
            k=self.policy.privacy.k,
            rows_below_k=_count_rows_below_k(requirements, figures),
            highest_risk=1 / smallest if smallest else 0.0,
            average_risk=source_figures["classes"] / source_figures["count"] if source_figures["count"] else 0.0,
            persons=persons,
            smallest_class_rows=source_figures["smallest_class"] if self.counts_persons else None,
            requirements=(
                *(_class_risk(condition, i, figures) for i, condition in enumerate(requirements.class_conditions)),
                *self._shield_risks(requirements),
                *(_table_risk(condition, figures) for condition in requirements.table_conditions),
                *self._separate_risks(space, figures["rows"], count),
            ),
            counts="persons" if self.counts_persons else "rows",
            class_sizes=sizes,
            prosecutor=prosecutor_risk(sizes, self.section.threshold),
            journalist=journalist,
            marketer=marketer,
            population=None if population is None else population_risk(sizes.sizes, count, population),
            leakage=leakage,
            leakage_search=leakage_search,
            dependencies=self._dependencies(sizes.rows),
            undecided_person=describe_undecided_person(
                self.runner, self.policy, self.run.source, self.columns, sizes.rows
            ),
            warnings=sort_messages((*self.run.notices, *unprotected)),
            **{
                "expected_reidentifications": marketer.expected,
                **measure_individual_risk(self.run, self.runner, self.columns, self.section, share),
            },
        )

    def _dependencies(self, rows: int) -> tuple[Narrowing, ...]:
        """The columns to be released unchanged that narrow a quasi-identifier."""
        source = self.run.source
        if source.access != "rows":
            return ()
        unchanged = [
            self.columns.by_attribute[name]
            for name, attribute in self.policy.attributes.items()
            if attribute.role in ("sensitive", "insensitive")
        ]
        return find_narrowing_in_source(
            self.runner, self.work, source.relation, rows, unchanged, self.columns.generalized, source.columns,
            self.policy.source, self.columns.person,
        )  # fmt: skip

    @cached_property
    def attribute_sets(self) -> AttributeSets:
        """The sets of all quasi-identifiers, counted in rows; in persons, if each has one combination."""
        if self._person_rows is not None:
            return AttributeSets(self.runner, self.work, self._person_rows, len(self.names), has_counts=False)
        has_counts = isinstance(self.rows, exp.Table)
        return AttributeSets(self.runner, self.work, self.rows, len(self.names), has_counts)

    @cached_property
    def _person_rows(self) -> exp.Table | None:
        """One row for each person; None if some have several combinations, and if rows are counted."""
        if not self.counts_persons or read_priors(self.policy):
            return None
        query = template("SELECT DISTINCT :quasi, person FROM :raw")(
            quasi=quasi_columns(len(self.names)), raw=self.rows
        )
        rows = self.runner.create_table(self.work("person_rows"), query)
        return rows if self.runner.count(rows) == self._person_count else None

    @cached_property
    def _person_count(self) -> int:
        return int(self.runner.fetch_figures(count_persons(self.rows))[PERSONS])

    def _search_leakage(self, rows: int) -> tuple[tuple[Leakage, ...], LeakageSearch]:
        """The leakage of sets of quasi-identifiers, highest first, and the extent of the search for them."""
        sets = self._leaking_sets()
        # DuckDB addresses the groups of small keys directly, without a hash table: sets form many small groups.
        with self.run.engine.setting("perfect_ht_threshold", str(direct_bits(self.run.engine.limits, rows))):
            leakages, search = search_leakage(
                sets, len(self.names), self.leakage, self.leakage_seconds, self.run.engines
            )
        return rank_leakage(leakages, self.names, sets.whole), search

    def _leaking_sets(self) -> CountedSets:
        """The sets of all quasi-identifiers, of rows weighted by the policy's priors, or else of persons or rows."""
        types = [self.run.source.columns[self.columns.by_attribute[name]] for name in self.names]
        dictionaries = self.attribute_sets.dictionaries
        shares = read_shares(self.runner, self.work, self.policy, self.names, types, dictionaries)
        if shares:
            return weighted_sets(self.work, self.attribute_sets, self.names, shares)
        if self.counts_persons and self._person_rows is None:
            assert isinstance(self.rows, exp.Table)
            return person_sets(self.work, self.attribute_sets, self.rows)
        return self.attribute_sets

    def _class_sizes(self) -> ClassSizes:
        if self.counts_persons:
            space = self._uncoded_space(self.rows, range(len(self.names)), None, Requirements())
            return ClassSizes.from_rows(self.runner.fetch_rows(_SIZES(classes=_classes(space)), []))
        return ClassSizes.from_classes(dict(self.runner.fetch_rows(select_star(self.attribute_sets.sizes.copy()), [])))

    def _population_risks(
        self, sizes: ClassSizes, space: ClassSpace, share: float | None
    ) -> tuple[JournalistRisk, MarketerRisk]:
        thresholds = self.section.threshold
        if self.population is None:
            return attackers_by_estimate(sizes, share, thresholds)
        classes = _classes(replace(space, requirements=Requirements(), sensitive={}))
        query = template("""
            SELECT class_population, count(*), sum(class_count)::BIGINT, sum(class_size)::BIGINT
            FROM :classes AS c
            WHERE class_size > 0
            GROUP BY class_population
        """)(classes=classes)
        return attackers_by_table(self.runner.fetch_rows(query, []), thresholds)

    @cached_property
    def _raw_population(self) -> exp.Table | None:
        """The population by combination and person."""
        population = self.run.population
        if population is None:
            return None
        runner = population_runner(self.runner, population)
        return scan_raw_population(runner, self.policy, population, self._types, self.work)

    @cached_property
    def population(self) -> exp.Subquery | None:
        """The population by combination."""
        raw = self._raw_population
        if raw is None:
            return None
        keys = [as_column(cast(col(quasi_column(i)), type_), quasi_column(i)) for i, type_ in enumerate(self._types)]
        assert self.policy.population is not None
        # With a person column, each person has one row for each of its combinations.
        count = col("row_count") if self.policy.population.person is None else exp.convert(1)
        return subquery(select([*keys, as_column(count, "population")], raw.copy()), "population")

    @cached_property
    def rows(self) -> exp.Table | exp.Subquery:
        """The rows of all figures: the source itself if it is scanned once, else its distinct combinations."""
        columns, source = self.columns, self.run.source.relation
        requirements = self._requirements()
        is_scanned_again = (
            columns.sensitive or self.counts_persons or requirements.shields or requirements.separate_conditions
        )
        quasi = (*columns.generalized, *columns.noisy)
        if not is_scanned_again and not columns.noisy:
            keys = [as_column(col(name), quasi_column(i)) for i, name in enumerate(quasi)]
            return subquery(select([*keys, as_column(exp.convert(1), "row_count")], source.copy()), "rows")
        return self.runner.create_table(
            self.work("raw"), raw_frequency(source, quasi, columns.sensitive, columns.person)
        )

    @property
    def _types(self) -> list[str]:
        """The types of the quasi-identifiers in the source."""
        return [self.run.source.columns[column] for column in self.columns.generalized]

    def _class_space(self) -> ClassSpace:
        """The relations from which classes are formed, and the requirements on them."""
        if isinstance(self.rows, exp.Table) and self.columns.sensitive:
            return self._numbered_space(self.rows)
        quasi = range(len(self.columns.generalized))
        return self._uncoded_space(self.rows, quasi, self.population, self._requirements())

    def _uncoded_space(
        self, rows: exp.Expr, quasi: Sequence[int], population: exp.Expr | None, requirements: Requirements
    ) -> ClassSpace:
        return ClassSpace(
            uncoded_frequency_set(rows, quasi, self.counts_persons, population),
            (1,) * len(quasi),
            requirements,
            persons=self.counts_persons,
            population=population is not None,
        )

    def _numbered_space(self, raw: exp.Table) -> ClassSpace:
        """Classes by number, with the counts of their sensitive values."""
        runner, work, quasi, population = self.runner, self.work, len(self.columns.generalized), self.population
        columns = quasi_columns(quasi)
        if population is None:
            combinations: exp.Expr = template("SELECT DISTINCT :quasi FROM :raw")(quasi=columns, raw=raw)
        else:
            combinations = fragment("""
                SELECT DISTINCT :quasi FROM :raw
                UNION
                SELECT :quasi FROM :population
            """)(quasi=columns, raw=raw, population=population)
        numbers = runner.create_table(
            work("class_numbers"),
            template("SELECT :quasi, row_number() OVER () AS number FROM :combinations AS d")(
                quasi=columns, combinations=combinations
            ),
        )
        names = (
            [sensitive_column(s) for s in range(len(self.columns.sensitive))]
            + [PERSON] * self.counts_persons
            + [ROW_COUNT]
        )
        rows = runner.create_table(work("numbered"), _add_class_numbers(raw, numbers, quasi, names))
        if population is not None:
            population = subquery(_add_class_numbers(population, numbers, quasi, [POPULATION]), "population")
        values, domains = self._sensitive_values(raw)
        heights, nodes = self._hierarchy_nodes(values)
        domains = {name: replace(domain, height=heights.get(name, 0)) for name, domain in domains.items()}
        space = self._uncoded_space(rows, [0], population, self._requirements(domains))
        tables = {
            distribution: self._sensitive_table(rows, distribution, nodes if distribution.kind == "nodes" else values)
            for distribution in space.requirements.distributions
        }
        return replace(space, sensitive=tables)

    def _requirements(self, domains: Mapping[str, Domain] | None = None) -> Requirements:
        return bind_requirements(self.policy.privacy, self.policy.generalized_attributes, domains)

    def _sensitive_values(self, raw: exp.Table) -> tuple[dict[str, exp.Table], dict[str, Domain]]:
        """The values of each sensitive attribute in the whole source, with their shares."""
        values, domains = {}, {}
        for s, name in enumerate(self.columns.sensitive_names):
            pairs = self.runner.create_table(
                self.work(f"pairs_{s}"), count_value_pairs(raw, 0, s, (), self.counts_persons)
            )
            query = number_sensitive_values(pairs, moving=False)
            values[name] = self.runner.create_table(self.work(f"sensitive_{s}"), query)
            domains[name] = sensitive_domain(self.runner, values[name], 0)
        return values, domains

    def _hierarchy_nodes(self, values: Mapping[str, exp.Table]) -> tuple[dict[str, int], dict[str, exp.Table]]:
        """The heights of the hierarchies that hierarchical t-closeness needs, and their nodes above each value."""
        needed, names = attributes_needing_hierarchies(self.policy.privacy), self.columns.sensitive_names
        attribute_values = {
            name: AttributeValues(values[name], self.run.source.columns[self.columns.by_attribute[name]])
            for name in names
            if name in needed
        }
        heights, nodes = {}, {}
        for name, (coded, height) in code_levels(self.runner, self.work, self.policy, attribute_values).items():
            heights[name] = height
            nodes[name] = values[name]  # without levels, the single value is the root
            if height:
                query = hierarchy_nodes(values[name], coded, height)
                nodes[name] = self.runner.create_table(self.work(f"nodes_{names.index(name)}"), query)
        return heights, nodes

    def _sensitive_table(
        self, rows: exp.Table, distribution: Distribution, values: Mapping[str, exp.Table]
    ) -> SensitiveTable:
        names = self.columns.sensitive_names
        index, attribute_values = names.index(distribution.attribute), values[distribution.attribute]
        inner = [i for i in range(len(names)) if i != index] if distribution.kind == "joint" else []
        pairs = count_value_pairs(rows, 1, index, inner, self.counts_persons)
        domain = None
        if distribution.kind == "values":
            domain = self.runner.create_table(self.work(f"domain_{index}"), ordered_domain(attribute_values))
        return SensitiveTable(uncoded_distribution(pairs, attribute_values, 1, len(inner)), len(inner), domain)

    def _shield_risks(self, requirements: Requirements) -> Iterator[RequirementRisk]:
        """Assess each shield by itself: k-anonymity over its own quasi-identifiers."""
        for shield in requirements.shields:
            space = self._uncoded_space(self.rows, shield.attributes, None, Requirements((KAnonymity(shield.k),)))
            figures = self.runner.fetch_figures(_figures(space))
            classes, rows = figures["classes_0"], figures["rows_0"]
            yield RequirementRisk(shield.name, not classes, classes, rows)

    def _separate_risks(self, space: ClassSpace, rows: int, count: int) -> Iterator[RequirementRisk]:
        """Assess each requirement whose figure needs a separate statement."""
        all_rows = _AllRows(rows, count, partial(self._count_classes_by_size, space), self._count_wrong_matches)
        for condition in space.requirements.separate_conditions:
            condition.refuse(count)
            figure = condition.figure(all_rows) if rows else 0.0
            shown_figure = None if math.isnan(figure) else figure
            is_met, limit = condition.is_within(figure), condition.upper_bound
            yield RequirementRisk(condition.name, is_met, figure=shown_figure, limit=limit)

    def _count_classes_by_size(self, space: ClassSpace) -> Mapping[int, int]:
        query = _SIZES(classes=_classes(replace(space, requirements=Requirements())))
        return ClassSizes.from_rows(self.runner.fetch_rows(query, [])).sizes

    def _count_wrong_matches(self) -> int:
        population = self._raw_population
        assert population is not None
        keys = [
            null_safe_equal(col(quasi_column(i), "r"), cast(col(quasi_column(i), "p"), type_))
            for i, type_ in enumerate(self._types)
        ]
        query = wrong_rows(self.rows, population, keys, PERSON, PERSON, col(ROW_COUNT, "r"))
        return int(self.runner.fetch_rows(query, [(0,)])[0][0])


@dataclass(frozen=True)
class _AllRows:
    """All rows of the source as the kept rows of a generalization (`requirements.base.KeptRows`)."""

    rows: int
    source_count: int
    class_sizes: Callable[[], Mapping[int, int]]
    count_wrong_matches: Callable[[], int]


def _add_class_numbers(rows: exp.Expr, numbers: exp.Table, quasi: int, columns: Sequence[str]) -> exp.Select:
    """Rows with the number of their class as their only quasi-identifier ``quasi_0``, and some of their columns."""
    on = all_of(null_safe_equal(col(quasi_column(i), "r"), col(quasi_column(i), "c")) for i in range(quasi))
    return template("""
        SELECT c.number AS quasi_0, :columns
        FROM :rows AS r
        JOIN :numbers AS c ON :same
    """)(columns=[col(name, "r") for name in columns], rows=rows, numbers=numbers, same=on)


def _classes(space: ClassSpace) -> exp.Select:
    return equivalence_classes(space, (0,) * len(space.heights))


def _figures(space: ClassSpace, by_size: exp.Select | None = None) -> exp.Select:
    """One row: the figures of the classes, and of the classes that violate each requirement on classes; ``by_size`` are
    the classes by size, if requirements need nothing else.

    Columns: ``rows``, ``classes``, ``smallest_class``; in rows or persons ``count`` (the total), ``smallest_count``
    (the minimum of a class) and ``single_classes`` (the classes of one); ``classes_i`` and ``rows_i`` for requirement
    i; and with a population ``absent``, its classes without a row in the source, and ``unmatched_rows``, the rows of
    the source without a match in it.
    """
    violates = fragment("class_size > 0 AND NOT coalesce((:condition), FALSE)")
    violating_classes = fragment("coalesce(sum(classes) FILTER (WHERE :violates)::BIGINT, 0)")
    rows_in_them = fragment("coalesce(sum(classes * class_size) FILTER (WHERE :violates)::BIGINT, 0)")
    flags: list[exp.Expr] = []
    violations: list[exp.Expr] = []
    for i, condition in enumerate(space.requirements.class_conditions):
        flag = col(f"violates_{i}")
        flags.append(as_column(violates(condition=condition.condition()), flag.name))
        violations.append(as_column(violating_classes(violates=flag), f"classes_{i}"))
        violations.append(as_column(rows_in_them(violates=flag), f"rows_{i}"))
    if space.population:
        absent = fragment("count(*) FILTER (WHERE class_population > 0 AND NOT (class_size > 0))")
        unmatched = fragment("coalesce(sum(classes * class_size) FILTER (WHERE class_population = 0)::BIGINT, 0)")
        violations += [as_column(absent(), "absent"), as_column(unmatched(), "unmatched_rows")]
    classes = (
        template("SELECT *, 1 AS classes FROM :classes AS c")(classes=_classes(space)) if by_size is None else by_size
    )
    # A class without rows exists only in the population.
    return template("""
        SELECT
            coalesce(sum(classes * class_size)::BIGINT, 0) AS rows,
            coalesce(sum(classes) FILTER (WHERE class_size > 0)::BIGINT, 0) AS classes,
            coalesce(min(class_size) FILTER (WHERE class_size > 0), 0) AS smallest_class,
            coalesce(sum(classes * class_count)::BIGINT, 0) AS count,
            coalesce(min(class_count) FILTER (WHERE class_size > 0), 0) AS smallest_count,
            coalesce(sum(classes) FILTER (WHERE class_size > 0 AND class_count = 1)::BIGINT, 0) AS single_classes,
            :violations
        FROM (SELECT *, :flags FROM :classes AS c) AS j
    """)(violations=violations, flags=flags, classes=classes)


def _count_rows_below_k(requirements: Requirements, figures: Mapping[str, int]) -> int:
    """The rows in classes that violate a condition which is a minimum count alone."""
    conditions = enumerate(requirements.class_conditions)
    return sum(figures[f"rows_{i}"] for i, condition in conditions if condition.min_class_count > 1)


def _class_risk(condition: ClassCondition, number: int, figures: Mapping[str, int]) -> RequirementRisk:
    """Assess a requirement on each class, with this number in the row of `_figures`."""
    classes, rows = figures[f"classes_{number}"], figures[f"rows_{number}"]
    # A class of the population without a row has the share 0.
    absent = figures["absent"] if condition.uncoverable_class() is not None else None
    return RequirementRisk(condition.name, not classes and not absent, classes, rows, population_classes=absent)


def _table_risk(condition: TableCondition, figures: Mapping[str, int]) -> RequirementRisk:
    """Assess a requirement on all classes together, from the row of `_figures`."""
    classes = KeptClasses(
        figures["classes"],
        figures["rows"],
        figures["count"],
        figures["single_classes"],
        figures.get("unmatched_rows", 0),
    )
    figure = condition.figure(classes) if classes.count else 0.0
    return RequirementRisk(condition.name, condition.is_met_by(classes), figure=figure, limit=condition.upper_bound)
