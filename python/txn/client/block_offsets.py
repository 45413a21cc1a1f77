"""The consumers of a block: their offsets, which commit with it, and their way back after an abort.

Invariant: a consumer that may stand beyond its committed offsets is known here until it was
committed or rewound, also after its block has ended (`_ahead`). Three rules follow:

1. A new block rewinds its consumer first, if the last block left it so.
2. The offsets of one consumer belong to one open block. Another block is refused.
3. A transaction that was not seen to send its offsets cannot commit. librdkafka may never come
   back from sending them, so it is called on a thread of its own (`bounded_call.py`). Its producer
   is given up then.

Sources: KIP-98 (offsets in transactions), KIP-447 (group metadata fences them).
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NoReturn

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from txn.client.block_consumer import (
    PlainState,
    join,
    lost_partitions_text,
    reached_by,
    rewind,
    state_of,
)
from txn.client.block_state import BlockState, OpenBlock
from txn.client.bounded_call import BoundedCall
from txn.client.cautions import Cautions
from txn.client.consumer import Consumer
from txn.client.deadline import PAUSE_SECONDS, Deadline
from txn.client.failures import StateLostError, error_of, may_retry
from txn.client.handle import Handle
from txn.client.outcomes import Outcomes
from txn.client.positions import Offsets
from txn.errors import AbortableError, RejectedError
from txn.identifiers import TopicPartition as Place

JOIN_SECONDS_MAX: Final = 10.0

OFFSETS_GRACE_SECONDS: Final = 5.0
"""Time past its own timeout that librdkafka may take to send offsets before it is given up."""

_ahead: dict[int, tuple[confluent_kafka.Consumer, OpenBlock]] = {}
"""Consumers that may stand beyond their committed offsets, by identity, and their block: from its
begin until it has committed or the consumer is rewound. One found here by a new block is rewound
first. Consumers that only sent offsets come here when the block has ended without either."""


class BlockOffsets:
    """The consumers of one block, and the offsets that it sends for them.

    Args:
        state: The state of the block.
        consumer: The block's own consumer.
        handle: The engine of its producer.
        outcomes: Of the producer's records.
        cautions: Warns about a plain consumer.
    """

    def __init__(
        self,
        state: BlockState,
        consumer: confluent_kafka.Consumer | None,
        handle: Handle,
        outcomes: Outcomes,
        cautions: Cautions,
    ) -> None:
        self._state = state
        self._place = state.place
        self._consumer = consumer
        self._handle = handle
        self._outcomes = outcomes
        self._cautions = cautions
        self._before: PlainState | None = None
        self._sends_positions = consumer is not None
        self._sent: dict[Consumer, dict[Place, int]] = {}  # offsets sent, by the block's consumers
        self._sending: BoundedCall | None = None  # offsets, until they are known to be sent
        self.has_sent = False
        """Whether offsets were sent, or may have been."""

    @property
    def has_own_consumer(self) -> bool:
        """True if the block was given a consumer at its begin."""
        return self._consumer is not None

    # ------------------------------------------------------------ the begin

    def prepare(self) -> None:
        """Make the block's own consumer ready, before the transaction begins."""
        consumer = self._consumer
        if consumer is None:
            return
        try:
            if id(consumer) in _ahead or isinstance(consumer, Consumer):
                self._require_free(consumer)
            if id(consumer) in _ahead:
                self._rewind(consumer)
            if isinstance(consumer, Consumer):
                consumer.memberid()  # raises for one that is closed
            else:
                self._cautions.of_plain_consumer()
                join(consumer, Deadline(min(self._state.timeout, JOIN_SECONDS_MAX)))
            self._before = state_of(consumer)
            _ahead[id(consumer)] = consumer, self._place
        except KafkaException as raised:
            raise self._handle.failure(error_of(raised), "making its consumer ready") from raised
        except RuntimeError as raised:
            raise RejectedError(
                f"the consumer of {self._handle.whose} is closed; open another"
            ) from raised

    def note_begun(self) -> None:
        """Let the block's own consumer know its block, after the transaction began."""
        if isinstance(self._consumer, Consumer):
            self._watch(self._consumer)

    # ------------------------------------------------------------ the body

    def send(
        self, offsets: Sequence[TopicPartition], consumer: confluent_kafka.Consumer, timeout: float
    ) -> None:
        """Send offsets of the program's own choice; see `Transaction.send_offsets`."""
        if consumer is self._consumer:
            self._sends_positions = False
        elif not isinstance(consumer, Consumer):
            self._cautions.of_plain_consumer()
        elif consumer not in self._sent:
            self._add(consumer)
        self._send(offsets, consumer, Deadline(timeout))

    def note_sent(
        self, offsets: Sequence[TopicPartition], consumer: confluent_kafka.Consumer
    ) -> None:
        """Remember offsets that `send` has sent."""
        if isinstance(consumer, Consumer) and consumer in self._sent:
            self._sent[consumer].update(_by_place(offsets))

    def _add(self, consumer: Consumer) -> None:
        """Add a consumer to the block: an abort rewinds it with the others."""
        self._require_free(consumer)
        assert self._state.begun_at is not None
        if consumer._positions.has_committed_since(self._state.begun_at):
            raise RejectedError(
                f"the consumer of group {consumer.group_id!r} has committed outside of the open "
                "transaction that sends its offsets, so an abort loses those records. Leave "
                "`commit` out: the end of the block commits"
            )
        self._place.others.append(consumer)
        self._watch(consumer)
        if id(consumer) in _ahead:
            raise AbortableError(
                f"the consumer of group {consumer.group_id!r} was not rewound after an earlier "
                "block, so records of it are missing here. The transaction cannot commit; begin "
                "another"
            )

    def _watch(self, consumer: Consumer) -> None:
        assert self._state.begun_at is not None
        self._sent[consumer] = {}
        consumer._positions.note_begun(self._state.begun_at, self._place.is_open)

    def _require_free(self, consumer: confluent_kafka.Consumer) -> None:
        """Refuse a consumer whose offsets another open block commits, with its own or without."""
        if isinstance(consumer, Consumer):
            is_free = not consumer._positions.in_block()
        else:
            is_free = not _ahead[id(consumer)][1].is_open()
        if not is_free:
            raise RejectedError(
                f"{self._handle.whose} cannot use the consumer of another open block: each "
                "would commit records of the other. Leave that block first, or give each a consumer"
            )

    # ------------------------------------------------------------ the end

    @property
    def is_sending(self) -> bool:
        """True if offsets were not seen to be sent."""
        return self._sending is not None

    def require_others_kept(self) -> None:
        """Raise AbortableError if one of the other consumers has lost records."""
        for other in self._place.others:
            self._require_kept(other._positions.describe_loss())

    def send_positions(self, deadline: Deadline) -> Offsets:
        """Send how far the consumer has read, and return it.

        A block that did nothing, with a consumer that is where the last block left it, sends
        nothing: its transaction then costs the cluster nothing at all.
        """
        consumer = self._consumer
        if consumer is None:
            return {}
        try:
            has_produced = self._state.produced > 0
            reason = lost_partitions_text(consumer, self._before, produced=has_produced)
            reached = reached_by(consumer)
        except KafkaException as raised:
            doing = "asking how far its consumer has read"
            raise self._handle.failure(error_of(raised), doing) from raised
        except RuntimeError as raised:
            raise RejectedError(
                f"the consumer of {self._handle.whose} is closed, and the block has to ask how "
                "far it has read. Close it after the block"
            ) from raised
        self._require_kept(reason)
        if not self._sends_positions:
            return {}
        if (
            isinstance(consumer, Consumer)
            and (nowhere := consumer._positions.describe_unknown_positions()) is not None
        ):
            raise RejectedError(
                f"the consumer of {self._handle.whose} was sought, or assigned again, in "
                f"{nowhere} to no offset that the transaction could commit, after records of it "
                "were handed out. Seek or assign to an offset, or send offsets of your own choice"
            )
        offsets = _by_place(reached)
        if isinstance(consumer, Consumer):
            self._sent[consumer].update(offsets)
        did_nothing = self._state.produced == 0 and not self.has_sent
        if did_nothing and self._handle.blocks.last_sent == (consumer, offsets):
            return offsets
        if reached:
            self._send(reached, consumer, deadline)
        return offsets

    def _require_kept(self, loss: str | None) -> None:
        if loss is not None:
            raise AbortableError(
                f"the consumer of {self._handle.whose} changed partitions: {loss}. "
                "The transaction cannot commit; begin another",
            )

    def _send(
        self,
        offsets: Sequence[TopicPartition],
        consumer: confluent_kafka.Consumer,
        deadline: Deadline,
    ) -> None:
        client = self._handle.client()
        self.has_sent = True
        metadata = consumer.consumer_group_metadata()
        # Retried with the same offsets and metadata: a request whose answer was lost may have
        # been carried out.
        while True:
            seconds = max(PAUSE_SECONDS, deadline.remaining)
            self._sending = BoundedCall(
                partial(client.send_offsets_to_transaction, list(offsets), metadata, seconds)
            )
            try:
                if self._sending.run(Deadline(seconds + OFFSETS_GRACE_SECONDS)):
                    break
            except KafkaException as raised:
                error = error_of(raised)
                if not may_retry(error) or deadline.has_passed:
                    self._outcomes.raise_undelivered_behind(error)
                    raise self._handle.failure(error, "sending offsets") from raised
            else:
                self._give_up(deadline)
            self._handle.serve(deadline)
        self._sending = None

    def _give_up(self, deadline: Deadline) -> NoReturn:
        failure = StateLostError(
            f"{self._handle.whose} sent offsets, and librdkafka has not come back from it "
            f"within {deadline.seconds:g} s. The transaction is not committed; close this "
            "producer and open another with its transactional id, which aborts it"
        )
        self._handle.give_up(failure)
        raise failure

    def note_asked(self) -> None:
        """Note that a commit is about to be asked for."""
        for consumer, offsets in self._sent.items():
            consumer._positions.note_asked(offsets)

    def note_committed(self, sent: Offsets) -> None:
        """Note that the block has committed, with the positions that `send_positions` gave."""
        if self._consumer is not None:
            last_sent = (self._consumer, sent) if self._sends_positions else None
            self._handle.blocks.last_sent = last_sent
        for consumer, offsets in self._sent.items():
            consumer._positions.note_committed(offsets)
        self._place.others.clear()
        _ahead.pop(id(self._consumer), None)

    def note_refused(self) -> None:
        """Note that a commit, if one was asked for, is known to have failed."""
        for consumer in self._sent:
            consumer._positions.note_refused()

    def are_settled(self) -> bool:
        """Wait until no call can send offsets any more; return whether that is certain."""
        return self._sending is None or self._sending.is_over(Deadline(self._state.timeout))

    def rewind_or_note(self, reason: BaseException) -> None:
        """Rewind every consumer; a failure is added to the reason as a note."""
        own = [] if self._consumer is None else [self._consumer]
        for consumer in (*own, *self._place.others):
            try:
                self._rewind(consumer)
            except RuntimeError:  # it is closed: the group's next member begins where it should
                _ahead.pop(id(consumer), None)
            except Exception as failure:
                reason.add_note(
                    f"The consumer could not be rewound ({failure}); the next transaction with it "
                    "tries again"
                )

    def _rewind(self, consumer: confluent_kafka.Consumer) -> None:
        rewind(consumer, self._state.timeout)
        _ahead.pop(id(consumer), None)
        others = self._place.others
        others[:] = [each for each in others if each is not consumer]

    def leave(self) -> None:
        """Keep consumers that were neither committed nor rewound, for their next block."""
        _ahead.update((id(other), (other, self._place)) for other in self._place.others)


def _by_place(offsets: Iterable[TopicPartition]) -> dict[Place, int]:
    return {(p.topic, p.partition): p.offset for p in offsets}
