"""Decoys: invented rows for classes that are too small after the search."""

from sqlanon.decoys.draw import DecoyResult, Decoys, DrawnDecoys, add_decoys

__all__ = ["DecoyResult", "Decoys", "DrawnDecoys", "add_decoys"]
