"""The engines of `txn.Producer` and `txn.Consumer`: most tests of clients run with each."""

from typing import Final

from txn.client.engine import ENGINES, EngineName

ALL: Final[tuple[EngineName, ...]] = ("confluent-kafka", "native")
assert set(ALL) == set(ENGINES)
