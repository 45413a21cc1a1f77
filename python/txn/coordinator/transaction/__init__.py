"""The rules of transactions, pure: what a request may do, and what is written for it.

`states` names the states and their moves, `decide` turns a request into a decision,
`records` is the decision as bytes of `__transaction_state`, `transactions` folds what was
written (`apply`), `timeouts` says when something is due. `txn.broker.txn_coordinator` carries
them out.
"""
