"""The policy of a data holder: frozen, validated, with all mistakes reported at once."""

from typing import Any

from sqlanon.policy.models import Policy
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.rules import (
    CategoriesRule,
    DatesRule,
    FileRule,
    Granularity,
    Hierarchy,
    IntervalsRule,
    MaskRule,
    Rule,
    SuppressRule,
    TableRule,
)
from sqlanon.policy.sections import (
    AboutSection,
    Aggregate,
    Attribute,
    CatalogSection,
    PopulationSection,
    ReleaseSection,
    RiskSection,
    Role,
    SearchSection,
    SourceSection,
)
from sqlanon.requirements.registry import requirement_types


def __getattr__(name: str) -> Any:
    """The classes of requirements by name: ``Shield``, ``LDiversity``, ..."""
    for requirement_type in requirement_types():
        if requirement_type.__name__ == name:
            return requirement_type
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AboutSection", "Aggregate", "Attribute", "CatalogSection", "CategoriesRule", "DatesRule", "FileRule",
    "Granularity", "Hierarchy", "IntervalsRule", "MaskRule", "Policy", "PopulationSection", "PrivacySection",
    "ReleaseSection", "RiskSection", "Role", "Rule", "SearchSection", "SourceSection", "SuppressRule", "TableRule",
]  # fmt: skip
