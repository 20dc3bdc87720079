"""The frontier to explore, on a private page: what each generalization leaves at any k.

Of each generalization the sizes of its classes are counted once, with the leaves under their values: from these follow,
for every k, the rows that are left out, the classes, the risk and the loss of each column, as `anonymize` would find
them. A class that breaks another requirement of the policy is left out at every k. A large lattice is cut to a box
around the chosen generalization.
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

from sqlanon.policy import Attribute
from sqlanon.release.draft import ReleaseDraft
from sqlanon.requirements import KAnonymity, Requirements
from sqlanon.strategies.lattice.candidate import between_ends
from sqlanon.strategies.lattice.classes import judged_classes
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.lattice import Lattice
from sqlanon.support.coding import CodedAttribute, Levels, code_column, group_counts, level_leaves
from sqlanon.support.expressions import as_column, cast, col, fragment, subquery, template
from sqlanon.support.markup import escape_html
from sqlanon.support.toml import toml_key, toml_value

NODES = 1000
"""The most generalizations that a page carries."""
SECONDS = 10.0
"""The time in which they are counted."""
MOST = 100
"""The least end of the scale of k."""
_NO_LEVELS = (
    "The policy's strategy does not choose one level for each column. With a full-domain strategy, such as optimal, "
    "the page has sliders here."
)

# One row for each size below the greatest k, of classes that meet the other requirements; one for those above, and one
# for the classes that break them.
_SIZES = template("""
    SELECT kept, size, count(*) AS classes, sum(class_size)::BIGINT AS rows, min(class_size) AS smallest, :sums
    FROM (
        SELECT :codes, class_size, kept, CASE WHEN kept AND class_size < :most THEN class_size END AS size
        FROM :classes AS j
    ) AS c
    GROUP BY kept, size
    ORDER BY kept, size
