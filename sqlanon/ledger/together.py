"""A new release beside earlier ones: whether it breaks one of them.

What is asked is what an attacker would ask of the files: the complementary release and the temporal attack, for
combinations that fewer rows have than each of the two promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlglot import exp

from sqlanon import catalog
from sqlanon.errors import ReleaseError
from sqlanon.hierarchies import Hierarchy
from sqlanon.ledger.earlier import Earlier, opened
from sqlanon.ledger.records import LEAST, Publication
from sqlanon.preparation import Prepared
from sqlanon.queries.attacks.complementary import complementary_release, complementary_victims
from sqlanon.queries.attacks.linked import ROWS, titled
from sqlanon.queries.attacks.temporal import temporal
from sqlanon.queries.names import col, create_table, read_parquet, select, star, subquery, table, text, total
from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest
from sqlanon.release.side_by_side import Link, Subject, Trees, link, strange_columns
from sqlanon.workspace import Run

_BY_FORCE = "publish by force (--force), which the ledger records"

_CATALOG = "hierarchies"
"""The catalog's name in the queries that are shown."""


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
    open:
        By run, those that are open already: a file can be attached once.
    breaks:
        The paths of those that it breaks, once it was held against them.
    warnings:
        What was let through: what it breaks by force, and what could not be looked at.
    """

    run: Run
    prepared: Prepared
    earlier: Sequence[Publication]
    target: Path
    force: bool = False
    open: Mapping[str, Earlier] = field(default_factory=dict)
    breaks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def checks(self, new: Manifest, staged: exp.Table) -> list[Check]:
        """One check for each earlier release.

        Parameters
        ----------
        new, staged:
            What the new release will claim, and its rows.
        """
        found = [self._check(publication, Subject(self.target, new, staged)) for publication in self.earlier]
        self.warnings += [f"{one.name}: {one.message}" for one in found if one.passed is None]
        return found

    def _check(self, publication: Publication, new: Subject) -> Check:
        name = f"together with {publication}"
        try:
            own = self.open.get(publication.run_id)
            with opened(self.run.engine, publication, verified=True) if own is None else nullcontext(own) as one:
                found = self._found(one, new)
        except ReleaseError as error:
            if publication.run_id in self.prepared.after:
                raise
            found = str(error)
        if isinstance(found, str):
            # What is gone nobody can look at any more; what is there, and cannot be looked at, may be broken.
            if self.force or not publication.path.exists():
                return Check(name, None, f"not looked at: {found}")
            return Check(name, False, f"it cannot be looked at, so that it may be broken: {found}; {_BY_FORCE}")
        if not found:
            return Check(name, True, "neither tells more with the other at hand")
        message = "; ".join(told for told, _ in found)
        if publication.run_id in self.prepared.after:
            # It shows nothing finer than that one, and no few rows that are new. So these are rows that have gone from
            # the source, or have changed there: no generalization brings them back.
            return Check(name, None, f"rows of it have gone or changed since, which both together show: {message}")
        self.breaks.append(str(publication.path))
        if self.force:
            return Check(name, None, f"not safe, and published by force: {message}")
        queries = "\n\n".join(query for _, query in found)
        remedy = f"base it on that one with [release] after, or {_BY_FORCE}"
        return Check(name, False, f"{message}: {remedy}. What shows it, once it is published:\n{queries}\n")

    def _found(self, one: Earlier, new: Subject) -> list[tuple[str, str]] | str:
        """By attack that finds somebody: what it finds, and the query that shows it. Or why it cannot be told."""
        first = Subject(one.publication.path, one.manifest, one.relation)
        linked = link(first, new, self._trees(first, new, shown=False))
        if linked.missing:
            return f"the catalog does not have the hierarchies of {', '.join(linked.missing)} any more"
        swapped = [part.swapped for part in linked.attributes]
        for subject, attributes in ((first, linked.attributes), (new, swapped)):
            if strange := strange_columns(self.run.engine, subject, attributes):
                return f"{subject.path.name} shows sets, medians or other values of {', '.join(strange)}"
        names = (_file(one.publication.path, one.manifest, "earlier"), _file(self.target, new.manifest, "new"))
        shown_first, shown_new = (replace(s, relation=r) for s, r in zip((first, new), names, strict=True))
        shown = link(shown_first, shown_new, self._trees(first, new, shown=True))
        return list(self._attacks(one, linked, shown))

    def _attacks(self, one: Earlier, linked: Link, shown: Link) -> Iterator[tuple[str, str]]:
        asked = [k for k in (self.prepared.policy.privacy.k, one.k) if k is not None]
        k, shared = min(asked, default=LEAST), linked.shared
        if shared:
            query = complementary_victims(linked.first, linked.second, shared, linked.attributes, k)
            combinations, count = self.run.engine.rows(query)[0]
            if combinations:
                query = complementary_release(shown.first, shown.second, shared, shown.attributes, k)
                told = f"joined with it, {combinations:,} combinations have fewer than {k} rows, {count:,} in all"
                yield f"{told} (complementary release)", self._told(one, query, shown.titles)
        ways = [(linked, shown, "that it does not have")]
        if one.publication.run_id not in self.prepared.after:  # what has left the source is in no release of it
            ways.append((_swapped(linked), _swapped(shown), "of it that are gone"))
        for own, as_shown, what in ways:
            few = subquery(temporal(own.first, own.second, shared, own.attributes, k), "few")
            counts: list[exp.Expr] = [exp.Count(this=exp.Star()), total(col(ROWS))]
            classes, rows = self.run.engine.rows(select(counts, few))[0]
            if classes:
                query = temporal(as_shown.first, as_shown.second, shared, as_shown.attributes, k)
                told = f"{rows:,} rows {what} are fewer than {k} in each of {classes:,} classes (temporal attack)"
                yield told, self._told(one, query, as_shown.titles)

    def _told(self, one: Earlier, query: exp.Select, titles: Sequence[str]) -> str:
        """A query over the files by names of their own, with the statements that open them."""
        assert self.prepared.policy.catalog is not None
        files = {"earlier": one.publication.path, "new": self.target, _CATALOG: self.prepared.policy.catalog.database}
        opening = [
            f"ATTACH {text(str(path)).sql()} AS {name} (READ_ONLY);"
            for name, path in files.items()
            if not _is_parquet(path)
        ]
        return "\n".join([*opening, titled(query, titles).sql(self.run.engine.dialect, pretty=True) + ";"])

    def _trees(self, first: Subject, new: Subject, shown: bool) -> Trees:
        """The hierarchies of both: those of the new release; of the other ones' the catalog has them.

        ``shown``: by the names that they have in the catalog.
        """
        hierarchies: dict[str, Hierarchy] = {}
        rules = {}
        for hierarchy in self.prepared.hierarchies[: len(self.prepared.policy.generalized)]:
            key = hierarchy.attribute.lower()
            name = catalog.hierarchy_name(self.prepared.policy.fingerprint(), hierarchy.attribute)
            hierarchies[key] = replace(hierarchy, table=_stored(name)) if shown else hierarchy
            rules[key] = new.rule(key)
        for attribute in first.manifest.generalization:
            key = attribute.lower()
            if key in hierarchies or new.column(key) is None or first.column(key) is None:
                continue
            name = catalog.hierarchy_name(first.manifest.policy_hash, attribute)
            target = self.run.work(f"of_{name}")
            height = self._copied(name, target)
            if height is not None:
                hierarchies[key] = Hierarchy(attribute, _stored(name) if shown else target, height, 0, None)
                rules[key] = first.rule(key)
        return Trees(hierarchies, rules)

    def _copied(self, name: str, target: exp.Table) -> int | None:
        """Copy a hierarchy of an earlier run from the catalog: its height; None where it is gone."""
        engine, catalog_section = self.run.engine, self.prepared.policy.catalog
        assert catalog_section is not None
        with catalog.open_catalog(engine, catalog_section.database):
            if not catalog.has_table(engine, name):
                return None
            copy = create_table(target.copy(), star(table(name, catalog.SCHEMA, catalog.ATTACHED)))
            copy.set("replace", True)  # it was held against this run's releases before: another file, or the same again
            engine.execute(copy)
        return len(engine.columns(target)) - 1


def _swapped(linked: Link) -> Link:
    """The same, of the releases in the other order."""
    attributes = tuple(one.swapped for one in linked.attributes)
    return replace(linked, first=linked.second, second=linked.first, attributes=attributes)


def _stored(name: str) -> exp.Table:
    return table(name, catalog.SCHEMA, _CATALOG)


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _file(path: Path, manifest: Manifest, alias: str) -> exp.Table:
    """The rows of a release for whoever has its file: of a database that is attached, or of a Parquet file."""
    return read_parquet([str(path)]) if _is_parquet(path) else table(manifest.table_name, "main", alias)


def standing(known: Sequence[Publication], prepared: Prepared, source: str, path: str) -> list[Publication]:
    """The releases that a new one is held against: of the same source, or named; but not the one that it replaces.

    Parameters
    ----------
    known:
        The ledger.
    prepared:
        What is to be released.
    source, path:
        What it is a release of, and where it goes.
    """
    return [
        one
        for one in known
        if (one.source == source or one.run_id in prepared.after)
        and (str(one.path) != path or one.run_id in prepared.after)
    ]
