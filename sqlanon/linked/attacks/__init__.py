"""Attacks on a source and on a release of linked tables, by readers who know rows of several tables."""
