"""The policy: what the data holder asks for, frozen and validated, with all mistakes reported at once."""

from typing import Any

from sqlanon.places.addresses import (
    address_of,
    in_postgres,
    is_postgres,
    is_server,
    is_spark,
    server_of,
    shown_place,
    shown_spark,
    spark_address_of,
    why_no_release,
    why_not_written,
)
from sqlanon.policy.checks import same_file
from sqlanon.policy.models import Policy
from sqlanon.policy.noise import Noise
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.redact import strange_parts
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
    STORAGE_VERSION,
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
from sqlanon.requirements.registry import kinds
from sqlanon.support.fields import Leaf
from sqlanon.support.names import table_parts


def __getattr__(name: str) -> Any:
    """The sections of requirements, by their names: ``Shield``, ``LDiversity``, ..."""
    for kind in kinds():
        if kind.__name__ == name:
            return kind
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "STORAGE_VERSION",
    "AboutSection",
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
    "Noise",
    "Policy",
    "PopulationSection",
    "PrivacySection",
    "ReleaseSection",
    "RiskSection",
    "Role",
    "Rule",
    "SearchSection",
    "SourceSection",
    "SuppressRule",
    "TableRule",
    "address_of",
    "in_postgres",
    "is_postgres",
    "is_server",
    "is_spark",
    "same_file",
    "server_of",
    "shown_place",
    "shown_spark",
    "spark_address_of",
    "strange_parts",
    "table_parts",
    "why_no_release",
    "why_not_written",
]
