"""Both brokers, asked in lockstep.

`Pair.ask` sends one request to txn, then to Apache Kafka, and compares the answers. Each
difference is either accepted (`known.py`) or kept in `differences`, which fails the test.

Kafka ends a transaction behind its answer: until the markers are written it answers
CONCURRENT_TRANSACTIONS. txn never does, since its markers come first. So Kafka is asked again until
it has settled, which is noted as an accepted difference. After EndTxn the pair waits for Kafka's
markers, so that the next requests see the same logs on both sides.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from differential.accepted import KNOWN
from differential.batches import batches
from differential.known import ASKED_AGAIN, Exchange, KnownDifference, SentBatches, accepted_by
from differential.names import KIND_OF_FIELD, Name
from differential.plain import Difference, differences, error_codes
from differential.side import Side
from support.clients import POLL_S

SETTLE_S: Final = 20.0
PARTITIONS: Final = 2

HANDS_OUT: Final = {
    "InitProducerId": "producer_id",
    "EndTxn": "producer_id",
    "Fetch": "session_id",
}
"""APIs whose answers hold values that the broker has just made up."""

LOADING: Final = {"coordinator_load_in_progress", "coordinator_not_available", "not_coordinator"}
"""Answers of Kafka's coordinators while their node starts: no difference, only too early."""

NOT_YET: Final = {"concurrent_transactions", *LOADING}

TURNED_AWAY: Final = {
    *("invalid_producer_id_mapping", "invalid_producer_epoch", "invalid_request"),
    *("invalid_txn_state", "transaction_abortable", "concurrent_transactions"),
}
"""Kafka's answer to a batch that its coordinator does not verify."""

API_KEYS: Final = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "OffsetCommit": 8,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "ApiVersions": 18,
    "CreateTopics": 19,
    "DeleteTopics": 20,
    "DeleteRecords": 21,
    "InitProducerId": 22,
    "OffsetForLeaderEpoch": 23,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "WriteTxnMarkers": 27,
    "TxnOffsetCommit": 28,
    "DescribeProducers": 61,
    "DescribeTransactions": 65,
    "ListTransactions": 66,
}


