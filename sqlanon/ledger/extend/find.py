"""Finding what can be added: new rows at the levels of the release, judged by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from sqlglot import exp

from sqlanon.coding import Column, Levels
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.expressions import create_table, select, subquery
from sqlanon.frequency.sets import ClassSpace
from sqlanon.ledger import extension_statements as ex
from sqlanon.ledger import opened, publications, trees_of
from sqlanon.ledger.extend.extension import Extension
from sqlanon.ledger.extend.refuse import publication_to_extend, refuse_changes, refuse_others, refuse_policy
from sqlanon.ledger.records import Publication
from sqlanon.measures import Figures
from sqlanon.policy import Policy
from sqlanon.recode.recoding import FullDomainRecoding, suppressed_classes
from sqlanon.release.dependencies import narrowing_columns, refused
from sqlanon.release.manifest import Manifest
from sqlanon.release.target import Reach
from sqlanon.search.candidate import candidate, suppressed_leaves
from sqlanon.search.full_domain import measure_of
from sqlanon.search.preparation import SearchInput, unique_columns, unique_warnings
from sqlanon.sources.columns import refuse_repeated_keys
from sqlanon.sources.run import Run


@dataclass(frozen=True)
class Extended:
    """The release that is extended: its publication and manifest, and the earlier releases that it is based on."""

    publication: Publication
    manifest: Manifest
    others: Sequence[Publication]


def release_to_extend(run: Run, policy: Policy) -> Extended:
    """The release of a policy, if it can be extended."""
    refuse_policy(policy)
    publication = publication_to_extend(run, policy)
    assert policy.catalog is not None
    refuse_repeated_keys(run.engine, run.source, policy.source.key)
    with opened(run.engine, publication, Reach()) as release:
        manifest = release.manifest
    refuse_others(policy, manifest, publication)
    known = publications(run.engine, policy.catalog.database, Reach(policy))
    return Extended(publication, manifest, [one for one in known if one.run_id in publication.after])


def extend(steps: StatementRunner, run: Run, prepared: SearchInput, extended: Extended, started: float) -> Extension:
    """What can be added to a release of the rows that its source has got since.

    Makes in the work schema ``candidates``, ``waiting`` and ``added``.
    """
    policy, publication, manifest = prepared.policy, extended.publication, extended.manifest
    levels = {name: level or 0 for name, level in manifest.levels(prepared.heights).items()}
    refuse_changes(run, prepared, trees_of(run, policy, publication.run_id), manifest, levels)
    recoding, waiting = _recoding(run, prepared, levels)
    count = run.engine.rows(select([exp.Count(this=exp.Star())], run.work("added")))[0][0]
    with opened(run.engine, publication, Reach(), verified=True) as release:
        names = [one.name for one in manifest.columns]
        rows = ex.extended(release.relation, run.work("added"), names, shuffled=False)
        figures = steps.figures(ex.class_figures(subquery(rows, "r"), manifest.quasi))
    everything = replace(recoding, source=prepared.source.relation)
    dependencies, narrowed = narrowing_columns(run.engine, steps, prepared, everything, levels)
    kept = replace(waiting, classes=figures["classes"], squares=float(figures["squares"]))
    measure = measure_of(prepared)
    return Extension(
        released_before=manifest.released_rows,
        new_rows=count + waiting.suppressed_rows,
        added_rows=count,
        waiting_rows=waiting.suppressed_rows,
        classes=figures["classes"],
        smallest_class=figures["smallest_class"],
        generalization=levels,
        measure=policy.search.measure,
        score=measure.shown(measure.score((*levels.values(), 0), kept)),
        dependencies=dependencies,
        warnings=[*unique_warnings(prepared, unique_columns(run.engine, prepared)), *narrowed],
        _refusals=refused(steps, prepared, levels, dependencies),
        _run=run,
        _prepared=prepared,
        _publication=publication,
        _recoding=recoding,
        _run_id=uuid4().hex,
        _started=started,
    )


def _recoding(run: Run, prepared: SearchInput, generalization: Mapping[str, int]) -> tuple[FullDomainRecoding, Figures]:
    """How the rows are made that are added, and what is lost by those that wait.

    Makes ``candidates``, ``waiting`` and ``added``.
    """
    engine, levels = run.engine, (*generalization.values(), 0)
    candidates = run.work("candidates")
    engine.execute(create_table(candidates.copy(), ex.unreleased(prepared.source.relation)))
    space = ex.unreleased_space(prepared.sets.at(levels), prepared.attributes[-1])
    figures = _figures(prepared, space, levels)
    waiting = run.work("waiting")
    engine.execute(create_table(waiting.copy(), suppressed_classes(space, levels)))
    key = tuple(Column(name) for name in prepared.columns.key)
    recoding = FullDomainRecoding(
        candidates,
        prepared.released,
        prepared.attributes,
        tuple(hierarchy.top for hierarchy in prepared.hierarchies),
        levels,
        waiting,
    )
    with_keys = replace(recoding, columns=(*recoding.columns, *key))
    engine.execute(create_table(run.work("added"), with_keys.select(shuffled=False)))
    return recoding, figures


def _figures(prepared: SearchInput, space: ClassSpace, levels: Levels) -> Figures:
    """What is lost by the rows that wait, by the policy's measure."""
    steps, measure = prepared.sets.steps, measure_of(prepared)
    suppressed = steps.figures(candidate(space, levels))["suppressed_rows"]
    leaves: Mapping[str, float | None] = {}
    heights = prepared.marginals.heights
    between = [i for i, (level, height) in enumerate(zip(levels, heights, strict=True)) if 0 < level < height]
    if suppressed and measure.needs_leaves and between:
        leaves = steps.figures(suppressed_leaves(space, levels, prepared.attributes))
    return Figures(0, suppressed, suppressed_leaves={i: leaves.get(f"leaves_{i}") or 0.0 for i in between})
