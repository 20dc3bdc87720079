"""The input of attacks: the open releases, and the source and hierarchies of a policy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

from sqlglot import exp

from sqlanon.attacks.findings import Finding
from sqlanon.attacks.scripts import (
    OUTSIDE,
    SOURCE,
    ScriptWriter,
    outside_values,
    text_columns,
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
from sqlanon.ledger.joint.row_matching import ReleaseLink, add_titles
from sqlanon.ledger.released_hierarchies import (
    CATALOG_IN_QUERIES,
    copy_recorded_hierarchies,
    find_different_hierarchies,
    have_same_labels,
    pair_hierarchies,
)
from sqlanon.places.addresses import is_server
from sqlanon.places.databases import read_data_files
from sqlanon.policy import Attribute, MaskRule, Policy, SourceSection
from sqlanon.release.reader import attach_release, detach_release, lock_down, read_manifest
from sqlanon.sources import Source, bind_source, file_kind, source_errors
from sqlanon.sources.columns import Columns, match_columns
from sqlanon.sources.run import Run
from sqlanon.sources.workspace import Workspace
from sqlanon.support.coding import value_counts
from sqlanon.support.expressions import create_table, select_star, subquery, table, template, union_all

Releases: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

AttackResult: TypeAlias = "tuple[list[Finding], list[str]]"
"""The findings of an attack, and the reasons why some are missing."""


@dataclass(frozen=True)
class PrivateSide:
    """The source, the hierarchies, and the outside table if there is one.

    ``compared`` and ``hierarchies`` are those of the policy; ``recorded`` has, by path, those of releases in the
    policy's catalog, unchanged. All are by attribute in lower case.
    """

    policy: Policy
    run: Run
    columns: Columns
    compared: ComparedHierarchies
    outside: Source | None
    hierarchies: Mapping[str, Hierarchy]
    recorded: Mapping[Path, Mapping[str, Hierarchy]]

    @property
    def heights(self) -> dict[str, int]:
        """The heights of the policy's hierarchies, by attribute in lower case."""
        return {name: hierarchy.height - hierarchy.below for name, hierarchy in self.compared.hierarchies.items()}

    def hierarchies_of(self, release: ComparedRelease) -> Mapping[str, Hierarchy]:
        """The recorded hierarchies of a release, and those of the policy with the rules of the release."""
        equal = {
            name: hierarchy
            for name, hierarchy in self.hierarchies.items()
            if self.compared.find(name, [release.rule(name)]) is not None
        }
        return {**equal, **self.recorded.get(release.path, {})}


@dataclass(frozen=True)
class ReleasePair:
    """Two releases, the earlier first, and the hierarchies of both."""

    first: ComparedRelease
    second: ComparedRelease
    hierarchies: ComparedHierarchies

    @property
    def k(self) -> int:
        """The smaller k of the two."""
        return min(self.first.k, self.second.k)

    @property
    def link(self) -> ReleaseLink:
        """The link of their rows."""
        return link_releases(self.first, self.second, self.hierarchies)

    @property
    def without_masked_rows(self) -> ReleasePair:
        """The same releases without their masked rows."""
        first = self.first.without_masked_rows(self.hierarchies.for_release(is_first=True))
        second = self.second.without_masked_rows(self.hierarchies.for_release(is_first=False))
        return replace(self, first=first, second=second)


