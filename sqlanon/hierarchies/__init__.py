"""Generalization hierarchies: rules become validated tables, one row per ground value, leaf to root."""

from sqlanon.hierarchies.build import Hierarchy, build_hierarchy, hierarchy_query
from sqlanon.hierarchies.parts import Flaw
from sqlanon.hierarchies.rules import known_height, read_pairs

__all__ = ["Flaw", "Hierarchy", "build_hierarchy", "hierarchy_query", "known_height", "read_pairs"]
