"""Tables: a compacted topic as a mapping, written in the transactions of its program.

`Table` is for the program that writes it, `TableReader` for any other. The topic is the table; the
rows here are a copy of some of its partitions. These invariants make the copy right:

1. *One writer a partition.* The writer of a partition owns the same partition of the input, and a
   key has the same partition in both. Its transactions carry the offsets of the input, so the group
   coordinator refuses those of a member that has lost the partition (KIP-447).
2. *Read before used.* A partition that comes is read up to the end that the log has after the
   assignment, and not only up to the last stable offset: a transaction of the former owner that
   can still commit has its records before that end. So the reader waits until it is decided.
3. *Undecided rows are apart.* Rows of an open transaction are kept beside the store. A commit adds
   them, an abort drops them. After a commit in doubt, or an end that a signal hid, the partition is
   read again.
4. *A place is read, not assumed.* The place in the store moves only over records that were read
   from the topic. The store may be ahead of its place, by rows of own transactions; reading them
   again changes nothing, because the last value of a key wins.
5. *Rows and place change together*, in one transaction of SQLite. `local_copy.py` tells when a
   store may be read on from its place, and when it is built again.

Windows, joins, and state beyond one machine's disk are work for Spark: see `txn.spark`.
"""

from txn.table.reader import TableReader
from txn.table.serdes import BYTES, JSON, TEXT, Serde
from txn.table.table import Table
from txn.table.view import TableView

__all__ = ["BYTES", "JSON", "TEXT", "Serde", "Table", "TableReader", "TableView"]
