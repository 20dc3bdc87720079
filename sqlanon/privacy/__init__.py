"""The privacy requirements: one module a family, from one definition for search, suppression and audit."""

from sqlanon.policy import PrivacySection
from sqlanon.privacy.base import CLASS_SIZE, Requirement
from sqlanon.privacy.k_anonymity import KAnonymity


def requirements_of(section: PrivacySection) -> tuple[Requirement, ...]:
    """The requirements that a policy's ``[privacy]`` asks for."""
    return (KAnonymity(section.k),) if section.k is not None else ()


__all__ = ["CLASS_SIZE", "KAnonymity", "Requirement", "requirements_of"]
