"""``sqlanon demo``: a hospital, an attack with a voter list, a release, and the same attack on it; then with visits."""

from sqlanon.demo.story import Demo, run_demo

__all__ = ["Demo", "run_demo"]
