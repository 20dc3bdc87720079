"""The policy: what the data holder asks for, frozen and validated, with all mistakes reported at once."""

from typing import Any

from sqlanon.places.addresses import (
    database_path_flaw,
    format_location,
    format_spark_address,
    is_postgres,
    is_postgres_location,
    is_server,
    is_spark,
    release_file_flaw,
    resolve_postgres_address,
    resolve_spark_address,
    server_address,
)
from sqlanon.policy.checks import is_same_file
from sqlanon.policy.models import Policy
from sqlanon.policy.noise import Noise
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.redact import find_unknown_parts
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
from sqlanon.requirements.registry import requirement_types
from sqlanon.support.fields import Leaf
from sqlanon.support.names import table_parts


def __getattr__(name: str) -> Any:
    """The sections of requirements, by their names: ``Shield``, ``LDiversity``, ..."""
    for kind in requirement_types():
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
    "database_path_flaw",
    "find_unknown_parts",
    "format_location",
    "format_spark_address",
    "is_postgres",
    "is_postgres_location",
    "is_same_file",
    "is_server",
    "is_spark",
    "release_file_flaw",
    "resolve_postgres_address",
    "resolve_spark_address",
    "server_address",
    "table_parts",
]
