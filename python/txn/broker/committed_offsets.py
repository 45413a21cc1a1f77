"""Committed offsets: who may commit them, their records, and the answers to who asks for them.

A commit is appended to the partition of `__consumer_offsets` that keeps the group. One in a
transaction counts once the marker of that partition is appended; until then it is pending. The
partition joins the transaction first, as any other does.

An offset remembers the id of its topic; one that belongs to a deleted topic of the same name is
not shown. (Its tombstone is written when the topic is deleted; a crash may come between the two.)

Sources: KIP-98, KIP-211, KIP-447.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from txn.broker.consumer_groups import ConsumerGroups
from txn.broker.group_shards import GroupShards, delete_offsets
from txn.broker.host import Durability, Host
from txn.broker.txn_verifier import TransactionVerifier
from txn.coordinator.group.classic.group import Group, GroupState, touch
from txn.coordinator.group.classic.refusals import commit_refusal
from txn.coordinator.group.consumer.offsets import commit_refusal as consumer_commit_refusal
from txn.coordinator.group.consumer.offsets import fetch_refusal as consumer_fetch_refusal
from txn.coordinator.group.offsets import GroupOffsets, StoredOffset
from txn.coordinator.group.records import OffsetKey, OffsetRecord, OffsetValue
from txn.coordinator.operations import COMMITTED, Request
from txn.coordinator.transaction.connections import ConnectionUse
from txn.errors import StorageError
from txn.identifiers import ProducerIdAndEpoch
from txn.metadata.image import OFFSETS_TOPIC
from txn.security.sessions import Peer
from txn.wire.error_codes import ErrorCode

OFFSET_BYTES_MIN: Final = 42
"""Size of a committed offset's record without names and metadata."""


class OffsetTransactions(Protocol):
    """The services of the transaction coordinator for offsets."""

    def must_sync_before_answer_of(self, transactional_id: str) -> bool:
        """Say whether answers to the client of an id wait until their state is on the disk."""
        ...

    async def hang_up_if_late(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        client: Peer,
        use: ConnectionUse,
    ) -> None:
        """Raise HangUpError if the client of a TV1 request has left and the request is late."""
        ...


