"""What no live view can be made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlanon.errors import PolicyError
from sqlanon.policy import Policy
from sqlanon.policy.compatibility import LIVE_VIEWS, asked_of, conflicts


def refuse_policy(policy: Policy, given: Mapping[str, Any]) -> None:
    """Refuse what cannot be made, or kept, whenever the view is read: all at once."""
    if found := list(conflicts(LIVE_VIEWS, asked_of(dict(policy), given=given))):
        raise PolicyError(found)
