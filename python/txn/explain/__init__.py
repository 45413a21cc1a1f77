"""What a transaction is doing and what will end it: `txn explain` and `txn transactions`.

`cluster` asks running brokers, `directory` reads the files of a stopped one; both give the same
`facts`. `verdict` says what follows from them, `timeline` what happened when, `questions` puts
the answers together, `abort` ends a transaction from outside. `txn.cli` prints.
"""
