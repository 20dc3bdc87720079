"""The input of attacks: the open releases, and the source and hierarchies of a policy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

from sqlglot import exp

from sqlanon.attacks.findings import Finding
from sqlanon.attacks.scripts import (
    OUTSIDE,
    SOURCE,
    ScriptWriter,
    as_text,
    outside_values,
    write_catalog,
    write_hierarchy,
    write_release,
    write_source,
)
from sqlanon.engines.base import Engine
from sqlanon.engines.limits import Limits
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, PolicyError, Problem, ReleaseError, SourceError
from sqlanon.hierarchies import Hierarchy, build_hierarchy
from sqlanon.hierarchies.labels import longest_text
from sqlanon.ledger.joint.label_pairs import LinkedAttribute
from sqlanon.ledger.joint.release_links import (
    NO_HIERARCHIES,
    UNCOMPARED,
    ComparedHierarchies,
    ComparedHierarchy,
    ComparedRelease,
    classify_labels,
    classify_labels_of_both,
    link_releases,
)
from sqlanon.ledger.joint.renamed_columns import match_renamed_columns
from sqlanon.ledger.joint.row_matching import COUNT_COLUMNS, ReleaseLink
from sqlanon.ledger.released_hierarchies import (
    CATALOG_IN_QUERIES,
    copy_recorded_hierarchies,
    find_different_hierarchies,
    have_same_labels,
    pair_hierarchies,
)
from sqlanon.places.addresses import is_server
from sqlanon.places.databases import read_data_files
from sqlanon.policy import MaskRule, Policy, SourceSection
from sqlanon.release.reader import attach_release, detach_release, lock_down, read_manifest
from sqlanon.sources import Source, bind_source, file_kind, source_errors
from sqlanon.sources.columns import Columns, match_columns
from sqlanon.sources.run import Run
from sqlanon.sources.workspace import Workspace
from sqlanon.support.coding import value_counts
from sqlanon.support.expressions import col, create_table, select_star, subquery, table, template, union_all

_VICTIMS = template("SELECT coalesce(sum(:count)::BIGINT, 0) AS victims FROM :found AS v")

Releases: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

Found: TypeAlias = "tuple[list[Finding], list[str]]"
"""What an attack finds, and why it does not apply."""


@dataclass(frozen=True)
class PrivateSide:
    """The source, the hierarchies and the outside table, if there is one.

    ``hierarchies`` are those of the policy, as ``trees`` are; and ``recorded`` those of releases that the policy's
    catalog records, as they were then, by path. All are by attribute in lower case.
    """

    policy: Policy
    run: Run
    columns: Columns
    trees: ComparedHierarchies
    outside: Source | None
    hierarchies: Mapping[str, Hierarchy]
    recorded: Mapping[Path, Mapping[str, Hierarchy]]

    @property
    def heights(self) -> dict[str, int]:
        """Their heights in the policy, by attribute in lower case."""
        return {name: one.height - one.below for name, one in self.trees.hierarchies.items()}

    def hierarchies_of(self, release: ComparedRelease) -> Mapping[str, Hierarchy]:
        """The hierarchies of a release: those that are recorded, and those of the policy where that has its rules."""
        own = {
            name: hierarchy
            for name, hierarchy in self.hierarchies.items()
            if self.trees.find(name, [release.rule(name)]) is not None
        }
        return {**own, **self.recorded.get(release.path, {})}


@dataclass(frozen=True)
class ReleasePair:
    """Two releases, the earlier first, and the hierarchies of both."""

    first: ComparedRelease
    second: ComparedRelease
    trees: ComparedHierarchies

    @property
    def k(self) -> int:
        """The smaller k of the two."""
        return min(self.first.k, self.second.k)

    @property
    def linked(self) -> ReleaseLink:
        """How their rows can be linked."""
        return link_releases(self.first, self.second, self.trees)

    @property
    def without_masked_rows(self) -> ReleasePair:
        """The same releases without their masked rows."""
        first = self.first.without_masked_rows(self.trees.for_release(is_first=True))
        return replace(
            self, first=first, second=self.second.without_masked_rows(self.trees.for_release(is_first=False))
        )


@dataclass(frozen=True)
class Attacker:
    """The input of attacks. Without ``counts`` no query runs, and all figures are 0."""

    engine: Engine
    subjects: Sequence[ComparedRelease]
    writer: ScriptWriter
    private: PrivateSide | None = None
    known: int = 1
    counts: bool = True
    _pair_trees: dict[tuple[Path, Path], ComparedHierarchies] = field(default_factory=dict)

    @property
    def trees(self) -> ComparedHierarchies:
        """The hierarchies of the policy."""
        return self.private.trees if self.private is not None else NO_HIERARCHIES

    @property
    def decoys(self) -> dict[str, int]:
        """The number of decoys, by release file."""
        return {str(one.path): one.manifest.decoys for one in self.subjects if one.manifest.decoys}

    def work(self, name: str) -> exp.Table:
        """A table of its own."""
        return table(f"sqlanon attack {name}") if self.private is None else self.private.run.work(f"attack {name}")

    def script(self, *queries: exp.Query) -> str:
        """The queries for people."""
        return self.writer.script(*queries)

    def figures(self, query: exp.Query) -> dict[str, Any]:
        """The one row of a query, by name."""
        names = query.named_selects
        row = self.engine.rows(query)[0] if self.counts else (0,) * len(names)
        return dict(zip(names, row, strict=True))

    def victims(self, query: exp.Select) -> int:
        """The rows of all victims that a query finds."""
        count = col(next(name for name in COUNT_COLUMNS if name in query.named_selects))
        return int(self.figures(_VICTIMS(count=count, found=subquery(query)))["victims"])

    def pairs(self) -> Iterator[ReleasePair]:
        """All pairs of releases, the earlier first. Columns that the later one has under another name are called so."""
        ordered = sorted((one.with_sets_as_text for one in self.subjects), key=lambda one: one.manifest.published_at)
        for first, second in combinations(ordered, 2):
            pairs = match_renamed_columns(self.engine, first, second) if self.counts else {}
            yield ReleasePair(first.rename_columns(pairs), second, self._trees_of_pair(first, second))

    def _trees_of_pair(self, first: ComparedRelease, second: ComparedRelease) -> ComparedHierarchies:
        if self.private is None:
            return NO_HIERARCHIES
        paths = first.path, second.path
        if paths not in self._pair_trees:
            both = self.private.hierarchies_of(first), self.private.hierarchies_of(second)
            different = find_different_hierarchies(self.private.run.engine, *both)
            store = partial(self._store, len(self._pair_trees) + 1)
            self._pair_trees[paths] = pair_hierarchies((first, second), both, different, store)
        return self._pair_trees[paths]

    def _store(self, pair: int, name: str, query: exp.Query) -> exp.Table:
        """Make a table of a query, for a pair of releases, and write how people make it."""
        target = self.work(f"{name} {pair}")
        self.engine.execute(create_table(target.copy(), query))
        self.writer.name_query(target, table(f"{name}_{pair}"), query)
        return target


def why_strange(attacker: Attacker, subject: ComparedRelease, attributes: Sequence[LinkedAttribute]) -> str | None:
    """Why the labels of a release cannot be compared with values, or None."""
    names = classify_labels(attacker.engine, subject, attributes).incomparable if attacker.counts else []
    return _cannot_compare(f"{subject.path.name} has {UNCOMPARED}, in {', '.join(names)}") if names else None


def why_not_both(attacker: Attacker, pair: ReleasePair) -> str | None:
    """Why the labels of two releases cannot be compared, or None."""
    found = classify_labels_of_both(attacker.engine, pair.linked, pair.first, pair.second) if attacker.counts else None
    return _cannot_compare(found) if isinstance(found, str) else None


def _cannot_compare(why: str) -> str:
    return f"needs labels that can be compared: {why}"


@contextmanager
def opened_attacker(
    releases: Releases,
    policy: Policy | None,
    outside: str | os.PathLike[str] | None,
    known: int,
    limits: Limits,
    counts: bool = True,
) -> Iterator[Attacker]:
    """Open the releases, and the source and hierarchies of the policy."""
    given = [releases] if isinstance(releases, (str, os.PathLike)) else list(releases)
    if any(is_server(os.fspath(one)) for one in given):
        raise ReleaseError("attacks read release files: publish the release to a file, too")
    paths = list(dict.fromkeys(Path(one).absolute() for one in given))
    if not paths:
        raise PolicyError([Problem("releases", "give at least one")])
    if outside is not None and policy is None:
        raise PolicyError([Problem("--outside", "needs a policy with the hierarchies: --policy POLICY.toml")])
    claims = [read_manifest(path, limits) for path in paths]
    writer = ScriptWriter()
    with ExitStack() as stack:
        space = Workspace(None, limits)
        stack.callback(space.close)
        run = None if policy is None else stack.enter_context(space.run(policy))
        engine = space.engine if run is None else run.engine
        subjects = []
        for i, (path, manifest) in enumerate(zip(paths, claims, strict=True), start=1):
            alias = f"release_{i}"
            relation = attach_release(engine, path, manifest, alias)
            stack.callback(detach_release, engine, path, alias)
            subjects.append(ComparedRelease(path, manifest, relation))
            write_release(writer, subjects[-1], alias)
        if policy is None or run is None:
            if not any(path.suffix.lower() == ".parquet" for path in paths):
                lock_down(engine)
            yield Attacker(engine, subjects, writer, None, known, counts)
            return
        with source_errors():
            recorded = {one.path: _recorded_hierarchies(policy, run, one, writer) for one in subjects}
            private = _private_side(policy, run, None if outside is None else os.fspath(outside), recorded, writer)
        yield Attacker(engine, subjects, writer, private, known, counts)


def _recorded_hierarchies(
    policy: Policy, run: Run, subject: ComparedRelease, writer: ScriptWriter
) -> Mapping[str, Hierarchy]:
    """The hierarchies of a release in the policy's catalog."""
    if policy.catalog is None:
        return {}
    recorded = copy_recorded_hierarchies(run, policy.catalog.database, subject.manifest)
    if recorded:
        write_catalog(writer, policy.catalog.database)
    for hierarchy, shown in recorded:
        writer.name(hierarchy.table, shown, CATALOG_IN_QUERIES)
    return {hierarchy.attribute.lower(): hierarchy for hierarchy, _ in recorded}


