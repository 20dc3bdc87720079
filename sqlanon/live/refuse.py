"""What no live view can be made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlanon.errors import PolicyError, Problem
from sqlanon.policy import Policy
from sqlanon.policy.problems import join
from sqlanon.requirements import requirements_in

_SCOPES = {
    "population": "is of a population, which a view does not look at: leave it out",
    "table": "is of the whole table, and suppresses nothing: a view cannot keep it; leave it out",
}


def refuse_policy(policy: Policy, given: Mapping[str, Any]) -> None:
    """Refuse what cannot be made, or kept, whenever the view is read: all at once."""
    search, release = policy.search, policy.release
    files = given.get("files") or (policy.source.files and "database" not in given)
    asked = {
        "source.files": (files, "there is no database to put the view in: load them into a table"),
        "source.query": (policy.source.query, "make it a view of the database, and name that: table = ..."),
        "population": (policy.population, "may change while the view is read: leave it out"),
        **{
            join("privacy", one.entry.key): (True, _SCOPES[one.entry.scope])
            for one in requirements_in(policy.privacy)
            if one.entry.scope in _SCOPES
        },
        "search.suppression" if search.suppression == "cells" else "search.strategy": (
            search.is_local,
            "recodes below the full domain: a view shows one level of each attribute; use optimal",
        ),
    }
    if release is not None:
        asked |= {
            "release.suppressed": (release.suppressed == "mask", 'a view leaves suppressed rows out: use "drop"'),
            "release.after": (release.after, "a view changes with its table, and cannot be held against them"),
            "release.decoys": (release.decoys, "are drawn once, and a view is made anew each time: leave it out"),
        }
    noise = "is drawn once, and a view that draws it each time can be averaged: give the attribute a hierarchy"
    asked |= {join(join("attributes", name), "noise"): (True, noise) for name in policy.noisy}
    problems = [Problem(place, message) for place, (wrong, message) in asked.items() if wrong]
    if problems:
        raise PolicyError(problems)
