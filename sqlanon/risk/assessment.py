"""The assessment of a source: each requirement of the policy on its classes as they are, nothing generalized.

Each distinct combination of quasi-identifiers is a class: the figures and conditions are the search's own, on the
frequency set of that one generalization, without hierarchies: values stand for codes. Where requirements need sensitive
values, classes are joined to them; there each combination gets a number, which then is the only quasi-identifier:
numbers have no NULLs. No person is in two rows of such a frequency set that end in one class: persons add up.

Its statements are the same whether they are run or only shown. What a statement needs of the answers before it is
shown with an example.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from sqlglot import exp

from sqlanon.disclosure.class_sizes import ClassSizes
from sqlanon.disclosure.dependencies import Narrowing, find_narrowing_in_source
from sqlanon.disclosure.person_column import explain_undecided_person, find_undecided_person
from sqlanon.disclosure.unprotected_columns import find_unprotected_columns
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.distribution import count_value_pairs, hierarchy_nodes, number_sensitive_values, ordered_domain
from sqlanon.frequency.population import population_size, sampling_fraction
from sqlanon.frequency.scan import population_runner, scan_raw_population, sensitive_domain
from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.statements import PERSON, PERSONS, POPULATION, count_persons, quasi_columns, raw_frequency
from sqlanon.frequency.uncoded import uncoded_distribution, uncoded_frequency_set
from sqlanon.hierarchies.build import AttributeValues
from sqlanon.policy import Policy, RiskSection
from sqlanon.requirements import Domain, KAnonymity, Requirements, attributes_needing_hierarchies, bind_requirements
from sqlanon.requirements.base import (
    ClassCondition,
    Distribution,
    RetainedClasses,
    SeparateCondition,
    SubsetCondition,
    TableCondition,
)
from sqlanon.requirements.wrong_map import wrong_rows
from sqlanon.risk.attackers import (
    JournalistRisk,
    MarketerRisk,
    PopulationSizes,
    journalist_by_estimate,
    journalist_by_table,
    marketer_by_estimate,
    marketer_by_table,
    population_risk,
    prosecutor_risk,
)
from sqlanon.risk.figures import RequirementRisk, Risk
from sqlanon.risk.individual import measure_individual_risk
from sqlanon.risk.leakage import AttributeSets, SetFigures, direct_bits, rank_leakage
from sqlanon.risk.leakage_search import CountedSets, LeakageSearch, search_leakage
from sqlanon.risk.levels import code_levels
from sqlanon.risk.noise_errors import show_noise_errors
from sqlanon.risk.person_sets import PersonSets
from sqlanon.risk.priors import WeightedSets, read_priors, read_shares
from sqlanon.sources.columns import Columns, match_columns
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.classes import equivalence_classes
from sqlanon.support.coding import ROWS
from sqlanon.support.expressions import all_of, cast, col, fragment, named, same, star, subquery, template
from sqlanon.support.notices import Notice, sort_messages

_PERSON_ROWS = template("SELECT DISTINCT :quasi, person FROM :raw")
_EVERY_ROW = template("SELECT :quasi, 1 AS n FROM :source")
# Each person has one row for each of its combinations.
_POPULATION_PERSONS = template("SELECT :quasi, 1 AS population FROM :raw")
_POPULATION_ROWS = template("SELECT :quasi, n AS population FROM :raw")

_COMBINATIONS = template("SELECT DISTINCT :quasi FROM :raw")
_COMBINATIONS_OF_BOTH = fragment("""
    SELECT DISTINCT :quasi FROM :raw
    UNION
    SELECT :quasi FROM :population
""")
_NUMBERED = template("SELECT :quasi, row_number() OVER () AS number FROM :combinations AS d")
_WITH_NUMBERS = template("""
    SELECT c.number AS q0, :columns
    FROM :rows AS r
    JOIN :numbers AS c ON :same
""")

# A class without rows is the population's alone.
_FIGURES = template("""
    SELECT
        coalesce(sum(classes * class_size)::BIGINT, 0) AS rows,
        coalesce(sum(classes) FILTER (WHERE class_size > 0)::BIGINT, 0) AS classes,
        coalesce(min(class_size) FILTER (WHERE class_size > 0), 0) AS smallest_class,
        coalesce(sum(classes * class_count)::BIGINT, 0) AS count,
        coalesce(min(class_count) FILTER (WHERE class_size > 0), 0) AS smallest_count,
        coalesce(sum(classes) FILTER (WHERE class_size > 0 AND class_count = 1)::BIGINT, 0) AS singles,
        :broken
    FROM (SELECT *, :breaks FROM :classes AS c) AS j
