"""Risk: how easily an attacker finds somebody in the source as it stands."""

from sqlanon.disclosure.class_sizes import ClassSizes
from sqlanon.risk.assessment import assess, risk_statements
from sqlanon.risk.attackers import JournalistRisk, MarketerRisk, PopulationRisk, ProsecutorRisk
from sqlanon.risk.best_first import LeakageSearch
from sqlanon.risk.figures import RequirementRisk, Risk
from sqlanon.risk.individual import HouseholdRisk, IndividualRisk, row_risks
from sqlanon.risk.leakage import Leakage
from sqlanon.risk.matrix import UniquesMatrix, uniques_matrix
from sqlanon.risk.noise import assess_noise, refuse_epsilons
from sqlanon.risk.values import ValueLeakage, value_leakage

__all__ = [
    "ClassSizes",
    "HouseholdRisk",
    "IndividualRisk",
    "JournalistRisk",
    "Leakage",
    "LeakageSearch",
    "MarketerRisk",
    "PopulationRisk",
    "ProsecutorRisk",
    "RequirementRisk",
    "Risk",
    "UniquesMatrix",
    "ValueLeakage",
    "assess",
    "assess_noise",
    "refuse_epsilons",
    "risk_statements",
    "row_risks",
    "uniques_matrix",
    "value_leakage",
]
