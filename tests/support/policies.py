"""Policies of tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlanon


def make_policy(attributes: Mapping[str, Any], k: int = 2, table: str | None = "t", **sections: Any) -> sqlanon.Policy:
    """A policy from its attributes; the other sections as in TOML.

    An attribute is a role, the rule of a quasi-identifier (``"mask"`` for short), or its whole table. Noise may have
    any ε.
    """
    source = {"source": {"table": table}} if table is not None else {}
    attributes = {name: _attribute(spec) for name, spec in attributes.items()}
    privacy = {"k": k, **sections.pop("privacy", {})}
    if sum(spec.get("noise", {}).get("epsilon", 0) for spec in attributes.values()) > 10:
        privacy["linkable_noise"] = True
    return sqlanon.Policy(attributes=attributes, privacy=privacy, **{**source, **sections})


def _attribute(spec: Any) -> dict[str, Any]:
    if spec in ("identifying", "sensitive", "insensitive"):
        return {"role": spec}
    if isinstance(spec, dict) and "role" in spec:
        return spec
    return {"role": "quasi", "hierarchy": {"mask": "right"} if spec == "mask" else spec}
