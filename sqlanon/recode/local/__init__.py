"""Recoding below the full domain: one signature, a module a strategy."""

from __future__ import annotations

from collections.abc import Mapping

from sqlanon.recode.local.cells import cells
from sqlanon.recode.local.finish import Kept, finish, suppressed_classes
from sqlanon.recode.local.iab import iab
from sqlanon.recode.local.iterative import local
from sqlanon.recode.local.mondrian import mondrian
from sqlanon.recode.local.mu_argus import mu_argus
from sqlanon.recode.local.similar import k_similar
from sqlanon.recode.local.subtree import subtree
from sqlanon.recode.local.task import LocalOutcome, LocalStrategy, LocalTask, local_task

LOCAL: Mapping[str, LocalStrategy] = {
    "iab": iab,
    "k-similar": k_similar,
    "local": local,
    "mondrian": mondrian,
    "mu-argus": mu_argus,
    "subtree": subtree,
}
"""The local strategies by the names of the policy."""

__all__ = [
    "LOCAL",
    "Kept",
    "LocalOutcome",
    "LocalStrategy",
    "LocalTask",
    "cells",
    "finish",
    "local_task",
    "suppressed_classes",
]
