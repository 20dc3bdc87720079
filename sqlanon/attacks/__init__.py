"""Known attacks on releases: each is a query that returns its victims. They are counted, and never shown unasked."""

from sqlanon.attacks.report import Attack, Attacks, Finding
from sqlanon.attacks.run import NAMES
from sqlanon.attacks.verbs import attack, attack_sql

__all__ = ["NAMES", "Attack", "Attacks", "Finding", "attack", "attack_sql"]
