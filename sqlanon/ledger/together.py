"""A new release beside earlier ones: whether it breaks one of them.

What is asked is what an attacker would ask of the files: the complementary release and the temporal attack, for
combinations that fewer rows have than the smaller k of the two.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon import catalog
from sqlanon.errors import ReleaseError
from sqlanon.expressions import col, create_table, drop_table, named, read_parquet, select, subquery, table, text
from sqlanon.ledger.earlier import Earlier, opened
from sqlanon.ledger.exports import exports, not_compared
from sqlanon.ledger.intents import Places
from sqlanon.ledger.joint_attacks import complementary_release, temporal
from sqlanon.ledger.joint_audit import STANDS_FOR, JointAudit, grouped
from sqlanon.ledger.linked import ROWS, titled
from sqlanon.ledger.records import Publication, Spent, publications, publications_elsewhere, spent
from sqlanon.ledger.side_by_side import MOST_RANGES, Link, Subject, Tree, Trees, compared_with, link, strange_or_ranges
from sqlanon.ledger.source_match import SameRows
from sqlanon.ledger.trees import is_same_tree, stored_name, tree_of_both, trees_of, union_of
from sqlanon.policy import in_postgres, shown_place
from sqlanon.policy.noise import ROUNDING
from sqlanon.policy.spark import in_spark
from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest
from sqlanon.requirements import promised_k
from sqlanon.search.preparation import SearchInput
from sqlanon.sources.run import Run

_BY_FORCE = "publish by force (--force), which the ledger records"

_NOISE = "noise of all releases"

_CATALOG = "hierarchies"
"""The catalog's name in the queries that are shown."""


@dataclass(frozen=True)
class _Attack:
    """What an attack finds, and the query that shows it: a long one, where many are not asked for."""

    told: str
    query: Callable[[], str]


