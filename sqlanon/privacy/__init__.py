"""The privacy requirements: one module a family, from one definition for search, suppression and audit."""

from sqlanon.privacy.base import CLASS_SIZE, Requirement
from sqlanon.privacy.k_anonymity import KAnonymity

__all__ = ["CLASS_SIZE", "KAnonymity", "Requirement"]