@dataclass(frozen=True)
class Attacker:
    """The input of attacks. Without ``counts``, no query runs and all figures are 0."""

    engine: Engine
    releases: Sequence[ComparedRelease]
    writer: ScriptWriter
    private: PrivateSide | None = None
    ruled_out: int = 1
    counts: bool = True
    _pair_hierarchies: dict[tuple[Path, Path], ComparedHierarchies] = field(default_factory=dict)

    @property
    def hierarchies(self) -> ComparedHierarchies:
        """The hierarchies of the policy."""
        return self.private.compared if self.private is not None else NO_HIERARCHIES

    @property
    def decoys(self) -> dict[str, int]:
        """The number of decoys, by release file."""
        return {str(release.path): release.manifest.decoys for release in self.releases if release.manifest.decoys}

    def work(self, name: str) -> exp.Table:
        """A new intermediate table."""
        return table(f"sqlanon attack {name}") if self.private is None else self.private.run.work(f"attack {name}")

    def fetch_figures(self, query: exp.Query) -> dict[str, Any]:
        """The one row of a query, by name."""
        names = query.named_selects
        row = self.engine.rows(query)[0] if self.counts else (0,) * len(names)
        return dict(zip(names, row, strict=True))

    def count_victims(self, query: exp.Select) -> int:
        """The rows of all victims that a query finds."""
        total = template("SELECT coalesce(sum(row_count)::BIGINT, 0) AS victims FROM :victims AS v")
        return int(self.fetch_figures(total(victims=subquery(query)))["victims"])

    def make_finding(
        self,
        releases: Sequence[ComparedRelease],
        queries: Sequence[exp.Select],
        titles: Sequence[str],
        figures: Mapping[str, Any],
        victims: int | None = None,
    ) -> Finding:
        """The finding of queries for one release or two, with titles for their values; by default their victims."""
        rows = min(release.manifest.released_rows for release in releases)
        # sqlglot changes some aggregates when it writes a query, so the script comes first.
        sql = self.writer.write(*(add_titles(query, titles) for query in queries))
        victims = self.count_victims(queries[0]) if victims is None else victims
        return Finding(tuple(str(release.path) for release in releases), min(victims, rows), rows, sql, figures)

    def list_pairs(self) -> Iterator[ReleasePair]:
        """All pairs of releases, the earlier first. Renamed columns have their name in the later one."""
        releases = (release.with_sets_as_text for release in self.releases)
        ordered = sorted(releases, key=lambda release: release.manifest.published_at)
        for first, second in combinations(ordered, 2):
            names = match_renamed_columns(self.engine, first, second) if self.counts else {}
            yield ReleasePair(first.rename_columns(names), second, self._hierarchies_of_pair(first, second))

    def _hierarchies_of_pair(self, first: ComparedRelease, second: ComparedRelease) -> ComparedHierarchies:
        if self.private is None:
            return NO_HIERARCHIES
        paths, pair = (first.path, second.path), len(self._pair_hierarchies) + 1

        def store(name: str, query: exp.Query) -> exp.Table:
            target = self.work(f"{name} {pair}")
            self.engine.execute(create_table(target.copy(), query))
            self.writer.name_query(target, table(f"{name}_{pair}"), query)
            return target

        if paths not in self._pair_hierarchies:
            hierarchies = self.private.hierarchies_of(first), self.private.hierarchies_of(second)
            different = find_different_hierarchies(self.private.run.engine, *hierarchies)
            self._pair_hierarchies[paths] = pair_hierarchies((first, second), hierarchies, different, store)
        return self._pair_hierarchies[paths]


def why_incomparable(attacker: Attacker, release: ComparedRelease, attributes: Sequence[LinkedAttribute]) -> str | None:
    """Why the labels of a release cannot be compared with values, or None."""
    names = classify_labels(attacker.engine, release, attributes).incomparable if attacker.counts else []
    return f"{_NEEDS_LABELS}: {release.path.name} has {UNCOMPARED}, in {', '.join(names)}" if names else None


def why_pair_incomparable(attacker: Attacker, pair: ReleasePair) -> str | None:
    """Why the labels of two releases cannot be compared, or None."""
    if not attacker.counts:
        return None
    reason = classify_labels_of_both(attacker.engine, pair.link, pair.first, pair.second)
    return f"{_NEEDS_LABELS}: {reason}" if isinstance(reason, str) else None


_NEEDS_LABELS = "needs labels that can be compared"


@contextmanager
def open_attacker(
    releases: Releases,
    policy: Policy | None,
    outside: str | os.PathLike[str] | None,
    ruled_out: int,
    limits: Limits,
    counts: bool = True,
) -> Iterator[Attacker]:
    """Open the releases, and the source and hierarchies of the policy."""
    locations = [releases] if isinstance(releases, (str, os.PathLike)) else list(releases)
    if any(is_server(os.fspath(location)) for location in locations):
        raise ReleaseError("attacks read release files: publish the release to a file, too")
    paths = list(dict.fromkeys(Path(location).absolute() for location in locations))
    if not paths:
        raise PolicyError([Problem("releases", "give at least one")])
    if outside is not None and policy is None:
        raise PolicyError([Problem("--outside", "needs a policy with the hierarchies: --policy POLICY.toml")])
    manifests = [read_manifest(path, limits) for path in paths]
    writer = ScriptWriter()
    with ExitStack() as stack:
        space = Workspace(None, limits)
        stack.callback(space.close)
        run = None if policy is None else stack.enter_context(space.run(policy))
        engine = space.engine if run is None else run.engine
        compared = []
        for i, (path, manifest) in enumerate(zip(paths, manifests, strict=True), start=1):
            alias = f"release_{i}"
            relation = attach_release(engine, path, manifest, alias)
            stack.callback(detach_release, engine, path, alias)
            compared.append(ComparedRelease(path, manifest, relation))
            write_release(writer, compared[-1], alias)
        private = None
        if policy is not None and run is not None:
            with source_errors():
                recorded = {release.path: _copy_recorded(policy, run, release, writer) for release in compared}
                table_ = None if outside is None else os.fspath(outside)
                private = _open_private_side(policy, run, table_, recorded, writer)
        elif not any(path.suffix.lower() == ".parquet" for path in paths):
            lock_down(engine)
        yield Attacker(engine, compared, writer, private, ruled_out, counts)