def _private_side(
    policy: Policy,
    run: Run,
    outside: str | None,
    recorded: Mapping[Path, Mapping[str, Hierarchy]],
    writer: ScriptWriter,
) -> PrivateSide:
    """Bind the outside table, and build the hierarchies over the values of the source and of the outside table."""
    columns = match_columns(policy, run.source)
    steps = StatementRunner(run.engine)
    write_source(policy.source, run.source, SOURCE, writer)
    theirs = None if outside is None else _bind_outside(policy, run, outside, writer)
    known = {} if theirs is None else {name.lower(): name for name in theirs.columns}
    built: dict[str, Hierarchy] = {}
    problems: list[Problem] = []
    for name, attribute in policy.attributes.items():
        if attribute.hierarchy is None or attribute.role not in ("quasi", "sensitive"):
            continue
        column = columns.by_attribute[name]
        type_ = run.source.columns[column]
        own = value_counts(run.source.relation, column, counted=False)
        number = len(built)
        values = steps.create_table(run.work(f"attack_values_{number}"), own)
        longest = _longest(run, attribute.hierarchy, values)
        target = run.work(f"attack_hierarchy_{number}")
        hierarchy, found = build_hierarchy(
            steps, name, attribute.hierarchy, values, type_, target, on_unknown="suppress"
        )
        problems += found
        outside_column = known.get(name.lower()) if attribute.role == "quasi" else None
        if hierarchy is not None and theirs is not None and outside_column is not None:
            more = outside_values(theirs.relation, outside_column, type_, longest, values)
            values = steps.create_table(run.work(f"attack_both_{number}"), union_all(select_star(values), more))
            target = run.work(f"attack_hierarchy_of_both_{number}")
            wider, _ = build_hierarchy(steps, name, attribute.hierarchy, values, type_, target, on_unknown="suppress")
            # An outside value may change how all labels are written (the digits of 101 in
            # 020-029). Then theirs have no labels, and match nothing.
            if wider is not None and have_same_labels(run.engine, hierarchy, wider):
                hierarchy = wider
            else:
                target, outside_column = hierarchy.table, None
        if hierarchy is not None:
            built[name.lower()] = hierarchy
            write_hierarchy(name, policy, run, (column, outside_column, type_), longest, target, writer)
    if problems:
        raise HierarchyError(problems)
    rules = {name.lower(): [one.get("hierarchy")] for name, one in policy.redact()["attributes"].items()}
    quasi = {name.lower() for name in policy.generalized_attributes}  # sensitive values are released unchanged
    built = {name: one if name in quasi else replace(one, open_ends=False) for name, one in built.items()}
    trees = {name: ComparedHierarchy.from_table(one.table, one.height, one.open_ends) for name, one in built.items()}
    return PrivateSide(policy, run, columns, ComparedHierarchies(trees, rules), theirs, built, recorded)


def _longest(run: Run, rules: tuple[object, ...], values: exp.Table) -> int:
    """The longest text, which gives a mask its levels: the source's own, whatever the outside table has."""
    if not any(isinstance(rule, MaskRule) for rule in rules):
        return 0
    return max(1, run.engine.rows(longest_text(values=values))[0][0] or 1)


def _bind_outside(policy: Policy, run: Run, outside: str, writer: ScriptWriter) -> Source:
    """A file, or a table of the database that the source is in."""
    if file_kind(outside):
        section = SourceSection(files=(read_data_files(outside, Path.cwd()),))
    else:
        section = SourceSection(database=policy.source.database, table=outside)
    place = replace(run.work_names, name=f"{run.work_names.name}_outside", table=run.work("outside_copy"))
    wanted = frozenset(name.lower() for name in policy.generalized_attributes)
    try:
        found = bind_source(run.engine, section, place, as_text(policy), wanted)
    except SourceError as error:
        raise SourceError(f"--outside {outside}: {error}") from error
    if not wanted & {name.lower() for name in found.columns}:
        raise SourceError(
            f"--outside {outside}: it has none of the quasi-identifiers {', '.join(policy.generalized_attributes)}"
        )
    write_source(section, found, OUTSIDE, writer)
    return found
