"""The policy: what the data holder asks for, frozen and validated, with all mistakes reported at once."""

from sqlanon.policy.checks import same_file
from sqlanon.policy.models import Policy
from sqlanon.policy.names import table_parts
from sqlanon.policy.noise import Noise
from sqlanon.policy.places import is_server, shown_place, why_not_written
from sqlanon.policy.postgres import address_of, in_postgres, is_postgres, server_of
from sqlanon.policy.privacy import (
    AlphaK,
    BetaLikeness,
    DeltaDisclosure,
    DeltaPresence,
    Estimator,
    LDiversity,
    PopulationUniqueness,
    PrivacySection,
    Shield,
    TCloseness,
)
from sqlanon.policy.redact import strange_parts
from sqlanon.policy.risk import RiskSection
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
    Aggregate,
    Attribute,
    CatalogSection,
    PopulationSection,
    ReleaseSection,
    Role,
    SearchSection,
    SourceSection,
)
from sqlanon.policy.spark import is_spark, shown_spark, spark_address_of
from sqlanon.policy.values import Leaf

__all__ = [
    "Aggregate",
    "AlphaK",
    "Attribute",
    "BetaLikeness",
    "CatalogSection",
    "CategoriesRule",
    "DatesRule",
    "DeltaDisclosure",
    "DeltaPresence",
    "Estimator",
    "FileRule",
    "Granularity",
    "Hierarchy",
    "IntervalsRule",
    "LDiversity",
    "Leaf",
    "MaskRule",
    "Noise",
    "Policy",
    "PopulationSection",
    "PopulationUniqueness",
    "PrivacySection",
    "ReleaseSection",
    "RiskSection",
    "Role",
    "Rule",
    "SearchSection",
    "Shield",
    "SourceSection",
    "SuppressRule",
    "TCloseness",
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
    "why_not_written",
]
