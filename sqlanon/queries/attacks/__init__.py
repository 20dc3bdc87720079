"""Attacks on releases, one module per family: each query returns its victims. Nothing runs here, sqlglot only."""
