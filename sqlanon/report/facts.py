"""What a report shows: figures and small tables, of a release or of what is not published yet.

What everybody may see is counted from the released rows and the manifest alone, in both cases by the same functions; it
stands apart from what is for internal use only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.audit.check import SOURCE_PREFIX, Check, note_decoys_in_k
from sqlanon.audit.verify import audited_release, verification_sql, verify_release
from sqlanon.disclosure.class_sizes import ClassSizes, class_sizes
from sqlanon.disclosure.dependencies import Narrowing
from sqlanon.disclosure.residual_risk import ResidualRisk, describe_narrowing, fewest_shown_rows, find_worst
from sqlanon.engines.base import Engine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import SqlanonError
from sqlanon.hierarchies.bounds import RangeKind
from sqlanon.ledger import JointAudit
from sqlanon.ledger.people_samples import SourcePeople
from sqlanon.ledger.publication import read_source_history
from sqlanon.policy import AboutSection, PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.release.draft import ReleaseDraft
from sqlanon.release.manifest import Facts, Manifest
from sqlanon.release.reader import SUBJECT, open_release
from sqlanon.release.source_change import NOT_COMPARED
from sqlanon.release.targets.base import Verification, target_for
from sqlanon.release.targets.file.target import released_name
from sqlanon.report.distributions import Distribution, distribution
from sqlanon.report.explorer import Explorer, explorer
from sqlanon.report.risks import earlier_risk, risks_of_release, uniques_in_source
from sqlanon.report.utility import NO_NUMBERS, ColumnLeft, Numbers, columns_left, loss_by_column, numbers_of, range_kind
from sqlanon.requirements import Requirement, check_requirements, list_requirements
from sqlanon.requirements.macros import call_k_anonymity
from sqlanon.strategies.lattice.checker import policy_measure
from sqlanon.support.expressions import cast, col, create_table, drop_table, fragment, number, template
from sqlanon.support.names import EARLIER_RELEASES_COLUMN

MARK = "<!-- a report of sqlanon -->"
"""In its second line each page says what it is."""


@dataclass(frozen=True)
class ColumnReport:
    name: str
    type: str
    role: str
    after: Distribution


@dataclass(frozen=True)
class ReportFacts:
    """What everybody may see who has the release. Counts below ``few`` are not shown; of what is not published yet, the
    claims are what they would be; without ``sizes`` the file is not what it claims."""

    claims: Manifest
    published: bool
    few: int
    checks: tuple[Check, ...]
    sizes: ClassSizes | None
    columns: tuple[ColumnReport, ...]
    statements: tuple[str, ...]
    risks: tuple[ResidualRisk, ...] = ()
    numbers: Numbers = NO_NUMBERS
    about: AboutSection | None = None
    left: Mapping[str, ColumnLeft] = field(default_factory=dict)

    @property
    def requirements(self) -> list[Requirement]:
        """What the policy of the manifest requires."""
        section, _ = read_part(PrivacySection, self.claims.policy.get("privacy"), "privacy", {})
        return [] if section is None else list(list_requirements(section))

    @property
    def worst(self) -> ResidualRisk | None:
        """The worst finding, as a command line says it."""
        return find_worst(self.risks)

    @property
    def holds(self) -> bool:
        return all(check.passed is not False for check in self.checks)


@dataclass(frozen=True)
class GeneralizationFigures:
    """A generalization, with the figures of the search: its status is ``satisfies``, ``violates``, ``open``, or
    ``unseen``."""

    levels: tuple[int, ...]
    status: str
    classes: int | None = None
    suppressed_rows: int | None = None
    score: float | None = None
    frontier: bool = False
    chosen: bool = False


@dataclass(frozen=True)
class Inside:
    """What is for internal use only: the source as it stands, and the search.

    ``before`` has the distributions in the source, of a source in PostgreSQL those that were counted; the level of a
    quasi-identifier is None where there are several; ``counted`` is a sample of the generalizations that were counted,
    with the frontier and the chosen one, and ``lattice`` all of them where they are few.
    """

    sizes: ClassSizes
    before: Mapping[str, Distribution]
    heights: Mapping[str, int]
    generalization: Mapping[str, int | None]
    measure: str
    allowed_rows: int | None
    nodes: int
    checked: int
    statuses: tuple[tuple[int, str, int], ...]
    counted: tuple[GeneralizationFigures, ...]
    lattice: tuple[GeneralizationFigures, ...]
    statement: str
    proof: str
    warnings: tuple[str, ...] = ()
    dependencies: tuple[Narrowing, ...] = ()
    compared: Sequence[Mapping[str, Any]] = field(default=())
    risks: tuple[ResidualRisk, ...] = ()
    explorer: Explorer | None = None
    losses: Mapping[str, float] = field(default_factory=dict)
    numbers: Numbers = NO_NUMBERS
    source_columns: tuple[str, ...] = ()


_STATUSES = template("""
    SELECT height, status, count(*)
    FROM :lattice
    GROUP BY height, status
    ORDER BY height, status
