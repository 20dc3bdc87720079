"""Decoys: rows of nobody for the classes that stay too small; drawn, and checked."""

from sqlanon.decoys.draw import DecoyResult, Decoys, add_decoys

__all__ = ["DecoyResult", "Decoys", "add_decoys"]