@dataclass
class Together:
    """Holds a new release against earlier ones.

    Attributes
    ----------
    run, prepared:
        Where the source is, and what is known of it.
    earlier:
        The releases that stand.
    target:
        Where the new one goes.
    force:
        Whether what breaks them is told and let through.
    replaced:
        The release whose place it takes, if the ledger has one.
    known:
        By run and path, all releases of this source, now.
    spent:
        What other runs have published of this source with noise.
    shares:
        By description of another source, the share of rows that both have.
    same_source:
        What the ledger calls the source, if it is known under an earlier description.
    elsewhere:
        Other catalogs that have releases of this source.
    open:
        By run, those that are open already: a file can be attached once.
    breaks:
        The paths of those that it breaks, or may break, once it was held against them.
    warnings:
        What was let through: what it breaks by force, and what could not be looked at.
    groups:
        The new release, grouped, by the query that groups it.
    """

    run: Run
    prepared: SearchInput
    earlier: Sequence[Publication]
    target: Path
    force: bool = False
    replaced: Publication | None = None
    known: frozenset[tuple[str, Path]] = frozenset()
    elsewhere: Sequence[Path] = ()
    spent: Sequence[Spent] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    same_source: str | None = None
    open: Mapping[str, Earlier] = field(default_factory=dict)
    breaks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    groups: dict[str, exp.Table] = field(default_factory=dict)

    def checks(self, new: Manifest, staged: exp.Table) -> list[Check]:
        """One check for each earlier release."""
        found = [*self._noise_check(new)]
        try:
            found += [self._check(publication, Subject(self.target, new, staged)) for publication in self.earlier]
        finally:
            for made in self.groups.values():
                self.run.engine.execute(drop_table(made))
            self.groups.clear()
        self.warnings += [f"{one.name}: {one.message}" for one in found if one.passed is None]
        return found

    @property
    def has_checks(self) -> bool:
        """Whether there is anything that a release has to be held against."""
        return bool(self.earlier or self.prepared.policy.noisy)

    def _noise_check(self, new: Manifest) -> Iterator[Check]:
        """Noise on the same values, drawn again, averages away: what a record has spent adds up (sequential
        composition)."""
        if new.epsilon is None:
            return
        section, total = self.prepared.policy.release, self.prepared.policy.privacy.epsilon_total
        if section is not None and not section.ledger:
            told = "release.ledger is false, so that the ledger cannot add this noise to that of later releases"
            yield self._unless_forced(f"{told}: leave it out")
        runs = {one.run_id: one.epsilon for one in self.spent}
        names = {name.lower() for name in new.noise or ()}
        again = [one for one in self.spent if one.source != self.run.identity or names & (one.attributes or names)]
        so_far = math.fsum(runs.values())
        both = math.fsum([*runs.values(), new.epsilon])
        releases = f"{len(runs)} release{'s' if len(runs) > 1 else ''}"
        figures = f"epsilon of a record: {so_far:g} so far, in {releases} of this source, {new.epsilon:g} in this one, "
        figures += f"{both:g} in all"
        shares = [self.shares[one.source] for one in self.spent if one.source and one.source in self.shares]
        if shares:
            figures += f" (one of them has another name for it, and about {max(shares):.0%} of its rows)"
        if total is not None and both > total * (1 + ROUNDING):
            yield self._unless_forced(f"{figures}; [privacy] epsilon_total allows {total:g}")
        elif total is None and again:
            told = "this source was published with noise before, and noise that is drawn again averages away"
            yield self._unless_forced(f"{told}. {figures}: set [privacy] epsilon_total to allow that sum")

    def _unless_forced(self, message: str) -> Check:
        if self.force:
            return Check(_NOISE, None, f"published by force: {message}")
        return Check(_NOISE, False, f"{message}, or {_BY_FORCE}")

    def told(self, digest: str) -> list[str]:
        """What the holder should know of a release with this digest, now that it is out."""
        found = list(self.warnings)
        for one in self.elsewhere:
            found.append(
                f"{one} has releases of this source, too, and they were not compared with this one: point the policies "
                "to the same [catalog] database"
            )
        if self.replaced is not None and self.replaced.digest != digest:
            found.append(
                f"it takes the place of the release of {self.replaced.published_at:%Y-%m-%d %H:%M}, and was not held "
                "against it: who has a copy can compare the two (sqlanon attack); [release] after, and extend, keep "
                "them safe together"
            )
        return found

    def _check(self, publication: Publication, new: Subject) -> Check:
        name = f"together with {publication}"
        try:
            own = self.open.get(publication.run_id)
            addresses = Places.of(self.prepared.policy).addresses if in_postgres(publication.path) else ()
            with opened(self.run.engine, publication, addresses=addresses) if own is None else nullcontext(own) as one:
                found = self._found(one, new)
        except ReleaseError as error:
            if publication.run_id in self.prepared.after:
                raise
            found = str(error)
            if publication.intended_at is not None:
                found = f"a run that was stopped may have published it, which cannot be looked at: {found}"
        if isinstance(found, str):
            return self._not_looked_at(name, publication, found)
        if not found:
            return Check(name, True, "neither release reveals more beside the other")
        message = self._recognized(publication) + "; ".join(attack.told for attack in found)
        if publication.run_id in self.prepared.lost:
            # It shows nothing finer than that one, and no few rows that are new. So these are rows that have gone from
            # the source, or have changed there: no generalization brings them back.
            return Check(name, None, f"rows of it have gone or changed since, which both together show: {message}")
        self.breaks.append(str(publication.path))
        if self.force:
            return Check(name, None, f"not safe, and published by force: {message}")
        queries = "\n\n".join(attack.query() for attack in found)
        remedy = f"base it on that one with [release] after, or {_BY_FORCE}"
        if publication.run_id in self.prepared.after:
            remedy = (
                "it is based on that one, which shows as it is what is a quasi-identifier here, so that no "
                f"generalization hides these rows: release less of what both show as it is, or {_BY_FORCE}"
            )
        return Check(name, False, f"{message}: {remedy}. What shows it, once it is published:\n{queries}\n")

    def _recognized(self, publication: Publication) -> str:
        """Why a release of a source under another description is held against this one."""
        share = self.shares.get(publication.source or "")
        return "" if share is None else f"the source shares about {share:.0%} of its rows with that of this release; "

    def _not_looked_at(self, name: str, publication: Publication, why: str) -> Check:
        """What is gone nobody can look at any more; what is there, and cannot be looked at, may be broken."""
        why = self._recognized(publication) + why
        is_in_spark = in_spark(publication.path)
        is_server = is_in_spark or in_postgres(publication.path)
        there = is_server or publication.path.exists() or publication.intended_at is not None
        if there:
            self.breaks.append(str(publication.path))
        if self.force or not there:
            return Check(name, None, f"not looked at: {why}")
        if is_in_spark:  # nothing is wrong with it
            return Check(name, False, f"{why}: publish to its place, which replaces it, or {_BY_FORCE}")
        return Check(name, False, f"it cannot be looked at, so that it may be broken: {why}; {_BY_FORCE}")

    def _found(self, one: Earlier, new: Subject) -> list[_Attack] | str:
        """The attacks that find somebody. Or why it cannot be told."""
        if in_spark(self.target):  # only what requirements look at comes here
            return "the new one is in Spark, and nothing can be held against releases there yet"
        trees, shown_trees = self._trees(one, new)
        linked = link(one, new, trees)
        if linked.missing:
            return f"the catalog does not have the hierarchies of {', '.join(linked.missing)} any more"
        with self._grouped(linked) as (own, theirs):
            # Labels are looked at as they are, also where they are compared as values of another type.
            first = replace(one, relation=own) if linked.first is one.relation else one
            second = replace(new, relation=theirs) if linked.second is new.relation else new
            swapped = [part.swapped for part in linked.attributes]
            ranges = frozenset[int]()
            for subject, attributes in ((first, linked.attributes), (second, swapped)):
                strange, found = strange_or_ranges(self.run.engine, subject, attributes)
                ranges |= found
                if strange:
                    told = f"sets, medians, other values, or more than {MOST_RANGES:,} ranges"
                    return f"{subject.path.name} shows {told} of {', '.join(strange)}"
            groups = replace(linked, first=own, second=theirs, count=STANDS_FOR)
            groups = compared_with(self.run.engine, groups, ranges)
            try:
                return list(self._attacks(one, groups, lambda: self._shown(one, new, shown_trees, groups)))
            except ReleaseError as error:
                return str(error)

    @contextmanager
    def _grouped(self, linked: Link) -> Iterator[tuple[exp.Table, exp.Table]]:
        """The rows of both, grouped: those of the new release once for all others."""
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

    def _shown(self, one: Earlier, new: Subject, trees: Trees, compared: Link) -> Link:
        """The link of both by names that people can put in place."""
        names = (_file(one.publication.path, one.manifest, "earlier"), _file(self.target, new.manifest, "new"))
        shown = link(replace(one, relation=names[0]), replace(new, relation=names[1]), trees)
        attributes = tuple(
            replace(there, pairs=here.pairs, ranges=here.ranges)
            for there, here in zip(shown.attributes, compared.attributes, strict=True)
        )
        return replace(shown, attributes=attributes)

    def _attacks(self, one: Earlier, linked: Link, shown_: Callable[[], Link]) -> Iterator[_Attack]:
        policy = self.prepared.policy
        promised = promised_k(policy.privacy, policy.quasi)
        k, shared, based = min(promised, one.promised), linked.shared, one.publication.run_id in self.prepared.after
        if not based:
            # A release does not tell persons apart. Of so many rows, k persons have one at least. What is based on the
            # other is made of parts with k persons each, counted where persons are known: here in fewer rows, too.
            k = (k - 1) * self._rows_of_a_person() + 1

        def together() -> str:
            shown = shown_()
            query = complementary_release(shown.first, shown.second, shared, shown.attributes, k)
            return self._told(one, query, shown.titles)

        def apart(turned: Callable[[Link], Link]) -> str:
            shown = turned(shown_())
            query = temporal(shown.first, shown.second, shared, shown.attributes, k)
            return self._told(one, query, shown.titles)

        with JointAudit.of(self.run.engine, self.run.work, linked, k) as audit:
            if shared:
                combinations, count = audit.complementary()
                if combinations:
                    told = f"joined with it, {combinations:,} combinations have fewer than {k} rows, {count:,} in all"
                    yield _Attack(f"{told} (complementary release)", together)
            classes, rows = audit.came()
            if classes:
                told = f"{rows:,} rows that it does not have are fewer than {k} in each of {classes:,} classes"
                yield _Attack(f"{told} (temporal attack)", lambda: apart(lambda shown: shown))
            if based:  # what has left the source is in no release of it
                return
            classes, rows = audit.gone()
            if classes:
                told = f"{rows:,} rows of it that are gone are fewer than {k} in each of {classes:,} classes"
                yield _Attack(f"{told} (temporal attack)", lambda: apart(_swapped))

    def _rows_of_a_person(self) -> int:
        """The most that one has."""
        person = self.prepared.columns.person
        if person is None:
            return 1
        rows = select([named(exp.Count(this=exp.Star()), ROWS)], self.prepared.source.relation.copy(), [col(person)])
        return int(self.run.engine.rows(select([exp.Max(this=col(ROWS))], subquery(rows, "p")))[0][0] or 1)

    def _told(self, one: Earlier, query: exp.Select, titles: Sequence[str]) -> str:
        """A query over the files by names of their own, with the statements that open them."""
        assert self.prepared.policy.catalog is not None
        files = {"earlier": one.publication.path, "new": self.target, _CATALOG: self.prepared.policy.catalog.database}
        opening = [
            f"-- {name}: a copy of {shown_place(path)}"
            if in_postgres(path)
            else f"ATTACH {text(str(path)).sql()} AS {name} (READ_ONLY);"
            for name, path in files.items()
            if not _is_parquet(path)
        ]
        return "\n".join([*opening, titled(query, titles).sql(self.run.engine.dialect, pretty=True) + ";"])

    def _trees(self, one: Earlier, new: Subject) -> tuple[Trees, Trees]:
        """The hierarchies of both, each as it was when its release was made; and by the names that the catalog has for
        them."""
        policy, run = self.prepared.policy, self.run
        known = trees_of(run, policy, one.publication.run_id)
        trees, shown, rules, different = dict[str, Tree](), dict[str, Tree](), dict[str, Any](), set[str]()
        for now in self.prepared.own_hierarchies:
            key = now.attribute.lower()
            then, names = known.pop(key, None), [catalog.hierarchy_name(policy.fingerprint(), now.attribute)]
            if then is None:
                trees[key] = now
            elif is_same_tree(run.engine, then, now):
                trees[key] = tree_of_both(run, then, now)
                names.append(stored_name(one.publication.run_id, now.attribute))
            else:
                different.add(key)
                continue
            shown[key], rules[key] = _Shown(_stored(names, now.height), now.height), new.rule(key)
        for key, then in known.items():  # the new one shows it as it is, or not at all
            trees[key], rules[key] = then, one.rule(key)
            name = stored_name(one.publication.run_id, then.attribute)
            shown[key] = _Shown(_stored([name], then.height), then.height)
        return Trees(trees, rules, frozenset(different)), Trees(shown, rules, frozenset(different))