""")
_EVERY = template("SELECT levels, status, classes, suppressed_rows, score FROM :lattice")
# The frontier are those that satisfy the policy and suppress fewer rows than all that score as well. They come first,
# with the chosen one; of the others those with the least MD5 of their levels: a sample that is the same on every run.
_COUNTED_GENERALIZATIONS = template("""
    SELECT levels, status, classes, suppressed_rows, score, frontier, chosen
    FROM (
        SELECT *, row_number() OVER (ORDER BY chosen DESC, frontier DESC, md5(levels::VARCHAR)) AS place
        FROM (
            SELECT
                levels,
                status,
                classes,
                suppressed_rows,
                coalesce(score, bound) AS score,
                status = 'satisfies' AND (before IS NULL OR :cost < before) AS frontier,
                levels = :chosen AS chosen
            FROM (
                SELECT
                    levels,
                    status,
                    classes,
                    suppressed_rows,
                    score,
                    bound,
                    min(:cost) OVER (
                        PARTITION BY status = 'satisfies'
                        ORDER BY suppressed_rows, :cost, levels
                        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                    ) AS before
                FROM :lattice
                WHERE NOT suppressed_rows IS NULL
            ) AS c
        ) AS m
    ) AS p
    WHERE place <= :most
    ORDER BY suppressed_rows, score, levels
