"""A new release beside earlier ones: whether it breaks one of them.

What is asked is what an attacker would ask of the files: the complementary release and the temporal attack, for
combinations that fewer rows have than each of the two promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlglot import exp

from sqlanon import catalog
from sqlanon.errors import ReleaseError
from sqlanon.ledger.earlier import Earlier, opened
from sqlanon.ledger.records import LEAST, Publication
from sqlanon.preparation import Prepared
from sqlanon.queries.attacks.complementary import complementary_release, complementary_victims
from sqlanon.queries.attacks.linked import ROWS, Linked, titled
from sqlanon.queries.attacks.temporal import temporal
from sqlanon.queries.names import col, create_table, read_parquet, select, star, subquery, table, text, total
from sqlanon.release.check import Check
from sqlanon.release.manifest import ReleasedColumn
from sqlanon.workspace import Run


@dataclass(frozen=True)
class NewRelease:
    """What is about to be published.

    Attributes
    ----------
    columns, generalization, is_masked:
        As its manifest will say.
    table_name:
        Its table.
    """

    columns: Sequence[ReleasedColumn]
    generalization: dict[str, int | None]
    is_masked: bool
    table_name: str


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
    breaks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def checks(self, new: NewRelease, staged: exp.Table) -> list[Check]:
        """One check for each earlier release.

        Parameters
        ----------
        new, staged:
            The new release, and its rows.
        """
        found = [self._check(publication, new, staged) for publication in self.earlier]
        self.warnings += [f"{one.name}: {one.message}" for one in found if one.passed is None]
        return found

    def _check(self, publication: Publication, new: NewRelease, staged: exp.Table) -> Check:
        name = f"together with {publication}"
        try:
            with opened(self.run.engine, publication) as one:
                found = list(self._attacks(one, new, staged))
        except ReleaseError as error:
            if publication.run_id in self.prepared.after:
                raise
            return Check(name, None, f"not looked at: {error}")
        if not found:
            return Check(name, True, "neither tells more with the other at hand")
        self.breaks.append(str(publication.path))
        message = "; ".join(told for told, _ in found)
        if self.force:
            return Check(name, None, f"not safe, and published by force: {message}")
        queries = "\n\n".join(query for _, query in found)
        remedy = "base it on that one with [release] after"
        if publication.run_id in self.prepared.after:  # rows of it are gone from the source, or are left out now
            remedy = "it is based on that one, and rows of it are missing now: ask for higher levels (min_level)"
        remedy += ", or publish by force (--force), which the ledger records"
        return Check(name, False, f"{message}: {remedy}. What shows it, once it is published:\n{queries}\n")

    def _attacks(self, one: Earlier, new: NewRelease, staged: exp.Table) -> Iterator[tuple[str, str]]:
        """By attack that finds somebody: what it finds, and the query that shows it."""
        as_they_are = {column.name.lower() for column in new.columns if column.role != "quasi"}
        shared = [name for key, name in one.as_they_are.items() if key in as_they_are]
        asked = [k for k in (self.prepared.policy.privacy.k, one.k) if k is not None]
        k = min(asked, default=LEAST)
        linked, shown = self._linked(one, new), self._linked(one, new, shown=True)
        theirs = _file(one.publication.path, one.manifest.table_name, "earlier")
        ours = _file(self.target, new.table_name, "new")
        rows = self.run.engine.rows
        if shared:
            combinations, count = rows(complementary_victims(one.relation, staged, shared, linked, k))[0]
            if combinations:
                query = complementary_release(theirs, ours, shared, shown, k)
                told = f"joined with it, {combinations:,} combinations have fewer than {k} rows, {count:,} in all"
                yield f"{told} (complementary release)", self._told(one, query, [part.name for part in shown])
        few = subquery(temporal(one.relation, staged, shared, linked, k), "few")
        yield from self._came_or_went(
            one, few, temporal(theirs, ours, shared, shown, k), shown, "that it does not have", k
        )
        if one.publication.run_id in self.prepared.after:  # what has left the source since is in no release of it
            return
        linked, shown = ([part.swapped for part in parts] for parts in (linked, shown))
        few = subquery(temporal(staged, one.relation, shared, linked, k), "few")
        yield from self._came_or_went(
            one, few, temporal(ours, theirs, shared, shown, k), shown, "of it that are gone", k
        )

    def _came_or_went(
        self, one: Earlier, few: exp.Subquery, shown: exp.Select, parts: Sequence[Linked], what: str, k: int
    ) -> Iterator[tuple[str, str]]:
        counts: list[exp.Expr] = [exp.Count(this=exp.Star()), total(col(ROWS))]
        classes, rows = self.run.engine.rows(select(counts, few))[0]
        if classes:
            told = f"{rows:,} rows {what} are fewer than {k} in each of {classes:,} classes (temporal attack)"
            yield told, self._told(one, shown, [part.name for part in parts if part.second is not None])

    def _told(self, one: Earlier, query: exp.Select, titles: Sequence[str]) -> str:
        """A query over the files by names of their own, with the statements that open them."""
        catalog_section = self.prepared.policy.catalog
        assert catalog_section is not None
        files = {"earlier": one.publication.path, "new": self.target, "hierarchies": catalog_section.database}
        opening = [
            f"ATTACH {text(str(path)).sql()} AS {name} (READ_ONLY);"
            for name, path in files.items()
            if not _is_parquet(path)
        ]
        return "\n".join([*opening, titled(query, titles).sql(self.run.engine.dialect, pretty=True) + ";"])

    def _linked(self, one: Earlier, new: NewRelease, shown: bool = False) -> list[Linked]:
        """The quasi-identifiers of both, side by side; ``shown`` with hierarchies as the catalog has them."""
        ours = {column.name.lower(): column for column in new.columns}
        parts = []
        for i, hierarchy in enumerate(self.prepared.hierarchies[: len(self.prepared.policy.generalized)]):
            column = self.prepared.columns.generalized[i]
            key = column.lower()
            level = new.generalization[hierarchy.attribute]
            their = one.columns.get(key) or one.as_they_are.get(key)
            their_level = one.levels.get(key) if key in one.columns else 0
            stored = catalog.hierarchy_name(self.prepared.policy.fingerprint(), hierarchy.attribute)
            parts.append(
                Linked(
                    hierarchy.attribute,
                    their,
                    column,
                    _levels(their_level, hierarchy.height, one.is_masked and key in one.columns),
                    _levels(level, hierarchy.height, new.is_masked),
                    table(stored, catalog.SCHEMA, "hierarchies") if shown else hierarchy.table,
                    hierarchy.height,
                )
            )
        known = {part.name.lower() for part in parts} | {column.lower() for column in self.prepared.columns.generalized}
        for key, column in one.columns.items():
            if key not in known:
                parts.append(self._theirs(one, key, column, ours.get(key), shown))
        return parts

    def _theirs(self, one: Earlier, key: str, column: str, own: ReleasedColumn | None, shown: bool) -> Linked:
        """A quasi-identifier that the earlier release alone has; the new one may show it as it is."""
        if own is None or one.levels.get(key) == 0:
            return Linked(column, column, None if own is None else own.name)
        name = catalog.hierarchy_name(one.manifest.policy_hash, one.attributes[key])
        target = self.run.work(f"of_{one.publication.run_id}_{name}")
        if not shown:
            self._copy_hierarchy(name, target)
        height = len(self.run.engine.columns(target)) - 1
        levels = _levels(one.levels.get(key), height, one.is_masked)
        hierarchy = table(name, catalog.SCHEMA, "hierarchies") if shown else target
        return Linked(column, column, own.name, levels, (0,), hierarchy, height)

    def _copy_hierarchy(self, name: str, target: exp.Table) -> None:
        """Copy a hierarchy of an earlier run from the catalog."""
        engine, catalog_section = self.run.engine, self.prepared.policy.catalog
        assert catalog_section is not None
        with catalog.open_catalog(engine, catalog_section.database):
            copy = create_table(target.copy(), star(table(name, catalog.SCHEMA, catalog.ATTACHED)))
            copy.set("replace", True)  # it was held against this run's releases before: another file, or the same again
            engine.execute(copy)


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _file(path: Path, table_name: str, alias: str) -> exp.Table:
    """The rows of a release for whoever has its file: of a database that is attached, or of a Parquet file."""
    return read_parquet([str(path)]) if _is_parquet(path) else table(table_name, "main", alias)


def _levels(level: int | None, height: int, masked: bool) -> tuple[int, ...]:
    """The levels that labels can be of."""
    if level is None:
        return tuple(range(height + 1))
    return (level, height) if masked and level != height else (level,)


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
