"""The statements of local recoding, to be shown: nothing of the data is known."""

from __future__ import annotations

from sqlglot import exp

from sqlanon.coding import Coded
from sqlanon.expressions import Namer, col, create_table
from sqlanon.policy import Policy
from sqlanon.recode.local.nodes import Tree, combinations, nodes
from sqlanon.recode.local.recode import LocalRecoding
from sqlanon.recode.recoding import Column
from sqlanon.search.classes import ClassSpace

EXAMPLE_LEAVES = 1000
"""How many values a hierarchy has, and a level of it, where statements are only shown."""


def example_trees(policy: Policy, attributes: tuple[Coded, ...], work: Namer) -> tuple[Tree, ...]:
    """The quasi-identifiers' hierarchies."""
    trees = []
    for i, (name, attribute) in enumerate(zip(policy.generalized, attributes, strict=True)):
        spec, height = policy.attributes[name], attribute.height
        floor = min(spec.min_level, height)
        ceiling = height if spec.max_level is None else spec.max_level
        offsets = tuple(EXAMPLE_LEAVES * level for level in range(height - floor + 1))
        table = work(f"local_nodes_{i}")
        trees.append(Tree(name, height, floor, ceiling, offsets, EXAMPLE_LEAVES, spec.weight, table, ordered=False))
    return tuple(trees)


def task_statements(
    policy: Policy, space: ClassSpace, attributes: tuple[Coded, ...], trees: tuple[Tree, ...], work: Namer
) -> list[exp.Create]:
    """What makes the tables that local strategies work on."""
    floor, offsets = tuple(tree.floor for tree in trees), [tree.offsets for tree in trees]
    made = [create_table(work("combinations"), combinations(space.frequency, space.heights, floor, offsets))]
    for i, (attribute, tree) in enumerate(zip(attributes, trees, strict=True)):
        forbidden = policy.attributes[tree.name].forbidden
        hierarchy, order = work(f"hierarchy_{i}"), col("level_0")
        query = nodes(attribute, hierarchy, tree.leaves, "*", tree.floor, tree.ceiling, tree.offsets, order, forbidden)
        made.append(create_table(tree.nodes.copy(), query))
    return made


def example_recoding(
    policy: Policy,
    source: exp.Table,
    columns: tuple[Column, ...],
    attributes: tuple[Coded, ...],
    trees: tuple[Tree, ...],
    work: Namer,
) -> LocalRecoding:
    """How a release is made, if every attribute is released at several levels."""
    every = range(len(attributes))
    return LocalRecoding(
        source,
        columns,
        attributes,
        tuple("*" for _ in every),
        trees,
        work("kept"),
        tuple(work(f"released_{i}") for i in every),
        frozenset(),
        (None,) * len(attributes),
        mask=policy.release is not None and policy.release.suppressed == "mask",
    )
