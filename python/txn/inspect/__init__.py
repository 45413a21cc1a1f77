"""Looking into data directories, txn's and Apache Kafka's: `txn log dump` and `txn log verify`.

`segments`, `indexes` and `texts` read the kinds of files, `records` makes internal records
readable, `layout` says which file is what; `dump` tells what is in them, `verify` whether it
fits together. Nothing here ever writes, locks or syncs a file.
"""
