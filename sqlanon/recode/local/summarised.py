"""What groups are released as, where the policy's ``summary`` says it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.recode.local import mondrian_statements as mn
from sqlanon.recode.local.summaries import Summary, ancestors, as_ancestor, as_median, as_range, as_set, own_values
from sqlanon.recode.local.task import LocalOutcome, LocalTask


def summarised(
    task: LocalTask, parts: exp.Table, allowed: Sequence[exp.Table], prefix: str, rounds: int
) -> LocalOutcome:
    """Release groups as ranges of numbers and times or their medians, other attributes as lowest common ancestors or
    as sets of values.

    Parameters
    ----------
    task:
        Its policy has the ``summary``.
    parts:
        ``combination`` and ``part``, its group.
    allowed:
        By attribute, the nodes that may be released: made by `recode.local.mondrian_statements.allowed_nodes`.
    prefix:
        Of the names of the tables that are made.
    rounds:
        How often the strategy went over the combinations.
    """
    steps, work, summary = task.steps, task.work, task.prepared.policy.search.summary
    classes = steps.make(work(f"{prefix}_members"), mn.members(task.combinations, parts))
    shown, values, typed = [], {}, set()
    for i, tree in enumerate(task.trees):
        build: Summary = as_ancestor
        if tree.ordered:
            build = as_median if summary == "median" else as_range
        elif summary == "set":
            build = as_set
        mine = steps.make(work(f"{prefix}_shown_{i}"), build(classes, i, tree, allowed[i]))
        shown.append(mine)
        if build is not as_ancestor:  # those are nodes of the hierarchy
            values[i] = steps.make(work(f"{prefix}_values_{i}"), own_values(mine, tree))
        if build is as_median and not task.engine.rows(ancestors(mine, tree))[0][0]:
            typed.add(i)
    placed = steps.make(work(f"{prefix}_placed"), mn.placed(classes, shown))
    return LocalOutcome(placed, values, frozenset(typed), rounds=rounds)


def allowed_nodes(task: LocalTask, prefix: str) -> tuple[exp.Table, ...]:
    """Make, by attribute, the nodes that may be released; under names with a prefix."""
    return tuple(
        task.steps.make(task.work(f"{prefix}_allowed_{i}"), mn.allowed_nodes(tree)) for i, tree in enumerate(task.trees)
    )
