"""Every difference from Apache Kafka that is accepted, each with its reason.

They are of three kinds. *Order*: Kafka ends transactions behind its answers, or checks in
another order. *Choice*: txn says more, or refuses a harmful request. *Not served*: APIs and
versions that txn does not announce, so that no client sends them.
"""

from typing import Any, Final

from differential.batches import batches
from differential.known import ASKED_AGAIN, Exchange, KnownDifference
from differential.names import NOW, TEXT
from differential.plain import MISSING, Difference, error_codes
from harnesses.peers.jars import CONTROL, NODE_4_4

ADD_PARTITIONS: Final = "AddPartitionsToTxn"
IN_PRODUCE: Final = "responses.partition_responses"
IN_FETCH: Final = "responses.partitions"
IN_LIST: Final = "topics.partitions"

NOT_ANNOUNCED: Final = frozenset({80, 81, 94})  # of several controllers
"""API keys that Kafka announces and txn does not serve yet."""

FEATURES_NOT_SERVED: Final = frozenset(
    {
        *("share.version", "streams.version"),
        *("eligible.leader.replicas.version", "kraft.version"),
    }
)
"""Features that Kafka announces and txn does not have yet."""


# -------------------------------------------------------------------- what an entry asks for


def _sends(**fields: Any) -> Any:
    """A Produce with a batch that has one of these values in each of these fields."""

    def when(exchange: Exchange, difference: Difference) -> bool:
        return any(
            all(getattr(batch, name) in values for name, values in fields.items())
            for _, batch in batches(exchange.request)
        )

    return when


def _follows_one_turned_away(exchange: Exchange, difference: Difference) -> bool:
    return any(
        batch.producer_id in exchange.past.turned_away and batch.base_sequence > 0
        for _, batch in batches(exchange.request)
    )


def _begins_a_log_behind_0(exchange: Exchange, difference: Difference) -> bool:
    ours, theirs = difference.within
    return theirs["base_offset"] == 0 and any(
        index == ours["index"] and batch.base_sequence > 0
        for index, batch in batches(exchange.request)
    )


def _is_a_retry(exchange: Exchange, difference: Difference) -> bool:
    return any(
        index == difference.within[0]["index"] and (index, *batch.sent) in exchange.past.stored
        for index, batch in batches(exchange.request)
    )


def _times(exchange: Exchange) -> list[int]:
    return [p["timestamp"] for t in exchange.request["topics"] for p in t["partitions"]]


def _is_marker_time(exchange: Exchange, difference: Difference) -> bool:
    """Only markers have the clock's time: Kafka answered one to a search since a time."""
    return -3 not in _times(exchange) and difference.within[1].get("timestamp") == NOW


def _asks_for_max_timestamp(exchange: Exchange, difference: Difference) -> bool:
    return -3 in _times(exchange) and difference.within[1].get("offset") == -1


def _is_a_piece(record: Any) -> bool:
    return isinstance(record, dict) and list(record) == ["bytes of a cut batch"]


def _is_a_sound_batch(record: Any) -> bool:
    return isinstance(record, dict) and bool(record.get("is_sound"))


def _follows_a_piece(exchange: Exchange, difference: Difference) -> bool:
    """In Kafka's answer an earlier partition ends within a batch, and this one is empty."""
    partitions = exchange.kafka["responses"][0]["partitions"]
    here = difference.within[1]
    earlier = partitions[: partitions.index(here)]
    return not here["records"] and any(
        _is_a_piece(p["records"][-1]) for p in earlier if p["records"]
    )


def _is_beyond_the_records(exchange: Exchange, difference: Difference) -> bool:
    """An aborted transaction that begins behind the last batch of the answer."""
    records = difference.within[0].get("records") or [{"base_offset": -1, "last_offset_delta": 0}]
    last = records[-1]["base_offset"] + records[-1]["last_offset_delta"]
    return isinstance(difference.kafka, dict) and bool(difference.kafka["first_offset"] > last)