""")
_EACH_CLASS = template("SELECT *, 1 AS classes FROM :classes AS c")
_CLASSES_BY_SIZE = template("""
    SELECT n::BIGINT AS class_size, n::BIGINT AS class_count, classes::BIGINT AS classes
    FROM :sizes
""")
_BREAKS = fragment("class_size > 0 AND NOT coalesce((:condition), FALSE)")
_BROKEN_CLASSES = fragment("coalesce(sum(classes) FILTER (WHERE :breaks)::BIGINT, 0)")
_BROKEN_ROWS = fragment("coalesce(sum(classes * class_size) FILTER (WHERE :breaks)::BIGINT, 0)")
_UNMATCHED = fragment("coalesce(sum(classes * class_size) FILTER (WHERE class_population = 0)::BIGINT, 0)")
_ABSENT = fragment("count(*) FILTER (WHERE class_population > 0 AND NOT (class_size > 0))")

_SIZES = template("""
    SELECT class_count, count(*), sum(class_size)::BIGINT
    FROM :classes AS c
    WHERE class_size > 0
    GROUP BY class_count
""")
_POPULATION_SIZES = template("""
    SELECT class_population, count(*), sum(class_count)::BIGINT, sum(class_size)::BIGINT
    FROM :classes AS c
    WHERE class_size > 0
    GROUP BY class_population
