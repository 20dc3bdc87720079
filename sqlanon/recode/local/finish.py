"""From what a local strategy placed to what is released of it: as readers see it, judged once more."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.expressions import star
from sqlanon.measures import Figures, Measure
from sqlanon.measures.base import Totals
from sqlanon.recode.local.kept import attribute_figures, class_figures, suppressed_ground
from sqlanon.recode.local.placed import judged_groups, readable, released_values
from sqlanon.recode.local.recode import LocalRecoding, kept_combinations
from sqlanon.recode.local.sorting import may_be_sorted, sortable_labels, sorted_labels
from sqlanon.recode.local.task import LocalOutcome, LocalTask
from sqlanon.requirements import Requirements
from sqlanon.requirements.combinations import combinations_of
from sqlanon.requirements.k_anonymity import Shield


@dataclass(frozen=True)
class Kept:
    """What is released of what a local strategy placed.

    Attributes
    ----------
    table, labels:
        The kept combinations and the labels of their codes, as `LocalRecoding` needs them.
    figures, totals:
        Of the release.
    smallest_class:
        The rows of the smallest kept class.
    levels:
        By attribute, the lowest and the highest level that are released.
    """

    table: exp.Table
    labels: tuple[exp.Table, ...]
    figures: Figures
    totals: Totals
    smallest_class: int
    levels: tuple[tuple[int, int], ...]

    def score(self, measure: Measure) -> float:
        """By a measure."""
        return measure.recoded(self.figures, self.totals)

    def recoding(self, task: LocalTask, outcome: LocalOutcome, mask: bool) -> LocalRecoding:
        """How it is made from the source."""
        prepared = task.prepared
        types = [type_ if i in outcome.typed else None for i, type_ in enumerate(prepared.types)]
        return LocalRecoding(
            prepared.source.relation,
            prepared.released,
            prepared.attributes,
            tuple(hierarchy.top for hierarchy in prepared.hierarchies),
            task.trees,
            self.table,
            self.labels,
            frozenset(i for i, (_, high) in enumerate(self.levels) if high == 0),
            tuple(types),
            mask,
        )


def finish(task: LocalTask, outcome: LocalOutcome) -> Kept:
    """Keep the classes that meet the policy, as readers see them.

    What reads the same is one class, however it was placed. Makes ``released_i`` (see `placed.released_values`),
    ``readable`` and ``kept`` in the work schema; and ``sorted_i`` for attributes of numbers that are released as ranges
    or medians.
    """
    steps, work = task.steps, task.work
    attributes = range(len(task.trees))
    tables = [outcome.values.get(i, tree.nodes) for i, tree in enumerate(task.trees)]
    labels = tuple(
        steps.make(work(f"released_{i}"), released_values(table, outcome.placed, i, task.trees[i].forbidden))
        for i, table in enumerate(tables)
    )
    seen = steps.make(work("readable"), readable(task.combinations, outcome.placed, labels, task.trees))
    # Here the shields are asked for as they are: these are the classes that the release will have.
    members = replace(task.members, requirements=_as_guaranteed(task))
    judged = steps.make(work("judged"), judged_groups(members, seen, [f"code_{i}" for i in attributes]))
    good = star(judged)
    kept = steps.make(work("kept"), kept_combinations(seen, good, attributes))
    figures = steps.figures(class_figures(good))
    sums = steps.figures(attribute_figures(kept, len(task.trees)))
    return Kept(
        kept,
        tuple(_in_order(task, outcome, kept, i, table) for i, table in enumerate(labels)),
        Figures(
            classes=figures["classes"],
            suppressed_rows=task.rows - figures["rows"],
            squares=figures["squares"],
            count=figures["count"],
        ),
        Totals(
            tuple(sums[f"leaves_{i}"] or 0.0 for i in attributes), tuple(sums[f"levels_{i}"] or 0 for i in attributes)
        ),
        figures["smallest"],
        tuple((sums[f"low_{i}"] or 0, sums[f"high_{i}"] or 0) for i in attributes),
    )


def _in_order(task: LocalTask, outcome: LocalOutcome, kept: exp.Table, i: int, labels: exp.Table) -> exp.Table:
    """The labels of an attribute; those of numbers padded, so that they sort as text.

    What reads the same is known by now: nothing is padded that would read the same as something else then.
    """
    tree = task.trees[i]
    if i not in outcome.values or i in outcome.typed or not tree.ordered:
        return labels
    sortable = task.steps.make(task.work(f"sortable_{i}"), sortable_labels(labels, kept, i, tree.root))
    if not task.engine.rows(may_be_sorted(sortable, tree.forbidden))[0][0]:
        return labels
    return task.steps.make(task.work(f"sorted_{i}"), sorted_labels(sortable))


def _as_guaranteed(task: LocalTask) -> Requirements:
    """The policy's requirements; where k-anonymity is guaranteed of combinations only, of these."""
    policy, asked = task.prepared.policy, task.prepared.requirements
    listed = combinations_of(policy.redacted())
    if not listed or policy.privacy.k is None:
        return asked
    names = [tree.name for tree in task.trees]
    shields = [Shield(tuple(names.index(name) for name in some), some, policy.privacy.k) for some in listed]
    return Requirements(shields=tuple(shields))


def suppressed_classes(task: LocalTask, kept: Kept) -> exp.Table:
    """Make ``suppressed``: the combinations that are not kept, as classes of the generalization at the floor."""
    frequency = task.prepared.sets.at(task.floor).frequency
    return task.steps.make(task.work("suppressed"), suppressed_ground(frequency, kept.table, task.trees))
