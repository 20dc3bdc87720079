"""Cuts of hierarchies."""

from __future__ import annotations

from properties.local_tasks import Nodes, Plain

Cut = list[dict[int, int]]


def cut_of(plain: Plain, placed: dict[int, Nodes]) -> Cut:
    """The node of each ground node, by attribute; every ground node has one."""
    cut: Cut = [{} for _ in plain.nodes]
    for combination, nodes in placed.items():
        for by, path, node in zip(cut, plain.paths[combination], nodes, strict=True):
            assert by.setdefault(path[0], node) == node
    return cut


def lower(plain: Plain, i: int, path: Nodes, node: int) -> int | None:
    """The highest node below one, on a path, that may be released."""
    below = [child for child in path[: path.index(node)] if plain.nodes[i][child].released]
    return below[-1] if below else None


def after_split(plain: Plain, cut: Cut, i: int, node: int) -> dict[int, Nodes] | None:
    """All combinations, with a node of an attribute split; None where it cannot be."""
    placed = {}
    for combination, paths in plain.paths.items():
        nodes = []
        for j, (by, path) in enumerate(zip(cut, paths, strict=True)):
            new: int | None = by[path[0]]
            if j == i and new == node:
                new = lower(plain, i, path, node)
            if new is None:
                return None
            nodes.append(new)
        placed[combination] = tuple(nodes)
    return placed


def check_no_split_is_left(plain: Plain, cut: Cut, assignment: dict[int, Nodes], k: int) -> None:
    """Check that no feasible split costs less. (The cut of fully suppressed values is not visible.)"""
    if any(path[0] not in by for paths in plain.paths.values() for by, path in zip(cut, paths, strict=True)):
        return
    labels = [{node.label for node in nodes.values()} for nodes in plain.nodes]
    if any(len(some) < len(nodes) for some, nodes in zip(labels, plain.nodes, strict=True)):
        return  # equal labels are one class to readers only
    for i, by in enumerate(cut):
        for node in set(by.values()):
            placed = after_split(plain, cut, i, node)
            if placed is not None:
                retained = plain.kept(placed, k)
                lost = sum(plain.n.values()) - plain.rows(retained)
                assert lost > plain.allowed or plain.loss(retained) >= plain.loss(assignment) - 1e-9, (i, node)
