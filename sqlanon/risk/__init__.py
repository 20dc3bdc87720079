"""Risk: what the data holder should fear."""

from sqlanon.histogram import ClassSizes
from sqlanon.risk.assessment import assess, risk_statements
from sqlanon.risk.found import Risk
from sqlanon.risk.individual import HouseholdRisk, IndividualRisk
from sqlanon.risk.journalist import JournalistRisk
from sqlanon.risk.leakage import Leakage
from sqlanon.risk.marketer import MarketerRisk
from sqlanon.risk.matrix import UniquesMatrix, uniques_matrix
from sqlanon.risk.noise import assess_noise, refuse_epsilons
from sqlanon.risk.of_rows import row_risks
from sqlanon.risk.population import PopulationRisk
from sqlanon.risk.prosecutor import ProsecutorRisk
from sqlanon.risk.requirements import RequirementRisk

__all__ = [
    "ClassSizes",
    "HouseholdRisk",
    "IndividualRisk",
    "JournalistRisk",
    "Leakage",
    "MarketerRisk",
    "PopulationRisk",
    "ProsecutorRisk",
    "RequirementRisk",
    "Risk",
    "UniquesMatrix",
    "assess",
    "assess_noise",
    "refuse_epsilons",
    "risk_statements",
    "row_risks",
    "uniques_matrix",
]