""")


def counted_generalizations(lattice: exp.Table, chosen: Sequence[int], most: int, maximised: bool) -> exp.Select:
    """Generalizations that were counted, for a picture of score against suppression."""
    cost = fragment("-score")() if maximised else col("score")
    levels = cast(exp.array(*(number(level) for level in chosen)), "INTEGER[]")
    return _COUNTED_GENERALIZATIONS(cost=cost, chosen=levels, lattice=lattice, most=most)


SAMPLE = 1500
"""The most generalizations that are drawn."""
SMALL = 120
"""A lattice of up to this many generalizations is drawn as a whole."""
WITH_SOURCE = "checked with the source at hand"


def facts_of_release(
    path: Path,
    with_source: Verification | None = None,
    limits: Limits = NO_LIMITS,
    about: AboutSection | None = None,
) -> ReportFacts:
    with open_release(path, limits, to_verify=True) as release:
        manifest = release.manifest
        found = verify_release(path, release, fresh=False)
        checks = found.checks
        if with_source is not None:
            checks = beside(checks, with_source.checks)
        # Its rows were read, it has the columns that it claims, and its roles.
        readable = bool(found.digest) and all(check.passed for check in checks[:2])
        facts = _facts(release.engine, SUBJECT, manifest, checks, published=True, readable=readable)
        return replace(facts, about=about)


def beside(alone: Sequence[Check], with_source: Sequence[Check]) -> tuple[Check, ...]:
    """The checks of a release, and those that need its source: of these, whether they passed and no figure."""
    found = {check.name: check for check in alone}
    for check in with_source:
        name = check.name.removeprefix(SOURCE_PREFIX)
        if name not in found or found[name].passed is None:
            message = NOT_COMPARED if check.message.startswith(NOT_COMPARED) else WITH_SOURCE
            found[name] = Check(name, check.passed, message)
        elif check.passed is False:
            found[name] = replace(found[name], passed=False)
    return tuple(found.values())


@dataclass(frozen=True)
class Unpublished:
    """A result that is not published: its draft, and the figures of its search. The chosen level of an attribute is
    None where there are several."""

    draft: ReleaseDraft
    generalization: Mapping[str, int | None]
    lattice: exp.Table
    nodes: int
    checked: int
    statement: str
    proof: str
    warnings: tuple[str, ...]
    dependencies: tuple[Narrowing, ...]

    def facts(self, private: bool = False) -> ReportFacts:
        """What its release will show. The rows are made once, in the run's work schema, and dropped."""
        run, policy = self.draft.run, self.draft.search_input.policy
        rows = run.work("reported")
        with self.draft.rows(shuffled=False) as query:
            run.engine.execute(create_table(rows.copy(), query))
        try:
            macros = run.install_macros()
            name = rows.sql(run.engine.dialect)
            k, classes, released, _ = run.engine.rows(call_k_anonymity(name, self.draft.quasi_identifiers, macros))[0]
            claims = self.draft.manifest(released_name(policy), Facts(released, classes, k or 0, ""))
            audited = replace(audited_release(run.engine, claims, name), macro_catalog=macros)
            checks = tuple(note_decoys_in_k(check_requirements(policy.privacy, audited), claims))
            if with_source := note_decoys_in_k(self.draft.checks(rows), claims):
                checks = tuple(with_source) if private else beside(checks, with_source)
            together = [earlier_risk(*self._beside_earlier(claims, rows))] if private else []
            facts = _facts(run.engine, rows, claims, checks, published=False, readable=True)
            return replace(facts, about=policy.about, risks=(*facts.risks, *together))
        finally:
            run.engine.execute(drop_table(rows))

    def _beside_earlier(self, claims: Manifest, rows: exp.Table) -> tuple[list[Check], str | None]:
        """What publishing would say of the earlier releases that the catalog has; or why nothing is known of them."""
        run, prepared = self.draft.run, self.draft.search_input
        policy = prepared.policy
        if policy.catalog is None:
            return [], "The policy names no `[catalog]`, so earlier releases are not known."
        if policy.is_draft:
            return [], "A draft is not compared with earlier releases."
        try:
            has_location = policy.release is not None and policy.release.has_location
            beside = policy.catalog.database.with_name("no release.duckdb")  # where none is
            target = target_for(self.draft, None if has_location else beside, None).path
            people = SourcePeople(run, policy)
            try:
                audit = JointAudit(run, prepared, target, read_source_history(run, prepared, target, "", people))
                return audit.checks(claims, rows), None
            finally:
                people.drop()
        except SqlanonError as error:
            return [], f"Earlier releases could not be compared: {error}."

    def inside(self, compared: Sequence[Mapping[str, Any]] = (), whole: bool = True) -> Inside:
        """What a private page shows; not ``whole``, what charts need of it."""
        prepared, engine = self.draft.search_input, self.draft.run.engine
        source, types = prepared.source.relation, prepared.source.columns
        own = prepared.columns.generalized
        there = engine.columns(source)  # of a source in PostgreSQL, what was counted
        before = {
            column.name: distribution(engine, source, column.name, types[column.name], 1)
            for column in prepared.released_columns
            if column.name in there
        }
        heights = dict(zip(prepared.policy.generalized_attributes, prepared.marginals.heights, strict=False))
        sizes = ClassSizes.from_rows(engine.rows(class_sizes(source, own)))
        in_source = {column.name: types[column.name] for column in prepared.released_columns if column.name in there}
        return Inside(
            sizes=sizes,
            before=before,
            heights=heights,
            generalization=self.generalization,
            measure=prepared.policy.search.measure,
            allowed_rows=prepared.limit.rows if prepared.limit.persons is None else None,
            nodes=self.nodes,
            checked=self.checked,
            statuses=tuple(engine.rows(_STATUSES(lattice=self.lattice))),
            counted=self.counted(),
            lattice=self.small_lattice(),
            compared=compared,
            statement=self.statement,
            proof=self.proof,
            warnings=self.warnings,
            dependencies=self.dependencies,
            risks=(
                describe_narrowing(
                    self.dependencies, prepared.source.measuring_obstacle(), prepared.policy.privacy.k, sizes.rows
                ),
                uniques_in_source(
                    sizes, prepared.policy.risk, sizes.rows, has_population=prepared.policy.population is not None
                ),
            ),
            explorer=explorer(self.draft) if whole else None,
            losses=loss_by_column(self.draft),
            numbers=numbers_of(engine, source, in_source, {}, 1),
            source_columns=tuple(name for name in types if name != EARLIER_RELEASES_COLUMN),
        )

    @property
    def chosen(self) -> tuple[int, ...]:
        levels = tuple(self.generalization.values())
        return tuple(level for level in levels if level is not None) if None not in levels else ()

    def counted(self) -> tuple[GeneralizationFigures, ...]:
        maximised = policy_measure(self.draft.search_input).reported_score(1.0) < 0
        return tuple(self._figures(counted_generalizations(self.lattice, self.chosen, SAMPLE, maximised)))

    def small_lattice(self) -> tuple[GeneralizationFigures, ...]:
        """All generalizations, where there are few; those that were not counted, too."""
        lattice = self.draft.search_input.lattice
        if lattice.size > SMALL or EARLIER_RELEASES_COLUMN in lattice.attributes:
            return ()
        statuses = {one.levels: one for one in self._figures(_EVERY(lattice=self.lattice))}
        every = product(*(lattice.levels(i) for i in range(len(lattice.top))))
        found = [statuses.get(levels, GeneralizationFigures(levels, "unseen")) for levels in every]
        return tuple(replace(one, chosen=one.levels == self.chosen) for one in found)

    def _figures(self, query: exp.Select) -> list[GeneralizationFigures]:
        rows = self.draft.run.engine.rows(query)
        return [GeneralizationFigures(tuple(levels), *rest) for levels, *rest in rows]