def _without_records(exchange: Exchange, difference: Difference) -> bool:
    return not difference.within[0].get("records") and not difference.within[1].get("records")


def _shows_an_identity(exchange: Exchange, difference: Difference) -> bool:
    """KIP-360, with an identity that is not the current one; versions 0-3 have another word."""
    refused = "producer_fenced" if exchange.version >= 4 else "invalid_producer_epoch"
    is_refused = exchange.txn.get("error_code") == refused
    return bool(exchange.request["producer_epoch"] >= 0 and is_refused)


def _asks_for_less_than_nothing(exchange: Exchange, difference: Difference) -> bool:
    """One of the size limits is negative, and Kafka has failed on it."""
    is_negative = "_bytes': -1" in str(exchange.request)
    return is_negative and "unknown_server_error" in error_codes(exchange.kafka)


def _is_key_of(keys: frozenset[int]) -> Any:
    return lambda entry: isinstance(entry, dict) and entry["api_key"] in keys


def _for_key(key: int) -> Any:
    return lambda exchange, difference: difference.within[0].get("api_key") == key


def _sends_twice(exchange: Exchange, difference: Difference) -> bool:
    """The request names a partition twice."""
    topics = exchange.request.get("v3_and_below_topics") or exchange.request.get("topics") or ()
    for topic in topics:
        indexes = [p["partition_index"] if isinstance(p, dict) else p for p in topic["partitions"]]
        if len(indexes) != len(set(indexes)):
            return True
    return False


def _describes_twice(exchange: Exchange, difference: Difference) -> bool:
    """The request names a transactional id, a topic or a partition twice."""
    topics = exchange.request.get("topics") or ()
    named = [*exchange.request.get("transactional_ids", ()), *(topic["name"] for topic in topics)]
    lists = [named, *(topic["partition_indexes"] for topic in topics)]
    return any(len(each) != len(set(each)) for each in lists)


# -------------------------------------------------------------------- order