""")


def assess_risk(run: Run, policy: Policy, leakage: int = 3, leakage_seconds: float | None = None) -> Risk:
    """How risky the source is as it stands."""
    return _Assessment(run, policy, StatementRunner(run.engine), leakage, leakage_seconds).risk()


def risk_statements(run: Run, policy: Policy, leakage: int = 3) -> str:
    """The statements behind `assess`, in their order; no row is read."""
    shown: list[str] = []
    _Assessment(run, policy, StatementRunner(run.engine, shown), leakage).risk()
    if policy.noisy_attributes:
        show_noise_errors(run, policy, shown)
    return "\n\n".join(f"{statement};" for statement in shown)


class _Assessment:
    """One assessment. Makes tables in the work schema of the run; none where one scan of the source says it all."""

    def __init__(
        self,
        run: Run,
        policy: Policy,
        steps: StatementRunner,
        leakage: int = 3,
        leakage_seconds: float | None = None,
    ) -> None:
        self.run, self.policy, self.steps = run, policy, steps
        self.work = run.work
        self.columns: Columns = match_columns(policy, run.source)
        self.persons = self.columns.person is not None
        self.asked = policy.risk or RiskSection()
        self.names = (*policy.generalized_attributes, *policy.noisy_attributes)
        self.leakage, self.leakage_seconds = leakage, leakage_seconds

    def risk(self) -> Risk:
        """All figures."""
        space = self._space()
        # As it stands, what is to get noise makes classes, too; requirements are on those that are generalized.
        alone = not (self.columns.noisy or self.persons or space.population or space.sensitive)
        sizes_of_classes = _CLASSES_BY_SIZE(sizes=self.sets.sizes) if alone else None
        found = self.steps.figures(_figures(space, sizes_of_classes))
        as_it_stands = self._as_it_stands() if self.columns.noisy else found
        requirements = space.requirements
        persons = self._all_persons if self.persons else None
        below = [found[f"rows_{i}"] for i, one in enumerate(requirements.class_conditions) if one.min_class_count > 1]
        sizes = self._sizes()
        counted = sizes.rows if persons is None else persons
        population, share = population_size(self.policy, counted), sampling_fraction(self.policy, lambda: counted)
        journalist, marketer = self._by_population(sizes, space, share)
        leaking = self._leaking_sets()
        leakages, leakage_search = self._search_leakage(leaking, sizes.rows)
        return Risk(
            rows=as_it_stands["rows"],
            classes=as_it_stands["classes"],
            smallest_class=as_it_stands["smallest_count"],
            uniques=as_it_stands["singles"],
            k=self.policy.privacy.k,
            rows_below_k=sum(below),
            highest_risk=1 / as_it_stands["smallest_count"] if as_it_stands["smallest_count"] else 0.0,
            average_risk=as_it_stands["classes"] / as_it_stands["count"] if as_it_stands["count"] else 0.0,
            persons=persons,
            smallest_class_rows=as_it_stands["smallest_class"] if self.persons else None,
            requirements=(
                *(_of_a_class(one, i, found) for i, one in enumerate(requirements.class_conditions)),
                *self._of_shields(requirements),
                *(_of_the_table(one, found) for one in requirements.table_conditions),
                *self._separate(space, found["rows"], counted),
            ),
            counts="persons" if self.persons else "rows",
            class_sizes=sizes,
            prosecutor=prosecutor_risk(sizes, self.asked.threshold),
            journalist=journalist,
            marketer=marketer,
            population=None if population is None else population_risk(sizes.sizes, counted, population),
            leakage=rank_leakage(leakages, self.names, leaking.whole),
            leakage_search=leakage_search,
            dependencies=self._dependencies(sizes.rows),
            undecided_person=self._undecided_person(sizes.rows),
            warnings=sort_messages((*self.run.notices, *self._unprotected_columns(sizes.rows))),
            **{
                "expected_reidentifications": marketer.expected,
                **measure_individual_risk(self.run, self.steps, self.columns, self.asked, share),
            },
        )

    def _undecided_person(self, rows: int) -> str | None:
        """What there is to decide, where the policy does not say who a person is."""
        person = find_undecided_person(self.steps, self.policy, self.run.source, self.columns, rows)
        return None if person is None else f"source.person: {explain_undecided_person(person)}"

    def _unprotected_columns(self, rows: int) -> tuple[Notice, ...]:
        persons = self._all_persons if self.persons else None
        return find_unprotected_columns(self.steps, self.policy, self.run.source, self.columns, rows, persons)

    def _dependencies(self, rows: int) -> tuple[Narrowing, ...]:
        """The columns that are to be released as they are, and narrow a quasi-identifier."""
        if self.run.source.access != "rows":
            return ()
        names = [name for name, one in self.policy.attributes.items() if one.role in ("sensitive", "insensitive")]
        columns = [self.columns.by_attribute[name] for name in names]
        relation, quasi = self.run.source.relation, self.columns.generalized
        return find_narrowing_in_source(
            self.steps, self.work, relation, rows, columns, quasi, self.run.source.columns, self.policy.source,
            self.columns.person,
        )  # fmt: skip

    @cached_property
    def sets(self) -> AttributeSets:
        """The sets of all quasi-identifiers, of the rows; of the persons, where each has one combination."""
        if self._person_rows is not None:
            return AttributeSets(self.steps, self.work, self._person_rows, len(self.names), counted=False)
        counted = isinstance(self.rows, exp.Table)
        return AttributeSets(self.steps, self.work, self.rows, len(self.names), counted)

    @cached_property
    def _person_rows(self) -> exp.Table | None:
        """One row for each person; None where some have several combinations, and where rows are counted."""
        if not self.persons or read_priors(self.policy):
            return None
        query = _PERSON_ROWS(quasi=quasi_columns(len(self.names)), raw=self.rows)
        found = self.steps.make(self.work("person_rows"), query)
        return found if self.steps.count(found) == self._all_persons else None

    @cached_property
    def _all_persons(self) -> int:
        return int(self.steps.figures(count_persons(self.rows))[PERSONS])

    def _leaking_sets(self) -> CountedSets:
        """The sets of all quasi-identifiers: of rows as likely as the policy's priors say, else of persons or rows."""
        by_attribute, dictionaries = self.columns.by_attribute, self.sets.dictionaries
        types = [self.run.source.columns[by_attribute[name]] for name in self.names]
        shares = read_shares(self.steps, self.work, self.policy, self.names, types, dictionaries)
        if shares:
            return WeightedSets(self.steps, self.work, self.sets, self.names, shares)
        if self.persons and self._person_rows is None:
            assert isinstance(self.rows, exp.Table)
            return PersonSets(self.steps, self.work, self.sets, len(self.names), self.rows)
        return self.sets

    def _search_leakage(self, sets: CountedSets, rows: int) -> tuple[list[SetFigures], LeakageSearch]:
        """Count sets of attributes: many small groups are counted, with direct addressing where that pays."""
        bits = direct_bits(self.run.engine.limits, rows)
        with self.run.engine.setting("perfect_ht_threshold", str(bits)):
            return search_leakage(sets, len(self.names), self.leakage, self.leakage_seconds, self.run.engines)

    def _sizes(self) -> ClassSizes:
        """The sizes of the classes that all quasi-identifiers make."""
        if self.persons:
            quasi = range(len(self.names))
            return ClassSizes.from_rows(
                self.steps.ask(_SIZES(classes=_classes(self._plain(self.rows, quasi, None, Requirements()))), [])
            )
        return ClassSizes.from_classes(dict(self.steps.ask(star(self.sets.sizes.copy()), [])))

    def _by_population(
        self, sizes: ClassSizes, space: ClassSpace, share: float | None
    ) -> tuple[JournalistRisk, MarketerRisk]:
        """The journalist's and the marketer's risk."""
        thresholds = self.asked.threshold
        if self.population is None:
            return journalist_by_estimate(sizes, share, thresholds), marketer_by_estimate(sizes, share)
        bare = replace(space, requirements=Requirements(), sensitive={})
        matched = PopulationSizes.from_rows(self.steps.ask(_POPULATION_SIZES(classes=_classes(bare)), []))
        return journalist_by_table(matched, thresholds), marketer_by_table(matched)

    @cached_property
    def _population_raw(self) -> exp.Table | None:
        """The population by combination and person."""
        population = self.run.population
        if population is None:
            return None
        reader = population_runner(self.steps, population)
        return scan_raw_population(reader, self.policy, population, self._types, self.work)

    @cached_property
    def population(self) -> exp.Subquery | None:
        """The population by combination."""
        raw = self._population_raw
        if raw is None:
            return None
        keys = [named(cast(col(f"q{i}"), type_), f"q{i}") for i, type_ in enumerate(self._types)]
        assert self.policy.population is not None
        counts = _POPULATION_ROWS if self.policy.population.person is None else _POPULATION_PERSONS
        return subquery(counts(quasi=keys, raw=raw), "population")

    @cached_property
    def rows(self) -> exp.Table | exp.Subquery:
        """What all figures come from: the source itself where it is needed once, else its distinct combinations."""
        columns, source = self.columns, self.run.source.relation
        asked = bind_requirements(self.policy.privacy, self.policy.generalized_attributes)
        several = columns.sensitive or self.persons or asked.shields or asked.separate_conditions
        quasi = (*columns.generalized, *columns.noisy)
        if not several and not columns.noisy:
            row_by_row = [named(col(name), f"q{i}") for i, name in enumerate(quasi)]
            return subquery(_EVERY_ROW(quasi=row_by_row, source=source), "rows")
        query = raw_frequency(source, quasi, columns.sensitive, columns.person)
        return self.steps.make(self.work("raw"), query)

    @property
    def _types(self) -> list[str]:
        """The types of the quasi-identifiers in the source."""
        return [self.run.source.columns[column] for column in self.columns.generalized]

    def _space(self) -> ClassSpace:
        """What classes are made from, and the requirements on them."""
        if isinstance(self.rows, exp.Table) and self.columns.sensitive:
            return self._numbered(self.rows)
        quasi = range(len(self.columns.generalized))
        return self._plain(self.rows, quasi, self.population, self._requirements())

    def _as_it_stands(self) -> Mapping[str, Any]:
        """The figures of the classes that all quasi-identifiers make."""
        quasi = range(len(self.columns.generalized) + len(self.columns.noisy))
        return self.steps.figures(_figures(self._plain(self.rows, quasi, None, Requirements())))

    def _plain(
        self, rows: exp.Expr, quasi: Sequence[int], population: exp.Expr | None, requirements: Requirements
    ) -> ClassSpace:
        return ClassSpace(
            uncoded_frequency_set(rows, quasi, self.persons, population),
            (1,) * len(quasi),
            requirements,
            persons=self.persons,
            population=population is not None,
        )

    def _numbered(self, raw: exp.Table) -> ClassSpace:
        """Classes by number, with the counts of sensitive values beside them."""
        steps, work, quasi, population = self.steps, self.work, len(self.columns.generalized), self.population
        columns = quasi_columns(quasi)
        if population is None:
            combinations: exp.Expr = _COMBINATIONS(quasi=columns, raw=raw)
        else:
            combinations = _COMBINATIONS_OF_BOTH(quasi=columns, raw=raw, population=population)
        numbers = steps.make(work("class_numbers"), _NUMBERED(quasi=columns, combinations=combinations))
        kept = [f"s{s}" for s in range(len(self.columns.sensitive))] + [PERSON] * self.persons + [ROWS]
        rows = steps.make(work("numbered"), _with_numbers(raw, numbers, quasi, kept))
        if population is not None:
            theirs = _with_numbers(population, numbers, quasi, [POPULATION])
            population = subquery(theirs, "population")
        values, domains = self._values(raw)
        heights, hierarchy_nodes = self._nodes(values)
        domains = {
            name: replace(ordered_domain, height=heights.get(name, 0)) for name, ordered_domain in domains.items()
        }
        space = self._plain(rows, [0], population, self._requirements(domains))
        tables = {
            one: self._distribution(rows, one, hierarchy_nodes if one.kind == "nodes" else values)
            for one in space.requirements.distributions
        }
        return replace(space, sensitive=tables)

    def _requirements(self, domains: Mapping[str, Domain] | None = None) -> Requirements:
        """The policy's requirements."""
        return bind_requirements(self.policy.privacy, self.policy.generalized_attributes, domains)

    def _values(self, raw: exp.Table) -> tuple[dict[str, exp.Table], dict[str, Domain]]:
        """The values of each sensitive attribute in the whole source, with their shares."""
        values, domains = {}, {}
        for s, name in enumerate(self.columns.sensitive_names):
            pairs = self.steps.make(self.work(f"pairs_{s}"), count_value_pairs(raw, 0, s, (), self.persons))
            query = number_sensitive_values(pairs, moving=False)
            values[name] = self.steps.make(self.work(f"sensitive_{s}"), query)
            domains[name] = sensitive_domain(self.steps, values[name], 0)
        return values, domains

    def _nodes(self, values: Mapping[str, exp.Table]) -> tuple[dict[str, int], dict[str, exp.Table]]:
        """The heights of the hierarchies that hierarchical t-closeness needs, and their nodes above each value."""
        asked, names = attributes_needing_hierarchies(self.policy.privacy), self.columns.sensitive_names
        types = {name: self.run.source.columns[self.columns.by_attribute[name]] for name in names}
        wanted = {name: AttributeValues(values[name], types[name]) for name in names if name in asked}
        heights, found = {}, {}
        for name, (coded, heights[name]) in code_levels(self.steps, self.work, self.policy, wanted).items():
            if heights[name]:
                query = hierarchy_nodes(values[name], coded, heights[name])
                found[name] = self.steps.make(self.work(f"nodes_{names.index(name)}"), query)
            else:  # the one value is the root
                found[name] = values[name]
        return heights, found

    def _distribution(self, rows: exp.Table, one: Distribution, values: Mapping[str, exp.Table]) -> SensitiveTable:
        names = self.columns.sensitive_names
        index = names.index(one.attribute)
        inner = [i for i in range(len(names)) if i != index] if one.kind == "joint" else []
        pairs = count_value_pairs(rows, 1, index, inner, self.persons)
        domain_ = None
        if one.kind == "values":
            domain_ = self.steps.make(self.work(f"domain_{index}"), ordered_domain(values[one.attribute]))
        return SensitiveTable(uncoded_distribution(pairs, values[one.attribute], 1, len(inner)), len(inner), domain_)

    def _of_shields(self, requirements: Requirements) -> list[RequirementRisk]:
        """Each shield by itself: k-anonymity over its own quasi-identifiers."""
        risks = []
        for shield in requirements.shields:
            own = Requirements((KAnonymity(shield.k),))
            found = self.steps.figures(_figures(self._plain(self.rows, shield.attributes, None, own)))
            risks.append(_of_a_shield(shield, found))
        return risks

    def _separate(self, space: ClassSpace, rows: int, counted: int) -> list[RequirementRisk]:
        """Each requirement whose figure is counted for each generalization separately."""
        every = _EveryRow(rows, counted, partial(self._sizes_of, space), self._wrong)
        return [_counted_separately(one, every) for one in space.requirements.separate_conditions]

    def _sizes_of(self, space: ClassSpace) -> Mapping[int, int]:
        query = _SIZES(classes=_classes(replace(space, requirements=Requirements())))
        return ClassSizes.from_rows(self.steps.ask(query, [])).sizes

    def _wrong(self) -> int:
        """The rows that match only other people in the population."""
        theirs = self._population_raw
        assert theirs is not None
        keys = [same(col(f"q{i}", "r"), cast(col(f"q{i}", "p"), type_)) for i, type_ in enumerate(self._types)]
        query = wrong_rows(self.rows, theirs, keys, PERSON, PERSON, col(ROWS, "r"))
        return int(self.steps.ask(query, [(0,)])[0][0])


