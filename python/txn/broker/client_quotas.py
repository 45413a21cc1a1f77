"""The quotas that bind clients: published to the sockets, and enforced here for changes of topics.

The sockets count bytes and time against the published table (`rust/txn-net/src/quotas/mod.rs`).
Partitions that a client makes or deletes are counted here, in Kafka's token buckets. A bucket has
room for the partitions of a whole window. A request may overdraw it once.

Source: KIP-599; Apache Kafka 4.2, ControllerMutationQuotaManager and TokenBucket.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from txn.broker.host import Context
from txn.broker.shell import Catalog, ClientQuota
from txn.config import BrokerSettings
from txn.metadata.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Quotas,
    binding,
)

KINDS: Final = {
    PRODUCER_BYTE_RATE: "Produce",
    CONSUMER_BYTE_RATE: "Fetch",
    REQUEST_PERCENTAGE: "Request",
}
"""Key → the kind of quota that the sockets count."""

CLIENT_ID_KEPT: Final = 255
"""Characters of a client id that distinguish buckets; a client may send 32 KB of it."""

BUCKETS_MAX: Final = 10_000
"""Buckets that are kept; the one that was idle for longest goes first. It is full when its client
comes back. A client that invents client ids gains nothing by that."""

WAIT_MS_MAX: Final = 2**31 - 1
"""The throttle time in answers has 32 bits."""


@dataclass(slots=True)
class _Bucket:
    """Partitions that a client may make or delete now; negative while it has to wait."""

    tokens: float
    filled_ms: int


class ClientQuotas:
    """The published quotas, and the buckets of the clients that change topics.

    Args:
        settings: Have the windows.
        monotonic_ms: Tells the time.
        catalog: The sockets.
    """

    def __init__(
        self, settings: BrokerSettings, monotonic_ms: Callable[[], int], catalog: Catalog
    ) -> None:
        self._settings = settings
        self._monotonic_ms = monotonic_ms
        self._catalog = catalog
        self._quotas: Quotas = {}
        self._buckets: OrderedDict[tuple[str | None, str | None], _Bucket] = OrderedDict()
        self.counts_time = False
        """There is a quota of the time that requests take."""
        self.counts_mutations = False
        """There is a quota of partitions made and deleted."""
        self.takes_toll = False
        """There is one of the two: each request has a toll."""
        self.throttled_requests = 0
        self.throttled_ms = 0
        """Requests throttled for their mutations, and for how long."""

    def publish(self, quotas: Quotas) -> None:
        """Apply quotas to the next request of every client."""
        self._quotas = quotas
        keys = {key for values in quotas.values() for key in values}
        self.counts_time = REQUEST_PERCENTAGE in keys
        self.counts_mutations = CONTROLLER_MUTATION_RATE in keys
        self.takes_toll = self.counts_time or self.counts_mutations
        if not self.counts_mutations:
            self._buckets.clear()
        self._catalog.publish_quotas(
            [
                ClientQuota(
                    KINDS[key],
                    (parts[USER],) if USER in parts else None,
                    (parts[CLIENT_ID],) if CLIENT_ID in parts else None,
                    value,
                )
                for entity, values in quotas.items()
                for parts in (dict(entity),)
                for key, value in values.items()
                if key in KINDS and value > 0  # another broker may have stored any number
            ],
            samples=self._settings["quota.window.num"],
            length_s=self._settings["quota.window.size.seconds"],
        )

    def mutations(self, context: Context, *, strict_from: int) -> "Mutations":
        """The quota of a request that makes or deletes partitions.

        Args:
            context: Of the request.
            strict_from: The first version of its API that a client over its quota is refused in.
                Earlier ones are carried out, and throttled.
        """
        return Mutations(self, context, is_strict=context.api_version >= strict_from)

    def note_throttled(self, throttle_ms: int) -> None:
        """A request was throttled for its mutations."""
        self.throttled_requests += 1
        self.throttled_ms += throttle_ms

    def spend(self, context: Context, partitions: int, *, is_strict: bool) -> int:
        """Spend tokens of a client; return the milliseconds that it has to wait for.

        A strict bucket that is overdrawn already gives none. Others give all.
        """
        _, _, user = context.session.principal.partition(":")
        entity = binding(self._quotas, CONTROLLER_MUTATION_RATE, user, context.client_id)
        if entity is None:
            return 0
        parts = dict(entity)
        rate = self._quotas[entity][CONTROLLER_MUTATION_RATE]
        if not rate > 0:  # another broker may have stored any number
            return 0
        client_id = context.client_id[:CLIENT_ID_KEPT]
        place = (user if USER in parts else None, client_id if CLIENT_ID in parts else None)
        bucket = self._filled(place, rate)
        is_refused = is_strict and bucket.tokens < 0
        if not is_refused:
            bucket.tokens -= partitions
        if is_refused or (not is_strict and bucket.tokens < 0):
            return round(min(-bucket.tokens / rate * 1000, WAIT_MS_MAX))
        return 0

    def _filled(self, place: tuple[str | None, str | None], rate: float) -> _Bucket:
        samples: int = self._settings["controller.quota.window.num"]
        burst = rate * samples * self._settings["controller.quota.window.size.seconds"]
        now_ms = self._monotonic_ms()
        bucket = self._buckets.get(place)
        if bucket is None:
            bucket = self._buckets[place] = _Bucket(burst, now_ms)
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(place)
        elapsed_s = (now_ms - bucket.filled_ms) / 1000
        bucket.tokens = min(burst, bucket.tokens + rate * elapsed_s)
        bucket.filled_ms = now_ms
        return bucket


class Mutations:
    """The quota of one request that makes or deletes partitions."""

    __slots__ = ("_context", "_is_strict", "_quotas")

    def __init__(self, quotas: ClientQuotas, context: Context, *, is_strict: bool) -> None:
        self._quotas = quotas
        self._context = context
        self._is_strict = is_strict

    def accept(self, partitions: int) -> bool:
        """Count partitions to be made or deleted; False: the client is over its quota."""
        toll = self._context.toll
        if toll is None or not self._quotas.counts_mutations:
            return True
        wait_ms = self._quotas.spend(self._context, partitions, is_strict=self._is_strict)
        toll.throttle_ms = max(toll.throttle_ms, wait_ms)
        return not (self._is_strict and wait_ms)