ORDER: Final = (
    KnownDifference(
        "kafka-lets-the-fenced-abort",
        "InitProducerId with another epoch over an open transaction: Kafka begins to abort it, "
        "answers CONCURRENT_TRANSACTIONS, and only then looks at the epoch shown. "
        "txn refuses first: a fenced producer must not end its successor's transaction (P7).",
        ("InitProducerId",),
        ASKED_AGAIN,
        when=_shows_an_identity,
        diverges=True,
    ),
    KnownDifference(
        "kafka-ends-transactions-behind-its-answer",
        "Kafka answers EndTxn before the markers are written, and meanwhile answers "
        "CONCURRENT_TRANSACTIONS (NOT_ENOUGH_REPLICAS to Produce before 12). txn writes the "
        "markers first. The pair asks Kafka again until it has settled.",
        (
            "InitProducerId",
            "Produce",
            "EndTxn",
            ADD_PARTITIONS,
            "AddOffsetsToTxn",
            "TxnOffsetCommit",
        ),
        ASKED_AGAIN,
        None,
        frozenset({"concurrent_transactions", "not_enough_replicas"}),
    ),
    KnownDifference(
        "a-retry-is-known-after-its-transaction",
        "A batch that is stored already is answered with its offset even if its transaction is "
        "over: the client lost the first answer. Kafka first asks the coordinator whether the "
        "partition is in the transaction, and refuses. Nothing is stored by either.",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        "none",
        frozenset({"invalid_txn_state", "transaction_abortable"}),
        versions=range(3, 12),
        when=_is_a_retry,
    ),
    KnownDifference(
        "a-retry-is-known-whoever-sends-it",
        "The same, under another's transactional id, or when the producer has a successor.",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        "none",
        frozenset({"invalid_producer_id_mapping", "invalid_request", "invalid_producer_epoch"}),
        when=_is_a_retry,
    ),
    KnownDifference(
        "kafka-remembers-who-was-turned-away",
        "A batch that Kafka's coordinator did not verify: its partition goes on waiting for that "
        "sequence, whoever sent it and in whichever epoch, and refuses the later batches of the "
        "producer, even of its open transaction. To txn what was turned away was not there.",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        "none",
        "out_of_order_sequence_number",
        when=_follows_one_turned_away,
        diverges=True,
    ),
    KnownDifference(
        "kafka-remembers-how-it-was-turned-away",
        "The same, turned away below Produce 12 and in an older epoch: its partition goes on "
        "taking the producer for one that gets no new epochs, and its first batch may have any "
        "sequence. To txn the producer is unknown, so its first sequence is 0 from Produce 12 on "
        "(KIP-890).",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        "out_of_order_sequence_number",
        "none",
        versions=range(12, 100),
        when=_follows_one_turned_away,
        diverges=True,
    ),
    KnownDifference(
        "kafka-takes-any-first-sequence-of-a-log",
        "A log that never held a record has forgotten no producer, so its first batch has sequence "
        "0. Another would take the place of the batch that it overtook. Kafka refuses it likewise "
        "from 4.5 on (KAFKA-15591).",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        "out_of_order_sequence_number",
        "none",
        when=_begins_a_log_behind_0,
        diverges=True,
    ),
    KnownDifference(
        "kafka-joins-before-it-looks-at-the-batch",
        "Produce 12 and 13 of a batch that is stored already or cannot be stored: Kafka adds "
        "the partition to the producer's transaction, which may begin by that, before it looks "
        "at the batch; txn leaves the transaction as it was.",
        ("DescribeTransactions",),
        "transaction_states.transaction_state",
        frozenset({"Empty", "CompleteCommit", "CompleteAbort"}),
        "Ongoing",
        diverges=True,
    ),
    KnownDifference(
        "kafka-joins-another-partition",
        "The same in a transaction that is open: Kafka's has one more partition.",
        ("DescribeTransactions",),
        "transaction_states.topics.partitions",
        MISSING,
        lambda partition: isinstance(partition, int),
        diverges=True,
    ),
    KnownDifference(
        "kafka-verifies-before-it-looks-at-the-batch",
        "A batch that cannot be stored anyway: txn says so at once, Kafka first asks the "
        "coordinator whether the partition is in the transaction.",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        frozenset(
            {
                *("message_too_large", "invalid_record", "invalid_producer_epoch"),
                *("out_of_order_sequence_number", "invalid_txn_state"),
            }
        ),
        frozenset(
            {
                *("invalid_txn_state", "transaction_abortable", "invalid_producer_epoch"),
                "invalid_producer_id_mapping",
            }
        ),
    ),
    KnownDifference(
        "kafka-asks-the-offsets-partition-first",
        "TxnOffsetCommit with another's producer id and an earlier epoch of it: Kafka finds the "
        "epoch in the group's partition, txn the id at the coordinator. Both refuse.",
        ("TxnOffsetCommit",),
        f"{IN_LIST}.error_code",
        "invalid_producer_id_mapping",
        "invalid_producer_epoch",
    ),
    KnownDifference(
        "kafka-refuses-the-whole-request",
        "A batch of unknown format or impossible length: Kafka refuses the whole request when "
        "it reads it, txn the one partition.",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        "none",
        "corrupt_message",
        diverges=True,
    ),
    KnownDifference(
        "kafka-says-corrupt-of-what-is-not-one-batch",
        "Records that are not exactly one batch of format 2 are INVALID_RECORD in txn; Kafka "
        "calls some of them CORRUPT_MESSAGE, by what it trips over first.",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        "invalid_record",
        "corrupt_message",
    ),
)

# -------------------------------------------------------------------- choice