class Committer(NamedTuple):
    """The sender of a commit; generation -1 without member id is a consumer outside the group."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class CommittedOffsets:
    """The committed offsets of all groups of this node. Used from one thread, but where it says."""

    def __init__(
        self,
        host: Host,
        shards: GroupShards,
        consumers: ConsumerGroups,
        transactions: OffsetTransactions,
        verifier: TransactionVerifier,
        prolong: Callable[[Group, str], None],
    ) -> None:
        """Serve the offsets of loaded groups.

        Args:
            host: The broker.
            shards: The loaded groups.
            consumers: The groups of the consumer protocol.
            transactions: Knows the transactions in which offsets are committed.
            verifier: Makes a partition of offsets part of a transaction.
            prolong: Puts a classic group in which the session of a member was prolonged.
        """
        self._host = host
        self._shards = shards
        self._consumers = consumers
        self.transactions = transactions
        self._verifier = verifier
        self._prolong = prolong

    async def commit(
        self,
        committer: Committer,
        offsets: Mapping[OffsetKey, OffsetValue],
        *,
        knows_group_not_found: bool,
    ) -> ErrorCode:
        """Commit offsets, all or none. NONE: they are stored and count."""
        if (refusal := self._shards.of(committer.group_id).refusal) is not ErrorCode.NONE:
            return refusal
        group = self._shards.classic_group(committer.group_id)
        error = self._refusal_of(
            committer, offsets, is_transactional=False, knows_group_not_found=knows_group_not_found
        )
        if error is not ErrorCode.NONE:
            return error
        if group is not None and group.state in (
            GroupState.STABLE,
            GroupState.PREPARING_REBALANCE,
        ):
            prolonged = touch(group, committer.member_id, now_ms=self._host.monotonic_ms())
            self._prolong(prolonged, committer.member_id)
        return await self._append(committer.group_id, offsets, None)

    async def commit_in_transaction(
        self,
        committer: Committer,
        offsets: Mapping[OffsetKey, OffsetValue],
        *,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        transaction_version: int,
        knows_group_not_found: bool = False,
    ) -> ErrorCode:
        """Store offsets that count when the producer's transaction commits, all or none.

        The partition joins the transaction first. If that had to wait for the disk, the transaction
        may have ended meanwhile. Its marker would be in the log, and offsets appended behind it
        would stay pending for ever. So membership is checked once more, with nothing between the
        check and the append; the client tries again and learns how it ended.
        """
        if (refusal := self._shards.of(committer.group_id).refusal) is not ErrorCode.NONE:
            return refusal
        place = (OFFSETS_TOPIC, self._shards.index_of(committer.group_id))
        joined = await self._verifier.join(
            transactional_id,
            producer.producer_id,
            producer.producer_epoch,
            transaction_version,
            [place],
        )
        error = ErrorCode(joined[place])
        owner = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch)
        if not error and not self._verifier.is_joined(transactional_id, owner, place):
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is ErrorCode.NONE:
            error = self._refusal_of(
                committer,
                offsets,
                is_transactional=True,
                knows_group_not_found=knows_group_not_found,
            )
        if error is not ErrorCode.NONE:
            return error
        return await self._append(committer.group_id, offsets, producer)

    def fetch_refusal(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Why a member may not fetch offsets; NONE if it may, or if no member asks."""
        group = self._consumers.get(group_id)
        if group is None:
            return ErrorCode.NONE
        return consumer_fetch_refusal(group, member_id, epoch)

    async def sync(self, group_id: str, *, transactional_id: str | None = None) -> ErrorCode:
        """Wait until the committed offsets of a group are on the disk, if every commit has to be.

        A generation is not waited for: members of one that was lost join again.

        Args:
            group_id: Whose offsets.
            transactional_id: The id of the transaction they were sent in. Answers to its client
                may have to wait for the disk where other commits do not.

        Returns:
            The error code for the committer. If the disk refused, it tries again; its offsets
            count until a power failure.
        """
        is_forced = self._host.durability is Durability.ALWAYS or (
            transactional_id is not None
            and self.transactions.must_sync_before_answer_of(transactional_id)
        )
        if not is_forced:
            return ErrorCode.NONE
        return await self._shards.of(group_id).run(None, _committed(), lambda code: code)

    def committed(self, group_id: str) -> Mapping[tuple[str, int], StoredOffset]:
        """The offsets that count, (topic, partition) → offset, without those of deleted topics.

        Another thread may call it.
        """
        table = self._shards.of(group_id).state.offsets
        return {
            (topic, partition): stored
            for (topic, partition), stored in list(table.committed(group_id).items())
            if not self.is_of_deleted_topic(topic, stored)
        }

    def groups_with_offsets(self) -> list[tuple[str, int]]:
        """(group, number of its offsets) of each group with offsets, of deleted topics too.

        Another thread may call it: tables that change are copied in single steps.
        """
        return [
            (group_id, len(offsets))
            for shard in self._shards.shards
            for group_id, offsets in shard.state.offsets.by_group()
        ]

    def of_group(self, group_id: str) -> GroupOffsets:
        """The offsets of a group as they change, those of deleted topics too."""
        return self._shards.of(group_id).state.offsets.of_group(group_id)

    def lacks_a_marker(self, group_id: str) -> bool:
        """Say whether a commit of offsets of a group is decided, and the disk refuses its marker.

        Clients may have fetched those offsets before a power failure. None below them may be
        answered now.
        """
        state = self._shards.of(group_id).state
        return any(state.offsets.has_pending(group_id, each) for each in state.unmarked)

    async def delete(self, group_id: str, keys: Iterable[OffsetKey]) -> None:
        """Delete offsets of a group. Raises StorageError."""
        self._shards.require_loaded(group_id)
        shard = self._shards.of(group_id)
        delete_offsets(shard, shard.state.offsets.keys_of_group(group_id) & set(keys))

    def is_of_deleted_topic(self, topic: str, stored: StoredOffset) -> bool:
        """Say whether an offset belongs to an earlier topic of the name."""
        known = self._host.topic_id(topic)
        return None not in (known, stored.value.topic_id) and known != stored.value.topic_id

    # ------------------------------------------------------------ inside

    def _refusal_of(
        self,
        committer: Committer,
        offsets: Mapping[OffsetKey, OffsetValue],
        *,
        is_transactional: bool,
        knows_group_not_found: bool,
    ) -> ErrorCode:
        """Why a member may not commit offsets; NONE if it may."""
        group_id, epoch, member_id, instance_id = committer
        of_consumers = self._consumers.get(group_id)
        if of_consumers is None:
            return commit_refusal(
                self._shards.classic_group(group_id),
                member_id,
                instance_id,
                epoch,
                is_transactional=is_transactional,
                knows_group_not_found=knows_group_not_found,
            )
        error = consumer_commit_refusal(
            of_consumers,
            member_id,
            instance_id,
            epoch,
            is_transactional=is_transactional,
            partitions=((value.topic_id, key.partition) for key, value in offsets.items()),
        )
        member = of_consumers.members.get(member_id)
        knows_epochs = member is None or member.is_classic or knows_group_not_found
        if not is_transactional and not knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION  # the version knows no member epochs
        return error

    async def _append(
        self,
        group_id: str,
        offsets: Mapping[OffsetKey, OffsetValue],
        producer: ProducerIdAndEpoch | None,
    ) -> ErrorCode:
        if not offsets:
            return ErrorCode.NONE
        least_bytes = sum(
            OFFSET_BYTES_MIN + len(group_id) + len(key.topic) + len(value.metadata)
            for key, value in offsets.items()
        )
        if least_bytes > self._shards.batch_bytes_max():
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        producer_id = None if producer is None else producer.producer_id
        records = [OffsetRecord(key, value, producer_id) for key, value in offsets.items()]
        try:
            self._shards.of(group_id).append(records, producer)
        except StorageError as error:
            return commit_error(error)
        return ErrorCode.NONE


def _committed() -> Request[ErrorCode]:
    try:
        yield COMMITTED
    except StorageError as error:
        return commit_error(error)
    return ErrorCode.NONE


def commit_error(error: StorageError) -> ErrorCode:
    """The error code for a committer whose offsets could not be written.

    A refusal by the partition's rules (an old producer epoch, above all) is passed on.
    """
    match ErrorCode(error.code):
        case ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        case code:
            return code
