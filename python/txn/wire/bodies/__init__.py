"""The requests and responses that Python answers, one module per area.

A request class is a `request_body`, see `txn.wire.requests`; a response class a NamedTuple, see
`txn.wire.encoding`. Each has the fields of all versions, by the names of Kafka's schemas.
`tests/unit/test_bodies.py` holds them against the schemas.
"""
