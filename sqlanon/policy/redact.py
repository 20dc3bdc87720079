"""What the manifest of a release may show of the policy that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlanon.policy.sections import Attribute

if TYPE_CHECKING:
    from sqlanon.policy.models import Policy


def redact(policy: Policy) -> dict[str, Any]:
    """Return a policy for the eyes of readers of its release, ready for JSON.

    Of attributes and rules, what may be shown is listed, not what must be hidden: a field that a later
    version adds stays hidden until somebody decides otherwise. Of forbidden labels only the number is shown: they are
    values, or stand for some. Requirements and search are parameters. Whether
    persons are counted, and that there is a population, says how to read the figures; their names say more.
    """
    return {
        "undeclared": policy.source.undeclared,
        "persons": policy.source.person is not None,
        "population": policy.population is not None,
        "attributes": {name: _attribute(attribute) for name, attribute in policy.attributes.items()},
        "privacy": policy.privacy.model_dump(mode="json", exclude_none=True),
        "search": policy.search.model_dump(mode="json", exclude_none=True),
        "suppressed": policy.release.suppressed if policy.release else "drop",
        **({"decoys": True} if policy.decoys else {}),
    }


def _attribute(attribute: Attribute) -> dict[str, Any]:
    shown: dict[str, Any] = {"role": attribute.role}
    if attribute.hierarchy is not None:
        shown["hierarchy"] = [rule.redacted() for rule in attribute.hierarchy]
    if attribute.noise is not None:
        shown["noise"] = attribute.noise.model_dump(mode="json")
        shown["on_unknown"] = attribute.on_unknown
    elif attribute.role == "quasi":
        shown |= {
            "weight": attribute.weight,
            "on_unknown": attribute.on_unknown,
            "min_level": attribute.min_level,
        }
        if attribute.max_level is not None:
            shown["max_level"] = attribute.max_level
        if attribute.forbidden:
            shown["forbidden"] = len(attribute.forbidden)
        if attribute.identification != "identifying":
            shown["identification"] = attribute.identification
    return shown
