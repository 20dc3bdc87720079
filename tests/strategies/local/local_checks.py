"""Check classes of local strategies."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import sqlanon
from properties.local_tasks import Plain, task_of
from properties.privacy_cases import LISTED, PrivacyCase
from properties.privacy_checks import open_database, policy_of
from properties.random_cases import Case
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask


def check_sound(strategy: Callable[[LocalTask], LocalOutcome], case: Case, limits: Sequence[int], name: str) -> None:
    """Only nodes that may be released, classes of k rows as readers see them, within the limit, and no worse than the
    full-domain optimum."""
    with task_of(case, limits, strategy=name) as task:
        plain = Plain(task)
        try:
            _, levels = task.search_full_domain()
        except sqlanon.InfeasibleError:
            return
        assignment = plain.placed(strategy(task).assignment)
        assert plain.kept(assignment, case.k) == assignment
        assert sum(plain.n.values()) - plain.rows(assignment) <= plain.allowed
        for combination, nodes in assignment.items():
            for by, path, node in zip(plain.nodes, plain.paths[combination], nodes, strict=True):
                assert node in path and by[node].released
        assert plain.loss(assignment) <= plain.loss(plain.kept(plain.at(levels), case.k)) + 1e-8


def check_private(name: str, case: PrivacyCase) -> None:
    """Check for any class requirements that the release passes its audit, with at most the loss of the full domain."""
    case = replace(case, measure="loss", aggregate=None)
    with tempfile.TemporaryDirectory() as directory, open_database(case.source) as db:
        policy = policy_of(case, "optimal", Path(directory))
        try:
            best = db.anonymize(policy)
        except sqlanon.InfeasibleError:
            return
        tree = policy.model_dump(mode="json", exclude_none=True)
        tree["search"]["strategy"] = name
        policy = sqlanon.Policy(**tree)
        result = db.anonymize(policy)
        if name == "local":  # the other may release ranges, which cost more in hierarchies that have another order
            assert result.score <= best.score + 1e-8
        result.publish(Path(directory) / "r.duckdb")  # which audits it


def of_classes(case: PrivacyCase) -> bool:
    """Whether all requirements are on classes: local strategies refuse others."""
    return bool(case.source.rows) and {*case.privacy} <= {*LISTED, "k"}
