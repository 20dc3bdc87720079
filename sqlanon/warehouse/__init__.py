"""Tables in a warehouse that sqlanon does not reach: the SQL to run there, and the tables that it reads."""

from sqlanon.warehouse.export import export
from sqlanon.warehouse.plan import plan_for_warehouse
from sqlanon.warehouse.statements import DIALECTS, check_dialect, release_sql

__all__ = ["DIALECTS", "check_dialect", "export", "plan_for_warehouse", "release_sql"]
