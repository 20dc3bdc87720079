"""The facts of a report: figures and small tables of a published release, or of a result before publication.

`ReportFacts` holds only what every reader of the release may see, computed from the released rows and the manifest.
`PrivateFacts` is for internal use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.audit.verification import Verification
from sqlanon.audit.verify import audited_release, note_decoys_in_k, verification_sql, verify_release
from sqlanon.disclosure.dependencies import Narrowing
from sqlanon.disclosure.residual_risk import ResidualRisk, describe_narrowing, fewest_shown_rows, find_worst
from sqlanon.engines.base import Engine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import SqlanonError
from sqlanon.frequency.class_sizes import ClassSizes, class_sizes
from sqlanon.hierarchies.bounds import RangeKind
from sqlanon.ledger import JointAudit
from sqlanon.ledger.people_samples import SourcePeople
from sqlanon.ledger.publication import read_source_history
from sqlanon.policy import AboutSection, PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.publish.draft import ReleaseDraft
from sqlanon.publish.targets.base import target_for
from sqlanon.publish.targets.file.target import released_name
from sqlanon.release.manifest import Facts, Manifest
from sqlanon.release.reader import SUBJECT, open_release
from sqlanon.release.source_change import NOT_COMPARED
from sqlanon.report.distributions import Distribution, distribution
from sqlanon.report.explorer import Explorer, build_explorer
from sqlanon.report.risks import describe_linking, find_release_risks, uniques_in_source
from sqlanon.report.utility import (
    NO_NUMBERS,
    Numbers,
    RemainingDetail,
    measure_remaining_detail,
    range_kind,
    summarize_numbers,
)
from sqlanon.requirements import Requirement, check_requirements, list_requirements
from sqlanon.requirements.macros import call_k_anonymity
from sqlanon.strategies.compare import compute_attribute_losses
from sqlanon.strategies.lattice.checker import policy_measure
from sqlanon.support.checks import SOURCE_PREFIX, Check
from sqlanon.support.expressions import cast, col, create_table, drop_table, fragment, number, template
from sqlanon.support.names import EARLIER_RELEASES_COLUMN

MARK = "<!-- a report of sqlanon -->"
"""The second line of each page, which identifies reports."""
SAMPLE = 1500
"""Maximum number of generalizations that a chart of scores shows."""
SMALL = 120
"""A lattice of up to this many generalizations is drawn completely."""
_VERIFIED_WITH_SOURCE = "verified with the source"

_STATUS_COUNTS = template("""
    SELECT height, status, count(*)
    FROM :lattice
    GROUP BY height, status
    ORDER BY height, status
