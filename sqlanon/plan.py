"""The plan: the stages of the main job and their SQL, from the schema alone. No row is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp

from sqlanon import coding as cd
from sqlanon.coding import Coded, Column, Levels
from sqlanon.decoys import decoy_statements
from sqlanon.engines.base import Engine
from sqlanon.engines.statement_runner import Plan, Stage, StatementRunner
from sqlanon.expressions import create_table, table
from sqlanon.frequency.distribution import Pairs
from sqlanon.frequency.scan import EXAMPLE_VALUES, Scan, sensitive_pairs
from sqlanon.frequency.sets import FrequencySets
from sqlanon.ledger import marking_statements
from sqlanon.noise.shown import noise_statements
from sqlanon.policy import Hierarchy, Policy
from sqlanon.recode.local.finish import EXAMPLE_LEAVES, example_recoding, example_trees, task_statements
from sqlanon.recode.recoding import AnyRecoding, ByClass, Recoding, suppressed_classes
from sqlanon.release.dependencies import ENOUGH, PAIRS, narrowing_statements
from sqlanon.release.requirements import requirement_queries
from sqlanon.requirements import Domain, hierarchies_needed, requirements_of
from sqlanon.requirements.audit import Audited, Private, Queryable
from sqlanon.requirements.macros import digest_of, k_anonymity_of
from sqlanon.search.candidate import candidate
from sqlanon.search.classes import ClassSpace
from sqlanon.search.examples import example_height, example_levels, show_hierarchy, size_of_lattice
from sqlanon.search.levels import forbidden_levels, lattice_of
from sqlanon.search.population_match import generalized_population
from sqlanon.search.preparation import attribute_values, class_space, counted_from, scan_population, scan_source
from sqlanon.sources.columns import Columns, match_columns, population_columns, released_columns
from sqlanon.sources.run import Run


def plan(run: Run, policy: Policy) -> Plan:
    """Lay out the main job."""
    engine = run.engine
    columns = match_columns(policy, run.source)
    nodes, unknown = size_of_lattice(policy, engine)
    return Plan(tuple(_Stages(run, policy, columns).all()), nodes, unknown)


def _text(engine: Engine, query: exp.Expr) -> str:
    return engine.shown(query)


_DEPENDENCIES = (
    "a query like this for each generalized attribute and each column that is released as it is, or two of them where "
    f"there are no more than {PAIRS}; of more than {2 * ENOUGH:,} rows a sample is measured"
)


class _Stages:
    """The stages in their order: the same functions as in the main job, with steps that are only shown.

    Where a statement depends on an answer, an example stands for it: no person is in several combinations, a mask's
    longest text has `EXAMPLE_LENGTH` characters.
    """

    def __init__(self, run: Run, policy: Policy, columns: Columns) -> None:
        self.run, self.policy, self.columns = run, policy, columns
        self.engine, self.source, self.work = run.engine, run.source, run.work
        self.types = [run.source.columns[column] for column in columns.generalized]
        self.trees = hierarchies_needed(policy.privacy)

    def all(self) -> Iterator[Stage]:
        """Each with its statements."""
        columns, work, population = self.columns, self.work, self.run.population
        yield from self.source.plan()
        steps = self._steps()
        own = scan_source(steps, self.source, columns, work, population is not None)
        theirs = None if population is None else scan_population(steps, self.policy, population, self.types, work)
        values = attribute_values(steps, own, theirs, self.types, work)
        sensitive = {name: sensitive_pairs(steps, own, s, work) for s, name in enumerate(columns.sensitive_names)}
        yield self._stage("scan", "the values of each attribute, with counts: each column is read once", steps)
        steps = self._steps()
        self._hierarchies(steps, values, sensitive)
        yield self._stage("hierarchies", "one table an attribute, leaf to root, then validated", steps)
        steps = self._steps()
        attributes, sets = self._frequency(steps, own, theirs, values, sensitive)
        space = sets.at(tuple(attribute.height for attribute in attributes))
        note = "small integers for labels, level by level, and the counts of sensitive values: one pass for each"
        yield self._stage("frequency set", note, steps)
        yield from self._earlier(space, attributes)
        recoding: AnyRecoding
        levels: Levels = ()
        if self.policy.search.is_local:
            yield self._local_search(space, attributes)
            trees = example_trees(self.policy, attributes, work)
            released = released_columns(self.policy, self.source)
            recoding = example_recoding(self.policy, self.source.relation, released, attributes, trees, work)
            before, note = [], "each combination as it was placed"
        else:
            yield _search(self.engine, self.policy, space)
            suppressed = create_table(
                work("suppressed"), suppressed_classes(space, _example(self.policy, space.heights))
            )
            recoding = plain = self._full_recoding(space, attributes)
            levels = plain.levels
            before, note = [_text(self.engine, suppressed)], "here: at level 1, or the lowest that is allowed"
        if shown := self._narrowing(recoding, levels):
            yield Stage("dependencies", _DEPENDENCIES, (*before, *shown))
            before = []
        if self.policy.noisy:
            steps = self._steps()
            recoding = self._noise(steps, recoding, sets, space)
            yield Stage("noise", "by class, drawn once; then the linking attack", (*before, *(steps.shown or ())))
            before = []
        if self.policy.decoys and space.below_top(plain.levels):
            steps = self._steps()
            recoding = decoy_statements(steps, space, plain, self.policy.privacy.k or 1, self.work)
            note_of_decoys = "rows of nobody that fill the classes that stayed too small, drawn once"
            yield Stage("decoys", note_of_decoys, (*before, *(steps.shown or ())))
            before = []
        yield self._recode(recoding, before, note)
        yield _audit(self.run, self.policy, columns, attributes)

    def _earlier(self, space: ClassSpace, attributes: tuple[Coded, ...]) -> Iterator[Stage]:
        """How rows are marked that earlier releases have, if the policy names any."""
        if self.policy.release is None or not self.policy.release.after:
            return
        steps, levels = self._steps(), _example(self.policy, space.heights)
        released = released_columns(self.policy, self.source)
        marking_statements(steps, self.source, released, attributes, levels, self.work)
        note = "rows are marked by the earlier releases that have them (here: one, at level 1), and all of the above "
        yield self._stage("earlier releases", f"{note}is done again, the marks one more quasi-identifier", steps)

    def _narrowing(self, recoding: ByClass, levels: Levels) -> Sequence[str]:
        """What released columns say of generalized ones; nothing where the rows are elsewhere."""
        by_name = dict(zip(self.policy.generalized, levels, strict=False))  # below the full domain there are none
        return narrowing_statements(self.engine, self.work, self.source, self.columns, recoding, by_name)

    def _recode(self, recoding: AnyRecoding, before: Sequence[str], note: str) -> Stage:
        """The rows of the release."""
        release, to = self.policy.release, "a fresh file"
        if release is not None and (release.postgres is not None or release.spark):
            to = f"a new table in {'Spark' if release.spark else 'PostgreSQL'}"
        statement = self.source.shown(self.engine, self.source.release_query(recoding))
        return Stage("recode and suppress", self.source.release_note(to, note), (*before, statement))

    def _local_search(self, space: ClassSpace, attributes: tuple[Coded, ...]) -> Stage:
        """The search below the full domain."""
        asked, trees = self.policy.search, example_trees(self.policy, attributes, self.work)
        statements = task_statements(self.policy, space, attributes, trees, self.work)
        name = f"strategy {asked.strategy}" + (", then cells are blanked" if asked.suppression == "cells" else "")
        note = f"{name}: rounds over the combinations and the nodes of the hierarchies (here: {EXAMPLE_LEAVES} a level)"
        return Stage("search", note, tuple(_text(self.engine, statement) for statement in statements))

    def _full_recoding(self, space: ClassSpace, attributes: tuple[Coded, ...]) -> Recoding:
        """By a generalization of all rows."""
        release = self.policy.release
        return Recoding(
            self.source.relation,
            released_columns(self.policy, self.source),
            attributes,
            tuple("*" for _ in attributes),
            _example(self.policy, space.heights),
            self.work("suppressed"),
            mask=release is not None and release.suppressed == "mask" and not self.policy.noisy,
        )

    def _noise(self, steps: StatementRunner, recoding: ByClass, sets: FrequencySets, space: ClassSpace) -> AnyRecoding:
        """With noise on it."""
        asked = sets.ground.sensitive
        arguments = self.policy, self.source, self.columns, recoding, asked, space.requirements, self.work
        return noise_statements(steps, *arguments)

    def _steps(self) -> StatementRunner:
        return StatementRunner(self.engine, [])

    @staticmethod
    def _stage(name: str, note: str, steps: StatementRunner) -> Stage:
        return Stage(name, note, tuple(steps.shown or ()))

    def _hierarchies(self, steps: StatementRunner, values: Sequence[exp.Table], sensitive: Mapping[str, Pairs]) -> None:
        for i, (name, type_) in enumerate(zip(self.policy.generalized, self.types, strict=True)):
            show_hierarchy(steps, name, self._rules(name), values[i], type_, self.work(f"hierarchy_{i}"))
        for s, name in enumerate(self.columns.sensitive_names):
            if name in self.trees:
                type_ = self.source.columns[self.columns.sensitive[s]]
                target = self.work(f"sensitive_hierarchy_{s}")
                show_hierarchy(steps, name, self._rules(name), sensitive[name].values, type_, target)

    def _rules(self, name: str) -> Hierarchy | tuple[()]:
        return self.policy.attributes[name].hierarchy or ()

    def _frequency(
        self,
        steps: StatementRunner,
        own: Scan,
        population: Scan | None,
        values: Sequence[exp.Table],
        sensitive: Mapping[str, Pairs],
    ) -> tuple[tuple[Coded, ...], FrequencySets]:
        columns, work = self.columns, self.work
        attributes = tuple(
            self._coded(steps, name, column, values[i], work(f"hierarchy_{i}"), work(f"coded_{i}"))
            for i, (name, column) in enumerate(zip(self.policy.generalized, columns.generalized, strict=True))
        )
        trees = {
            name: self._coded(
                steps,
                name,
                columns.sensitive[s],
                sensitive[name].values,
                work(f"sensitive_hierarchy_{s}"),
                work(f"sensitive_coded_{s}"),
            )
            for s, name in enumerate(columns.sensitive_names)
            if name in self.trees
        }
        domains = {
            name: Domain(EXAMPLE_VALUES, trees[name].height if name in trees else 0) for name in columns.sensitive_names
        }
        requirements = requirements_of(self.policy.privacy, self.policy.generalized, domains)
        ground = counted_from(steps, own, population, self.types, attributes, sensitive, trees, requirements, 0, work)
        heights = tuple(attribute.height for attribute in attributes)
        space = class_space(own, population, heights, requirements, unknown=False)
        bottom = lattice_of(self.policy, heights, forbidden_levels(steps, self.policy, attributes)).bottom
        return attributes, FrequencySets(steps, work, ground, space, bottom)

    def _coded(
        self, steps: StatementRunner, name: str, column: str, values: exp.Table, hierarchy: exp.Table, target: exp.Table
    ) -> Coded:
        height = example_height(steps, self._rules(name))
        steps.make(target, cd.coded_values(values, hierarchy, height, "*", nullable=True))
        return Coded(column, height, target, nullable=True)


def _example(policy: Policy, heights: Levels) -> Levels:
    """A generalization to show: every attribute at level 1, or at the lowest that the policy allows."""
    example = example_levels(policy, heights)
    # In one class of all rows, there is nothing to fill.
    return lattice_of(policy, heights).bottom if policy.decoys and example == tuple(heights) else example


def _search(engine: Engine, policy: Policy, space: ClassSpace) -> Stage:
    example = _example(policy, space.heights)
    query = candidate(space, example)
    note = f"strategy {policy.search.strategy}: a check like this for every generalization that bounds leave open"
    return Stage("search", note, (_text(engine, query),))


def _audit(run: Run, policy: Policy, columns: Columns, attributes: tuple[Coded, ...]) -> Stage:
    """The audit: in the release file alone; and where it needs the source, by the engine that reads it."""
    engine, work, steps = run.engine, run.work, StatementRunner(run.engine, [])
    release = policy.release
    name = "release" if release is None else release.name
    relation = table(name).sql(engine.dialect)
    persons = needs = None
    example = _example(policy, tuple(attribute.height for attribute in attributes))
    tops = tuple("*" for _ in attributes)
    if columns.person is not None:
        persons = work("audited")
        released = (*released_columns(policy, run.source), Column(columns.person))
        recoding = Recoding(run.source.relation, released, attributes, tops, example)
        steps.make(persons, recoding.select(shuffled=False))
    population_person = None
    if run.population is not None:
        names, population_person = population_columns(policy, run.population.source)
        types = [run.source.columns[column] for column in columns.generalized]
        query = generalized_population(
            run.population.source.relation, names, attributes, tops, example, types, population_person
        )
        needs = steps.make(work("population_audited"), query)
    private = Private(
        run.source.relation.sql(engine.dialect),
        columns.person,
        None if needs is None else needs.sql(engine.dialect),
        population_person,
        {name: work(f"sensitive_hierarchy_{s}").sql(engine.dialect) for s, name in enumerate(columns.sensitive_names)},
    )
    subject = relation if persons is None else persons.sql(engine.dialect)

    def audited(by: Queryable) -> Audited:
        counted_persons = columns.person is not None
        sensitive = policy.with_role("sensitive")
        return Audited(by, subject, columns.generalized, sensitive, 0, counted_persons, None, private)

    queries: list[exp.Expr] = [k_anonymity_of(relation, columns.generalized), digest_of(relation)]
    queries += requirement_queries(policy.privacy, audited)
    texts = dict.fromkeys(_text(engine, query) for query in queries)
    note = "in the fresh file, which then takes the place of the old one; what needs the source, by the source's engine"
    return Stage("audit and publish", note, (*(steps.shown or ()), *texts))
