"""The statements of the stage of noise, for the plan: none is run, and nothing is drawn."""

from __future__ import annotations

from collections.abc import Mapping

from sqlanon.columns import Columns
from sqlanon.noise.columns import noisy_columns
from sqlanon.noise.recoding import NoisyRecoding
from sqlanon.noise.stage import noise_classes
from sqlanon.policy import Policy
from sqlanon.privacy import Distribution, Requirements
from sqlanon.queries import linking, noise
from sqlanon.queries.distribution import Pairs
from sqlanon.queries.names import Namer, column_definitions
from sqlanon.queries.recode import AnyRecoding, ByClass
from sqlanon.queries.survivors import judged_survivors, kept_records, survivors
from sqlanon.sources import Source
from sqlanon.steps import Steps


def noise_statements(
    steps: Steps,
    policy: Policy,
    source: Source,
    columns: Columns,
    recoding: ByClass,
    asked: Mapping[Distribution, Pairs],
    requirements: Requirements,
    work: Namer,
) -> AnyRecoding:
    """Show the statements; the recoding that they lead to.

    Parameters
    ----------
    steps:
        Shows them.
    policy, source, columns, recoding:
        What is asked, of what, what its columns are to the policy, and how it is recoded without noise.
    asked, requirements:
        How the sensitive values that requirements look at are counted, and what is asked of classes.
    work:
        How tables are named.
    """
    noisy, attributes = noisy_columns(policy, source), len(policy.generalized)
    records, classes = noise_classes(steps, recoding, noisy, work)
    drawn, keys = work("noise_drawn"), recoding.class_keys()
    steps.show(column_definitions(drawn.copy(), noise.drawn_columns(noisy)))
    rows = steps.make(work("noise_rows"), noise.noisy(records, classes, keys, drawn, noisy))
    steps.make(work("noise_links"), linking.links(rows, classes, noisy))
    kept = None
    if policy.privacy.confidence is not None:
        near = steps.make(work("noise_near"), linking.near(rows, classes, noisy, policy.privacy.confidence))
        places = {column.name: f"value_{place}" for place, column in enumerate(recoding.columns)}
        values = [places[column] for column in columns.sensitive]
        query = survivors(rows, classes, list(keys), attributes, values, None, near, policy.privacy.k or 1)
        left = steps.make(work("noise_survivors"), query)
        query = judged_survivors(left, attributes, columns.sensitive_names, asked, False, requirements)
        judged = steps.make(work("noise_judged"), query)
        kept = steps.make(work("noise_kept"), kept_records(left, judged, attributes))
    return NoisyRecoding(recoding, rows, kept, noisy, tuple(recoding.rows().named_selects))
