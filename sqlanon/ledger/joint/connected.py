"""The connected components of a graph in the engine, by pointer jumping.

Source: Y. Shiloach, U. Vishkin, An O(log n) parallel connectivity algorithm, Journal of Algorithms 3(1), 1982.
"""

from __future__ import annotations

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.support.expressions import Namer, create_table, drop_table, template

_ROOTS = template("SELECT node, node AS component FROM :nodes AS n")
# The least component of a node and its neighbours; then the component of that one.
_NEARER = template("""
    WITH nearest AS MATERIALIZED (
        SELECT c.node, least(c.component, min(n.component)) AS component
        FROM :components AS c
        LEFT JOIN (
            SELECT e.a AS node, r.component FROM :edges AS e JOIN :components AS r ON r.node = e.b
            UNION ALL
            SELECT e.b AS node, r.component FROM :edges AS e JOIN :components AS r ON r.node = e.a
        ) AS n ON n.node = c.node
        GROUP BY c.node, c.component
    )
    SELECT n.node, r.component
    FROM nearest AS n
    JOIN nearest AS r ON r.node = n.component
""")
_MOVED = template("""
    SELECT count(*) FROM :before AS b JOIN :after AS a ON a.node = b.node WHERE a.component <> b.component
""")


def connect(engine: Engine, work: Namer, name: str, nodes: exp.Expr, edges: exp.Expr) -> exp.Table:
    """Make a table of the ``component`` of each ``node``, the least node of its connected component. ``name`` begins
    its name.

    Parameters
    ----------
    nodes:
        Numbers, in the column ``node``.
    edges:
        Pairs of nodes, ``a`` and ``b``, each in one direction at least.
    """
    before, steps = work(f"{name} 0"), 0
    engine.execute(create_table(before.copy(), _ROOTS(nodes=nodes)))
    while True:
        steps += 1
        after = work(f"{name} {steps}")
        engine.execute(create_table(after.copy(), _NEARER(components=before, edges=edges)))
        moved = engine.rows(_MOVED(before=before, after=after))[0][0]
        engine.execute(drop_table(before))
        if not moved:
            return after
        before = after
