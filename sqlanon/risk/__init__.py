"""Risk: how easily an attacker finds somebody in the source as it stands."""

from sqlanon.frequency.class_sizes import ClassSizes
from sqlanon.risk.assessment import assess_risk
from sqlanon.risk.attackers import JournalistRisk, MarketerRisk, PopulationRisk, ProsecutorRisk
from sqlanon.risk.figures import RequirementRisk, Risk
from sqlanon.risk.individual import HouseholdRisk, IndividualRisk, row_risks
from sqlanon.risk.leakage import Leakage
from sqlanon.risk.leakage_search import LeakageSearch
from sqlanon.risk.noise_errors import estimate_noise_errors, refuse_epsilons
from sqlanon.risk.uniques_matrix import UniquesMatrix, count_uniques_by_level
from sqlanon.risk.value_leakage import ValueLeakage, measure_value_leakage

__all__ = [
    "ClassSizes", "HouseholdRisk", "IndividualRisk", "JournalistRisk", "Leakage", "LeakageSearch", "MarketerRisk",
    "PopulationRisk", "ProsecutorRisk", "RequirementRisk", "Risk", "UniquesMatrix", "ValueLeakage", "assess_risk",
    "count_uniques_by_level", "estimate_noise_errors", "measure_value_leakage", "refuse_epsilons", "row_risks",
]  # fmt: skip