MESSAGES: Final = (
    KnownDifference(
        "txn-says-why",
        "Error messages are for people. txn has one where Kafka says nothing, and the reverse; "
        "that there is none is compared in all other places.",
        ("Produce",),
        f"{IN_PRODUCE}.error_message",
        TEXT,
        None,
    ),
    KnownDifference(
        "kafka-says-the-error-again",
        "Kafka's message is the text of the error code, which clients have too.",
        ("Produce", "DescribeProducers"),
        "*.error_message",
        None,
        TEXT,
    ),
    KnownDifference(
        "find-coordinator-names-no-error",
        "Beside success Kafka's message is NONE up to version 3 and empty from version 4 on; "
        "beside an error it is empty from version 4 on. txn: null beside success, else a text.",
        ("FindCoordinator",),
        "*error_message",
        frozenset({None, TEXT}),
        frozenset({"", TEXT}),
    ),
)

REFUSED: Final = (
    KnownDifference(
        "minus-2-is-nobody",
        "InitProducerId with producer id -2: Kafka takes it for a new producer, txn refuses "
        "what no client can hold.",
        ("InitProducerId",),
        "error_code",
        "invalid_request",
        "none",
        when=lambda exchange, _: exchange.request["producer_id"] == -2,
        diverges=True,
    ),
    KnownDifference(
        "transactional-without-producer",
        "A transactional batch without a producer id: Kafka stores it as if it were plain, so "
        "read_committed readers see records of no transaction; txn refuses it.",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        "invalid_record",
        "none",
        when=_sends(producer_id=(-1,), attributes=(0x10,)),
        diverges=True,
    ),
    KnownDifference(
        "a-sequence-used-again-is-no-retry",
        "A batch with the sequences of one that an abort ended, in the producer's next "
        "transaction: Kafka takes it for a retry and stores nothing, though librdkafka sends "
        "other records so, which the commit then lacks; txn refuses it.",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        "out_of_order_sequence_number",
        "none",
        when=_is_a_retry,
    ),
    KnownDifference(
        "negative-epochs-of-unknown-producers",
        "A plain batch with a producer id and a negative epoch: Kafka stores it where it does "
        "not know the producer; txn refuses what no client can have been given.",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        "invalid_producer_epoch",
        "none",
        when=_sends(producer_epoch=(-1,)),
        diverges=True,
    ),
    KnownDifference(
        "append-time-is-the-brokers",
        "A client's batch that says its timestamps are append times: Kafka rewrites the flag, "
        "txn, which stores batches as they came, refuses it.",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        "invalid_timestamp",
        "none",
        when=_sends(attributes=(8,)),
        diverges=True,
    ),
    KnownDifference(
        "bytes-behind-a-batch",
        "Fewer bytes than a batch header behind the only batch: Kafka cuts them off, txn "
        "refuses what a reader could not see.",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        "invalid_record",
        "none",
        when=_sends(after=(b"x",)),
        diverges=True,
    ),
    KnownDifference(
        "codecs-that-do-not-exist",
        "A codec number that nobody has: Kafka fails with UNKNOWN_SERVER_ERROR, for a whole "
        "request of version 3; txn says UNSUPPORTED_COMPRESSION_TYPE.",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        frozenset({"unsupported_compression_type", "none"}),
        "unknown_server_error",
        when=_sends(attributes=(7,)),
        diverges=True,
    ),
    KnownDifference(
        "compressed-bytes-that-nobody-can-open",
        "Compressed records that cannot be decompressed: Kafka fails with UNKNOWN_SERVER_ERROR, "
        "txn says INVALID_RECORD and why.",
        ("Produce",),
        f"{IN_PRODUCE}.error_code",
        "invalid_record",
        "unknown_server_error",
        when=_sends(attributes=(1, 2, 3, 4)),
    ),
    KnownDifference(
        "the-unreadable-record-is-named",
        "A record that cannot be read, and each of a batch whose times claim to be append times: "
        "txn names it in its refusal. Kafka names none, or stores the batch.",
        ("Produce",),
        f"{IN_PRODUCE}.record_errors",
        lambda named: isinstance(named, dict),
        MISSING,
    ),
    KnownDifference(
        "the-log-start-beside-damage",
        "Compressed records that end early: Kafka, which opens them in the log, also tells the "
        "log's start; txn, which refuses them as damaged, does not.",
        ("Produce",),
        f"{IN_PRODUCE}.log_start_offset",
        -1,
        0,
        when=_sends(attributes=(1,)),
    ),
    KnownDifference(
        "null-records",
        "Kafka fails on null records without an answer; txn refuses the partition.",
        ("Produce",),
        "connection",
        MISSING,
        "open, no answer in time",
        diverges=True,
    ),
    KnownDifference(
        "isolation-levels-that-do-not-exist",
        "Kafka fails with UNKNOWN_SERVER_ERROR; txn closes the connection of a Fetch.",
        ("Fetch",),
        "connection",
        "closed",
        MISSING,
        when=lambda exchange, _: exchange.request.get("isolation_level") not in (0, 1),
    ),
    KnownDifference(
        "list-offsets-of-an-unknown-isolation",
        "Kafka fails with UNKNOWN_SERVER_ERROR; txn takes it for read_uncommitted.",
        ("ListOffsets",),
        f"{IN_LIST}.error_code",
        "none",
        "unknown_server_error",
        when=lambda exchange, _: exchange.request["isolation_level"] not in (0, 1),
    ),
    KnownDifference(
        "negative-limits",
        "Fetch with a negative size limit: Kafka fails with UNKNOWN_SERVER_ERROR, txn takes "
        "it for 0.",
        ("Fetch",),
        f"{IN_FETCH}.error_code",
        "none",
        "unknown_server_error",
        when=_asks_for_less_than_nothing,
    ),
    KnownDifference(
        "the-first-batch-beside-negative-limits",
        "The same: the one batch that there is always room for is the next partition's in "
        "Kafka, since the first has failed.",
        ("Fetch",),
        f"{IN_FETCH}.records",
        MISSING,
        _is_a_sound_batch,
        when=_asks_for_less_than_nothing,
    ),
    KnownDifference(
        "names-that-cannot-be",
        "DescribeProducers of a malformed topic name: Kafka says INVALID_TOPIC_EXCEPTION, to "
        "txn it is one more topic that does not exist.",
        ("DescribeProducers",),
        f"{IN_LIST}.error_code",
        "unknown_topic_or_partition",
        "invalid_topic_exception",
    ),
)

