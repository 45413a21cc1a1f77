"""Every way a coordinator and its clients can meet, within small bounds.

Not random histories but all of them. The search is breadth-first over the states of one
transactional id, the clients that use it, and the connections between. The rules are the real ones
(`txn.coordinator.transaction`); around them everything is as small as it can be:

* A client initializes, then runs transactions one after another: join a partition, end it
  (commit and abort are both tried), perhaps initialize again as after an abort (KIP-360).
  It waits for each answer. When it gives up waiting it closes the connection, opens a new one
  and sends the same request again.
* The first client may have a pool: connections that it opened at its start. It sends each request
  over any of them.
* The first client may commit offsets in its transactions, over a connection of its own to the
  group coordinator. When it gives up waiting for that it asks again, or aborts.
* A connection delivers in order: at once, late, or never; an answer may be lost. Connections
  know nothing of each other, so a request left behind on an old one arrives at any time. Its close
  is known by then, or only where the coordinator waits `CLOSE_MS` for it.
* A second client may take the id over. The coordinator may abort for time, be unable to
  finish a Prepare for a while, and be restarted, which cuts every connection.
* A disk may refuse to force the records of a commit. The coordinator then aborts, perhaps
  with markers that have to wait, and says so; the client asks for the abort and goes on.

The search is breadth-first, so the story it tells of an anomaly is a shortest one:

    late-end         an EndTxn decided another transaction than its own
    late-begin       a request to join opened a transaction after its own was decided
    false-answer     a client was told of an outcome that was not its transaction's
    false-fence      a client was refused for good though it holds the identity in use, or lost
                     that to an abort of the coordinator's own that was not for time
    zombie-commit    a client that was taken over ended a transaction
    false-hang-up    a client was cut off that waited for its answer
    late-offsets     a transaction took offsets of another one
    illegal-move     a record was written that may not follow the one before it
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from txn.coordinator.transaction.connections import ConnectionUse, LatestConnections
from txn.coordinator.transaction.decide import (
    TV1,
    AbortFirst,
    Done,
    End,
    Refuse,
    Write,
    complete,
    decide_add,
    decide_end,
    decide_end_and_bump,
    decide_fence,
    decide_init,
)
from txn.coordinator.transaction.states import (
    NO_TIME_MS,
    PREPARED,
    Txn,
    TxnResult,
    TxnState,
    is_move,
)
from txn.identifiers import ProducerIdAndEpoch
from txn.wire.error_codes import ErrorCode

ID = "pay"
PARTITION = ("t", 0)
FIRST_PRODUCER_ID = 1_000
NEXT_PRODUCER_ID = 1_001
"""Given out when the epochs are used up; within the bounds that happens once."""

OUTCOMES = {outcome.value: outcome for outcome in TxnResult}
RETRIABLE = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE

T = TypeVar("T")

Tag = tuple[int, int]
"""(client, number of its transaction): whose transaction something belongs to."""


class AnomalyError(Exception):
    """Anomalies, which may never happen; the text is the name."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a search."""

    transactions: int = 2
    """Transactions of the first client; those that take over run one."""
    reconnects: int = 2
    """Number for all clients together, as with every other fault."""
    pooled: int = 0
    """Connections of the first client beside its first; it uses all of them in turn."""
    takeovers: int = 0
    timeouts: int = 0
    refusals: int = 0
    """Refusals of the disk to finish a Prepare."""
    unforced: int = 0
    """Refusals of the disk to force the records of a commit."""
    restarts: int = 0
    commits_offsets: bool = False
    """True if the first client may commit offsets in each transaction; it has no pool then."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A client's request: `init`, `join`, `offsets`, `commit` or `abort`."""

    kind: str
    tag: Tag
    producer: ProducerIdAndEpoch | None

    def __str__(self) -> str:
        shown = "" if self.producer is None else f" at epoch {self.producer.producer_epoch}"
        return f"{self.kind} of client {self.tag[0]}, transaction {self.tag[1]}{shown}"


