"""Decoys: rows of nobody for the classes that stay too small; drawn, and checked."""

from sqlanon.decoys.draw import Decoys, Filled, decoy_statements, fill

__all__ = ["Decoys", "Filled", "decoy_statements", "fill"]
