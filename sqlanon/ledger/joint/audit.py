"""The joint audit: whether a new release is safe beside an earlier one.

It runs the attacks of a reader of both files, the complementary release and the temporal attack, for combinations
with fewer rows than the smaller k of the two.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from sqlanon.audit.check import Check
from sqlanon.errors import NotComparedError, ReleaseError
from sqlanon.hierarchies import Hierarchy
from sqlanon.ledger import catalog
from sqlanon.ledger.earlier import EarlierRelease, open_earlier_release
from sqlanon.ledger.joint.attacks import complementary_release, temporal_attack
from sqlanon.ledger.joint.class_unions import readable_unions
from sqlanon.ledger.joint.noise_intervals import (
    CONFIDENCE,
    WITHOUT_NOISE_LINKS,
    DistinguishedRows,
    IntervalAudit,
    NoiseSide,
    describe_uncompared_noise,
    epsilons_of,
    stored_ranges,
    weakly_noisy,
)
from sqlanon.ledger.joint.overlaps import MOST_COMBINATIONS, SharedRows, count_shared_rows, subtraction
from sqlanon.ledger.joint.pair_audit import PairAudit
from sqlanon.ledger.joint.part_requirements import NewRows, Part, readable_violations, shared_requirements
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
from sqlanon.ledger.records import Publication, SpentEpsilon
from sqlanon.ledger.released_hierarchies import (
    CATALOG_IN_QUERIES,
    copy_released_hierarchies,
    find_equal_hierarchies,
    ground_value_types,
    pair_hierarchies,
    readable_table,
    released_hierarchy_name,
)
from sqlanon.ledger.same_people import SharedPeople
from sqlanon.policy import ReleaseSection, format_location
from sqlanon.policy.compatibility import ROWS_ELSEWHERE, WITH_EARLIER, collect_sections, find_conflicts
from sqlanon.policy.noise import ROUNDING
from sqlanon.release.manifest import Manifest
from sqlanon.release.targets.base import Reach, kind_for_path
from sqlanon.requirements import guaranteed_k
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.expressions import (
    col,
    create_table,
    drop_table,
    read_parquet,
    subquery,
    table,
    template,
    text,
)
from sqlanon.support.notices import with_noun

SHOWN_CATALOGS = 3
"""The most other catalogs that a warning names."""

STANDS_FOR = "sqlanon rows"
"""The column of grouped rows that counts them: no column of a release has this name."""

_NOISE = "noise of all releases"

_GROUPED = template("""
    SELECT :columns, count(*) AS "sqlanon rows"
    FROM :release AS release
    GROUP BY :columns