@dataclass(frozen=True, slots=True)
class ModelClient:
    """A client; it waits for the answer to `asks` over its connection."""

    asks: ModelRequest | None
    """None when it has run its transactions or was refused for good."""
    connection: int
    producer: ProducerIdAndEpoch | None = None
    others: tuple[int, ...] = ()
    """The connections of its pool that it is not waiting on."""
    group: int | None = None
    """Its connection to the group coordinator, if it commits offsets."""


@dataclass(frozen=True, slots=True)
class CoordinatorState:
    """Everything there is at one moment."""

    clients: tuple[ModelClient, ...]
    connections: tuple[tuple[ModelRequest, ...], ...]
    """Connections in the order they were opened, each with the requests that were sent and have not
    arrived.
    """
    txn: Txn | None = None
    open_of: Tag | None = None
    """The owner of the open or prepared transaction: the first client that asked to join."""
    held_by: int | None = None
    """The client that initialized last."""
    decided: frozenset[tuple[Tag, TxnResult]] = frozenset()
    waits_for_markers: bool = False
    """A Prepare is on the disk and a partition cannot take its marker yet."""
    given_up: ProducerIdAndEpoch | None = None
    """Whose commit could not be forced, until its next transaction."""
    latest: tuple[ProducerIdAndEpoch, int] | None = None
    """The notes of `LatestConnections` on the id, of the transaction coordinator's use."""
    latest_group: tuple[ProducerIdAndEpoch, int] | None = None
    """The same of the group coordinator's."""
    announced: int = 0
    """Announcements of offsets that it notes; every request to join is one here."""
    left: Bounds = Bounds()
    """Faults that may still happen."""

    def is_closed(self, connection: int) -> bool:
        """Say whether its client has closed a connection."""
        return not any(
            connection in (client.connection, client.group, *client.others)
            for client in self.clients
        )

    def is_decided(self, tag: Tag) -> bool:
        """Say whether a transaction has ended."""
        return any((tag, outcome) in self.decided for outcome in TxnResult)


