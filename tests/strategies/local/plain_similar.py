"""Partitions and ancestors in plain Python."""

from __future__ import annotations

import math
from collections.abc import Iterator

from plain_counts import Counts

from properties.local_tasks import Nodes, Plain
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask
from sqlanon.strategies.local.k_similar import group_combinations


def as_ancestors(task: LocalTask) -> LocalOutcome:
    """The groups in the form that is compared: lowest common ancestors."""
    _, _, best, rounds = group_combinations(task)
    nodes = best.assignment(len(task.trees))
    return LocalOutcome(task, task.runner.create_table(task.work("as_ancestors"), nodes), rounds=rounds)


def partitions(things: list[int]) -> Iterator[list[list[int]]]:
    """Every way to put things in groups."""
    if not things:
        yield []
        return
    first, *remaining = things
    for groups in partitions(remaining):
        yield [[first], *groups]
        for i, group in enumerate(groups):
            yield [*groups[:i], [first, *group], *groups[i + 1 :]]


def common(plain: Plain, group: list[int]) -> Nodes | None:
    """The lowest nodes that all of a group have and that may be released."""
    nodes = []
    for i, by in enumerate(plain.nodes):
        shared = [
            node
            for node in plain.paths[group[0]][i]
            if by[node].released and all(node in plain.paths[combination][i] for combination in group)
        ]
        if not shared:
            return None
        nodes.append(shared[0])
    return tuple(nodes)


def least_loss(plain: Counts, k: int) -> float:
    """The least loss of all groupings, with some combinations suppressed or none."""
    best = math.inf
    for groups in partitions(sorted(plain.n)):
        placed: dict[int, Nodes] = {}
        for group in groups:
            nodes = common(plain, group)
            if nodes is not None and plain.count(group) >= k:
                placed |= dict.fromkeys(group, nodes)
        if placed and plain.can_suppress(placed):
            best = min(best, plain.loss(placed))
    return best