""")


def grouped(release: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """The distinct rows of a release in some columns, with their counts."""
    return _GROUPED(columns=[col(name) for name in columns], release=release)


MaskedRows: TypeAlias = Literal["none", "own class", "left out"]
"""What becomes of masked rows in a comparison of two releases: there are none, they are a class of their own, or they
are left out."""


@dataclass(frozen=True)
class _Refusal:
    """An earlier release beside which the new one is refused; whether the new one could be based on it, and whether it
    breaks it (else the two cannot be compared); ``remedy`` may help."""

    publication: Publication
    can_be_base: bool
    breaks: bool
    remedy: str | None = None


@dataclass(frozen=True)
class _Attack:
    """What an attack finds, and its query for people, by the link that they can use; None where there is none."""

    message: str
    build: Callable[[ReleaseLink, int], exp.Select] | None
    public: ReleaseLink
    k: int
    why: str = ""
    """Why k rows are asked for, where that is not the k of a policy."""
    remedy: str | None = None


@dataclass(frozen=True)
class SourceHistory:
    """The releases of the source of a new release, by the time it is published.

    ``earlier`` are the releases that the new one is compared with, ``replaced`` is the one whose place it takes, and
    ``known`` are all of the catalog, by run and path; ``spent`` are those with noise of other runs; ``elsewhere`` are
    other catalogs with releases of the source. ``shares`` is the share of rows in common with sources of another
    description, ``people`` the people in common with them, and ``same_source`` the name in the ledger of the source
    that one of these is. ``most_rows`` is the most rows of one person, if the policy names persons, and
    ``most_rows_before`` the same of the source of each earlier run; ``notes`` say what was not compared. Keys and
    samples are hashed with the ``secret``.
    """

    earlier: Sequence[Publication]
    replaced: Publication | None
    known: frozenset[tuple[str, Path]]
    spent: Sequence[SpentEpsilon]
    elsewhere: Sequence[Path]
    shares: Mapping[str, float]
    people: Mapping[str, SharedPeople]
    most_rows: int
    most_rows_before: Mapping[str, int]
    same_source: str | None
    notes: Sequence[str]
    secret: str


@dataclass
class JointAudit:
    """Compares a new release with earlier ones of the same source.

    With ``force`` it may break them, and a warning says so. ``extends`` says that the new release extends another one,
    which is not among them; ``withdraws`` is the run of the one that it replaces without rows that have left the
    source, which is among them. ``breaks`` are the paths of those that it breaks, or may break, and ``groups`` the new
    release, grouped, by the query that groups it. ``queries`` list the rows for which the new release is refused,
    because of ``refusals``. ``noise_ranges`` are those of the classes of the new release, if it has noise.
    """

    run: Run
    prepared: SearchInput
    target: Path
    history: SourceHistory
    force: bool = False
    extends: bool = False
    breaks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    groups: dict[str, exp.Table] = field(default_factory=dict)
    queries: list[str] = field(default_factory=list)
    refusals: list[_Refusal] = field(default_factory=list)
    withdraws: str | None = None
    noise_ranges: exp.Table | None = None

    @property
    def earlier(self) -> Sequence[Publication]:
        return self.history.earlier

    def checks(self, new: Manifest, staged: exp.Table) -> list[Check]:
        """One check for each earlier release."""
        found = [*self._noise_check(new)]
        try:
            found += [
                self._check(publication, ComparedRelease(self.target, new, staged)) for publication in self.earlier
            ]
        finally:
            for target in self.groups.values():
                self.run.engine.execute(drop_table(target))
            self.groups.clear()
        self.warnings += [f"{one.name}: {one.message}" for one in found if one.passed is None]
        if self.refusals:  # what to do is said once, after all reasons
            last = max(i for i, one in enumerate(found) if one.passed is False)
            found[last] = replace(found[last], message=f"{found[last].message}\n{self._advice()}")
        return found

    def _noise_check(self, new: Manifest) -> Iterator[Check]:
        """Noise on the same values, drawn again, averages away: what a record has spent adds up (sequential
        composition)."""
        if new.epsilon is None:
            return
        section, total = self.prepared.policy.release, self.prepared.policy.privacy.epsilon_total
        if section is not None and not section.ledger:
            message = "release.ledger is false, so the ledger cannot add up the noise of this and later releases"
            yield self._unless_forced(
                f"{message}: leave it out", "readers of several releases can average their noise away"
            )
        spent, all_shares = self.history.spent, self.history.shares
        runs = {one.run_id: one.epsilon for one in spent}
        so_far = math.fsum(runs.values())
        both = math.fsum([*runs.values(), new.epsilon])
        releases = f"{len(runs)} release{'s' if len(runs) > 1 else ''}"
        figures = f"epsilon of a record: {so_far:g} so far, in {releases} of this source, {new.epsilon:g} in this one, "
        figures += f"{both:g} in all"
        shares = [all_shares[one.source] for one in spent if one.source and one.source in all_shares]
        if shares:
            figures += f" (one of them describes it differently and has about {max(shares):.0%} of its rows)"
        loss = f"each record then has an epsilon of {both:g}, so readers of all releases know its values better"
        if total is not None and both > total * (1 + ROUNDING):
            yield self._unless_forced(f"{figures}; [privacy] epsilon_total allows {total:g}", loss)
        elif total is None and spent:
            message = "this source was published with noise before. Noise that is drawn again for the same values, "
            message += "also of another column that follows from them, averages out"
            yield self._unless_forced(
                f"{message}. {figures}: set [privacy] epsilon_total = {both:g} to allow that sum", loss
            )

    def _unless_forced(self, message: str, loss: str) -> Check:
        if self.force:
            return Check(_NOISE, None, f"published by force: {message}")
        return Check(_NOISE, False, f"{message}, or publish it with --force: {loss}. The catalog records it")

    def notes(self, digest: str) -> list[str]:
        """The warnings about a release with this digest, once it is published."""
        replaced = self.history.replaced
        found = [*self.history.notes, *self.warnings]
        found += self._other_catalogs()
        if replaced is not None and replaced.digest != digest:
            found.append(
                f"it replaces the release of {replaced.published_at:%Y-%m-%d %H:%M} and was not compared with it: "
                "somebody with a copy of that one can join the two (sqlanon attack shows what this reveals); "
                "[release] after and sqlanon extend keep both safe"
            )
        return found

    def _other_catalogs(self) -> Iterator[str]:
        """At most one line about catalogs beside this one."""
        elsewhere = self.history.elsewhere
        if not elsewhere:
            return
        names = ", ".join(map(str, elsewhere[:SHOWN_CATALOGS]))
        if len(elsewhere) > SHOWN_CATALOGS:
            names += f" and {len(elsewhere) - SHOWN_CATALOGS} more"
        yield (
            f"releases of this source that are recorded in {names} were not compared with this one: point the policies "
            "to the same [catalog] database"
        )

    def _check(self, publication: Publication, new: ComparedRelease) -> Check:
        name, can_be_base = f"together with {publication}", False
        try:
            with open_earlier_release(self.run.engine, publication, Reach(self.prepared.policy)) as one:
                if not kind_for_path(self.target).compares:  # only what requirements look at comes here
                    raise NotComparedError("the new release is in Spark, where releases cannot be compared yet")
                trees = self._trees(one, new)
                can_be_base = one.can_be_base and not trees[0].crossing
                found = self._found(one, new, trees)
        except ReleaseError as error:
            if publication.run_id in self.prepared.earlier.run_ids and not isinstance(error, NotComparedError):
                raise
            why = str(error)
            if publication.intended_at is not None:
                why = f"an interrupted run may have published it, and it cannot be read: {why}"
            return self._not_compared(name, publication, why, getattr(error, "remedy", None))
        if not found:
            return Check(name, True, "neither release reveals more beside the other")
        message = self._recognized(publication) + "; ".join(attack.message for attack in found) + found[0].why
        remedy = next((attack.remedy for attack in found if attack.remedy is not None), None)
        if publication.run_id in self.prepared.earlier.changed_run_ids and remedy is None:
            # It shows nothing finer than that one, and no few rows that are new. So these are rows that have gone from
            # the source, or have changed there: no generalization brings them back.
            return Check(
                name, None, f"some of its rows were deleted or changed since, which both together show: {message}"
            )
        self.breaks.append(str(publication.path))
        if self.force:
            return Check(name, None, f"not safe, and published by force: {message}")
        self.queries += [self._script(publication, attack) for attack in found if attack.build is not None]
        self.refusals.append(_Refusal(publication, can_be_base and remedy is None, breaks=True, remedy=remedy))
        return Check(name, False, message)

    def _advice(self) -> str:
        """What to do in place of a release that is refused, one remedy a line; and how to list the rows."""
        return "\n".join(["    You can:", *(f"    - {one}" for one in self._remedies()), *self._how_to_list()])

    def _remedies(self) -> Iterator[str]:
        based = any(one.publication.run_id in self.prepared.earlier.run_ids for one in self.refusals if one.breaks)
        if based:
            yield (
                "release fewer of the columns that both show unchanged: this release is based on the earlier one, and "
                "no generalization hides these rows"
            )
        elif self.withdraws is not None:
            yield (
                "withdraw them later, together with others of their classes, and take the release down until then: "
                "readers who kept a copy learn nothing new"
            )
        elif not self.extends:  # an extension is based on the release that it extends, and goes to its place
            yield from dict.fromkeys(one.remedy for one in self.refusals if one.remedy is not None)
            yield from self._base()
            yield from self._replacement()
            yield from self._other_people()
        if not self.extends and self.withdraws is None:
            yield "try it out with --draft (in Python publish(draft=True)): a draft is not for sharing"
        yield f"publish it all the same with --force (in Python publish(force=True)): {self._price_of_force()}"

    def _price_of_force(self) -> str:
        """What is lost if the release is published beside those for which it is refused."""
        losses = []
        if any(each.publication.run_id == self.withdraws for each in self.refusals):
            losses.append(
                "readers who kept the earlier release find the rows that are gone by comparing the two, and so the "
                "class of the withdrawn persons and the values that both show unchanged"
            )
        elif any(each.breaks for each in self.refusals):
            losses.append(
                "a reader of both releases can then single out the rows counted above, "
                "for which the policy does not hold"
            )
        if not all(each.breaks for each in self.refusals):
            losses.append("what a reader of releases that were not compared learns of any row is then unknown")
        return "; ".join([*losses, "the catalog records it"])

    def _base(self) -> Iterator[str]:
        """To base the release on the earlier ones, where they and the policy allow it."""
        policy = self.prepared.policy
        full_domain = policy.search.model_copy(update={"strategy": "optimal"} if policy.search.traits.is_local else {})
        release = (policy.release or ReleaseSection()).model_copy(update={"after": ("all",)})
        parts = dict(policy) | {"search": full_domain, "release": release}
        refused = any(find_conflicts((*WITH_EARLIER, *ROWS_ELSEWHERE), collect_sections(parts)))
        if refused or not all(one.can_be_base for one in self.refusals):
            return
        first, several = self.refusals[0].publication, len(self.refusals) > 1
        name = first.path.stem if kind_for_path(first.path).in_files else first.table_name
        based = f"[release] after = {json.dumps('all' if several else name)}"
        if policy.search.traits.is_local:
            based += ' and [search] strategy = "optimal"'
        yield f"base this release on {'those' if several else 'that one'}: set {based}"

    def _other_people(self) -> Iterator[str]:
        """What to do if people were taken for others."""
        sources = [one.publication.source or "" for one in self.refusals]
        columns = [
            self.history.people[source].column
            for source in sources
            if source in self.history.people and source not in self.history.shares
        ]
        if columns:
            yield (
                f"if {columns[0]} numbers other people in that source (both may count from 1), compare the two tables "
                "first; then publish with --force, or give this policy a [catalog] database of its own: releases in it "
                "are never compared with that one. If they are the same people, readers of both can single them out"
            )

    def _replacement(self) -> Iterator[str]:
        """To take the place of the earlier one, where it is one."""
        if len(self.refusals) == 1:
            path = self.refusals[0].publication.path
            place = format_location(path)
            how = f"--output {shlex.quote(place)}" if kind_for_path(path).in_files else f"publish to {place}"
            if path == self.target:  # a version that would be kept beside this one
                how = "set [release] keep = 1"
            yield f"replace that release: {how}. This is safe only if nobody has a copy of it"

    def _how_to_list(self) -> Iterator[str]:
        """How to see the rows for which a release is refused: by attacks on the earlier one and on a draft."""
        broken = [one.publication.path for one in self.refusals if one.breaks]
        if not broken or not self.queries:
            return
        name = self.prepared.policy.file_name
        if self.extends or self.withdraws is not None or name is None or not kind_for_path(broken[0]).in_files:
            yield "    In Python, `queries` of this error has the SQL that lists the rows."
            return
        file, earlier, draft = shlex.quote(name), shlex.quote(format_location(broken[0])), "draft.duckdb"
        yield "    To list the rows, attack that release and a draft of this one:"
        yield f"      sqlanon anonymize {file} --draft --output {draft}"
        yield f"      sqlanon attack {earlier} {draft} --policy {file} --only complementary_release,temporal --sql"

    def _recognized(self, publication: Publication) -> str:
        """Why a release of a source under another description is compared with this one."""
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

    def _not_compared(self, name: str, publication: Publication, why: str, remedy: str | None) -> Check:
        """Nobody can open a release that is gone; one that is there and cannot be read may be broken."""
        why = self._recognized(publication) + why
        kind = kind_for_path(publication.path)
        there = not kind.in_files or publication.path.exists() or publication.intended_at is not None
        if there:
            self.breaks.append(str(publication.path))
        if self.force or not there:
            return Check(name, None, f"not compared: {why}")
        self.refusals.append(_Refusal(publication, can_be_base=False, breaks=False, remedy=remedy))
        return Check(name, False, f"the two cannot be compared, and may not be safe together: {why}")

    def _found(
        self, one: EarlierRelease, new: ComparedRelease, trees: tuple[ComparedHierarchies, ComparedHierarchies]
    ) -> list[_Attack]:
        """The attacks that find somebody."""
        found, different = self._found_by_names(one, new, trees, {})
        if found:
            return found
        pairs = match_renamed_columns(self.run.engine, one, new)
        if pairs:
            found, different = self._found_by_names(one, new, trees, pairs)
        own, theirs = (
            columns_missing_from(one.rename_columns(pairs), new),
            columns_missing_from(new, one.rename_columns(pairs)),
        )
        uncompared = describe_uncompared_columns(own, theirs, different)
        if not found:
            notes = uncompared, describe_uncompared_noise(one, new), describe_uncompared_noise(new, one)
            self.warnings += [f"together with {one.publication}: {note}" for note in notes if note is not None]
        return found

    def _found_by_names(
        self,
        one: EarlierRelease,
        new: ComparedRelease,
        trees: tuple[ComparedHierarchies, ComparedHierarchies],
        pairs: Mapping[str, str],
    ) -> tuple[list[_Attack], list[str]]:
        """The attacks that find somebody, with columns of the earlier release called as in the new one; and the shared
        columns without a value in common."""
        both = one.with_sets_as_text.rename_columns(pairs), new.with_sets_as_text
        with self._linked(one, new, trees, pairs, *both) as (linked, public), self._audit(one, linked) as audit:
            masked: MaskedRows = "own class" if one.masks or new.masks else "none"
            found = self._attacks(one, audit, public, masked)
            found += self._noise_attacks(one, both, trees[0], audit, public)
            without_common = find_columns_without_common_values(
                self.run.engine, linked.first, linked.second, linked.shared
            )
        if masked == "own class":
            own = trees[0].for_release(is_first=True), trees[0].for_release(is_first=False)
            unmasked = [each.without_masked_rows(its) for each, its in zip(both, own, strict=True)]
            with self._linked(one, new, trees, pairs, *unmasked) as (linked, public), self._audit(one, linked) as audit:
                known = {attack.message for attack in found}
                more = self._attacks(one, audit, public, "left out")
                more += self._noise_attacks(one, (unmasked[0], unmasked[1]), trees[0], audit, public)
                found += [each for each in more if each.message not in known]
        if found:
            found[0] = replace(found[0], message=describe_renamed_columns(pairs) + found[0].message)
        return found, without_common

    def _audit(self, one: EarlierRelease, linked: ReleaseLink) -> AbstractContextManager[PairAudit]:
        return PairAudit.open(self.run.engine, self.run.work, linked, self._fewest_rows(one)[0])

    @contextmanager
    def _linked(
        self,
        one: EarlierRelease,
        new: ComparedRelease,
        trees: tuple[ComparedHierarchies, ComparedHierarchies],
        pairs: Mapping[str, str],
        first: ComparedRelease,
        second: ComparedRelease,
    ) -> Iterator[tuple[ReleaseLink, ReleaseLink]]:
        """The link of both, their rows grouped; and by names that people can use."""
        linked = link_releases(first, second, trees[0])
        if linked.missing:
            raise NotComparedError(f"the catalog no longer has the hierarchies of {', '.join(linked.missing)}")
        with self._grouped(linked) as (own, theirs):
            # Labels are read as they are, also where they are compared as values of another type.
            first = replace(first, relation=own) if linked.first is first.relation else first
            second = replace(second, relation=theirs) if linked.second is second.relation else second
            kinds = classify_labels_of_both(self.run.engine, linked, first, second)
            if isinstance(kinds, str):
                raise NotComparedError(kinds, 'publish both with [search] summary = "range"')
            groups = replace(linked, first=own, second=theirs, count=STANDS_FOR)
            groups = prepare_comparison(self.run.engine, groups, kinds.ranges, kinds.sets)
            leave_out = first.excludes_masked_rows or second.excludes_masked_rows
            yield groups, self._public_link(one, new, trees[1], groups, pairs, leave_out)

    @contextmanager
    def _grouped(self, linked: ReleaseLink) -> Iterator[tuple[exp.Table, exp.Table]]:
        """The rows of both, grouped: those of the new release are grouped once for all comparisons."""
        engine, (own, theirs) = self.run.engine, linked.columns
        query = grouped(linked.second, theirs)
        key = query.sql(engine.dialect)
        if key not in self.groups:
            target = self.run.work(f"joint new {len(self.groups)}")
            engine.execute(create_table(target.copy(), query))
            self.groups[key] = target
        first = self.run.work("joint earlier")
        engine.execute(create_table(first.copy(), grouped(linked.first, own)))
        try:
            yield first, self.groups[key].copy()
        finally:
            engine.execute(drop_table(first))

    def _public_link(
        self,
        one: EarlierRelease,
        new: ComparedRelease,
        trees: ComparedHierarchies,
        compared: ReleaseLink,
        pairs: Mapping[str, str],
        leave_masked_rows_out: bool,
    ) -> ReleaseLink:
        """The link of both, by names that people can use."""
        names = (_file(one.publication.path, one.manifest, "earlier"), _file(self.target, new.manifest, "new"))
        first = replace(one, relation=names[0]).with_sets_as_text.rename_columns(pairs)
        second = replace(new, relation=names[1]).with_sets_as_text
        if leave_masked_rows_out:
            first = first.without_masked_rows(trees.for_release(is_first=True))
            second = second.without_masked_rows(trees.for_release(is_first=False))
        shown = link_releases(first, second, trees)
        attributes = tuple(
            replace(there, pairs=here.pairs, ranges=here.ranges, sets=here.sets)
            for there, here in zip(shown.attributes, compared.attributes, strict=True)
        )
        return replace(shown, attributes=attributes)

    def _attacks(self, one: EarlierRelease, audit: PairAudit, public: ReleaseLink, masked: MaskedRows) -> list[_Attack]:
        """The attacks that find somebody."""
        linked = audit.linked
        has_rows = one.publication.source == self.run.identity or one.publication.source in self.history.shares
        if not (has_rows or linked.shared or any(attribute.is_shared for attribute in linked.attributes)):
            return []  # other records of the same people, without a column in common
        found, (k, why) = list[_Attack](), self._fewest_rows(one)
        if linked.shared:
            combinations, count = audit.count_combinations()
            if combinations:
                few = f"has fewer than {k:,} rows" if combinations == 1 else f"have fewer than {k:,} rows each"
                message = f"joined with it, {with_noun(combinations, 'combination')} of values {few}"
                message += f" ({with_noun(count, 'row')} in all; complementary release)"
                found.append(_Attack(message, complementary_release, public, k, why))
        if not found:
            found += self._violations(one, audit, public, "joined")
        # Without masked rows: they meet every class, so that a greatest flow with them extends one without, and classes
        # share at most as many rows without them.
        if linked.multilevel_attributes and has_rows and not found and masked != "own class":
            found += self._subtractions(one, audit, public, why)
        if not found or one.publication.run_id in self.prepared.earlier.changed_run_ids:
            # Rows that have gone since do not refuse the release, so all else must be decided.
            return found + self._temporal_attacks(one, audit, public, masked)
        audit.leave_few_steps()
        try:
            return found + self._temporal_attacks(one, audit, public, masked)
        except NotComparedError:  # what was found is enough to refuse the release
            return found

    def _noise_attacks(
        self,
        one: EarlierRelease,
        both: tuple[ComparedRelease, ComparedRelease],
        trees: ComparedHierarchies,
        audit: PairAudit,
        public: ReleaseLink,
    ) -> list[_Attack]:
        """Rows that the intervals of values with noise tell apart."""
        names = weakly_noisy(*both)
        if not names:
            return []
        (first, second), rows, (k, why) = both, link_releases(*both, trees), self._fewest_rows(one)
        ranges = stored_ranges(self.run, self.prepared.policy, one.publication.run_id) if epsilons_of(first) else None
        sides = (
            NoiseSide(first, rows.first, rows.columns[0], ranges),
            NoiseSide(second, rows.second, rows.columns[1], self.noise_ranges),
        )
        told = IntervalAudit(self.run, audit.linked, audit.with_tables, trees, names).told_apart(*sides, k)
        message = _describe_told_apart(told, k)
        return [_Attack(message, None, public, k, why, WITHOUT_NOISE_LINKS)] if told.any else []

    def _temporal_attacks(
        self, one: EarlierRelease, audit: PairAudit, public: ReleaseLink, masked: MaskedRows
    ) -> list[_Attack]:
        """Few rows that are new, or gone."""
        if one.publication.run_id in self.prepared.earlier.run_ids_by_person:
            return []  # its rows are other records: parts of classes have been counted by the people that it has
        found, (k, why) = list[_Attack](), self._fewest_rows(one)
        # What has left the source is in no release that is based on another one.
        sides = [True] if one.publication.run_id in self.prepared.earlier.run_ids else [True, False]
        for is_new in sides:
            side, shown = (audit, public) if is_new else (audit.swapped, public.swapped)
            for part in _parts_with_new_rows(audit.linked, masked):
                count, rows = side.count_new_rows(part)
                if count:
                    unmatched = _list_unmatched(side, part)
                    build = None
                    if unmatched is not None and part == "new":
                        build = partial(temporal_attack, unmatched=unmatched)
                    elif unmatched is not None and part != "new":
                        build = partial(readable_unions, union=part, unmatched=unmatched)
                    few = _describe_few_rows(rows, _describe_change(is_new, masked), k, count, part)
                    message = f"{few} (temporal attack)"
                    found.append(_Attack(message, build, shown, k, why))
                    break
                if broken := self._violations(one, side, shown, part, _describe_change(is_new, masked)):
                    found += broken
                    break
        return found

    def _subtractions(self, one: EarlierRelease, audit: PairAudit, public: ReleaseLink, why: str) -> list[_Attack]:
        """Few rows that overlapping classes share by the counts of both, or such that do not meet a requirement."""
        overlaps = audit.find_overlaps()
        if overlaps.few:
            build = partial(subtraction, shared_rows=overlaps.few)
            return [_Attack(_describe_shared(overlaps.few, audit.k), build, public, audit.k, why)]
        return self._violations(one, audit, public, "joined by counts") if overlaps.bounds else []

    def _violations(
        self,
        one: EarlierRelease,
        audit: PairAudit,
        public: ReleaseLink,
        part: Part,
        what: str = "",
    ) -> list[_Attack]:
        """The requirements of the policy that some parts of both releases do not meet.

        What a release is based on has been searched with them.
        """
        if one.publication.run_id in self.prepared.earlier.run_ids:
            return []
        found = []
        policy = self.prepared.policy
        for wanted in shared_requirements(policy.privacy, policy.attributes_with_role("sensitive"), audit.linked):
            count, _ = audit.count_violations(wanted, part)
            if count:
                shared = audit.list_shared_rows(wanted) if part == "joined by counts" else ()
                build, unmatched = None, _list_unmatched(audit, part)
                if unmatched is not None:
                    build = partial(
                        readable_violations, requirement=wanted, part=part, shared=shared, unmatched=unmatched
                    )
                found.append(_Attack(_describe_violations(wanted.name, part, what, count), build, public, audit.k))
        return found

    def _fewest_rows(self, one: EarlierRelease) -> tuple[int, str]:
        """The fewest rows that an attack may find, and why so many."""
        policy = self.prepared.policy
        k, most_rows = min(guaranteed_k(policy.privacy, policy.quasi_identifiers), one.promised_k), 1
        if one.publication.run_id not in self.prepared.earlier.run_ids:
            # A release does not tell persons apart. Of so many rows, k persons have one at least. What is based on the
            # other consists of parts with k persons each, counted where persons are known: here in fewer rows, too.
            most_rows = self._most_rows_of_a_person(one.publication)
        rows = (k - 1) * most_rows + 1
        return rows, _why_more_rows(rows, k, most_rows)

    def _most_rows_of_a_person(self, publication: Publication) -> int:
        """The most rows of one person, in this source or in that of an earlier release."""
        most = [self.history.most_rows, self.history.most_rows_before.get(publication.run_id, 1)]
        shared = self.history.people.get(publication.source or "")
        if shared is not None:
            most += [shared.most_rows, shared.earlier_most_rows]
        return max(most)

    def _script(self, publication: Publication, attack: _Attack) -> str:
        """The query of an attack, with the statements that open the files."""
        private = self.prepared.policy.catalog
        assert private is not None
        files = {"earlier": publication.path, "new": self.target, CATALOG_IN_QUERIES: private.database}
        opening = [
            f"ATTACH {text(str(path)).sql()} AS {name} (READ_ONLY);"
            if kind_for_path(path).in_files
            else f"-- {name}: a copy of {format_location(path)}"
            for name, path in files.items()
            if not _is_parquet(path)
        ]
        assert attack.build is not None
        query = add_titles(attack.build(attack.public, attack.k), attack.public.titles)
        return "\n".join([*opening, query.sql(self.run.engine.dialect, pretty=True) + ";"])

    def _trees(self, one: EarlierRelease, new: ComparedRelease) -> tuple[ComparedHierarchies, ComparedHierarchies]:
        """The hierarchies of both, each as it was when its release was made; and by the names that the catalog has for
        them."""
        policy, run = self.prepared.policy, self.run
        then = copy_released_hierarchies(run, policy, one.publication.run_id)
        now = {hierarchy.attribute.lower(): hierarchy for hierarchy in self.prepared.policy_hierarchies}
        then_name = partial(released_hierarchy_name, one.publication.run_id)
        now_name = partial(catalog.hierarchy_name, policy.fingerprint())
        same, types = find_equal_hierarchies(run.engine, then, now), ground_value_types(run.engine, then, now)
        shown = _in_catalog(then, then_name), _in_catalog(now, now_name)
        return (
            pair_hierarchies((one, new), (then, now), same, types, self._store),
            pair_hierarchies((one, new), shown, same, types, lambda name, query: subquery(query, name)),
        )

    def _store(self, name: str, query: exp.Query) -> exp.Table:
        """Make a table in the work schema."""
        target = self.run.work(name)
        catalog.replace_table(self.run.engine, target.copy(), query)
        return target


def _in_catalog(hierarchies: Mapping[str, Hierarchy], name: Callable[[str], str]) -> dict[str, Hierarchy]:
    """Hierarchies with their tables in the queries for people."""
    return {key: replace(each, table=readable_table(name(each.attribute))) for key, each in hierarchies.items()}


def _parts_with_new_rows(linked: ReleaseLink, masked: MaskedRows) -> list[NewRows]:
    """Where few new rows are looked for, in this order."""
    parts: dict[MaskedRows, list[NewRows]] = {
        "none": ["new", "class", "region", "table"],
        "own class": ["class", "table"],
        "left out": ["new", "region"],
    }
    return [part for part in parts[masked] if linked.multilevel_attributes or part in ("new", "table")]


def _list_unmatched(audit: PairAudit, part: Part) -> list[tuple[Any, ...]] | None:
    """What a statement about a part needs to show new rows; None, where it would be too long."""
    try:
        return audit.list_unmatched() if part in ("new", "region") else []
    except NotComparedError:
        return None


def _describe_change(is_new: bool, masked: MaskedRows) -> str:
    """In words, rows that one release shows and the other does not."""
    if masked == "left out":
        return "new, or were masked before" if is_new else "gone, or are masked now"
    return "new" if is_new else "gone"


def _describe_few_rows(rows: int, what: str, k: int, classes: int, part: NewRows) -> str:
    match part:
        case "region":
            nouns = "one group of overlapping classes", "groups of overlapping classes"
        case "table":
            nouns = "the whole table", ""
        case _:
            nouns = "one class", "classes"
    each = f"in {nouns[0]}" if classes == 1 else f"in each of {classes:,} {nouns[1]}"
    return f"{with_noun(rows, 'row')} {'is' if rows == 1 else 'are'} {what}, fewer than {k:,} {each}"


def _describe_told_apart(told: DistinguishedRows, k: int) -> str:
    """In words, the rows that values with noise tell apart.

    >>> _describe_told_apart(DistinguishedRows(["kg"], 355, 0, 0, 1, 0), 5)  # doctest: +NORMALIZE_WHITESPACE
    'by intervals around values with noise (kg, 99% confidence), 355 rows of that release can be fewer than 5 rows of
    this one, and 1 row of this one is new, fewer than 5 in one class'
    """
    few, parts = f"fewer than {k:,}", []
    if told.first_linked:
        parts.append(f"{with_noun(told.first_linked, 'row')} of that release can be {few} rows of this one")
    if told.second_linked:
        parts.append(f"{with_noun(told.second_linked, 'row')} of this one can be {few} rows of that release")
    for rows, what in ((told.first_alone, "of that release {} gone"), (told.second_alone, "of this one {} new")):
        if rows:
            verb = what.format("is" if rows == 1 else "are")
            parts.append(f"{with_noun(rows, 'row')} {verb}, {few} in one class")
    if told.combinations:
        verb = "has" if told.combinations == 1 else "have"
        parts.append(f"{with_noun(told.combinations, 'combination')} of values {verb} {few} rows")
    intervals = f"by intervals around values with noise ({', '.join(told.columns)}, {CONFIDENCE:.0%} confidence)"
    return f"{intervals}, {', and '.join(parts)}"


def _describe_violations(requirement: str, part: Part, what: str, count: int) -> str:
    match part:
        case "joined" | "joined by counts":
            classes = "one class of the two does" if count == 1 else f"{count:,} classes of the two do"
            return f"joined with it, {classes} not have {requirement} (complementary release)"
        case "region":
            place = (
                "one group of overlapping classes" if count == 1 else f"each of {count:,} groups of overlapping classes"
            )
        case "table":
            place = "the whole table"
        case _:
            place = "one class" if count == 1 else f"each of {count:,} classes"
    return f"the rows that are {what} in {place} do not have {requirement} (temporal attack)"


def _describe_shared(groups: Sequence[SharedRows], k: int) -> str:
    """In words, the classes whose groups share few rows.

    >>> flu, hiv = (SharedRows(("10-19 & 0-14",), 3, rows, (), (), 0) for rows in (2, 1))
    >>> _describe_shared([flu, hiv], 5)
    'by the counts of both, two of their classes share at most 3 rows, fewer than 5 (subtraction)'
    """
    most = count_shared_rows(groups)
    rows = with_noun(sum(most.values()), "row")
    if len(most) == 1:
        return f"by the counts of both, two of their classes share at most {rows}, fewer than {k:,} (subtraction)"
    pairs = f"{len(most):,} pairs of their classes"
    if len(most) >= MOST_COMBINATIONS:
        return f"by the counts of both, at least {pairs} share fewer than {k:,} rows each (subtraction)"
    return f"by the counts of both, {pairs} share at most {rows} in all, fewer than {k:,} each (subtraction)"


def _why_more_rows(rows: int, persons: int, most_rows: int) -> str:
    """Why so many rows are asked for of so many persons.

    >>> _why_more_rows(105, 5, 26)
    ' (why 105 rows with k = 5: one person has up to 26 rows, so 104 rows can be those of 4 persons)'
    """
    if most_rows == 1:
        return ""
    of_persons = f"{rows - 1:,} rows can be those of {with_noun(persons - 1, 'person')}"
    return f" (why {rows:,} rows with k = {persons:,}: one person has up to {most_rows:,} rows, so {of_persons})"


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _file(path: Path, manifest: Manifest, alias: str) -> exp.Table:
    """The rows of a release for whoever has its file: of a database that is attached, or of a Parquet file."""
    return read_parquet([str(path)]) if _is_parquet(path) else table(manifest.table_name, "main", alias)