@dataclass(frozen=True, slots=True)
class FoundAnomaly:
    """An anomaly, and a shortest way to it."""

    anomaly: str
    story: tuple[str, ...]

    def __str__(self) -> str:
        return "\n    ".join((f"{self.anomaly}:", *self.story))


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search."""

    states: int
    found: FoundAnomaly | None


Step = tuple[str, CoordinatorState | AnomalyError]


@dataclass(frozen=True, slots=True)
class Search:
    """All histories of one transactional id within bounds."""

    bounds: Bounds
    versions: tuple[int, ...]
    """Transaction version of each client, `TV1` or `TV2`; the last one's is that of the rest."""
    knows_connections: bool = True
    """True if requests over a connection that its producer has left are refused."""
    knows_closes: bool = True
    """True if a producer has left those connections that it closed; else all earlier ones."""
    serves_left_offsets: bool = False
    """True if offsets over a closed connection are late only if the producer spoke over another."""
    closes_lag: bool = False
    """True if the close of a connection is known only where the rule waits for it."""
    ignores: frozenset[str] = frozenset()
    """Anomalies not to stop at: behind the one that is near may be others."""
    first_epoch: int | None = None
    """The epoch that the id has at the start, to see the epochs used up; None: unknown id."""

    def run(self) -> SearchResult:
        """Visit every state; stop at the first anomaly."""
        start = self._start()
        came_from: dict[CoordinatorState, tuple[CoordinatorState, str] | None] = {start: None}
        waiting = deque([start])
        while waiting:
            state = waiting.popleft()
            for name, following in self._steps(state):
                if isinstance(following, AnomalyError):
                    story = (*_story(came_from, state), name)
                    return SearchResult(len(came_from), FoundAnomaly(str(following), story))
                if following not in came_from:
                    came_from[following] = (state, name)
                    waiting.append(following)
        return SearchResult(len(came_from), None)

    def _start(self) -> CoordinatorState:
        state = _connect(CoordinatorState((), (), left=self.bounds), 0, self.bounds.pooled)
        if self.bounds.commits_offsets:
            group = len(state.connections)
            state = _with_client(state, 0, replace(state.clients[0], group=group))
            state = replace(state, connections=(*state.connections, ()))
        if self.first_epoch is None:
            return state
        known = Txn(
            producer_id=FIRST_PRODUCER_ID,
            producer_epoch=self.first_epoch,
            timeout_ms=1,
            state=TxnState.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIME_MS,
            updated_ms=0,
        )
        return replace(state, txn=known)

    def _report(self, anomaly: str) -> None:
        if anomaly not in self.ignores:
            raise AnomalyError(anomaly)

    # ------------------------------------------------------------ what may happen next

    def _steps(self, state: CoordinatorState) -> Iterator[Step]:
        for connection, sent in enumerate(state.connections):
            if sent:
                yield from self._arrivals(state, connection)
        yield from self._of_clients(state)
        yield from self._of_coordinator(state)

    def _of_clients(self, state: CoordinatorState) -> Iterator[Step]:
        left = state.left
        if left.reconnects:
            spent = replace(state, left=replace(left, reconnects=left.reconnects - 1))
            for index, client in enumerate(state.clients):
                if client.asks is not None:
                    for following in _reconnected(spent, index):
                        yield f"client {index} gives up waiting", following
        if left.takeovers:
            spent = replace(state, left=replace(left, takeovers=left.takeovers - 1))
            yield "another client starts", _connect(spent, len(state.clients))

    def _of_coordinator(self, state: CoordinatorState) -> Iterator[Step]:
        left, txn = state.left, state.txn
        if txn is not None and txn.state in PREPARED:
            yield "the disk is back: complete", _completed(state)
        if txn is not None and txn.state is TxnState.ONGOING and left.timeouts:
            spent = replace(state, left=replace(left, timeouts=left.timeouts - 1))
            fenced = decide_fence(txn, now_ms=0, new_producer_id=_next_producer_id)
            yield (
                "its time is up: abort",
                _completed(_decided(spent, fenced.prepare, TxnResult.ABORT)),
            )
        if left.restarts:
            cut = tuple(() for _ in state.connections)
            left = replace(left, restarts=left.restarts - 1)
            restarted = replace(state, connections=cut, latest=None, given_up=None, left=left)
            restarted = replace(restarted, latest_group=None, announced=0)
            clients = tuple(replace(client, others=()) for client in state.clients)
            yield "restart", replace(restarted, clients=clients)

    def _arrivals(self, state: CoordinatorState, connection: int) -> Iterator[Step]:
        request, *behind = state.connections[connection]
        name = f"connection {connection} delivers: {request}"
        state = replace(state, connections=_with(state.connections, connection, tuple(behind)))
        owner = state.clients[request.tag[0]]
        is_awaited = owner.asks == request and _asks_over(owner, request) == connection
        try:
            for outcome, following, answer in self._handled(state, request, connection):
                yield f"{name}; {outcome}, the answer is lost", following
                if is_awaited:
                    for then in self._answered(following, request, answer):
                        yield f"{name}; {outcome}", then
        except AnomalyError as anomaly:
            yield name, anomaly

    # ------------------------------------------------------------ the coordinator

    def _handled(
        self, state: CoordinatorState, request: ModelRequest, connection: int
    ) -> Iterator[tuple[str, CoordinatorState, "ProducerIdAndEpoch | ErrorCode | None"]]:
        """The coordinator's decision on a request, and its answer; None: it hangs up."""
        if request.kind == "init":
            yield self._initialized(state, request)
            return
        assert request.producer is not None, "only an init shows nothing"
        is_current = state.txn is not None and state.txn.producer == request.producer
        version = self.versions[min(request.tag[0], len(self.versions) - 1)]
        is_noted = version == TV1 and self.knows_connections and is_current
        if is_noted and self._is_late(state, request.producer, request.kind, connection):
            yield "it is late and cut off", state, None
            return
        if is_noted and request.kind == "offsets":
            state = replace(state, latest_group=(request.producer, connection), announced=0)
        elif is_noted:
            state = replace(state, latest=(request.producer, connection))
        if request.kind == "offsets":
            yield self._offered(state, request, request.producer)
        elif request.kind == "join":
            outcome, state, answer = self._joined(state, request, request.producer, version)
            is_announced = self.bounds.commits_offsets and not isinstance(answer, ErrorCode)
            announced = min(2, state.announced + is_announced)
            yield outcome, replace(state, announced=announced), answer
        else:
            yield from self._ended(state, request, request.producer, version)

    def _is_late(
        self, state: CoordinatorState, producer: ProducerIdAndEpoch, kind: str, connection: int
    ) -> bool:
        use = ConnectionUse.OFFSETS if kind == "offsets" else ConnectionUse.TRANSACTION
        latest = state.latest_group if kind == "offsets" else state.latest
        connections = LatestConnections()
        for _ in range(state.announced):
            connections.announce_offsets(ID)
        if latest is not None:
            connections.may_be_late(ID, use, *latest)
        if not connections.may_be_late(ID, use, producer, connection):
            return False
        if not self.knows_closes:
            return connections.is_doubtful(ID, use, connection)
        if self.closes_lag and not connections.is_doubtful(ID, use, connection):
            return False
        has_spoken = latest is not None and latest[0] == producer and latest[1] != connection
        return state.is_closed(connection) and (has_spoken or not self.serves_left_offsets)

    def _offered(
        self, state: CoordinatorState, request: ModelRequest, producer: ProducerIdAndEpoch
    ) -> tuple[str, CoordinatorState, ProducerIdAndEpoch | ErrorCode]:
        """The group coordinator takes offsets into the open transaction, whichever that is."""
        txn = state.txn
        if txn is None or txn.producer != producer:
            return "refused", state, ErrorCode.INVALID_PRODUCER_EPOCH
        if txn.state is not TxnState.ONGOING:
            return "refused", state, ErrorCode.INVALID_TXN_STATE
        if state.open_of != request.tag:
            self._report("late-offsets")
        return "done", state, producer

    def _initialized(
        self, state: CoordinatorState, request: ModelRequest
    ) -> tuple[str, CoordinatorState, ProducerIdAndEpoch | ErrorCode]:
        while True:
            decision = decide_init(
                state.txn,
                request.producer,
                timeout_ms=1,
                now_ms=0,
                new_producer_id=(
                    _next_producer_id if state.txn is not None else lambda: FIRST_PRODUCER_ID
                ),
            )
            if not isinstance(decision, AbortFirst):
                break
            state = _completed(_decided(state, decision.end.prepare, TxnResult.ABORT))
        if isinstance(decision, Refuse):
            return decision.code.name, state, decision.code
        following = _written(state, decision.txn)
        return "done", replace(following, held_by=request.tag[0]), decision.txn.producer

    def _joined(
        self,
        state: CoordinatorState,
        request: ModelRequest,
        producer: ProducerIdAndEpoch,
        version: int,
    ) -> tuple[str, CoordinatorState, ProducerIdAndEpoch | ErrorCode]:
        decision = decide_add(state.txn, producer, [PARTITION], client_version=version, now_ms=0)
        if isinstance(decision, Refuse):
            return decision.code.name, state, decision.code
        if isinstance(decision, Write):
            if state.open_of is None and state.is_decided(request.tag):
                self._report("late-begin")
            state = _written(state, decision.txn)
            state = replace(state, open_of=state.open_of or request.tag)
        return "done", state, producer

    def _decide_end(
        self,
        state: CoordinatorState,
        producer: ProducerIdAndEpoch,
        outcome: TxnResult,
        version: int,
    ) -> Refuse | Done | End:
        if version == TV1:
            return decide_end(state.txn, producer, outcome, now_ms=0)
        return decide_end_and_bump(
            state.txn, producer, outcome, now_ms=0, new_producer_id=_next_producer_id
        )

    def _ended(
        self,
        state: CoordinatorState,
        request: ModelRequest,
        producer: ProducerIdAndEpoch,
        version: int,
    ) -> Iterator[tuple[str, CoordinatorState, ProducerIdAndEpoch | ErrorCode]]:
        outcome = OUTCOMES[request.kind]
        decision = self._decide_end(state, producer, outcome, version)
        if isinstance(decision, Refuse):
            if outcome is TxnResult.COMMIT and state.given_up == producer:
                yield "aborted before", state, ABORTABLE
            elif decision.code is ErrorCode.CONCURRENT_TRANSACTIONS and state.waits_for_markers:
                assert state.txn is not None, "there is a Prepare"
                yield "decided before", state, complete(state.txn, now_ms=0).producer
            else:
                yield decision.code.name, state, decision.code
            return
        if isinstance(decision, Done):
            yield "done before", state, decision.txn.producer
            return
        if state.open_of not in (None, request.tag):
            self._report("late-end")
        if state.held_by != request.tag[0]:
            self._report("zombie-commit")
        if outcome is TxnResult.COMMIT and state.left.unforced:
            yield from self._given_up(state, producer, version)
        prepared = _decided(state, decision.prepare, outcome)
        following = decision.following
        yield "done", _completed(prepared), following
        if state.left.refusals:
            left = replace(state.left, refusals=state.left.refusals - 1)
            waiting = replace(prepared, left=left, waits_for_markers=True)
            yield "done but for a marker", waiting, following
        if state.left.refusals:
            left = replace(state.left, refusals=state.left.refusals - 1)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            yield "decided, but the disk refuses", replace(prepared, left=left), code

    def _given_up(
        self, state: CoordinatorState, producer: ProducerIdAndEpoch, version: int
    ) -> Iterator[tuple[str, CoordinatorState, ErrorCode]]:
        """A transaction that cannot be forced is aborted, as its client is going to ask for it."""
        left = replace(state.left, unforced=state.left.unforced - 1)
        state = replace(state, left=left, given_up=producer)
        decision = self._decide_end(state, producer, TxnResult.ABORT, version)
        assert isinstance(decision, End), "it could be committed"
        if version == TV1 and decision.following != producer:
            self._report("false-fence")  # no answer of this version names another
        prepared = _decided(state, decision.prepare, TxnResult.ABORT)
        waiting = replace(prepared, waits_for_markers=True)
        yield "not to be forced: aborted", _completed(prepared), ABORTABLE
        yield "not to be forced: abort decided", waiting, ABORTABLE

    # ------------------------------------------------------------ the client

    def _answered(
        self,
        state: CoordinatorState,
        request: ModelRequest,
        answer: "ProducerIdAndEpoch | ErrorCode | None",
    ) -> Iterator[CoordinatorState]:
        """Where a client goes from an answer: everywhere it might."""
        index, number = request.tag
        client = state.clients[index]
        if answer is None:
            self._report("false-hang-up")
            yield from _reconnected(state, index)
        elif isinstance(answer, ErrorCode):
            if answer in RETRIABLE:
                yield from _sent(state, index, request)
                return
            if answer is ABORTABLE:
                yield from _sent(state, index, replace(request, kind=TxnResult.ABORT.value))
                return
            if state.txn is not None and client.producer == state.txn.producer:
                self._report("false-fence")
            yield _with_client(state, index, replace(client, asks=None))
        else:
            state = _with_client(state, index, replace(client, producer=answer))
            if request.kind == "join" and client.group is not None:
                yield from _sent(state, index, ModelRequest("offsets", request.tag, answer))
            if request.kind in ("join", "offsets"):
                for kind in OUTCOMES:
                    yield from _sent(state, index, ModelRequest(kind, request.tag, answer))
                return
            if request.kind in OUTCOMES:
                is_committed = (request.tag, TxnResult.COMMIT) in state.decided
                if is_committed != (request.kind == TxnResult.COMMIT.value):
                    self._report("false-answer")
                number += 1
            if number == (self.bounds.transactions if index == 0 else 1):
                client = replace(state.clients[index], asks=None)
                yield _with_client(state, index, client)
                return
            yield from _sent(state, index, ModelRequest("join", (index, number), answer))
            if request.kind == TxnResult.ABORT.value:
                yield from _sent(state, index, ModelRequest("init", (index, number), answer))


