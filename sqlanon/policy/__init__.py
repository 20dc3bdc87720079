"""The policy: what the data holder asks for, frozen and validated, with all mistakes reported at once."""

from sqlanon.policy.checks import same_file
from sqlanon.policy.models import Policy
from sqlanon.policy.names import table_parts
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
    AGGREGATED,
    Aggregate,
    Attribute,
    CatalogSection,
    Measure,
    PrivacySection,
    ReleaseSection,
    Role,
    SearchSection,
    SourceSection,
)
from sqlanon.policy.values import Leaf

__all__ = [
    "AGGREGATED",
    "Aggregate",
    "Attribute",
    "CatalogSection",
    "CategoriesRule",
    "DatesRule",
    "FileRule",
    "Granularity",
    "Hierarchy",
    "IntervalsRule",
    "Leaf",
    "MaskRule",
    "Measure",
    "Policy",
    "PrivacySection",
    "ReleaseSection",
    "Role",
    "Rule",
    "SearchSection",
    "SourceSection",
    "SuppressRule",
    "TableRule",
    "same_file",
    "table_parts",
]