CODES: Final = (
    KnownDifference(
        "an-aborted-commit-is-fenced",
        "EndTxn 5 that commits what the coordinator has aborted: 4.2 answers INVALID_TXN_STATE, "
        "which is fatal to clients; later versions and txn PRODUCER_FENCED (KAFKA-20785).",
        ("EndTxn",),
        "error_code",
        "producer_fenced",
        "invalid_txn_state",
        versions=(5,),
    ),
    KnownDifference(
        "a-retry-only-after-a-bump",
        "EndTxn 5 with an epoch one below: a retry only if the last end bumped the epoch. Kafka "
        "takes it for one after any end, and tells a fenced producer that its commit succeeded.",
        ("EndTxn",),
        "error_code",
        "producer_fenced",
        "none",
        versions=(5,),
    ),
    KnownDifference(
        "a-used-epoch-was-not-lost",
        "InitProducerId with the epoch before the current one: the answer that gave the current "
        "one may have been lost, but not if a transaction was begun with it. Kafka gives it to "
        "whoever shows the one before, so that two would have it; txn refuses.",
        ("InitProducerId",),
        "error_code",
        frozenset({"producer_fenced", "invalid_producer_epoch"}),
        "none",
        versions=range(3, 7),
        when=lambda exchange, _: (
            exchange.kafka["producer_epoch"] == exchange.request["producer_epoch"] + 1
        ),
        diverges=True,
    ),
    KnownDifference(
        "duplicates-have-no-append-time",
        "For a duplicate Kafka answers the stored batch's timestamp as append time, though the "
        "topic does not use append times; txn answers -1, as for the first.",
        ("Produce",),
        f"{IN_PRODUCE}.log_append_time",
        None,
        lambda time: isinstance(time, int),
    ),
    KnownDifference(
        "markers-of-nobody",
        "WriteTxnMarkers for producer id -1: Kafka fails with UNKNOWN_SERVER_ERROR, txn says "
        "INVALID_REQUEST.",
        ("WriteTxnMarkers",),
        "markers.topics.partitions.error_code",
        "invalid_request",
        "unknown_server_error",
    ),
    KnownDifference(
        "an-operator-ends-the-whole-transaction",
        "WriteTxnMarkers into an open transaction, with an epoch of its own: Kafka puts that "
        "marker into that partition, and the coordinator goes on as if nothing had happened; "
        "txn aborts the whole transaction through its coordinator, under the next epoch.",
        ("DescribeProducers",),
        f"{IN_LIST}.active_producers.producer_epoch",
        1,
        7,
        diverges=True,
    ),
    KnownDifference(
        "an-operator-is-no-later-coordinator",
        "The same, with a coordinator epoch of its own: in txn the marker is the coordinator's.",
        ("DescribeProducers",),
        f"{IN_LIST}.active_producers.coordinator_epoch",
        0,
        5,
        diverges=True,
    ),
    KnownDifference(
        "an-unknown-id-has-no-producer",
        "DescribeTransactions of an unknown id: Kafka leaves the fields at 0, a producer id "
        "that may exist; txn says -1.",
        ("DescribeTransactions",),
        "transaction_states.producer_*",
        -1,
        0,
    ),
    KnownDifference(
        "a-partition-named-twice",
        "AddPartitionsToTxn answers a partition that is named twice once; Kafka twice.",
        (ADD_PARTITIONS,),
        "results_by_topic_v3_and_below.results_by_partition",
        MISSING,
        when=_sends_twice,
    ),
    KnownDifference(
        "a-thing-described-twice",
        "DescribeTransactions and DescribeProducers: Kafka describes an id or a partition as often "
        "as it is named, which a small request can ask gigabytes with. txn does it once.",
        ("DescribeTransactions", "DescribeProducers"),
        "*",
        MISSING,
        when=_describes_twice,
    ),
    KnownDifference(
        "a-topic-without-partitions",
        "Produce to no partition of a topic: Kafka's answer leaves the topic out.",
        ("Produce",),
        "responses",
        lambda entry: isinstance(entry, dict) and not entry["partition_responses"],
        MISSING,
    ),
)

