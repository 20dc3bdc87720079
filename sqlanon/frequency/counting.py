"""The stage frequency sets: encode labels as small integers, and count combinations of codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.frequency.codes import EXAMPLE_COUNT, MAX_PACK_CODES, encode_rows
from sqlanon.frequency.remote_persons import RemoteMovers, encode_movers
from sqlanon.frequency.scan import (
    EXAMPLE_VALUES,
    ScanResult,
    combine_with_population,
    count_columns,
    distribution_pairs,
    make_combinations,
)
from sqlanon.frequency.sets import ClassSpace, CountSource, FrequencySets, is_large
from sqlanon.frequency.suppression_limit import SuppressionLimit, count_suppression_limit
from sqlanon.hierarchies import Hierarchy
from sqlanon.hierarchies.build import Hierarchies, ValueFacts
from sqlanon.hierarchies.levels import PermittedLevels, find_forbidden_levels, find_permitted_levels
from sqlanon.measures import MEASURES, Marginals
from sqlanon.policy import Policy
from sqlanon.requirements import Domain, Requirements, bind_requirements
from sqlanon.sources.source import SMALL_TABLE_ROWS
from sqlanon.support import coding
from sqlanon.support.coding import CodedAttribute, Levels
from sqlanon.support.expressions import Namer, table


@dataclass(frozen=True)
class Frequencies:
    sets: FrequencySets
    marginals: Marginals
    permitted: PermittedLevels
    limit: SuppressionLimit


def count_frequencies(
    runner: StatementRunner, policy: Policy, scanned: ScanResult, hierarchies: Hierarchies, work: Namer
) -> Frequencies:
    """Encode labels as small integers, and prepare the frequency sets.

    Scanned combinations are counted into one set at once, and the scan is dropped. For a source that is used in place,
    sets are created when they are needed. Creates ``coded_i`` and ``sensitive_coded_s``, and the tables of
    `build_count_source`.
    """
    columns, values, facts, source_scan = scanned.columns, scanned.values, hierarchies.facts, scanned.source_scan
    if source_scan.remote is not None:
        _refuse_noise(policy)
    # Engines format numbers differently, so DuckDB creates their texts.
    texts = scanned.source.access != "rows" and policy.masks_suppressed_rows
    attributes = tuple(
        make_coded_values(runner, column, hierarchy, values[name].table, facts[name], work(f"coded_{i}"), texts)
        for i, (name, column, hierarchy) in enumerate(
            zip(policy.generalized_attributes, columns.generalized, hierarchies.quasi, strict=True)
        )
    )
    coded = _encode_sensitive_values(runner, scanned, hierarchies, work)
    domains = {
        name: Domain(facts[name].count or EXAMPLE_VALUES, coded[name].height if name in coded else 0)
        for name in scanned.sensitive
    }
    requirements = bind_requirements(policy.privacy, policy.generalized_attributes, domains)
    rows, measure = facts[policy.generalized_attributes[0]].rows, MEASURES[policy.search.measure]
    figures = fetch_marginal_figures(runner, attributes, measure.needs_entropy)
    marginals = _marginals(rows, hierarchies.quasi, figures, measure.needs_entropy)
    attributes = tuple(
        replace(attribute, unknown=bool(unknown))
        for attribute, unknown in zip(attributes, marginals.unknown, strict=True)
    )
    sizes = [facts[name].count or EXAMPLE_COUNT for name in policy.generalized_attributes]
    ground = build_count_source(scanned, attributes, sizes, coded, requirements, rows, work)
    population_scan = scanned.population_scan
    space = ClassSpace(
        table("frequency"),  # a frequency set replaces it
        marginals.heights,
        requirements,
        any(marginals.unknown),
        persons=source_scan.persons,
        moving=source_scan.moving is not None,
        population=population_scan is not None,
        population_moving=population_scan is not None and population_scan.moving is not None,
        moving_elsewhere=ground.movers is not None,
    )
    if space.moving_elsewhere and not runner.dry:
        _refuse_movers(policy, scanned, ground.movers)
    permitted = find_permitted_levels(policy, marginals.heights, find_forbidden_levels(runner, policy, attributes))
    # The scan is dropped after it is counted, so its set is at levels that serve all later generalizations.
    floor = (0,) * len(attributes) if source_scan.has_counts else permitted.lowest
    frequency_sets = FrequencySets(scanned.runner, work, ground, space, floor)
    reader, members = scanned.runner, source_scan.members
    if source_scan.remote is not None:
        reader, members = source_scan.remote.runner, source_scan.remote.members
    limit = count_suppression_limit(reader, policy.search.suppression_limit, rows, members)
    if source_scan.has_counts or runner.dry:
        _drop_scan(scanned, frequency_sets, floor)
    note = "small integers for labels, level by level, and the counts of sensitive values: one pass for each"
    if ground.codes is not None:
        note += f"; up to {SMALL_TABLE_ROWS:,} rows are counted without a table of codes"
    runner.finish_stage("frequency set", note)
    return Frequencies(frequency_sets, marginals, permitted, limit)


def _refuse_noise(policy: Policy) -> None:
    """Refuse noise if persons are counted in the source's engine, because noise is drawn row by row."""
    if policy.noisy_attributes:
        raise SourceError(
            "source.person: noise is drawn row by row, but persons are counted in the source's engine: give the "
            f"attributes {', '.join(map(repr, policy.noisy_attributes))} a hierarchy"
        )


