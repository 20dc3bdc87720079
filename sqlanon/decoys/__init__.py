"""Decoys: rows of nobody for the classes that stay too small; drawn, and checked."""

from sqlanon.decoys.draw import DecoyResult, Decoys, fill

__all__ = ["DecoyResult", "Decoys", "fill"]