def _copy_recorded(policy: Policy, run: Run, release: ComparedRelease, writer: ScriptWriter) -> Mapping[str, Hierarchy]:
    """The hierarchies of a release in the policy's catalog."""
    if policy.catalog is None:
        return {}
    recorded = copy_recorded_hierarchies(run, policy.catalog.database, release.manifest)
    if recorded:
        write_catalog(writer, policy.catalog.database)
    for hierarchy, public in recorded:
        writer.name_relation(hierarchy.table, public, CATALOG_IN_QUERIES)
    return {hierarchy.attribute.lower(): hierarchy for hierarchy, _ in recorded}


def _open_private_side(
    policy: Policy,
    run: Run,
    outside: str | None,
    recorded: Mapping[Path, Mapping[str, Hierarchy]],
    writer: ScriptWriter,
) -> PrivateSide:
    """Bind the outside table, and build the hierarchies over the values of the source and of the outside table."""
    columns = match_columns(policy, run.source)
    write_source(policy.source, run.source, SOURCE, writer)
    outside_table = None if outside is None else _bind_outside(policy, run, outside, writer)
    hierarchies: dict[str, Hierarchy] = {}
    problems: list[Problem] = []
    for name, attribute in policy.attributes.items():
        if attribute.hierarchy is None or attribute.role not in ("quasi", "sensitive"):
            continue
        number = len(hierarchies)
        hierarchy, flaws = _build_hierarchy(policy, run, columns, name, attribute, outside_table, number, writer)
        problems += flaws
        if hierarchy is not None:
            hierarchies[name.lower()] = hierarchy
    if problems:
        raise HierarchyError(problems)
    rules = {name.lower(): [spec.get("hierarchy")] for name, spec in policy.redact()["attributes"].items()}
    quasi = {name.lower() for name in policy.generalized_attributes}
    for name in hierarchies.keys() - quasi:  # sensitive values are released unchanged
        hierarchies[name] = replace(hierarchies[name], open_ends=False)
    compared = {
        name: ComparedHierarchy.from_table(hierarchy.table, hierarchy.height, hierarchy.open_ends)
        for name, hierarchy in hierarchies.items()
    }
    return PrivateSide(policy, run, columns, ComparedHierarchies(compared, rules), outside_table, hierarchies, recorded)


def _build_hierarchy(
    policy: Policy,
    run: Run,
    columns: Columns,
    name: str,
    attribute: Attribute,
    outside: Source | None,
    number: int,
    writer: ScriptWriter,
) -> tuple[Hierarchy | None, Sequence[Problem]]:
    steps, rules, column = StatementRunner(run.engine), attribute.hierarchy or (), columns.by_attribute[name]
    type_ = run.source.columns[column]
    value_query = value_counts(run.source.relation, column, is_counted=False)
    values = steps.create_table(run.work(f"attack_values_{number}"), value_query)
    # The source's longest text gives a mask its levels, whatever the outside table has.
    longest = 0
    if any(isinstance(rule, MaskRule) for rule in rules):
        longest = max(1, run.engine.rows(longest_text(values=values))[0][0] or 1)
    target = run.work(f"attack_hierarchy_{number}")
    hierarchy, flaws = build_hierarchy(steps, name, rules, values, type_, target, on_unknown="suppress")
    if hierarchy is None:
        return None, flaws
    outside_column = None
    if outside is not None and attribute.role == "quasi":
        outside_column = {column.lower(): column for column in outside.columns}.get(name.lower())
    if outside is not None and outside_column is not None:
        more = outside_values(outside.relation, outside_column, type_, longest, values)
        values = steps.create_table(run.work(f"attack_both_{number}"), union_all(select_star(values), more))
        target = run.work(f"attack_hierarchy_of_both_{number}")
        wider, _ = build_hierarchy(steps, name, rules, values, type_, target, on_unknown="suppress")
        # An outside value may change how all labels are written (the digits of 101 in 020-029).
        # Then the outside values have no labels, and match nothing.
        if wider is not None and have_same_labels(run.engine, hierarchy, wider):
            hierarchy = wider
        else:
            target, outside_column = hierarchy.table, None
    write_hierarchy(name, policy, run, (column, outside_column, type_), longest, target, writer)
    return hierarchy, flaws


def _bind_outside(policy: Policy, run: Run, outside: str, writer: ScriptWriter) -> Source:
    """Bind a file, or a table of the database that the source is in."""
    if file_kind(outside):
        section = SourceSection(files=(read_data_files(outside, Path.cwd()),))
    else:
        section = SourceSection(database=policy.source.database, table=outside)
    names = replace(run.work_names, name=f"{run.work_names.name}_outside", table=run.work("outside_copy"))
    wanted = frozenset(name.lower() for name in policy.generalized_attributes)
    try:
        source = bind_source(run.engine, section, names, text_columns(policy), wanted)
    except SourceError as error:
        raise SourceError(f"--outside {outside}: {error}") from error
    if not wanted & {name.lower() for name in source.columns}:
        raise SourceError(
            f"--outside {outside}: it has none of the quasi-identifiers {', '.join(policy.generalized_attributes)}"
        )
    write_source(section, source, OUTSIDE, writer)
    return source