@dataclass(frozen=True)
class _EveryRow:
    """All rows of the source as the kept ones: `requirements.base.RetainedRows`."""

    rows: int
    source_count: int
    class_sizes: Callable[[], Mapping[int, int]]
    count_wrong_matches: Callable[[], int]


def _with_numbers(rows: exp.Expr, numbers: exp.Table, quasi: int, columns: Sequence[str]) -> exp.Select:
    """Rows with the number of their combination as their one quasi-identifier ``q0``, and some of their columns."""
    on = all_of(same(col(f"q{i}", "r"), col(f"q{i}", "c")) for i in range(quasi))
    return _WITH_NUMBERS(columns=[col(name, "r") for name in columns], rows=rows, numbers=numbers, same=on)


def _classes(space: ClassSpace) -> exp.Select:
    return equivalence_classes(space, (0,) * len(space.heights))


def _figures(space: ClassSpace, by_size: exp.Select | None = None) -> exp.Select:
    """One row: what the classes are, and for each requirement on a class the classes that break it; from their sizes
    where requirements need nothing else.

    Columns: ``rows``, ``classes``, ``smallest_class``; in rows or persons ``count`` (all of them), ``smallest_count``
    (the fewest in a class) and ``singles`` (the classes of one); ``classes_i`` and ``rows_i`` for
    requirement i; and with a population ``absent``, its classes that have no row in the source, and ``unmatched``, the
    rows of the source that match nobody in it.
    """
    requirements = space.requirements.class_conditions
    broken: list[exp.Expr] = []
    for i in range(len(requirements)):
        flag = col(f"breaks_{i}")
        broken += [named(_BROKEN_CLASSES(breaks=flag), f"classes_{i}"), named(_BROKEN_ROWS(breaks=flag), f"rows_{i}")]
    if space.population:
        broken += [named(_ABSENT(), "absent"), named(_UNMATCHED(), "unmatched")]
    breaks = [named(_BREAKS(condition=one.condition()), f"breaks_{i}") for i, one in enumerate(requirements)]
    each = _EACH_CLASS(classes=_classes(space)) if by_size is None else by_size
    return _FIGURES(broken=broken, breaks=breaks, classes=each)


