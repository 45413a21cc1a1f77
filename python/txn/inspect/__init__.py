"""Reads data directories, txn's and Apache Kafka's, for `txn log dump` and `txn log verify`.

`segments`, `indexes` and `texts` read the kinds of files, `records` makes internal records
readable, `layout` names the kind of each file. `dump` prints their contents, `verify` checks that
they fit together. Nothing here ever writes, locks or syncs a file.
"""
