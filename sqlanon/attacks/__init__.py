"""Published attacks on releases. Each is a query that returns its victims, which are counted."""

from sqlanon.attacks.findings import Attack, Attacks, Finding
from sqlanon.attacks.run import NAMES, attack, attack_sql

__all__ = ["NAMES", "Attack", "Attacks", "Finding", "attack", "attack_sql"]