READING: Final = (
    KnownDifference(
        "kafka-cuts-the-last-batch",
        "Where a size limit falls into a batch, Kafka sends a piece that clients throw away; "
        "txn sends whole batches.",
        ("Fetch",),
        f"{IN_FETCH}.records",
        MISSING,
        _is_a_piece,
    ),
    KnownDifference(
        "room-for-the-next-partition",
        "Where Kafka has filled the answer with a piece of a batch, txn has room left for "
        "batches of the partitions behind it.",
        ("Fetch",),
        f"{IN_FETCH}.records",
        _is_a_sound_batch,
        MISSING,
        when=_follows_a_piece,
    ),
    KnownDifference(
        "aborted-transactions-of-what-is-sent",
        "Kafka also names aborted transactions that begin behind the records it sends; txn only "
        "those that overlap them.",
        ("Fetch",),
        f"{IN_FETCH}.aborted_transactions",
        MISSING,
        when=_is_beyond_the_records,
    ),
    KnownDifference(
        "no-room-no-list",
        "A partition for which the answer has no room: Kafka's list of aborted transactions is "
        "null, txn's empty.",
        ("Fetch",),
        f"{IN_FETCH}.aborted_transactions",
        lambda entries: entries == [],
        None,
        when=_without_records,
    ),
    KnownDifference(
        "markers-are-no-records",
        "ListOffsets since a time: Kafka also finds markers, whose time is the broker's clock; txn "
        "finds records alone.",
        ("ListOffsets",),
        f"{IN_LIST}.*",
        when=_is_marker_time,
    ),
    KnownDifference(
        "largest-timestamp-below-the-stable-offset",
        "ListOffsets for the largest timestamp under read_committed: Kafka answers nothing if "
        "it lies beyond the last stable offset; txn finds the largest below it.",
        ("ListOffsets",),
        f"{IN_LIST}.*",
        kafka=-1,
        when=_asks_for_max_timestamp,
    ),
    KnownDifference(
        "stable-offset-below-the-log-start",
        "DeleteRecords beyond the start of an open transaction: Kafka's ListOffsets under "
        "read_committed still answers where it began, below the log's start; its Fetch does not.",
        ("ListOffsets",),
        f"{IN_LIST}.offset",
        when=lambda exchange, difference: (
            difference.txn > difference.kafka and exchange.request["isolation_level"] == 1
        ),
    ),
    KnownDifference(
        "stable-offset-of-a-batch-cut-in-two",
        "DeleteRecords into the first batch of an open transaction: in Kafka's Fetch, too, the "
        "stable offset is that of the batch's first record, below the log's start.",
        ("Fetch",),
        "responses.partitions.last_stable_offset",
        when=lambda exchange, difference: (
            difference.kafka
            < difference.txn
            == difference.within[0].get("log_start_offset", difference.txn)
        ),
    ),
)

