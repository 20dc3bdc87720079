"""The statements of the stage of noise, for the plan: none is run, and nothing is drawn."""

from __future__ import annotations

from collections.abc import Mapping

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.expressions import Namer, column_definitions
from sqlanon.frequency.distribution import Pairs
from sqlanon.noise import linking
from sqlanon.noise import statements as noise
from sqlanon.noise.columns import NoisyRecoding, noisy_columns
from sqlanon.noise.stage import keep, noise_classes
from sqlanon.policy import Policy
from sqlanon.recode.recoding import AnyRecoding, ByClass
from sqlanon.requirements import Distribution, Requirements
from sqlanon.sources import Source
from sqlanon.sources.columns import Columns


def noise_statements(
    steps: StatementRunner,
    policy: Policy,
    source: Source,
    columns: Columns,
    recoding: ByClass,
    asked: Mapping[Distribution, Pairs],
    requirements: Requirements,
    work: Namer,
) -> AnyRecoding:
    """Show the statements; the recoding that they lead to."""
    noisy = noisy_columns(policy, source)
    records, classes = noise_classes(steps, recoding, noisy, work)
    drawn, keys = work("noise_drawn"), recoding.class_keys()
    steps.show(column_definitions(drawn.copy(), noise.drawn_columns(noisy)))
    rows = steps.make(work("noise_rows"), noise.noisy(records, classes, keys, drawn, noisy))
    steps.make(work("noise_links"), linking.links(rows, classes, noisy))
    kept = None
    if policy.suppresses_last:
        _, kept = keep(steps, policy, columns, recoding, noisy, asked, requirements, rows, classes, work)
    return NoisyRecoding(recoding, rows, kept, noisy, tuple(recoding.rows().named_selects))