# ---------------------------------------------------------------- steps of a state


def _written(state: CoordinatorState, txn: Txn) -> CoordinatorState:
    if not is_move(state.txn, txn):
        raise AnomalyError("illegal-move")
    if txn.state in (TxnState.EMPTY, TxnState.ONGOING):
        state = replace(state, given_up=None)
    return replace(state, txn=txn)


def _decided(state: CoordinatorState, prepared: Txn, outcome: TxnResult) -> CoordinatorState:
    decided = state.decided
    if state.open_of is not None:
        decided |= {(state.open_of, outcome)}
    return replace(_written(state, prepared), open_of=None, decided=decided)


def _completed(state: CoordinatorState) -> CoordinatorState:
    assert state.txn is not None, "there is a Prepare"
    completed = _written(state, complete(state.txn, now_ms=0))
    return replace(completed, waits_for_markers=False)


def _connect(state: CoordinatorState, client: int, pooled: int = 0) -> CoordinatorState:
    """A client that starts: it initializes over the first of its connections."""
    request = ModelRequest("init", (client, 0), None)
    first = len(state.connections)
    others = tuple(range(first + 1, first + 1 + pooled))
    return replace(
        state,
        clients=(*state.clients, ModelClient(request, first, others=others)),
        connections=(*state.connections, (request,), *(() for _ in others)),
    )


