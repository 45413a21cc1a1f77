"""The rules of transactions, pure: the requests allowed, and the records written for them.

`states` names the states and their moves, `decide` turns a request into a decision, `records` is
the decision as bytes of `__transaction_state`. `store` folds written records (`replay`),
`timeouts` computes deadlines. `txn.broker.transactions` carries them out.
"""
