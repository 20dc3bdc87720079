"""Tables that are in a warehouse, out of our reach: the SQL that is run there, and what it reads."""

from sqlanon.warehouse.export import export
from sqlanon.warehouse.plan import plan_for_warehouse
from sqlanon.warehouse.statements import DIALECTS, dialect_of, sql_of

__all__ = ["DIALECTS", "dialect_of", "export", "plan_for_warehouse", "sql_of"]