def _may_be_ranges(claims: Manifest, name: str) -> RangeKind | None:
    """Local strategies make ranges of numbers, whatever the hierarchy is."""
    levels = {key.lower(): level for key, level in claims.generalization.items()}
    return "number" if levels.get(name.lower(), 0) is None else None


def of_persons(claims: Manifest) -> bool:
    """Whether the policy counts persons, who may have several rows."""
    return bool(claims.policy.get("persons"))


def _facts(
    engine: Engine, relation: exp.Table, claims: Manifest, checks: Iterable[Check], published: bool, readable: bool
) -> ReportFacts:
    few = fewest_shown_rows(claims)
    if not readable:
        return ReportFacts(claims, published, few, tuple(checks), None, (), ())
    quasi, columns = claims.quasi_identifiers, engine.columns(relation)
    sizes = ClassSizes.from_rows(engine.rows(class_sizes(relation, quasi)))

    labels = {one.name: range_kind(claims, one.name) for one in claims.columns if one.name in quasi}
    counted = {
        one.name: distribution(
            engine, relation, one.name, columns[one.name], few, labels.get(one.name) or _may_be_ranges(claims, one.name)
        )
        for one in claims.columns
    }
    risks = tuple(risks_of_release(engine, relation, claims, sizes))
    numbers = NO_NUMBERS
    if of_persons(claims):  # many rows of a value may be of one person
        counted = dict.fromkeys(counted, Distribution(()))
    else:
        released = {one.name: columns[one.name] for one in claims.columns}
        numbers = numbers_of(engine, relation, released, labels, few)
    described = tuple(ColumnReport(one.name, columns[one.name], one.role, counted[one.name]) for one in claims.columns)
    statements = tuple(verification_sql(claims))
    left = {} if of_persons(claims) else columns_left(engine, relation, labels, few)
    return ReportFacts(claims, published, few, tuple(checks), sizes, described, statements, risks, numbers, None, left)
