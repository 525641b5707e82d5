"""The fold of the tables' snapshot logs into small SQL tables: what changed, what was built from what, what was read.

Everything here is a copy of what Iceberg records, folded one snapshot at a time and exactly once; deleting the database
loses nothing. The fold is the only way in, so there is nothing to keep in step with it. Only `Health`, how ingests
and sinks fared lately, `Boards`, who works on what, and `ToldCommits`, of which others know, are no copies of anything;
to lose them costs a few tries, or tells others once more. `KeptFigures`, what was counted of cells' rows, are counted
again where they are lost.
"""

from dedup_platform.ledger.claims import Boards
from dedup_platform.ledger.facts import CellSize, Head, TableSize
from dedup_platform.ledger.figures import KeptFigures
from dedup_platform.ledger.health import Health
from dedup_platform.ledger.ledger import Ledger
from dedup_platform.ledger.schema import LOST
from dedup_platform.ledger.told import ToldCommits, UpTo
from dedup_platform.ledger.tries import Tries

__all__ = [
    "LOST",
    "Boards",
    "CellSize",
    "Head",
    "Health",
    "KeptFigures",
    "Ledger",
    "TableSize",
    "ToldCommits",
    "Tries",
    "UpTo",
]