@dataclass(slots=True)
class Pair:
    """txn and Apache Kafka.

    Attributes:
        known: The differences that are accepted.
        accepted: The names of the accepted differences that occurred, over all scripts.
        differences: Findings of the script in hand that no entry accepted.
        history: Its requests and, where both agree, its answers, for the report.
        has_diverged: An accepted difference left the brokers in different states, so that
            later answers say nothing.
    """

    txn: Side
    kafka: Side
    known: Sequence[KnownDifference] = KNOWN
    suffix: str = ""
    accepted: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    has_diverged: bool = False
    requests: int = 0
    _past: SentBatches = field(default_factory=SentBatches)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def begin(self, suffix: str) -> None:
        """Begin a script: names are its own, earlier events are forgotten."""
        self.suffix = suffix
        self.differences = []
        self.history = []
        self.has_diverged = False
        self._past = SentBatches()
        self._numbers = itertools.count(1)
        self.txn.forget_names()
        self.kafka.forget_names()

    def own(self, name: str) -> str:
        """A topic, group or transactional id that only this script uses."""
        return f"{name}-{self.suffix}"

    def tag(self, tags: bytes) -> None:
        """Send these tagged fields in every structure and header, up to the script's end."""
        self.txn.tags = self.kafka.tags = tags

    # ------------------------------------------------------------ asking

    def ask(self, api: str, version: int, **values: Any) -> dict[str, Any]:
        """Send a request to both; return txn's answer, with names for the values that txn chose."""
        key = API_KEYS[api]
        ours = self.txn.ask(key, version, values)
        theirs, waits = self._settled_kafka(api, version, values, ours)
        self._name_what_is_new(api, ours, theirs)
        self._compare(Exchange(api, version, values, ours, theirs, waits, self._past))
        if api == "Produce":
            self._note_sent(values, ours, theirs)
        return ours

    def _note_sent(
        self, produce: Mapping[str, Any], ours: Mapping[str, Any], theirs: Mapping[str, Any]
    ) -> None:
        if error_codes(theirs) & TURNED_AWAY:
            self._past.turned_away.update(batch.producer_id for _, batch in batches(produce))
        told = [one for topic in ours.get("responses", ()) for one in topic["partition_responses"]]
        stored = {one["index"] for one in told if one["error_code"] == "none"}
        self._past.stored.update(
            (index, *batch.sent) for index, batch in batches(produce) if index in stored
        )

    def ask_bytes(self, api: str, version: int, body: bytes) -> dict[str, Any]:
        """Send bytes in place of a request's body to both."""
        ours = self.txn.ask_bytes(API_KEYS[api], version, body)
        theirs = self.kafka.ask_bytes(API_KEYS[api], version, body)
        self._name_what_is_new(api, ours, theirs)
        self._compare(Exchange(api, version, {"body": body.hex()}, ours, theirs))
        return ours

    def ask_raw(self, what: str, data: bytes) -> dict[str, Any]:
        """Send bytes in place of a frame to both, each on a connection of its own."""
        ours, theirs = self.txn.raw(data), self.kafka.raw(data)
        self._compare(Exchange(what, 0, {"bytes": data.hex()}, ours, theirs))
        return ours

    def _settled_kafka(
        self, api: str, version: int, values: Mapping[str, Any], ours: Mapping[str, Any]
    ) -> tuple[dict[str, Any], set[str]]:
        """Kafka's answer once it has settled, and its earlier ones."""
        unsettled = NOT_YET - error_codes(ours)
        if api == "Produce" and version < 12:  # how these versions say it
            unsettled = unsettled | ({"not_enough_replicas"} - error_codes(ours))
        said: set[str] = set()
        deadline = time.monotonic() + SETTLE_S
        while True:
            answer = self.kafka.ask(API_KEYS[api], version, values)
            waits = error_codes(answer) & unsettled
            if not waits or time.monotonic() > deadline:
                return answer, said
            said |= waits - LOADING

    def until(self, is_so: Callable[[Side], bool]) -> None:
        """Wait for something to have happened on each broker; fails after a while."""
        for side in (self.txn, self.kafka):
            deadline = time.monotonic() + SETTLE_S
            while not is_so(side):
                assert time.monotonic() < deadline, f"{side.servers} does not come to it"
                time.sleep(POLL_S)

    def state_on(self, side: Side, transactional_id: str) -> str:
        """Where a transactional id stands on one broker."""
        answer = side.ask(
            API_KEYS["DescribeTransactions"], 0, {"transactional_ids": [transactional_id]}
        )
        return str(answer["transaction_states"][0]["transaction_state"])

    def settle(self, transactional_id: str) -> None:
        """Wait until no end of a transaction is under way."""
        self.until(lambda side: not self.state_on(side, transactional_id).startswith("Prepare"))

    # ------------------------------------------------------------ comparing

    def _name_what_is_new(self, api: str, ours: Any, theirs: Any) -> None:
        """Give a value that both brokers have just handed out its name, in both answers."""
        name = HANDS_OUT.get(api)
        if name is None:
            return
        one, other = ours.get(name), theirs.get(name)
        none = 0 if name == "session_id" else -1
        if isinstance(one, int) and isinstance(other, int) and none not in (one, other):
            fresh = Name(KIND_OF_FIELD[name], next(self._numbers))
            self.txn.names.bind(fresh, one)
            self.kafka.names.bind(fresh, other)
            ours[name] = theirs[name] = fresh

    def _compare(self, exchange: Exchange) -> None:
        self.requests += 1
        found = list(differences(exchange.txn, exchange.kafka))
        found += [Difference(ASKED_AGAIN, ASKED_AGAIN, None, said) for said in exchange.waits]
        said = f"{exchange.api} v{exchange.version} {short(exchange.request)}"
        if not found:
            self.history.append(f"{said}\n      both: {short(exchange.txn)}")
            return
        left, accepted = accepted_by(self.known, exchange, found)
        for entry in accepted:
            self._note(entry.name)
            self.has_diverged |= entry.diverges
        names = ", ".join(entry.name for entry in accepted)
        self.history.append(
            f"{said}\n      txn: {short(exchange.txn)}\n      Kafka: {short(exchange.kafka)}"
            + (f"\n      accepted: {names}" if accepted else "")
        )
        if left and not self.has_diverged:
            self.differences += self._told(said, left)

    def _told(self, said: str, left: list[Difference]) -> list[str]:
        return [f"{said}\n   {difference}" for difference in left]

    def _note(self, name: str) -> None:
        self.accepted[name] = self.accepted.get(name, 0) + 1

    def report(self) -> str:
        """The script's findings, and the way to them."""
        lines = "\n".join(f"  {n}. {line}" for n, line in enumerate(self.history, 1))
        return "\n".join([*self.differences, "after", lines])


def short(value: Any) -> str:
    """A value on one line, for reports."""
    text = str(value)
    return text if len(text) < 600 else f"{text[:600]}…"
