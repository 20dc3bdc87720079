"""Generalization hierarchies: rules become validated tables, one row per ground value, leaf to root."""

from sqlanon.hierarchies.build import Hierarchy, build_hierarchy, hierarchy_query
from sqlanon.hierarchies.parts import RuleError
from sqlanon.hierarchies.rules import find_static_height, read_value_labels

__all__ = ["Hierarchy", "RuleError", "build_hierarchy", "find_static_height", "hierarchy_query", "read_value_labels"]