def _reconnected(state: CoordinatorState, index: int) -> Iterator[CoordinatorState]:
    """A client closes its connection, which leaves its request behind, and asks again.

    It asks over a new connection or over another of its pool.
    """
    client = state.clients[index]
    assert client.asks is not None, "it waits for something"
    opened = len(state.connections)
    following = replace(state, connections=(*state.connections, ()))
    if client.asks.kind == "offsets":
        following = _with_client(following, index, replace(client, group=opened))
        yield _asked(following, index, client.asks)
        yield _asked(following, index, replace(client.asks, kind=TxnResult.ABORT.value))
        return
    fresh = replace(client, connection=opened)
    yield _asked(_with_client(following, index, fresh), index, client.asks)
    for other in client.others:
        others = tuple(each for each in client.others if each != other)
        pooled = replace(client, connection=other, others=others)
        yield _asked(_with_client(state, index, pooled), index, client.asks)


def _sent(state: CoordinatorState, index: int, request: ModelRequest) -> Iterator[CoordinatorState]:
    """A client sends its next request, over each of its connections."""
    client = state.clients[index]
    own = sorted((client.connection, *client.others))
    for connection in own:
        others = tuple(each for each in own if each != connection)
        using = replace(client, connection=connection, others=others)
        yield _asked(_with_client(state, index, using), index, request)


def _asked(state: CoordinatorState, index: int, request: ModelRequest) -> CoordinatorState:
    client = state.clients[index]
    connection = _asks_over(client, request)
    sent = (*state.connections[connection], request)
    state = _with_client(state, index, replace(client, asks=request))
    return replace(state, connections=_with(state.connections, connection, sent))


def _asks_over(client: ModelClient, request: ModelRequest) -> int:
    """The connection of a client to the coordinator of a request."""
    if request.kind != "offsets":
        return client.connection
    assert client.group is not None, "it commits offsets"
    return client.group


def _with_client(state: CoordinatorState, index: int, client: ModelClient) -> CoordinatorState:
    return replace(state, clients=_with(state.clients, index, client))


def _with(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])


def _next_producer_id() -> int:
    return NEXT_PRODUCER_ID


def _story(
    came_from: dict[CoordinatorState, tuple[CoordinatorState, str] | None], state: CoordinatorState
) -> tuple[str, ...]:
    steps = []
    while (before := came_from[state]) is not None:
        state, name = before
        steps.append(name)
    return tuple(reversed(steps))
