"""Generalization hierarchies: rules become validated tables, one row per ground value, leaf to root."""

from sqlanon.hierarchies.build import Hierarchy, build_hierarchy, hierarchy_query
from sqlanon.hierarchies.rules import known_height

__all__ = ["Hierarchy", "build_hierarchy", "hierarchy_query", "known_height"]
