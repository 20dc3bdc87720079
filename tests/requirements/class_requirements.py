"""A requirement of each kind on a sensitive attribute of four values, some at different parameters."""

from __future__ import annotations

from typing import Any

from oracles.oracle import Hierarchy

S = {"attribute": "s"}

REQUIREMENTS: dict[str, dict[str, Any]] = {
    "k": {"k": 4},
    "shield": {"k": 2, "k_anonymity": [{"quasi": ["class"], "k": 5}]},
    "distinct": {"l_diversity": [{**S, "kind": "distinct", "l": 3}]},
    "joint": {"l_diversity": [{**S, "kind": "distinct", "l": 2, "joint": True}]},
    "entropy": {"l_diversity": [{**S, "kind": "entropy", "l": 2}]},
    "recursive": {"l_diversity": [{**S, "kind": "recursive", "l": 2, "c": 1}]},
    "recursive of 3": {"l_diversity": [{**S, "kind": "recursive", "l": 3, "c": 2.0}]},
    "equal": {"t_closeness": [{**S, "distance": "equal", "t": 0.25}]},
    "ordered": {"t_closeness": [{**S, "distance": "ordered", "t": 0.15}]},
    "hierarchical": {"t_closeness": [{**S, "distance": "hierarchical", "t": 0.2}]},
    "delta_disclosure": {"delta_disclosure": [{**S, "delta": 0.9}]},
    "basic beta": {"beta_likeness": [{**S, "beta": 0.8, "kind": "basic"}]},
    "enhanced beta": {"beta_likeness": [{**S, "beta": 0.8, "kind": "enhanced"}]},
    "alpha_k": {"alpha_k": [{**S, "alpha": 0.4}]},
    "alpha_k of more": {"alpha_k": [{**S, "alpha": 0.6}]},
}
VALUES = Hierarchy({value: (value, value // 2 + 100, "*") for value in range(4)})
