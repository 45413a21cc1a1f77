"""Versions of requests and responses that kio does not have yet, written as kio writes its own.

They are those that Apache Kafka 4.4 added. `txn.wire.kio` looks here first. A version that a later
kio has is to be taken out.
"""

import txn.wire.kio  # noqa: F401  # kio is made ready before the modules here import it