""")
_LEAVES = fragment("sum(class_size * coalesce((SELECT any_value(w.leaves) FROM :leaves AS w WHERE w.code = :code), 0))")
_FREQUENT = template("SELECT :labels FROM :values WHERE known ORDER BY rows DESC, label_0 LIMIT 1")


@dataclass(frozen=True)
class Explorer:
    """What the page carries, ready for JSON; or why there is nothing to explore."""

    data: dict[str, Any] | None
    nodes: int = 0
    why_not: str = ""


def explorer(draft: ReleaseDraft) -> Explorer:
    prepared, levels = draft.search_input, draft.result.levels
    why_not = _why_not(draft)
    if why_not is not None or levels is None:
        return Explorer(None, why_not=why_not or _NO_LEVELS)
    nodes, box = _counted(prepared, levels)
    policy, marginals = prepared.policy, prepared.marginals
    scale, limit = _scaled(policy.search.suppression_limit)
    attributes = []
    for i, attribute in enumerate(prepared.attributes):
        labels, values = _labels(prepared, attribute)
        attributes.append(
            {
                "name": policy.generalized_attributes[i],
                "height": attribute.height,
                "lowest_labelled": attribute.lowest_labelled,
                "leaves": marginals.leaves[i],
                "unknown": marginals.unknown[i],
                "sums": [*marginals.leaf_sums[i]],
                "levels": box[i],
                "chosen": levels[i],
                "labels": labels,
                "values": values,
                "entry": _entry(policy.generalized_attributes[i], policy.attributes[policy.generalized_attributes[i]]),
            }
        )
    search = policy.search
    is_mean_loss = search.measure == "loss" and search.aggregate == "mean"
    complete = len(nodes) == prepared.lattice.size
    data = {
        "rows": marginals.rows,
        "k": policy.privacy.k or 1,
        "most": _most(prepared),
        "limit": limit,
        "scale": scale,
        "weights": list(prepared.weights) if is_mean_loss else [1.0] * len(attributes),
        "finds": complete and is_mean_loss,
        "attributes": attributes,
        "nodes": {",".join(map(str, one)): figures for one, figures in nodes.items()},
    }
    return Explorer(data, prepared.lattice.size)


def _entry(name: str, attribute: Attribute) -> str:
    """The line of an attribute in the policy, without its levels and its end."""
    spec = attribute.model_dump(exclude_none=True, exclude_defaults=True, exclude={"min_level", "max_level"})
    rules = [_as_written(one) for one in spec.pop("hierarchy")]
    spec = {"role": spec.pop("role"), "hierarchy": rules[0] if len(rules) == 1 else rules, **spec}
    return f"{toml_key(name)} = {toml_value(spec).removesuffix(' }')}"


def _as_written(rule: Any) -> Any:
    """A rule as a policy has it.

    >>> _as_written({"widths": (5, 10)}), _as_written({"widths": (5,), "below": 0}), _as_written("suppress")
    ({'intervals': (5, 10)}, {'intervals': {'widths': (5,), 'below': 0}}, 'suppress')
    """
    if not isinstance(rule, Mapping) or "widths" not in rule:
        return rule
    return {"intervals": rule["widths"] if len(rule) == 1 else rule}


def _why_not(draft: ReleaseDraft) -> str | None:
    """Why figures by class size do not say what `anonymize` would find."""
    prepared, policy = draft.search_input, draft.search_input.policy
    asked, search = prepared.requirements, policy.search
    several = (
        asked.shields or asked.table_conditions or asked.separate_conditions or asked.covering_condition is not None
    )
    reasons = {
        _NO_LEVELS: search.is_local or search.traits.protects_combinations_only or draft.result.levels is None,
        "The policy counts persons, and a person may be in several groups.": policy.source.person_column is not None,
        "A requirement of this policy is on more than one group at a time.": several or policy.population is not None,
        "The release is based on earlier ones.": prepared.earlier.run_ids,
        "Noise, decoys or masked rows change what a generalization leaves.": policy.noisy_attributes
        or policy.has_decoys
        or policy.masks_suppressed_rows,
        "The combinations are in another engine.": prepared.frequency_sets.steps.engine.dialect != "duckdb",
    }
    return next((why for why, holds in reasons.items() if holds), None)


def _most(prepared: SearchInput) -> int:
    """The greatest k of the scale."""
    k = prepared.policy.privacy.k or 1
    return max(min(max(MOST, 2 * k), 1000), k)


def _scaled(limit: Decimal | float) -> tuple[int, int]:
    """A share as a whole number of parts, thousandths or finer.

    >>> _scaled(Decimal("0.05")), _scaled(Decimal("0.0125"))
    ((1000, 50), (10000, 125))
    """
    exact = Decimal(limit)
    digits = min(max(-int(exact.normalize().as_tuple().exponent), 3), 6)
    return 10**digits, int(exact * 10**digits)


def _counted(prepared: SearchInput, chosen: Levels) -> tuple[dict[Levels, list[Any]], list[list[int]]]:
    """The figures of the generalizations of the largest box that is counted in time, and its levels by attribute."""
    ends = time.monotonic() + SECONDS
    nodes: dict[Levels, list[Any]] = {}
    whole: tuple[dict[Levels, list[Any]], list[list[int]]] = ({}, [])
    for box in _boxes(prepared.lattice, chosen):
        for levels in product(*box):
            if levels not in nodes:
                if whole[0] and time.monotonic() > ends:
                    return whole
                nodes[levels] = _figures(prepared, levels)
        whole = dict(nodes), box
    return whole


def _boxes(lattice: Lattice, chosen: Levels) -> Iterator[list[list[int]]]:
    """Boxes of levels around a generalization, each with the one before in it.

    >>> list(_boxes(Lattice(("sex", "age"), (0, 0), (1, 2)), (0, 1)))
    [[[0], [1]], [[0, 1], [1]], [[0, 1], [1, 2]], [[0, 1], [0, 1, 2]]]
    """
    allowed = [lattice.levels(i) for i in range(len(chosen))]
    first = [levels.index(level) for levels, level in zip(allowed, chosen, strict=True)]
    ends = [[place, place] for place in first]
    order = sorted(range(len(chosen)), key=lambda i: first[i] < len(allowed[i]) - 1)  # what is all hidden comes first

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


def _figures(prepared: SearchInput, levels: Levels) -> list[Any]:
    """Of a generalization: the classes, rows and smallest size of those above the scale; the rows that are left out at
    every k, with their leaves; and for each size on the scale the classes, with their leaves."""
    others = [one for one in prepared.requirements.conditions if not isinstance(one, KAnonymity)]
    space = replace(prepared.frequency_sets.at(levels), requirements=Requirements.from_conditions(others))
    between = between_ends(prepared.attributes, levels)
    codes = [as_column(col(code_column(i, level)), f"code_{i}") for i, level in between]
    sums = [
        as_column(
            _LEAVES(leaves=subquery(level_leaves(prepared.attributes[i], level), "l"), code=col(f"code_{i}")),
            f"leaves_{i}",
        )
        for i, level in between
    ]
    query = _SIZES(
        sums=sums or [as_column(exp.null(), "none")],
        codes=[col(f"code_{i}") for i, _ in between] or [as_column(exp.null(), "none")],
        most=_most(prepared),
        classes=subquery(judged_classes(space, levels, codes), "j"),
    )
    above, never, sizes = [0, 0, 0], [0, *(0 for _ in between)], []
    for kept, size, classes, rows, smallest, *leaves in prepared.frequency_sets.steps.engine.rows(query):
        own = [int(one or 0) for one in leaves[: len(between)]]
        if not kept:
            never = [rows, *own]
        elif size is None:
            above = [classes, rows, smallest]
        else:
            sizes.append([size, classes, *own])
    return [above, never, sizes]


def _labels(prepared: SearchInput, attribute: CodedAttribute) -> tuple[list[str], list[int]]:
    """What the most frequent value reads like at each level, and how many values there are."""
    ground = col("label_0") if attribute.open_ends else cast(col("value"), "VARCHAR")
    labels = [as_column(ground, "label_0")]
    labels += [
        as_column(cast(col(f"label_{level}"), "VARCHAR"), f"l{level}") for level in range(1, attribute.height + 1)
    ]
    engine = prepared.frequency_sets.steps.engine
    rows = engine.rows(_FREQUENT(labels=labels, values=attribute.table.copy()))
    read = ["(no value)" if label is None else label for label in rows[0]] if rows else [""] * (attribute.height + 1)
    counts = [*engine.rows(group_counts(attribute))[0], 1] if attribute.height else [1]
    return read, counts


def size_in_words(found: Explorer) -> str:
    """Which generalizations the page carries."""
    assert found.data is not None
    attributes: Sequence[dict[str, Any]] = found.data["attributes"]
    carried = len(found.data["nodes"])
    if carried == found.nodes:
        return f"The page carries all {carried:,} generalizations."
    ranges = ", ".join(f"{one['name']} {_range(one['levels'])}" for one in attributes)
    return (
        f"The lattice has {found.nodes:,} generalizations. So that it stays small, the page carries the {carried:,} "
        f"around the chosen one, with these levels: {ranges}."
    )


def _range(levels: Sequence[int]) -> str:
    return f"{levels[0]} to {levels[-1]}" if len(levels) > 1 else f"{levels[0]}"


def controls(found: Explorer) -> str:
    """The form, and where the page's script writes what it finds."""
    if found.data is None:
        return f"<p>There is nothing to move here. {escape_html(found.why_not)}</p>"
    data = found.data
    rows = [
        _slider("k", "k: rows in the smallest group", 1, data["most"], data["k"]),
        _slider("limit", "suppression limit: rows that may be left out", 0, _end_of_limit(data), data["limit"]),
    ]
    for i, one in enumerate(data["attributes"]):
        if len(one["levels"]) > 1:
            last, chosen = len(one["levels"]) - 1, one["levels"].index(one["chosen"])
            rows.append(_slider(f"level-{i}", f"level of {one['name']}", 0, last, chosen))
    best = '<button type="button" id="explore-best">Find the best levels</button>' if data["finds"] else ""
    head = "".join(f'<th scope="col">{name}</th>' for name in ("column", "level", "a value reads"))
    head += "".join(f'<th scope="col" class="number">{name}</th>' for name in ("values", "loss"))
    return (
        "<p>Move a slider to see what other settings would leave, and how risky that is. "
        f"{escape_html(size_in_words(found))}{_fixed(found)}</p>\n"
        "<noscript><p>The sliders need JavaScript.</p></noscript>\n"
        f'<form id="explore-form">{"".join(rows)}<p class="buttons">{best}'
        '<button type="button" id="explore-reset">Back to this policy</button></p></form>\n'
        '<div role="status"><p id="explore-verdict"></p><p id="explore-summary"></p></div>\n'
        '<div class="scroll"><table><caption>What is left of each column</caption>'
        f'<thead><tr>{head}</tr></thead><tbody id="explore-columns"></tbody></table></div>\n'
        "<h3>For the policy</h3>\n<p>These lines replace those with the same keys.</p>\n"
        '<pre id="explore-lines"></pre>\n'
        '<p class="buttons"><button type="button" id="explore-copy">Copy these lines</button> '
        '<span id="explore-copied" role="status"></span></p>'
    )


def _fixed(found: Explorer) -> str:
    return (
        ""
        if found.data is None or found.data["finds"]
        else (" To find the best levels for other settings, run the policy with them.")
    )


def _end_of_limit(data: Mapping[str, Any]) -> int:
    """A fifth of the rows, or twice what the policy allows."""
    return int(min(data["scale"], max(data["scale"] // 5, 2 * data["limit"])))


def _slider(name: str, label: str, least: int, most: int, value: int) -> str:
    place = f"explore-{name}"
    return (
        f'<div class="slider"><label for="{place}">{escape_html(label)}</label>'
        f'<input type="range" id="{place}" min="{least}" max="{most}" step="1" value="{value}">'
        f'<output id="{place}-shown" for="{place}"></output></div>'
    )
