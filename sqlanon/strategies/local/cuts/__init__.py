"""Cuts of the parts of a table in two, for strategy ``mondrian``: one module for each kind of dimension.

A *dimension* is a way to cut an attribute. Along it each combination has an *item*, a whole number, which no cut
divides. A table of parts has ``combination``, ``row_count`` (rows), ``part``, and the items ``item_0``, ``item_1``, ...
by dimension. A bit of ``several_0``, ... is set if the part may have several items along its dimension, and may be cut.

A table of cuts has a row for each ``part`` and ``dimension`` along which it has several items: ``rows_inside`` and
``rows_outside``; ``low`` and ``high``, the first and the last item inside; and ``gain``, the fall in loss of the part's
rows times the attribute's weight, NULL if no cut leaves enough rows on both sides. Gains are rounded, so that equal
ones are ties whatever the order of summation.

Most parts have a simple cut. Where a side of it has too few rows, ``is_special`` is true, and a second step tries other
cuts. If the items inside such a cut are not consecutive, ``low`` and ``high`` are NULL, and ``cut_off`` lists them.
"""