def _encode_sensitive_values(
    runner: StatementRunner, scanned: ScanResult, hierarchies: Hierarchies, work: Namer
) -> dict[str, CodedAttribute]:
    """Encode the values of sensitive attributes with a hierarchy. Creates ``sensitive_coded_s``."""
    columns, values, facts = scanned.columns, scanned.values, hierarchies.facts
    coded = {}
    for s, name in enumerate(columns.sensitive_names):
        if (tree := hierarchies.sensitive.get(name)) is not None:
            column, target = columns.by_attribute[name], work(f"sensitive_coded_{s}")
            tree = replace(tree, open_ends=False)  # sensitive values are released unchanged
            coded[name] = make_coded_values(runner, column, tree, values[name].table, facts[name], target)
    return coded


def build_count_source(
    scanned: ScanResult,
    attributes: tuple[CodedAttribute, ...],
    sizes: Sequence[int],
    coded: Mapping[str, CodedAttribute],
    requirements: Requirements,
    rows: int,
    work: Namer,
) -> CountSource:
    """The tables that frequency sets and the counts of sensitive values are computed from."""
    runner, source_scan, population_scan = scanned.runner, scanned.source_scan, scanned.population_scan
    combined: exp.Expr = make_combinations(runner, source_scan, work)
    codes = None
    if not source_scan.has_counts and (runner.dry or is_large(rows)):
        values, size = [pairs.values for pairs in scanned.sensitive.values()], rows or MAX_PACK_CODES * MAX_PACK_CODES
        codes = encode_rows(runner, combined, attributes, sizes, values, size, work)
    if population_scan is not None:
        combined = combine_with_population(runner, combined, source_scan, population_scan, scanned.types, work)
    pairs = distribution_pairs(runner, source_scan, requirements.distributions, scanned.sensitive, coded, work, codes)
    movers = None
    if source_scan.remote is not None:
        tables = [value_pairs.values for value_pairs in scanned.sensitive.values()]
        movers = encode_movers(source_scan.remote, attributes, tables, work)
    names = tuple(scanned.sensitive)
    counts = count_columns(source_scan, population_scan)
    return CountSource(combined, counts, pairs, attributes, rows, names, codes, movers)


def _refuse_movers(policy: Policy, scanned: ScanResult, movers: RemoteMovers | None) -> None:
    """Refuse features that need the rows of each person if the rows stay remote."""
    assert movers is not None
    place = scanned.source.location
    if policy.search.is_local:
        refused, remedy = f"strategy {policy.search.strategy}", "use a full-domain strategy, such as optimal"
    elif policy.privacy.k_anonymity:
        refused, remedy = "privacy.k_anonymity", "a k over all quasi-identifiers covers each of its subsets"
    else:
        return
    raise SourceError(
        f"source.person: {movers.count():,} persons have rows with different quasi-identifiers, and {refused} needs "
        f"to know which rows are of one person, which never leaves {place}: {remedy}; or anonymize a copy of the table "
        "in DuckDB"
    )


def _drop_scan(scanned: ScanResult, frequency_sets: FrequencySets, floor: Levels) -> None:
    """Drop the tables that are not needed after the frequency set is created."""
    space = frequency_sets.class_space_without_movers(floor)
    sensitive = [table for counts in space.sensitive.values() for table in (counts.table, counts.domain)]
    # The values are needed again if rows are suppressed after noise was drawn.
    sensitive += [pairs.values for pairs in frequency_sets.ground.sensitive.values()]
    if (movers := frequency_sets.ground.movers) is not None:
        sensitive += movers.values
    if scanned.source_scan.remote is not None:
        scanned.source_scan.remote.runner.drop_all_except([] if movers is None else [movers.coded])
    scanned.runner.drop_all_except(
        [table for table in (space.frequency, scanned.source_scan.members, *sensitive) if table is not None]
    )
    if scanned.population is not None:
        members = scanned.population.scan.members
        scanned.reader.drop_all_except([] if members is None else [members])


def make_coded_values(
    runner: StatementRunner,
    column: str,
    hierarchy: Hierarchy,
    values: exp.Table,
    facts: ValueFacts,
    coded: exp.Table,
    texts: bool = False,
) -> CodedAttribute:
    """Create the coded values of an attribute. Its marginals show later whether it has unknown values."""
    top, nullable = hierarchy.top or "", facts.nullable
    height, open_ends = hierarchy.height, hierarchy.open_ends
    query = coding.coded_values(
        values, hierarchy.table, height, top, nullable, facts.count, texts, open_ends, hierarchy.has_population_values
    )
    runner.create_table(coded, query)
    return CodedAttribute(column, height, coded, nullable, True, coding.TEXT_COLUMN if texts else None, open_ends)


def fetch_marginal_figures(
    runner: StatementRunner, attributes: Sequence[CodedAttribute], entropy: bool
) -> list[Sequence[float]]:
    example = [(i, (0.0,) * (2 * attribute.height + 2)) for i, attribute in enumerate(attributes)]
    rows = runner.fetch_rows(coding.marginals(attributes, entropy), example, in_plan=False)
    return [figures for _, figures in sorted(rows)]


def _marginals(
    rows: int, hierarchies: tuple[Hierarchy, ...], figures: Sequence[Sequence[float]], entropy: bool
) -> Marginals:
    heights = tuple(hierarchy.height for hierarchy in hierarchies)
    leaves = tuple(hierarchy.leaves for hierarchy in hierarchies)
    unknown = tuple(int(row[0]) for row in figures)
    leaf_sums = tuple(
        (*row[1 : height + 1], (rows - u) * (n - 1.0) if height else 0.0)
        for row, height, n, u in zip(figures, heights, leaves, unknown, strict=True)
    )
    entropies = tuple(tuple(row[height + 1 :]) for row, height in zip(figures, heights, strict=True))
    return Marginals(rows, heights, leaves, unknown, leaf_sums, entropies if entropy else ())
