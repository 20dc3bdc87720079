"""Known attacks on releases: each is a query that returns its victims. They are counted; rows are shown on request."""

from sqlanon.attacks.findings import Attack, Attacks, Finding
from sqlanon.attacks.run import NAMES, attack, attack_sql

__all__ = ["NAMES", "Attack", "Attacks", "Finding", "attack", "attack_sql"]
