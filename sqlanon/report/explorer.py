"""The explorer of a private page: the result of each generalization at any k.

The class sizes of each generalization are counted once, with the leaves under their values. They determine, for every
k, the suppressed rows, the classes, the risk and the loss of each column. Classes that break another requirement are
suppressed at every k. A large lattice is cut to a box around the chosen generalization.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from typing import Any

from sqlglot import exp

from sqlanon.measures import Loss
from sqlanon.policy import Attribute
from sqlanon.publish.draft import ReleaseDraft
from sqlanon.requirements import KAnonymity, Requirements
from sqlanon.strategies.lattice.candidate import inner_levels
from sqlanon.strategies.lattice.classes import evaluated_classes
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.lattice import Lattice
from sqlanon.support.coding import CodedAttribute, Levels, code_column, group_counts, level_leaves
from sqlanon.support.expressions import as_column, cast, col, fragment, subquery, template
from sqlanon.support.toml import toml_key, toml_value

NODES = 1000
"""Maximum number of generalizations in a page."""
SECONDS = 10.0
"""The time limit for counting them."""
_MIN_SCALE = 100  # the scale of k ends at this k or above
_NO_LEVELS = (
    "The policy's strategy does not choose one level for each column. With a full-domain strategy, such as optimal, "
    "the page has sliders here."
)

# One row for each size below the greatest k, one for all larger classes, and one for classes that break a requirement
# other than k-anonymity.
_SIZES = template("""
    WITH "sqlanon sized" AS (
        SELECT :codes, class_size, kept, CASE WHEN kept AND class_size < :greatest_k THEN class_size END AS size
        FROM :classes AS evaluated
    )
    SELECT kept, size, count(*) AS classes, sum(class_size)::BIGINT AS rows, min(class_size) AS smallest, :leaf_sums
    FROM "sqlanon sized"
    GROUP BY kept, size
    ORDER BY kept, size
""")
_LEAF_SUM = fragment("""
    sum(class_size * coalesce((SELECT any_value(l.leaves) FROM :leaves AS l WHERE l.code = :code), 0))