# -------------------------------------------------------------------- not served

NOT_SERVED: Final = (
    KnownDifference(
        "apis-not-announced",
        "Not served by txn; clients see it in ApiVersions.",
        ("ApiVersions",),
        "api_keys",
        MISSING,
        _is_key_of(NOT_ANNOUNCED),
    ),
    *(
        ()
        if CONTROL is NODE_4_4
        else (
            KnownDifference(
                "versions-of-kafka-4.4",
                "The last versions of ApiVersions, TxnOffsetCommit, DescribeLogDirs, DeleteGroups, "
                "StreamsGroupHeartbeat and StreamsGroupDescribe.",
                ("ApiVersions",),
                "api_keys.max_version",
                frozenset({1, 3, 5, 6}),
                frozenset({0, 2, 4, 5}),
            ),
            KnownDifference(
                "apis-of-kafka-4.4",
                "StreamsGroupTopologyDescriptionUpdate, which a Kafka 4.4 announces.",
                ("ApiVersions",),
                "api_keys",
                _is_key_of(frozenset({93})),
                MISSING,
            ),
        )
    ),
    KnownDifference(
        "features-not-announced",
        "Features of what txn does not serve.",
        ("ApiVersions",),
        "*_features",
        MISSING,
        lambda entry: isinstance(entry, dict) and entry["name"] in FEATURES_NOT_SERVED,
    ),
    KnownDifference(
        "the-metadata-version",
        "txn writes and reads metadata records of an older version.",
        ("ApiVersions",),
        "*_features.m*",
        25,
        frozenset({29, 33}),  # of Kafka 4.2 and 4.4
        when=lambda _, difference: difference.within[0].get("name") == "metadata.version",
    ),
    KnownDifference(
        "epochs-of-features",
        "The epoch of the finalized features is an offset of each metadata log.",
        ("ApiVersions",),
        "finalized_features_epoch",
        lambda epoch: epoch > 0,
        lambda epoch: epoch > 0,
    ),
)

TWO_PHASE: Final = (
    KnownDifference(
        "prepared-transactions-are-kept",
        "keepPreparedTxn (KIP-939): Kafka 4.2 says UNSUPPORTED_VERSION, txn does it.",
        ("InitProducerId",),
        "error_code",
        kafka="unsupported_version",
        versions=(6,),
        when=lambda exchange, _: exchange.request["keep_prepared_txn"],
        diverges=True,
    ),
)
"""Where both serve InitProducerId 6."""

KNOWN: Final[tuple[KnownDifference, ...]] = (
    *ORDER,
    *MESSAGES,
    *REFUSED,
    *CODES,
    *READING,
    *NOT_SERVED,
)
