"""Risk: what the data holder should fear."""

from sqlanon.risk.prosecutor import Risk, risk_of, risk_query

__all__ = ["Risk", "risk_of", "risk_query"]