@dataclass(frozen=True)
class _Shown:
    """A hierarchy by its names in the catalog."""

    table: exp.Expr
    height: int


def _stored(names: Sequence[str], height: int) -> exp.Expr:
    tables = [table(name, catalog.SCHEMA, _CATALOG) for name in names]
    return tables[0] if len(tables) == 1 else subquery(union_of(tables[0], tables[1], height), "both")


def _swapped(linked: Link) -> Link:
    """The same, of the releases in the other order."""
    attributes = tuple(one.swapped for one in linked.attributes)
    return replace(linked, first=linked.second, second=linked.first, attributes=attributes)


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _file(path: Path, manifest: Manifest, alias: str) -> exp.Table:
    """The rows of a release for whoever has its file: of a database that is attached, or of a Parquet file."""
    return read_parquet([str(path)]) if _is_parquet(path) else table(manifest.table_name, "main", alias)


def released_row(
    run_id: str,
    target: Path,
    manifest: Manifest,
    sha256: str | None,
    source: str,
    after: Sequence[str],
    together: Together | None,
) -> dict[str, Any]:
    """A publication, as a row of the ledger."""
    return {
        "run_id": run_id,
        "published_at": manifest.published_at,
        "path": str(target),
        "table_name": manifest.table_name,
        "released_rows": manifest.released_rows,
        "digest": manifest.digest,
        "sha256": sha256,
        "source": source,
        "policy_hash": manifest.policy_hash,
        "manifest_hash": manifest.fingerprint(),
        "epsilon": manifest.epsilon,
        "noise": manifest.noise and json.dumps({name: one["epsilon"] for name, one in manifest.noise.items()}),
        "version": manifest.version,
        "same_source": together.same_source if together else None,
        "after": list(after),
        "breaks": together.breaks if together else [],
    }


