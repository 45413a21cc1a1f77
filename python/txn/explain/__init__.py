"""The state of a transaction and the event that will end it: `txn explain` and `txn transactions`.

`txn.cluster` asks running brokers, `directory` reads the files of a stopped one; both give the
same facts. `verdict` draws the conclusions, `timeline` lists the events in order, `questions` puts
the answers together, `abort` ends a transaction from outside. `txn.cli` prints.
"""
