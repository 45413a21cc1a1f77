"""Every API this broker answers, bound to the node that answers it.

ApiVersions announces the entries of this table, with Produce and Fetch, and no others. A module
that declares APIs is loaded for its first request, or by `txn.server.lifecycle.preload`. All of
them would make a start a fifth longer.
"""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from txn.broker.apis.index import APIS_BY_MODULE
from txn.broker.host import Context
from txn.config import BrokerSettings
from txn.wire.api_keys import ApiKey
from txn.wire.encoding import Body

if TYPE_CHECKING:
    from txn.broker.apis.api import Area
    from txn.broker.node import Node

Reply = Body | bytes
"""A response, or its body already encoded."""

Versions = tuple[int, int]
"""First and last version."""

SERVED_BY_REACTORS: Final[dict[int, Versions]] = {ApiKey.PRODUCE: (3, 13), ApiKey.FETCH: (4, 18)}
"""Answered in Rust, without Python."""

TWO_PHASE_FROM: Final = 6
"""The first version of InitProducerId with two-phase commit (KIP-939). As in Kafka, clients learn
of it only where that is enabled."""


def served_in_python(settings: BrokerSettings) -> dict[int, Versions]:
    """The versions of each API that Python code answers, under the settings of a broker."""
    served = {key: versions for apis in APIS_BY_MODULE.values() for key, versions in apis.items()}
    if not settings["transaction.two.phase.commit.enable"]:
        served[ApiKey.INIT_PRODUCER_ID] = (0, TWO_PHASE_FROM - 1)
    return served


class Answerer(NamedTuple):
    """The types of an API, and the function that answers it."""

    request: type
    response: type
    answer: Callable[[object, Context], Coroutine[object, None, Reply]]


class BoundApi:
    """One API with the service that answers it.

    Args:
        key: Its key.
        versions: First and last version that is answered.
        load: Loads the rest, by the key, with the first request.
    """

    def __init__(self, key: int, versions: Versions, load: Callable[[int], Answerer]) -> None:
        self._key = key
        self.versions = versions
        self.served = range(versions[0], versions[1] + 1)
        """The versions that are answered."""
        self._load = load
        self._answerer: Answerer | None = None

    # Without `functools.cached_property`: its lock, one for all APIs, would be held for ever in a
    # child that is forked while a thread loads.

    @property
    def answerer(self) -> Answerer:
        """The types and the handler. Raises OSError where their module cannot be read."""
        if self._answerer is None:
            self._answerer = self._load(self._key)
        return self._answerer


def build_table(node: "Node") -> Mapping[int, BoundApi]:
    """Bind every API to the node, or to the coordinator of the node that answers it."""
    versions = served_in_python(node.settings)
    table: dict[int, BoundApi] = {}
    for module, apis in APIS_BY_MODULE.items():
        load = partial(_answerer, node, module)
        table |= {key: BoundApi(key, versions[key], load) for key in apis}
    return table


def area_of(module: str) -> "Area[object]":
    """The APIs that a module of this package declares. Raises OSError where it cannot be read."""
    area: Area[object] = import_module(f"txn.broker.apis.{module}").APIS
    return area


def _answerer(node: "Node", module: str, key: int) -> Answerer:
    return area_of(module).answerer(key, node)
