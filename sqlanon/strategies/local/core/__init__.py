"""Shared code of local strategies: tasks, nodes, the evaluation of classes, and results."""
