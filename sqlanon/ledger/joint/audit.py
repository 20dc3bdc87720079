"""The joint audit: whether a new release is safe together with earlier ones.

It runs the attacks of a reader of both files, the complementary release and the temporal attack, for combinations
with fewer rows than the smaller k of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.errors import NotComparedError, ReleaseError
from sqlanon.ledger import catalog
from sqlanon.ledger.earlier import EarlierRelease, open_earlier_release
from sqlanon.ledger.joint import noise_intervals
from sqlanon.ledger.joint.attacks import complementary_release, readable_unions, temporal_attack
from sqlanon.ledger.joint.overlaps import subtraction
from sqlanon.ledger.joint.pair_audit import PairAudit
from sqlanon.ledger.joint.part_requirements import NewRows, Part, readable_violations, shared_requirements
from sqlanon.ledger.joint.refusals import (
    Advice,
    MaskedRows,
    Refusal,
    describe_change,
    describe_distinguished_rows,
    describe_few_rows,
    describe_shared_rows,
    describe_violations,
    explain_required_rows,
)
from sqlanon.ledger.joint.release_links import (
    ComparedHierarchies,
    ComparedRelease,
    classify_labels_of_both,
    link_releases,
    prepare_comparison,
)
from sqlanon.ledger.joint.renamed_columns import (
    columns_missing_from,
    describe_renamed_columns,
    describe_uncompared_columns,
    find_columns_without_common_values,
    match_renamed_columns,
)
from sqlanon.ledger.joint.row_matching import ReleaseLink, add_titles
from sqlanon.ledger.records import Publication, SpentEpsilon, warn_of_other_catalogs
from sqlanon.ledger.released_hierarchies import (
    CATALOG_IN_QUERIES,
    copy_released_hierarchies,
    find_different_hierarchies,
    pair_hierarchies,
    readable_table,
    released_hierarchy_name,
)
from sqlanon.ledger.same_people import SharedPeople
from sqlanon.places.addresses import format_location
from sqlanon.policy.noise import ROUNDING
from sqlanon.publish.targets.base import Reach
from sqlanon.publish.targets.kinds import kind_for_path
from sqlanon.release.manifest import Manifest
from sqlanon.requirements import guaranteed_k
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.checks import Check
from sqlanon.support.expressions import (
    aliased,
    cols,
    create_table,
    drop_table,
    full_name,
    read_parquet,
    subquery,
    table,
    template,
    text,
)
from sqlanon.support.notices import count_noun

GROUP_ROWS = "sqlanon rows"
"""The column that counts the rows of a group: no column of a release has this name."""

_NOISE = "noise of all releases"


@dataclass(frozen=True)
class _Attack:
    """An attack that finds rows."""

    message: str
    query: Callable[[], exp.Select] | None = None  # builds SQL that lists the rows; None if it would be too long
    reason: str = ""  # why it requires k rows, where that is not the k of a policy
    remedy: str | None = None


@dataclass(frozen=True)
class _Comparison:
    """An earlier release and the new one, with the hierarchies of both.

    An attack may find ``k`` rows or more; ``reason`` explains a number that is not the k of a policy.
    """

    earlier: EarlierRelease
    new: ComparedRelease
    hierarchies: ComparedHierarchies
    k: int
    reason: str

    @property
    def run_id(self) -> str:
        return self.earlier.publication.run_id


@dataclass(frozen=True)
class SourceHistory:
    """The releases of the source of a new release, when it is published."""

    earlier: Sequence[Publication]  # the releases with which the new one is compared
    replaced: Publication | None  # the release that it replaces
    recorded_releases: frozenset[tuple[str, Path]]  # all releases of the catalog, by run and path
    spent: Sequence[SpentEpsilon]  # the releases with noise of other runs
    other_catalogs: Sequence[Path]  # other catalogs with releases of the source
    shares: Mapping[str, float]  # the share of rows in common with sources under other descriptions
    people: Mapping[str, SharedPeople]  # the people in common with sources under other descriptions
    most_rows: int  # the most rows of one person, if the policy names persons
    most_rows_before: Mapping[str, int]  # the most rows of one person in the source of each earlier run
    same_source: str | None  # the description in the ledger of an earlier source that has the same rows
    notes: Sequence[str]  # warnings about releases that were not compared
    secret: str  # the secret with which keys and samples are hashed


@dataclass
class JointAudit:
    """Compares a new release with earlier ones of the same source."""

    run: Run
    search_input: SearchInput
    target: Path
    history: SourceHistory
    force: bool = False  # whether the new release may break earlier ones: a warning names them then
    extends: bool = False  # whether it extends another release, which is not among the earlier ones
    breaks: list[str] = field(default_factory=list)  # the paths of the releases that it breaks, or may break
    warnings: list[str] = field(default_factory=list)
    groups: dict[str, exp.Table] = field(default_factory=dict)  # the grouped new rows, by the query that groups them
    queries: list[str] = field(default_factory=list)  # SQL that lists the rows for which it is refused
    refusals: list[Refusal] = field(default_factory=list)  # the earlier releases that rule it out
    withdraws: str | None = None  # the run of the release that it replaces without rows that have left the source
    noise_ranges: exp.Table | None = None  # the ranges of its classes, if it has noise

    @property
    def earlier(self) -> Sequence[Publication]:
        return self.history.earlier

    def checks(self, new: Manifest, staged: exp.Table) -> list[Check]:
        """One check for each earlier release, and one for the sum of noise."""
        checks = [*self._noise_check(new)]
        try:
            checks += [
                self._check(publication, ComparedRelease(self.target, new, staged)) for publication in self.earlier
            ]
        finally:
            for target in self.groups.values():
                self.run.engine.execute(drop_table(target))
            self.groups.clear()
        self.warnings += [f"{check.name}: {check.message}" for check in checks if check.passed is None]
        if self.refusals:  # the advice follows once, after all reasons
            last = max(i for i, check in enumerate(checks) if check.passed is False)
            checks[last] = replace(checks[last], message=f"{checks[last].message}\n{self._advice()}")
        return checks

    def notes(self, digest: str) -> list[str]:
        """The warnings about a release with this digest, once it is published."""
        warnings, replaced = [*self.history.notes, *self.warnings], self.history.replaced
        warnings += warn_of_other_catalogs(self.history.other_catalogs)
        if replaced is not None and replaced.digest != digest:
            warnings.append(
                f"it replaces the release of {replaced.published_at:%Y-%m-%d %H:%M} and was not compared with it: "
                "readers with a copy of that one can join the two (sqlanon attack counts the rows that this reveals); "
                "[release] after and sqlanon extend keep both safe"
            )
        return warnings

    def _noise_check(self, new: Manifest) -> Iterator[Check]:
        """Check the epsilon that a record has spent: noise on the same values, drawn again, averages out (sequential
        composition)."""
        if new.epsilon is None:
            return
        section, total = self.search_input.policy.release, self.search_input.policy.privacy.epsilon_total
        if section is not None and not section.ledger:
            message = "release.ledger is false, so the ledger cannot add up the noise of this and later releases"
            yield self._refuse_noise(
                f"{message}: leave it out", "readers of several releases can average their noise away"
            )
        spent, all_shares = self.history.spent, self.history.shares
        runs = {record.run_id: record.epsilon for record in spent}
        so_far = math.fsum(runs.values())
        epsilon_sum = math.fsum([*runs.values(), new.epsilon])
        figures = (
            f"epsilon of a record: {so_far:g} so far, in {count_noun(len(runs), 'release')} of this source, "
            f"{new.epsilon:g} in this one, {epsilon_sum:g} in all"
        )
        shares = [all_shares[record.source] for record in spent if record.source and record.source in all_shares]
        if shares:
            figures += f" (one of them describes it differently and has about {max(shares):.0%} of its rows)"
        loss = f"each record then has an epsilon of {epsilon_sum:g}, so readers of all releases know its values better"
        if total is not None and epsilon_sum > total * (1 + ROUNDING):
            yield self._refuse_noise(f"{figures}; [privacy] epsilon_total allows {total:g}", loss)
        elif total is None and spent:
            message = (
                "this source was published with noise before. Noise that is drawn again for the same values, also of "
                "another column that follows from them, averages out"
            )
            yield self._refuse_noise(
                f"{message}. {figures}: set [privacy] epsilon_total = {epsilon_sum:g} to allow that sum", loss
            )

    def _refuse_noise(self, message: str, loss: str) -> Check:
        if self.force:
            return Check(_NOISE, None, f"published with --force: {message}")
        return Check(_NOISE, False, f"{message}, or publish it with --force: {loss}. The catalog records it")

    def _check(self, publication: Publication, new: ComparedRelease) -> Check:
        name, can_be_base, search = f"together with {publication}", False, self.search_input.earlier
        try:
            with open_earlier_release(self.run.engine, publication, Reach(self.search_input.policy)) as earlier:
                if not kind_for_path(self.target).compares:  # its rows are not available, only classes
                    raise NotComparedError("the new release is in Spark, where releases cannot be compared yet")
                hierarchies, names = self._hierarchies(earlier, new)
                can_be_base = earlier.can_be_base and not hierarchies.crossing
                attacks = self._find_attacks(_Comparison(earlier, new, hierarchies, *self._required_rows(earlier)))
        except ReleaseError as error:
            if publication.run_id in search.run_ids and not isinstance(error, NotComparedError):
                raise
            reason = str(error)
            if publication.intended_at is not None:
                reason = f"an interrupted run may have published it, and it cannot be read: {reason}"
            return self._refuse_uncompared(name, publication, reason, getattr(error, "remedy", None))
        if not attacks:
            return Check(name, True, "neither release reveals more together with the other")
        findings = "; ".join(attack.message for attack in attacks)
        message = self._describe_common_source(publication) + findings + attacks[0].reason
        remedy = next((attack.remedy for attack in attacks if attack.remedy is not None), None)
        if publication.run_id in search.changed_run_ids and remedy is None:
            # The new release shows nothing finer than this one, and no few rows that are new. So these rows were
            # deleted from the source, or changed there: no generalization hides them.
            return Check(
                name, None, f"some of its rows were deleted or changed since, which both together show: {message}"
            )
        self.breaks.append(str(publication.path))
        if self.force:
            return Check(name, None, f"not safe, and published with --force: {message}")
        queries = [_replace_tables(attack.query(), names) for attack in attacks if attack.query is not None]
        self.queries += [self._write_script(publication, query) for query in queries]
        self.refusals.append(Refusal(publication, can_be_base and remedy is None, breaks=True, remedy=remedy))
        return Check(name, False, message)

    def _refuse_uncompared(self, name: str, publication: Publication, reason: str, remedy: str | None) -> Check:
        """Refuse a release if an earlier one exists and cannot be read: it may break that one."""
        reason = self._describe_common_source(publication) + reason
        in_files = kind_for_path(publication.path).in_files
        exists = not in_files or publication.path.exists() or publication.intended_at is not None
        if exists:
            self.breaks.append(str(publication.path))
        if self.force or not exists:
            return Check(name, None, f"not compared: {reason}")
        self.refusals.append(Refusal(publication, can_be_base=False, breaks=False, remedy=remedy))
        return Check(name, False, f"the two cannot be compared, and may not be safe together: {reason}")

    def _advice(self) -> Advice:
        base_runs = self.search_input.earlier.run_ids
        return Advice(
            policy=self.search_input.policy,
            target=self.target,
            refusals=self.refusals,
            is_based=any(refusal.breaks and refusal.publication.run_id in base_runs for refusal in self.refusals),
            is_extension=self.extends,
            withdraws=self.withdraws,
            row_shares=self.history.shares,
            shared_people=self.history.people,
            has_queries=bool(self.queries),
        )

    def _describe_common_source(self, publication: Publication) -> str:
        """Explain why a release of a source under another description is compared with the new one."""
        share = self.history.shares.get(publication.source or "")
        if share is not None:
            return f"the source shares about {share:.0%} of its rows with that of this release; "
        people = self.history.people.get(publication.source or "")
        if people is None:
            return ""
        columns = f"the values of {people.column}"
        if people.earlier_column.lower() != people.column.lower():
            columns += f" and, in that source, {people.earlier_column}"
        return (
            f"the source has about {people.share:.0%} of its people in common with that of this release, by {columns}; "
        )

    def _find_attacks(self, pair: _Comparison) -> list[_Attack]:
        """The attacks that find rows: first with columns of the same name, then with renamed columns."""
        earlier, new, names = pair.earlier, pair.new, dict[str, str]()
        attacks, different = self._find_attacks_with_names(pair, names)
        if attacks:
            return attacks
        if names := match_renamed_columns(self.run.engine, earlier, new):
            attacks, different = self._find_attacks_with_names(pair, names)
        if not attacks:
            renamed = earlier.rename_columns(names)
            missing, added = (
                columns_missing_from(renamed, new),
                columns_missing_from(new, renamed),
            )
            warnings = (
                describe_uncompared_columns(missing, added, different),
                noise_intervals.describe_uncompared_noise(earlier, new),
                noise_intervals.describe_uncompared_noise(new, earlier),
            )
            prefix = f"together with {earlier.publication}"
            self.warnings += [f"{prefix}: {warning}" for warning in warnings if warning is not None]
        return attacks

    def _find_attacks_with_names(self, pair: _Comparison, names: Mapping[str, str]) -> tuple[list[_Attack], list[str]]:
        """The attacks that find rows, with columns of the earlier release renamed as in the new one; and the shared
        columns without a common value."""
        attacks, different = list[_Attack](), list[str]()
        shows_masked_rows = pair.earlier.shows_masked_rows or pair.new.shows_masked_rows
        views: list[MaskedRows] = ["own class", "left out"] if shows_masked_rows else ["none"]
        for masked in views:
            releases = _select_view(pair.earlier, pair.new, pair.hierarchies, names, masked)
            with (
                self._link(pair, releases) as (link, public),
                PairAudit.open(self.run.engine, self.run.work, link, pair.k) as audit,
            ):
                messages = {attack.message for attack in attacks}
                view_attacks = self._attacks(pair, audit, public, masked)
                view_attacks += self._noise_attacks(pair, releases, audit, public)
                attacks += [attack for attack in view_attacks if attack.message not in messages]
                if masked != "left out":
                    relations = link.first, link.second
                    different = find_columns_without_common_values(self.run.engine, *relations, link.shared)
        if attacks:
            attacks[0] = replace(attacks[0], message=describe_renamed_columns(names) + attacks[0].message)
        return attacks, different

    @contextmanager
    def _link(
        self, pair: _Comparison, releases: tuple[ComparedRelease, ComparedRelease]
    ) -> Iterator[tuple[ReleaseLink, ReleaseLink]]:
        """The link of the grouped rows of both releases, and that of the rows, for queries that people can run."""
        engine, (first, second) = self.run.engine, releases
        link = link_releases(first, second, pair.hierarchies)
        if link.missing:
            raise NotComparedError(f"the catalog no longer has the hierarchies of {', '.join(link.missing)}")
        first_columns, second_columns = link.columns
        new_query, first_groups = group_by_columns(link.second, second_columns), self.run.work("joint earlier")
        key = new_query.sql(engine.dialect)
        if key not in self.groups:  # the rows of the new release are grouped once for all comparisons
            self.groups[key] = self.run.work(f"joint new {len(self.groups)}")
            engine.execute(create_table(self.groups[key].copy(), new_query))
        second_groups = self.groups[key].copy()
        engine.execute(create_table(first_groups.copy(), group_by_columns(link.first, first_columns)))
        try:
            # Labels are read unchanged, also where they are compared as values of another type.
            first = replace(first, relation=first_groups) if link.first is first.relation else first
            second = replace(second, relation=second_groups) if link.second is second.relation else second
            kinds = classify_labels_of_both(engine, link, first, second)
            if isinstance(kinds, str):
                raise NotComparedError(kinds, 'publish both with [search] summary = "range"')
            groups = replace(link, first=first_groups, second=second_groups, count=GROUP_ROWS)
            groups = prepare_comparison(engine, groups, kinds.ranges, kinds.sets)
            yield groups, replace(link, attributes=groups.attributes)
        finally:
            engine.execute(drop_table(first_groups))

    def _attacks(self, pair: _Comparison, audit: PairAudit, public: ReleaseLink, masked: MaskedRows) -> list[_Attack]:
        """The attacks that find rows by labels and shared values."""
        link, source, k = audit.link, pair.earlier.publication.source, pair.k
        has_rows = source == self.run.identity or source in self.history.shares
        if not (has_rows or link.shared or any(attribute.is_shared for attribute in link.attributes)):
            return []  # other records of the same people, without a column in common
        attacks = list[_Attack]()
        if link.shared:
            combinations, count = audit.count_combinations()
            if combinations:
                few = f"has fewer than {k:,} rows" if combinations == 1 else f"have fewer than {k:,} rows each"
                message = f"joined with it, {count_noun(combinations, 'combination')} of values {few}"
                message += f" ({count_noun(count, 'row')} in all; complementary release)"
                attacks.append(_Attack(message, _statement(complementary_release, public, k), pair.reason))
        if not attacks:
            attacks += self._violations(pair, audit, public, "joined")
        # Masked rows match every class: a maximum flow with them extends one without, and classes share at most as
        # many rows without them.
        if link.multilevel_attributes and has_rows and not attacks and masked != "own class":
            attacks += self._subtractions(pair, audit, public)
        if not attacks or pair.run_id in self.search_input.earlier.changed_run_ids:
            # Rows that were deleted since do not refuse the release, so everything else must be decided.
            return attacks + self._temporal_attacks(pair, audit, public, masked)
        audit.leave_few_steps()
        try:
            return attacks + self._temporal_attacks(pair, audit, public, masked)
        except NotComparedError:  # the attacks above are enough to refuse the release
            return attacks

    def _noise_attacks(
        self,
        pair: _Comparison,
        releases: tuple[ComparedRelease, ComparedRelease],
        audit: PairAudit,
        public: ReleaseLink,
    ) -> list[_Attack]:
        """The attacks that distinguish rows by intervals around values with noise."""
        names = noise_intervals.find_weak_noise(*releases)
        if not names:
            return []
        (first, second), ranges = releases, None
        if noise_intervals.epsilons_by_column(first):
            ranges = noise_intervals.copy_noise_ranges(self.run, self.search_input.policy, pair.run_id)
        sides = (
            noise_intervals.NoiseSide(first, public.first, public.columns[0], ranges),
            noise_intervals.NoiseSide(second, public.second, public.columns[1], self.noise_ranges),
        )
        intervals = noise_intervals.IntervalAudit(self.run, audit.link, audit.with_tables, pair.hierarchies, names)
        distinguished = intervals.count_distinguished_rows(*sides, pair.k)
        if not distinguished.any:
            return []
        message = describe_distinguished_rows(distinguished, pair.k)
        return [_Attack(message, reason=pair.reason, remedy=noise_intervals.WITHOUT_NOISE_LINKS)]

    def _temporal_attacks(
        self, pair: _Comparison, audit: PairAudit, public: ReleaseLink, masked: MaskedRows
    ) -> list[_Attack]:
        """The attacks that find few new rows, or few rows that are gone."""
        run_id, releases = pair.run_id, self.search_input.earlier
        if run_id in releases.run_ids_by_person:
            return []  # other records: the search has counted parts of classes by the people of that release
        attacks = list[_Attack]()
        # Rows that left the source are in no release that is based on another one.
        directions = [True] if run_id in releases.run_ids else [True, False]
        for is_new in directions:
            side, side_public = (audit, public) if is_new else (audit.in_reverse, public.in_reverse)
            change = describe_change(is_new, masked)
            for part in _parts_with_new_rows(audit.link, masked):
                count, rows = side.count_new_rows(part)
                if count:
                    query, unmatched = None, _list_unmatched(side, part)
                    if unmatched is not None and part == "new":
                        query = _statement(temporal_attack, side_public, pair.k, unmatched)
                    elif unmatched is not None and part != "new":
                        query = _statement(readable_unions, side_public, pair.k, part, unmatched)
                    message = f"{describe_few_rows(rows, change, pair.k, count, part)} (temporal attack)"
                    attacks.append(_Attack(message, query, pair.reason))
                    break
                if violations := self._violations(pair, side, side_public, part, change):
                    attacks += violations
                    break
        return attacks

    def _subtractions(self, pair: _Comparison, audit: PairAudit, public: ReleaseLink) -> list[_Attack]:
        """The attacks on overlapping classes, whose counts show that they share few rows, or rows that violate a
        requirement."""
        overlaps = audit.find_overlaps()
        if overlaps.few:
            query = _statement(subtraction, public, overlaps.few)
            return [_Attack(describe_shared_rows(overlaps.few, pair.k), query, pair.reason)]
        return self._violations(pair, audit, public, "joined by counts") if overlaps.bounds else []

    def _violations(
        self, pair: _Comparison, audit: PairAudit, public: ReleaseLink, part: Part, change: str = ""
    ) -> list[_Attack]:
        """The requirements of the policy that some parts of both releases violate.

        The search has checked them already for a release that is based on the earlier one.
        """
        if pair.run_id in self.search_input.earlier.run_ids:
            return []
        attacks, policy = [], self.search_input.policy
        for requirement in shared_requirements(policy.privacy, policy.attributes_with_role("sensitive"), audit.link):
            count, _ = audit.count_violations(requirement, part)
            if not count:
                continue
            shared = audit.list_shared_rows(requirement) if part == "joined by counts" else ()
            query, unmatched = None, _list_unmatched(audit, part)
            if unmatched is not None:
                query = _statement(readable_violations, public, requirement, part, shared, unmatched)
            attacks.append(_Attack(describe_violations(requirement.name, part, change, count), query))
        return attacks

    def _required_rows(self, earlier: EarlierRelease) -> tuple[int, str]:
        """The fewest rows that an attack may find, and the reason where that is more than k."""
        policy = self.search_input.policy
        k, most_rows = min(guaranteed_k(policy.privacy, policy.quasi_identifiers), earlier.promised_k), 1
        if earlier.publication.run_id not in self.search_input.earlier.run_ids:
            # A release does not distinguish persons, but more rows than k - 1 persons can have are those of k persons.
            # The parts of a release that is based on another have k persons each, which may have fewer rows.
            most_rows = self._most_rows_per_person(earlier.publication)
        rows = (k - 1) * most_rows + 1
        return rows, explain_required_rows(rows, k, most_rows)

    def _most_rows_per_person(self, publication: Publication) -> int:
        """The maximum number of rows of one person, in this source or in that of an earlier release."""
        most = [self.history.most_rows, self.history.most_rows_before.get(publication.run_id, 1)]
        people = self.history.people.get(publication.source or "")
        if people is not None:
            most += [people.most_rows, people.earlier_most_rows]
        return max(most)

    def _write_script(self, publication: Publication, query: exp.Query) -> str:
        """The query of an attack, after the statements that open the files."""
        section = self.search_input.policy.catalog
        assert section is not None
        files = {"earlier": publication.path, "new": self.target, CATALOG_IN_QUERIES: section.database}
        opening = [
            f"ATTACH {text(str(path)).sql()} AS {name} (READ_ONLY);"
            if kind_for_path(path).in_files
            else f"-- {name}: a copy of {format_location(path)}"
            for name, path in files.items()
            if not _is_parquet(path)
        ]
        return "\n".join([*opening, query.sql(self.run.engine.dialect, pretty=True) + ";"])

    def _hierarchies(
        self, earlier: EarlierRelease, new: ComparedRelease
    ) -> tuple[ComparedHierarchies, dict[str, exp.Table | exp.Subquery]]:
        """The hierarchies of both releases when each was made; and tables in queries for people, by the names of those
        that they replace."""
        policy, run, run_id = self.search_input.policy, self.run, earlier.publication.run_id
        earlier_hierarchies = copy_released_hierarchies(run, policy, run_id)
        new_hierarchies = {hierarchy.attribute.lower(): hierarchy for hierarchy in self.search_input.policy_hierarchies}
        names: dict[str, exp.Table | exp.Subquery] = {}
        for release, path, alias in ((earlier, earlier.publication.path, "earlier"), (new, self.target, "new")):
            # A table of an attached database, or a Parquet file
            rows = table(release.manifest.table_name, "main", alias)
            assert isinstance(release.relation, exp.Table)
            names[full_name(release.relation)] = read_parquet([str(path)]) if _is_parquet(path) else rows
        for hierarchy in earlier_hierarchies.values():
            name = released_hierarchy_name(run_id, hierarchy.attribute)
            names[full_name(hierarchy.table)] = readable_table(name)
        for hierarchy in new_hierarchies.values():
            name = catalog.hierarchy_name(policy.fingerprint(), hierarchy.attribute)
            names[full_name(hierarchy.table)] = readable_table(name)

        def store(name: str, query: exp.Query) -> exp.Table:
            target = run.work(name)
            names[full_name(target)] = subquery(_replace_tables(query, names))
            catalog.replace_table(run.engine, target.copy(), query)
            return target

        hierarchies = earlier_hierarchies, new_hierarchies
        different = find_different_hierarchies(run.engine, *hierarchies)
        return pair_hierarchies((earlier, new), hierarchies, different, store), names


def group_by_columns(release: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """The distinct rows of a release in some columns, with their counts."""
    return template("""
        SELECT :columns, count(*) AS "sqlanon rows"
        FROM :release AS release
        GROUP BY :columns
    """)(columns=cols(columns), release=release)


def _select_view(
    first: ComparedRelease,
    second: ComparedRelease,
    hierarchies: ComparedHierarchies,
    names: Mapping[str, str],
    masked: MaskedRows,
) -> tuple[ComparedRelease, ComparedRelease]:
    """Prepare two releases for their comparison: common column names, and no masked rows if these are left out."""
    first, second = first.with_sets_as_text.rename_columns(names), second.with_sets_as_text
    if masked == "left out":
        first = first.without_masked_rows(hierarchies.for_release(is_first=True))
        second = second.without_masked_rows(hierarchies.for_release(is_first=False))
    return first, second


def _statement(build: Callable[..., exp.Select], public: ReleaseLink, *arguments: Any) -> Callable[[], exp.Select]:
    """A function that builds the query of an attack with readable column names."""
    return lambda: add_titles(build(public, *arguments), public.titles)


def _replace_tables(query: exp.Query, names: Mapping[str, exp.Table | exp.Subquery]) -> exp.Query:
    """Replace tables in a query, by their full names."""

    def replace_table(node: exp.Expr) -> exp.Expr:
        replacement = names.get(full_name(node)) if isinstance(node, exp.Table) else None
        return node if replacement is None else aliased(replacement.copy(), node.alias or "rows")

    replaced = query.transform(replace_table)
    assert isinstance(replaced, exp.Query)
    return replaced


def _parts_with_new_rows(link: ReleaseLink, masked: MaskedRows) -> list[NewRows]:
    """The parts in which few new rows are searched for, in this order."""
    parts: dict[MaskedRows, list[NewRows]] = {
        "none": ["new", "class", "region", "table"],
        "own class": ["class", "table"],
        "left out": ["new", "region"],
    }
    return [part for part in parts[masked] if link.multilevel_attributes or part in ("new", "table")]


def _list_unmatched(audit: PairAudit, part: Part) -> list[tuple[Any, ...]] | None:
    """The rows that a readable statement about a part needs; None where it would be too long."""
    try:
        return audit.list_unmatched() if part in ("new", "region") else []
    except NotComparedError:
        return None


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"
