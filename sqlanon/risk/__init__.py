"""Risk: what the data holder should fear."""

from sqlanon.risk.assessment import assess, risk_statements
from sqlanon.risk.noise import assess_noise, refuse_epsilons
from sqlanon.risk.prosecutor import Risk
from sqlanon.risk.requirements import RequirementRisk

__all__ = ["RequirementRisk", "Risk", "assess", "assess_noise", "refuse_epsilons", "risk_statements"]
