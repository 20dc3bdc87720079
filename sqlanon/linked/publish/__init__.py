"""The publication of linked tables: released rows, the ledger, and the targets that hold a release."""