def _of_a_class(one: ClassCondition, number: int, figures: Mapping[str, int]) -> RequirementRisk:
    """A requirement on each class, from the row of `_figures` in which it has this number."""
    classes, rows = figures[f"classes_{number}"], figures[f"rows_{number}"]
    # A class of the population without a row has the share 0.
    absent = figures["absent"] if one.uncoverable_class() is not None else None
    return RequirementRisk(one.name, not classes and not absent, classes, rows, population_classes=absent)


def _of_a_shield(one: SubsetCondition, figures: Mapping[str, int]) -> RequirementRisk:
    """A shield, from the row of `_figures` on its own classes."""
    classes, rows = figures["classes_0"], figures["rows_0"]
    return RequirementRisk(one.name, not classes, classes, rows)


def _of_the_table(one: TableCondition, figures: Mapping[str, int]) -> RequirementRisk:
    """A requirement on all classes together, from the row of `_figures`."""
    found = RetainedClasses(
        figures["classes"], figures["rows"], figures["count"], figures["singles"], figures.get("unmatched", 0)
    )
    figure = one.figure(found) if found.count else 0.0
    return RequirementRisk(one.name, one.is_met_by(found), figure=figure, limit=one.upper_bound)


def _counted_separately(one: SeparateCondition, every: _EveryRow) -> RequirementRisk:
    """A requirement whose figure is counted for each generalization separately."""
    one.refuse(every.source_count)
    figure = one.figure(every) if every.rows else 0.0
    return RequirementRisk(
        one.name, one.is_within(figure), figure=None if math.isnan(figure) else figure, limit=one.upper_bound
    )