def held_against(
    run: Run,
    prepared: SearchInput,
    target: Path,
    force: bool,
    run_id: str,
    opened: Mapping[str, Earlier] | None = None,
) -> Together | None:
    """What a new release is held against: the releases that stand of the same source, and those that it is based on;
    not those that it replaces. None where there is no ledger.
    """
    policy = prepared.policy
    if policy.catalog is None:
        return None
    known = publications(run.engine, policy.catalog.database, Places.of(policy, prepared.source))
    noisy = spent(run.engine, policy.catalog.database) if policy.noisy else []
    everything: list[Publication | Spent] = [*known, *noisy]
    others = [one for one in everything if one.source not in (None, run.identity)]
    by_source = {str(one.source): one.run_id for one in others}
    same_rows = SameRows(run, policy, policy.catalog.database)
    shares = same_rows.shares(by_source)
    names = {run.identity, *shares}
    of_source = [one for one in known if one.source in names or one.run_id in prepared.after]
    in_place = [one for one in of_source if one.path == target and one.run_id not in prepared.after]
    keep = 1 if policy.release is None else policy.release.keep
    in_place.sort(key=lambda one: one.version or 1, reverse=True)
    kept, replaced = in_place[: keep - 1], next(iter(in_place[keep - 1 :]), None)
    earlier = [one for one in of_source if one not in in_place or one in kept]
    folders = {file.parent for file in prepared.source.files}
    folders |= set() if in_postgres(target) or in_spark(target) else {target.parent}
    elsewhere = publications_elsewhere(run.engine, policy.catalog.database, run.identity, target, folders)
    noisy = [one for one in noisy if one.source in names]
    of_now = frozenset([(one.run_id, one.path) for one in of_source] + [(one.run_id, one.path) for one in noisy])
    same_source = next((one.same_source or one.source for one in others if one.source in shares), None)
    return Together(
        run,
        prepared,
        earlier,
        target,
        force,
        replaced,
        of_now,
        elsewhere,
        [one for one in noisy if one.run_id != run_id],  # published twice, a result shows the same noise
        shares,
        same_source,
        opened or {},
        warnings=[*same_rows.warnings, *not_compared(exports(run.engine, policy.catalog.database))],
    )
