"""Names of module constants that tests set, so that paths for large tables run on small ones."""

from __future__ import annotations

SMALL_SET = "sqlanon.frequency.sets.SMALL_TABLE_ROWS"
COARSE_SET = "sqlanon.frequency.sets.COARSE_CLASSES"
ROWS_PER_CODE = "sqlanon.frequency.codes.ROWS_PER_CODE"
SMALL_SPARK = "sqlanon.sources.remote.MAX_FETCHED_ROWS"
PATIENCE = "sqlanon.ledger.catalog.PATIENCE"