""")


@dataclass(frozen=True)
class Explorer:
    """The data of an explorer, ready for JSON, or the ``obstacle``; ``nodes`` is the size of the whole lattice."""

    data: dict[str, Any] | None
    nodes: int = 0
    obstacle: str = ""

    @property
    def extent(self) -> str:
        """The generalizations that the page has, as a sentence."""
        assert self.data is not None
        count = len(self.data["nodes"])
        if count == self.nodes:
            return f"The page has all {count:,} generalizations."
        ranges = ", ".join(
            f"{attribute['name']} {_format_range(attribute['levels'])}" for attribute in self.data["attributes"]
        )
        return (
            f"The lattice has {self.nodes:,} generalizations. To stay small, the page has the {count:,} around the "
            f"chosen one, with these levels: {ranges}."
        )

    @property
    def greatest_limit(self) -> int:
        """The end of the scale of the suppression limit: a fifth of the rows, or twice the limit of the policy."""
        assert self.data is not None
        return int(min(self.data["scale"], max(self.data["scale"] // 5, 2 * self.data["limit"])))


def build_explorer(draft: ReleaseDraft) -> Explorer:
    search_input, levels = draft.search_input, draft.result.levels
    obstacle = _find_obstacle(draft)
    if obstacle is not None or levels is None:
        return Explorer(None, obstacle=obstacle or _NO_LEVELS)
    nodes, box = _count_nodes(search_input, levels)
    policy, marginals = search_input.policy, search_input.marginals
    scale, limit = _scale_limit(policy.search.suppression_limit)
    attributes = []
    for i, (name, attribute) in enumerate(zip(policy.generalized_attributes, search_input.attributes, strict=True)):
        labels, value_counts = _describe_levels(search_input, attribute)
        attributes.append({
            "name": name,
            "height": attribute.height,
            "lowest_labelled": attribute.lowest_labelled,
            "leaves": marginals.leaves[i],
            "unknown": marginals.unknown[i],
            "sums": [*marginals.leaf_sums[i]],
            "levels": box[i],
            "chosen": levels[i],
            "labels": labels,
            "values": value_counts,
            "entry": policy_entry(name, policy.attributes[name]),
        })  # fmt: skip
    search = policy.search
    is_mean_loss = search.measure == Loss.name and search.aggregate == "mean"
    data = {
        "rows": marginals.rows,
        "k": policy.k,
        "most": _greatest_k(search_input),
        "limit": limit,
        "scale": scale,
        "weights": list(search_input.weights) if is_mean_loss else [1.0] * len(attributes),
        "finds": is_mean_loss and len(nodes) == search_input.lattice.size,
        "attributes": attributes,
        "nodes": {",".join(map(str, node)): figures for node, figures in nodes.items()},
    }
    return Explorer(data, search_input.lattice.size)


def policy_entry(name: str, attribute: Attribute) -> str:
    """The line of an attribute in a policy, up to its levels."""
    spec = attribute.model_dump(exclude_none=True, exclude_defaults=True, exclude={"min_level", "max_level"})
    rules = [_policy_rule(rule) for rule in spec.pop("hierarchy")]
    spec = {"role": spec.pop("role"), "hierarchy": rules[0] if len(rules) == 1 else rules, **spec}
    return f"{toml_key(name)} = {toml_value(spec).removesuffix(' }')}"


def _policy_rule(rule: Any) -> Any:
    """A rule of a model as a policy writes it.

    >>> _policy_rule({"widths": (5, 10)}), _policy_rule({"widths": (5,), "below": 0}), _policy_rule("suppress")
    ({'intervals': (5, 10)}, {'intervals': {'widths': (5,), 'below': 0}}, 'suppress')
    """
    if not isinstance(rule, Mapping) or "widths" not in rule:
        return rule
    return {"intervals": rule["widths"] if len(rule) == 1 else rule}


def _find_obstacle(draft: ReleaseDraft) -> str | None:
    """The reason why class sizes do not determine the result of `anonymize`, if any."""
    search_input, policy = draft.search_input, draft.search_input.policy
    requirements, search = search_input.requirements, policy.search
    spans_classes = (
        requirements.shields
        or requirements.table_conditions
        or requirements.separate_conditions
        or requirements.covering_condition is not None
        or policy.population is not None
    )
    changes_rows = policy.noisy_attributes or policy.has_decoys or policy.masks_suppressed_rows
    obstacles = {
        _NO_LEVELS: search.is_local or search.traits.protects_combinations_only or draft.result.levels is None,
        "The policy counts persons, and a person may be in several groups.": policy.source.person_column is not None,
        "A requirement of this policy is on more than one group at a time.": spans_classes,
        "The release is based on earlier ones.": search_input.earlier.run_ids,
        "Noise, decoys or masked rows change what a generalization leaves.": changes_rows,
        "The combinations are in another engine.": search_input.frequency_sets.runner.engine is not draft.run.engine,
    }
    return next((obstacle for obstacle, applies in obstacles.items() if applies), None)


def _greatest_k(search_input: SearchInput) -> int:
    k = search_input.policy.k
    return max(min(max(_MIN_SCALE, 2 * k), 1000), k)


def _scale_limit(limit: Decimal | float) -> tuple[int, int]:
    """A share as an integer number of parts, thousandths or finer.

    >>> _scale_limit(Decimal("0.05")), _scale_limit(Decimal("0.0125"))
    ((1000, 50), (10000, 125))
    """
    exact = Decimal(limit)
    digits = min(max(-int(exact.normalize().as_tuple().exponent), 3), 6)
    return 10**digits, int(exact * 10**digits)


def _count_nodes(search_input: SearchInput, chosen: Levels) -> tuple[dict[Levels, list[Any]], list[list[int]]]:
    """The figures of the generalizations in the largest box that can be counted in time, and the levels of the box."""
    deadline = time.monotonic() + SECONDS
    nodes: dict[Levels, list[Any]] = {}
    complete: tuple[dict[Levels, list[Any]], list[list[int]]] = ({}, [])
    for box in _grow_boxes(search_input.lattice, chosen):
        for levels in product(*box):
            if levels not in nodes:
                if complete[0] and time.monotonic() > deadline:
                    return complete
                nodes[levels] = _count_node(search_input, levels)
        complete = dict(nodes), box
    return complete


def _grow_boxes(lattice: Lattice, chosen: Levels) -> Iterator[list[list[int]]]:
    """Boxes of levels around a generalization; each contains the previous one.

    >>> list(_grow_boxes(Lattice(("sex", "age"), (0, 0), (1, 2)), (0, 1)))
    [[[0], [1]], [[0, 1], [1]], [[0, 1], [1, 2]], [[0, 1], [0, 1, 2]]]
    """
    allowed = [lattice.levels(i) for i in range(len(chosen))]
    start = [levels.index(level) for levels, level in zip(allowed, chosen, strict=True)]
    ends = [[index, index] for index in start]
    order = sorted(range(len(chosen)), key=lambda i: start[i] < len(allowed[i]) - 1)  # fully hidden columns first

    def box() -> list[list[int]]:
        return [levels[low : high + 1] for levels, (low, high) in zip(allowed, ends, strict=True)]

    yield box()
    grows = True
    while grows:
        grows = False
        for i, side in product(order, (1, 0)):
            step = 1 if side else -1
            if not 0 <= ends[i][side] + step < len(allowed[i]):
                continue
            ends[i][side] += step
            if math.prod(high - low + 1 for low, high in ends) > NODES:
                ends[i][side] -= step
                continue
            grows = True
            yield box()


def _count_node(search_input: SearchInput, levels: Levels) -> list[Any]:
    """The figures of a generalization: classes, rows and smallest size of classes above the scale; rows and leaves that
    are suppressed at every k; and for each size on the scale the classes and their leaves."""
    attributes, conditions = search_input.attributes, search_input.requirements.conditions
    remaining = [condition for condition in conditions if not isinstance(condition, KAnonymity)]
    space = replace(
        search_input.frequency_sets.class_space(levels), requirements=Requirements.from_conditions(remaining)
    )
    inner = inner_levels(attributes, levels)
    codes = [as_column(col(code_column(i, level)), f"code_{i}") for i, level in inner]
    leaf_sums = [
        as_column(
            _LEAF_SUM(leaves=subquery(level_leaves(attributes[i], level), "l"), code=col(f"code_{i}")), f"leaves_{i}"
        )
        for i, level in inner
    ]
    query = _SIZES(
        leaf_sums=leaf_sums or [as_column(exp.null(), "none")],
        codes=[col(f"code_{i}") for i, _ in inner] or [as_column(exp.null(), "none")],
        greatest_k=_greatest_k(search_input),
        classes=subquery(evaluated_classes(space, levels, codes), "evaluated"),
    )
    above, never, sizes = [0, 0, 0], [0, *(0 for _ in inner)], []
    for is_kept, size, classes, rows, smallest, *sums in search_input.frequency_sets.runner.engine.rows(query):
        leaves = [int(leaf_sum or 0) for leaf_sum in sums[: len(inner)]]
        if not is_kept:
            never = [rows, *leaves]
        elif size is None:
            above = [classes, rows, smallest]
        else:
            sizes.append([size, classes, *leaves])
    return [above, never, sizes]


def _describe_levels(search_input: SearchInput, attribute: CodedAttribute) -> tuple[list[str], list[int]]:
    """The labels of the most frequent value, and the number of distinct labels, by level."""
    ground = col("label_0") if attribute.open_ends else cast(col("value"), "VARCHAR")
    labels = [as_column(ground, "label_0")]
    for level in range(1, attribute.height + 1):
        labels.append(as_column(cast(col(f"label_{level}"), "VARCHAR"), f"l{level}"))
    engine = search_input.frequency_sets.runner.engine
    frequent_value = template("SELECT :labels FROM :values WHERE known ORDER BY rows DESC, label_0 LIMIT 1")
    rows = engine.rows(frequent_value(labels=labels, values=attribute.table.copy()))
    texts = ["(no value)" if label is None else label for label in rows[0]] if rows else [""] * len(labels)
    return texts, [*engine.rows(group_counts(attribute))[0], 1] if attribute.height else [1]


def _format_range(levels: Sequence[int]) -> str:
    return f"{levels[0]} to {levels[-1]}" if len(levels) > 1 else f"{levels[0]}"
