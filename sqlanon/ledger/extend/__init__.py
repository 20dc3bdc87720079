"""Growing tables: a release is extended by rows that its source has got since.

Released rows keep their values: they are copied from the release itself. New rows are generalized as these are. Those
of a class are added where they meet the policy by themselves: then nobody who has the release from before finds fewer
new rows in it than the policy asks for, and what two sets of rows meet, both together meet. Others wait.
"""

from sqlanon.ledger.extend.extension import Extension
from sqlanon.ledger.extend.find import extend, release_to_extend

__all__ = ["Extension", "extend", "release_to_extend"]