""")
# The frontier holds the feasible generalizations that suppress fewer rows than all that score as well. The chosen one
# and the frontier come first; the rest is a sample by the MD5 of the levels, which is the same on every run.
_CHECKED_GENERALIZATIONS = template("""
    WITH "sqlanon checked" AS (
        SELECT
            *,
            min(:cost) OVER (
                PARTITION BY status = 'satisfies'
                ORDER BY suppressed_rows, :cost, levels
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS lowest_cost
        FROM :lattice
        WHERE NOT suppressed_rows IS NULL
    ),
    "sqlanon marked" AS (
        SELECT
            levels,
            status,
            classes,
            suppressed_rows,
            coalesce(score, bound) AS score,
            status = 'satisfies' AND (lowest_cost IS NULL OR :cost < lowest_cost) AS frontier,
            levels = :chosen AS chosen
        FROM "sqlanon checked"
    ),
    "sqlanon ranked" AS (
        SELECT *, row_number() OVER (ORDER BY chosen DESC, frontier DESC, md5(levels::VARCHAR)) AS rank
        FROM "sqlanon marked"
    )
    SELECT levels, status, classes, suppressed_rows, score, frontier, chosen
    FROM "sqlanon ranked"
    WHERE rank <= :limit
    ORDER BY suppressed_rows, score, levels
""")


@dataclass(frozen=True)
class ColumnReport:
    name: str
    type: str
    role: str
    after: Distribution


@dataclass(frozen=True)
class ReportFacts:
    """Facts that every reader of the release may see.

    Counts below ``few`` are not shown. Before publication, the claims are those that the release would have. Without
    ``sizes``, the file is not what its manifest claims.
    """

    claims: Manifest
    published: bool
    few: int
    checks: tuple[Check, ...]
    sizes: ClassSizes | None = None
    columns: tuple[ColumnReport, ...] = ()
    statements: tuple[str, ...] = ()
    risks: tuple[ResidualRisk, ...] = ()
    numbers: Numbers = NO_NUMBERS
    about: AboutSection | None = None
    remaining: Mapping[str, RemainingDetail] = field(default_factory=dict)

    @property
    def requirements(self) -> list[Requirement]:
        """The requirements in the policy of the manifest."""
        section, _ = read_part(PrivacySection, self.claims.policy.get("privacy"), "privacy", {})
        return [] if section is None else list(list_requirements(section))

    @property
    def counts_persons(self) -> bool:
        """Whether the policy counts persons, who may have several rows."""
        return bool(self.claims.policy.get("persons"))

    @property
    def worst(self) -> ResidualRisk | None:
        """The worst finding that has a line for a command line."""
        return find_worst(self.risks)

    @property
    def is_verified(self) -> bool:
        return all(check.passed is not False for check in self.checks)


@dataclass(frozen=True)
class GeneralizationFigures:
    """A generalization with its figures; ``status`` is ``satisfies``, ``violates``, ``open`` or ``unseen``."""

    levels: tuple[int, ...]
    status: str
    classes: int | None = None
    suppressed_rows: int | None = None
    score: float | None = None
    frontier: bool = False
    chosen: bool = False


@dataclass(frozen=True)
class PrivateFacts:
    """Facts for internal use only: the source and the search.

    ``before`` has the distributions in the source; of a source in PostgreSQL, those of the columns that were counted.
    ``checked`` is a sample of the evaluated generalizations with the frontier and the chosen one; ``lattice`` has all
    generalizations of a small lattice.
    """

    result: UnpublishedResult
    sizes: ClassSizes
    before: Mapping[str, Distribution]
    heights: Mapping[str, int]
    statuses: tuple[tuple[int, str, int], ...]
    checked: Sequence[GeneralizationFigures]
    lattice: Sequence[GeneralizationFigures]
    risks: tuple[ResidualRisk, ...]
    losses: Mapping[str, float]
    numbers: Numbers
    explorer: Explorer | None = None
    comparison: Sequence[Mapping[str, Any]] = ()

    @property
    def measure(self) -> str:
        return self.result.draft.search_input.policy.search.measure

    @property
    def allowed_rows(self) -> int | None:
        """The limit of suppressed rows; None if persons are limited."""
        limit = self.result.draft.search_input.limit
        return limit.rows if limit.persons is None else None

    @property
    def source_columns(self) -> list[str]:
        return [name for name in self.result.draft.search_input.source.columns if name != EARLIER_RELEASES_COLUMN]


def checked_generalizations(lattice: exp.Table, chosen: Sequence[int], limit: int, maximized: bool) -> exp.Select:
    """Evaluated generalizations for a chart of score against suppression."""
    cost = fragment("-score")() if maximized else col("score")
    levels = cast(exp.array(*(number(level) for level in chosen)), "INTEGER[]")
    return _CHECKED_GENERALIZATIONS(cost=cost, chosen=levels, lattice=lattice, limit=limit)


def read_release_facts(
    path: Path, with_source: Verification | None = None, limits: Limits = NO_LIMITS, about: AboutSection | None = None
) -> ReportFacts:
    with open_release(path, limits, to_verify=True) as release:
        verification = verify_release(path, release, fresh=False)
        checks = verification.checks
        if with_source is not None:
            checks = merge_checks(checks, with_source.checks)
        # The first two checks are of columns and roles: no fact is collected unless they pass.
        if not verification.digest or not all(check.passed for check in checks[:2]):
            few = fewest_shown_rows(release.manifest)
            return ReportFacts(release.manifest, True, few, tuple(checks), about=about)
        facts = _collect_facts(release.engine, SUBJECT, release.manifest, checks, published=True)
        return replace(facts, about=about)


def merge_checks(alone: Sequence[Check], with_source: Sequence[Check]) -> tuple[Check, ...]:
    """The checks of a release alone, and the results of those that need its source, without their figures."""
    merged = {check.name: check for check in alone}
    for check in with_source:
        name = check.name.removeprefix(SOURCE_PREFIX)
        if name not in merged or merged[name].passed is None:
            message = NOT_COMPARED if check.message.startswith(NOT_COMPARED) else _VERIFIED_WITH_SOURCE
            merged[name] = Check(name, check.passed, message)
        elif check.passed is False:
            merged[name] = replace(merged[name], passed=False)
    return tuple(merged.values())


@dataclass(frozen=True)
class UnpublishedResult:
    """A result before publication: its draft, and the figures of its search. An attribute with several released levels
    has the level None."""

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
        """The facts that its release will show, from rows that are stored in the work schema meanwhile."""
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
                checks = tuple(with_source) if private else merge_checks(checks, with_source)
            linking = [describe_linking(*self._compare_with_earlier(claims, rows))] if private else []
            facts = _collect_facts(run.engine, rows, claims, checks, published=False)
            return replace(facts, about=policy.about, risks=(*facts.risks, *linking))
        finally:
            run.engine.execute(drop_table(rows))

    def _compare_with_earlier(self, claims: Manifest, rows: exp.Table) -> tuple[list[Check], str | None]:
        """The checks against earlier releases of the catalog at publication, or why there are none."""
        run, search_input = self.draft.run, self.draft.search_input
        policy = search_input.policy
        if policy.catalog is None:
            return [], "The policy names no `[catalog]`, so earlier releases are not known."
        if policy.is_draft:
            return [], "A draft is not compared with earlier releases."
        try:
            has_location = policy.release is not None and policy.release.has_location
            unused_path = policy.catalog.database.with_name("no release.duckdb")
            target = target_for(self.draft, None if has_location else unused_path, None).path
            people = SourcePeople(run, policy)
            try:
                history = read_source_history(run, search_input, target, "", people)
                return JointAudit(run, search_input, target, history).checks(claims, rows), None
            finally:
                people.drop()
        except SqlanonError as error:
            return [], f"Earlier releases could not be compared: {error}."

    def private_facts(self, comparison: Sequence[Mapping[str, Any]] = (), with_explorer: bool = True) -> PrivateFacts:
        search_input, engine = self.draft.search_input, self.draft.run.engine
        source, policy = search_input.source, search_input.policy
        counted_columns = engine.columns(source.relation)  # of a source in PostgreSQL, not all columns
        types = {
            column.name: source.columns[column.name]
            for column in search_input.released_columns
            if column.name in counted_columns
        }
        before = {name: distribution(engine, source.relation, name, type_, 1) for name, type_ in types.items()}
        sizes = ClassSizes.from_rows(engine.rows(class_sizes(source.relation, search_input.columns.generalized)))
        obstacle, has_population = source.measuring_obstacle(), policy.population is not None
        return PrivateFacts(
            self,
            sizes,
            before,
            dict(zip(policy.generalized_attributes, search_input.marginals.heights, strict=False)),
            tuple(engine.rows(_STATUS_COUNTS(lattice=self.lattice))),
            self._sample_checked(),
            self._list_small_lattice(),
            (
                describe_narrowing(self.dependencies, obstacle, policy.k, sizes.rows),
                uniques_in_source(sizes, policy.risk, sizes.rows, has_population),
            ),
            compute_attribute_losses(search_input, self.draft.result),
            summarize_numbers(engine, source.relation, types, {}, 1),
            build_explorer(self.draft) if with_explorer else None,
            comparison,
        )

    @property
    def _chosen_levels(self) -> tuple[int, ...]:
        levels = tuple(self.generalization.values())
        return tuple(level for level in levels if level is not None) if None not in levels else ()

    def _sample_checked(self) -> list[GeneralizationFigures]:
        maximized = policy_measure(self.draft.search_input).is_maximized
        return self._read_figures(checked_generalizations(self.lattice, self._chosen_levels, SAMPLE, maximized))

    def _list_small_lattice(self) -> list[GeneralizationFigures]:
        """All generalizations of a small lattice, with those that were not evaluated."""
        lattice = self.draft.search_input.lattice
        if lattice.size > SMALL or EARLIER_RELEASES_COLUMN in lattice.attributes:
            return []
        query = template("SELECT levels, status, classes, suppressed_rows, score FROM :lattice")
        evaluated = {figures.levels: figures for figures in self._read_figures(query(lattice=self.lattice))}
        generalizations = product(*(lattice.levels(i) for i in range(len(lattice.top))))
        return [
            replace(
                evaluated.get(levels, GeneralizationFigures(levels, "unseen")), chosen=levels == self._chosen_levels
            )
            for levels in generalizations
        ]

    def _read_figures(self, query: exp.Select) -> list[GeneralizationFigures]:
        rows = self.draft.run.engine.rows(query)
        return [GeneralizationFigures(tuple(levels), *figures) for levels, *figures in rows]


def _collect_facts(
    engine: Engine, relation: exp.Table, claims: Manifest, checks: Iterable[Check], published: bool
) -> ReportFacts:
    few = fewest_shown_rows(claims)
    quasi_identifiers, types = claims.quasi_identifiers, engine.columns(relation)
    sizes = ClassSizes.from_rows(engine.rows(class_sizes(relation, quasi_identifiers)))
    facts = ReportFacts(
        claims,
        published,
        few,
        tuple(checks),
        sizes,
        statements=tuple(verification_sql(claims)),
        risks=tuple(find_release_risks(engine, relation, claims, sizes)),
    )
    if facts.counts_persons:  # all rows of a value may belong to one person, so no value is shown
        columns = [
            ColumnReport(column.name, types[column.name], column.role, Distribution(())) for column in claims.columns
        ]
        return replace(facts, columns=tuple(columns))
    generalized = [column.name for column in claims.columns if column.name in quasi_identifiers]
    label_kinds = {name: range_kind(claims, name) for name in generalized}
    levels = {name.lower(): level for name, level in claims.generalization.items()}
    columns = []
    for column in claims.columns:
        # Local strategies make ranges of numbers from any hierarchy.
        default: RangeKind | None = "number" if levels.get(column.name.lower(), 0) is None else None
        kind, type_ = label_kinds.get(column.name) or default, types[column.name]
        after = distribution(engine, relation, column.name, type_, few, kind)
        columns.append(ColumnReport(column.name, type_, column.role, after))
    released_types = {column.name: column.type for column in columns}
    return replace(
        facts,
        columns=tuple(columns),
        numbers=summarize_numbers(engine, relation, released_types, label_kinds, few),
        remaining=measure_remaining_detail(engine, relation, label_kinds, few),
    )
