"""The errors made from librdkafka's reports, and a block's reaction to each of them."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import FrameType
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from support.client_script import (
    NO_SUCH_STATE,
    TIMED_OUT,
    ClientScript,
    FakeConsumer,
    ScriptedProducer,
    block,
    fatal,
    requires_abort,
    retriable,
    scripted,
)
from txn.client.engine import EngineName
from txn.client.failures import DeliveryFailure, translate, undelivered
from txn.client.producer import Producer
from txn.client.settings import consumer_settings, producer_settings
from txn.client.transaction import BlockResult
from txn.errors import (
    AbortableError,
    Action,
    ConfigError,
    FencedError,
    InDoubtError,
    RejectedError,
    RetriableError,
    TxnError,
)

# ---------------------------------------------------------------- reports become errors


@pytest.mark.parametrize(
    ("reported", "kind", "action"),
    [
        (fatal(KafkaError._FENCED), FencedError, Action.GIVE_UP),
        (fatal(KafkaError.PRODUCER_FENCED), FencedError, Action.GIVE_UP),
        (fatal(KafkaError.FENCED_INSTANCE_ID), FencedError, Action.GIVE_UP),
        (KafkaError(KafkaError.INVALID_PRODUCER_EPOCH), FencedError, Action.GIVE_UP),
        (
            requires_abort(KafkaError.INVALID_PRODUCER_EPOCH),
            AbortableError,
            Action.ABORT_AND_REWIND,
        ),
        (fatal(KafkaError.INVALID_TXN_STATE), FencedError, Action.REOPEN),
        (fatal(KafkaError.INVALID_TRANSACTION_TIMEOUT), ConfigError, Action.GIVE_UP),
        (fatal(KafkaError.CLUSTER_AUTHORIZATION_FAILED), RejectedError, Action.GIVE_UP),
        (requires_abort(KafkaError.TOPIC_AUTHORIZATION_FAILED), RejectedError, Action.GIVE_UP),
        (requires_abort(KafkaError._TIMED_OUT), AbortableError, Action.ABORT_AND_REWIND),
        (requires_abort(KafkaError._INCONSISTENT), AbortableError, Action.ABORT_AND_REWIND),
        (requires_abort(KafkaError.ILLEGAL_GENERATION), AbortableError, Action.ABORT_AND_REWIND),
        (KafkaError(KafkaError.UNKNOWN_MEMBER_ID), AbortableError, Action.ABORT_AND_REWIND),
        (TIMED_OUT, RetriableError, Action.RETRY),
        (retriable(KafkaError.UNKNOWN), RetriableError, Action.RETRY),
        (KafkaError(KafkaError._TRANSPORT), RetriableError, Action.RETRY),
        (KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT), RetriableError, Action.RETRY),
        (KafkaError(KafkaError._INVALID_ARG), ConfigError, Action.GIVE_UP),
        (KafkaError(KafkaError._BAD_MSG), RejectedError, Action.GIVE_UP),
    ],
)
def test_each_report_says_what_to_do_next(
    reported: KafkaError, kind: type[TxnError], action: Action
) -> None:
    error = translate(reported, whose="producer 'p'", doing="committing")

    assert type(error) is kind
    assert error.action is action
    assert vars(error)["code"] == reported.code()
    assert f"producer 'p' failed while committing: {reported.str()}" in str(error)
    assert reported.name() in str(error)


def failed(code: int, topic: str = "out", partition: int = 3) -> DeliveryFailure:
    return DeliveryFailure(topic, partition, KafkaError(code))


def test_a_report_is_told_without_librdkafkas_missing_topic_id() -> None:
    reported = KafkaError(KafkaError.UNKNOWN_MEMBER_ID, "orders((null))[0](Unknown member)")
    error = translate(reported, whose="producer 'p'", doing="sending offsets")
    assert "sending offsets: orders[0](Unknown member)" in str(error)


def test_records_not_stored_are_told_by_their_cause_and_not_by_its_consequences() -> None:
    failures = [failed(KafkaError._PURGE_QUEUE, "a"), failed(KafkaError._MSG_TIMED_OUT, "b", 1)]

    error = undelivered(failures, whose="producer 'p'", in_transaction=True)

    assert type(error) is AbortableError
    assert "'b' partition 1 and 1 more" in str(error)
    assert vars(error)["topic"] == "b"
    assert vars(error)["partition"] == 1
    assert vars(error)["count"] == 2


@pytest.mark.parametrize(
    ("code", "in_transaction", "kind"),
    [
        (KafkaError._MSG_TIMED_OUT, True, AbortableError),
        (KafkaError._MSG_TIMED_OUT, False, RetriableError),
        (KafkaError.MSG_SIZE_TOO_LARGE, True, RejectedError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False, RejectedError),
        (KafkaError.INVALID_PRODUCER_EPOCH, True, AbortableError),
    ],
)
def test_records_not_stored_say_what_to_do_next(
    code: int, in_transaction: bool, kind: type[TxnError]
) -> None:
    error = undelivered([failed(code)], whose="producer 'p'", in_transaction=in_transaction)

    assert type(error) is kind


# ---------------------------------------------------------------- settings


def settings_of_producer(config: dict[str, object], **keywords: object) -> dict[str, object]:
    return producer_settings(
        config, transactional_id=None, bootstrap_servers=None, keywords=keywords
    )


def test_settings_pass_through_unchanged_with_idempotence_switched_on() -> None:
    settings = settings_of_producer({"bootstrap.servers": "h:1", "linger.ms": 3}, batch_size=9)

    assert settings == {
        "bootstrap.servers": "h:1",
        "linger.ms": 3,
        "batch.size": 9,
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "topic.metadata.propagation.max.ms": 10_000,
    }


@pytest.mark.parametrize(
    ("config", "keywords", "message"),
    [
        ({}, {}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "h:1"}, {"bootstrap_servers": "h:2"}, "given twice"),
        ({"bootstrap.servers": "h:1", "acks": 1}, {}, "acks=1 does not fit"),
        ({"bootstrap.servers": "h:1", "acks": -1, "request.required.acks": -1}, {}, "given twice"),
        ({"bootstrap.servers": "h:1", "enable.idempotence": False}, {}, "idempotence=False"),
        ({"bootstrap.servers": "h:1", "enable.idempotence": "false"}, {}, "idempotence=false"),
        ({"bootstrap.servers": "h:1", "max.in.flight": 6}, {}, "1 to 5"),
        ({"bootstrap.servers": "h:1", "retries": 0}, {}, "sends a record again if no.*at least 1"),
        ({"bootstrap.servers": "h:1", "transactional.id": ""}, {}, "transactional.id is empty"),
        ({1: "x"}, {}, "no property name"),
    ],
)
def test_settings_that_contradict_exactly_once_are_refused(
    config: dict[str, object], keywords: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of_producer(config, **keywords)


def test_a_transactional_id_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"transactional\.id is given twice, as 'a' and as 'b'"):
        producer_settings(
            {"transactional.id": "a"}, transactional_id="b", bootstrap_servers="h:1", keywords={}
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [("enable.auto.commit", True), ("isolation.level", "read_uncommitted"), ("group.id", "")],
)
def test_a_consumer_that_would_break_exactly_once_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        consumer_settings(
            {"bootstrap.servers": "h:1", "group.id": "g", name: value},
            group_id=None,
            bootstrap_servers=None,
            keywords={},
        )


@pytest.mark.parametrize("name", ["linger.ms", "compression.type", "delivery.timeout.ms"])
def test_a_value_that_does_not_fit_is_told_by_the_name_that_was_given(
    name: str, engine: EngineName
) -> None:
    """librdkafka said: Invalid value for configuration property "queue.buffering.max.ms"."""
    told = f"{name}=bad is" if engine == "native" else f'"{name}"'
    with pytest.raises(ConfigError, match=told):
        Producer(
            {name: "bad"}, bootstrap_servers="127.0.0.1:1", transactional_id="a", engine=engine
        )


def test_an_unknown_property_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.property"):
        Producer(bootstrap_servers="127.0.0.1:1", no_such_property=1)


# ---------------------------------------------------------------- a block and its failures


def test_a_good_block_flushes_then_sends_offsets_then_commits() -> None:
    producer, script = scripted()
    member = FakeConsumer()

    with block(producer, member) as t:
        t.produce("out", b"v")

    assert script.calls == [
        "begin_transaction",
        "produce",
        "send_offsets_to_transaction",
        "commit_transaction",
    ]
    assert member.sought == []


@pytest.mark.parametrize(
    ("answers", "raised", "result"),
    [
        ({}, None, BlockResult.COMMITTED),
        ({"commit_transaction": [TIMED_OUT]}, InDoubtError, BlockResult.IN_DOUBT),
        (
            {"commit_transaction": [KeyboardInterrupt(), NO_SUCH_STATE]},
            KeyboardInterrupt,
            BlockResult.COMMITTED,
        ),
        (
            {"commit_transaction": [requires_abort(KafkaError._INCONSISTENT)]},
            AbortableError,
            BlockResult.ABORTED,
        ),
        ({"commit_transaction": [fatal(KafkaError._FENCED)]}, FencedError, BlockResult.FENCED),
        ({"begin_transaction": [fatal(KafkaError._FENCED)]}, FencedError, BlockResult.FENCED),
    ],
)
def test_a_block_tells_its_result(
    answers: dict[str, list[Any]],
    raised: type[BaseException] | None,
    result: BlockResult,
) -> None:
    producer, _ = scripted(**answers)
    transaction = block(producer)
    results = [transaction.result]

    with pytest.raises(raised) if raised is not None else nullcontext(), transaction:
        results.append(transaction.result)

    results.append(transaction.result)
    assert results in ([None, None, result], [None, result])


def test_a_commit_that_times_out_is_resumed_and_not_repeated_by_an_abort() -> None:
    producer, script = scripted(commit_transaction=[TIMED_OUT, TIMED_OUT, None])

    with block(producer, timeout=60):
        pass

    assert script.calls == ["begin_transaction"] + ["commit_transaction"] * 3


def test_a_commit_without_an_answer_is_in_doubt_and_never_called_aborted() -> None:
    producer, script = scripted(commit_transaction=[TIMED_OUT])
    member = FakeConsumer()

    with pytest.raises(InDoubtError, match="may be committed") as caught, block(producer, member):
        pass

    assert caught.value.action is Action.REOPEN
    assert "abort_transaction" not in script.calls
    assert member.sought == [2]
    with pytest.raises(InDoubtError, match="can no longer be used"), block(producer):
        pass


def test_a_commit_that_requires_an_abort_is_aborted_and_rewound() -> None:
    producer, script = scripted(commit_transaction=[requires_abort(KafkaError._INCONSISTENT)])
    member = FakeConsumer()

    with pytest.raises(AbortableError, match="_INCONSISTENT"), block(producer, member):
        pass

    assert script.calls[-2:] == ["commit_transaction", "abort_transaction"]
    assert member.sought == [2]


def test_an_abort_that_finds_no_transaction_after_a_commit_was_asked_for_proves_no_abort() -> None:
    """An exception in place of the answer of a commit that was done was told as an abort."""
    producer, script = scripted(
        commit_transaction=[KafkaError(KafkaError.UNKNOWN)], abort_transaction=[NO_SUCH_STATE]
    )
    member = FakeConsumer()
    transaction = block(producer, member)

    with pytest.raises(InDoubtError, match="may be committed"), transaction:
        pass

    assert transaction.result is BlockResult.IN_DOUBT
    assert script.calls[-1] == "abort_transaction"
    assert member.sought == [2]
    with pytest.raises(InDoubtError, match="can no longer be used"), block(producer):
        pass


def test_a_fenced_commit_is_not_aborted_and_closes_the_producer() -> None:
    producer, script = scripted(commit_transaction=[fatal(KafkaError._FENCED)])
    member = FakeConsumer()

    with pytest.raises(FencedError, match="'p' failed while committing"), block(producer, member):
        pass

    assert "abort_transaction" not in script.calls
    assert member.sought == [2]
    with pytest.raises(FencedError, match="can no longer be used"), block(producer):
        pass


def test_ctrl_c_that_hides_the_answer_of_a_finished_commit_is_told_committed() -> None:
    producer, script = scripted(commit_transaction=[KeyboardInterrupt(), NO_SUCH_STATE])

    with pytest.raises(KeyboardInterrupt) as caught, block(producer):
        pass

    assert caught.value.__notes__ == ["The transaction was committed before this was raised."]
    assert "abort_transaction" not in script.calls


def test_ctrl_c_during_a_commit_that_fails_is_told_uncommitted_and_aborts() -> None:
    producer, script = scripted(
        commit_transaction=[KeyboardInterrupt(), requires_abort(KafkaError._INCONSISTENT)]
    )

    with pytest.raises(KeyboardInterrupt) as caught, block(producer):
        pass

    assert "was not committed" in caught.value.__notes__[0]
    assert script.calls[-1] == "abort_transaction"


def test_a_second_ctrl_c_leaves_the_commit_in_doubt() -> None:
    producer, script = scripted(commit_transaction=[KeyboardInterrupt(), KeyboardInterrupt()])

    with pytest.raises(KeyboardInterrupt) as caught, block(producer, timeout=60):
        pass

    assert "may be committed" in caught.value.__notes__[0]
    assert "abort_transaction" not in script.calls
    with pytest.raises(InDoubtError, match="can no longer be used"), block(producer):
        pass


def test_records_not_acknowledged_in_time_abort_before_any_commit() -> None:
    producer, script = scripted(flush=[3])

    with pytest.raises(AbortableError, match="3 records"), block(producer):
        pass

    assert script.calls == ["begin_transaction", "abort_transaction"]


def test_offsets_are_sent_again_after_a_retriable_answer() -> None:
    producer, script = scripted(
        send_offsets_to_transaction=[retriable(KafkaError.COORDINATOR_NOT_AVAILABLE), None]
    )

    with block(producer, FakeConsumer(), timeout=60):
        pass

    assert script.calls.count("send_offsets_to_transaction") == 2
    assert script.calls[-1] == "commit_transaction"


def test_offsets_that_stay_unanswered_abort_the_block() -> None:
    producer, script = scripted(
        send_offsets_to_transaction=[retriable(KafkaError.COORDINATOR_NOT_AVAILABLE)]
    )
    member = FakeConsumer()

    with pytest.raises(RetriableError, match="COORDINATOR_NOT_AVAILABLE"), block(producer, member):
        pass

    assert script.calls[-1] == "abort_transaction"
    assert member.sought == [2]


def test_offsets_that_librdkafka_never_comes_back_from_give_up_the_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka waits for a coordinator that restarted, for ever (its issue 5511)."""
    monkeypatch.setattr("txn.client.block_offsets.OFFSETS_GRACE_SECONDS", 0.01)
    comes_back = threading.Event()
    producer, script = scripted(send_offsets_to_transaction=[comes_back])
    member = FakeConsumer()

    try:
        with pytest.raises(FencedError, match="has not come back"), block(producer, member):
            pass
        with pytest.raises(FencedError, match="open another"), block(producer):
            pass
    finally:
        comes_back.set()

    assert script.calls[-1] == "send_offsets_to_transaction"
    assert member.sought == [2]


def test_a_block_whose_offsets_were_interrupted_cannot_commit() -> None:
    producer, script = scripted(send_offsets_to_transaction=[KeyboardInterrupt()])
    member = FakeConsumer()

    with pytest.raises(AbortableError, match="was not seen to send"), block(producer, member) as t:
        try:
            t.send_offsets([TopicPartition("in", 0, 5)], cast(confluent_kafka.Consumer, member))
        except KeyboardInterrupt:
            t.produce("out", b"the program goes on")

    assert script.calls[-1] == "abort_transaction"
    assert member.sought == [2]


def test_ctrl_c_while_offsets_are_sent_aborts_only_after_they_are() -> None:
    """Offsets that are sent late would go into the next transaction."""
    comes_back = threading.Event()
    producer, script = scripted(send_offsets_to_transaction=[comes_back])
    threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
    threading.Timer(0.4, comes_back.set).start()

    with pytest.raises(KeyboardInterrupt), block(producer, FakeConsumer(), timeout=60):
        pass

    assert comes_back.is_set()
    assert script.calls[-1] == "abort_transaction"


def test_an_abort_waits_until_the_coordinator_knows_of_the_transaction() -> None:
    """The abort overtook the partitions, and the coordinator refused it for good."""
    producer, script = scripted()

    with pytest.raises(ZeroDivisionError), block(producer, timeout=60) as t:
        t.produce("out", b"1")
        t.produce("out", b"2")
        script.waiting = [2, 2, 1]
        raise ZeroDivisionError

    assert script.waiting == []
    assert script.calls[-1] == "abort_transaction"


def test_an_abort_that_fails_is_a_note_on_the_exception_and_closes_the_producer() -> None:
    producer, _ = scripted(abort_transaction=[fatal(KafkaError._FENCED)])

    with pytest.raises(ZeroDivisionError) as caught, block(producer):
        raise ZeroDivisionError

    assert "could not be aborted from here" in caught.value.__notes__[0]
    with pytest.raises(FencedError, match="can no longer be used"), block(producer):
        pass


def test_a_failure_whose_abort_is_fenced_is_raised_as_fenced() -> None:
    producer, _ = scripted(
        commit_transaction=[requires_abort(KafkaError.INVALID_PRODUCER_EPOCH)],
        abort_transaction=[fatal(KafkaError._FENCED)],
    )

    with pytest.raises(FencedError, match="while aborting") as caught, block(producer):
        pass

    assert isinstance(caught.value.__cause__, AbortableError)


def test_an_abort_without_an_answer_closes_the_producer() -> None:
    producer, _ = scripted(abort_transaction=[TIMED_OUT])

    with pytest.raises(ZeroDivisionError) as caught, block(producer):
        raise ZeroDivisionError

    assert "could not abort" in caught.value.__notes__[0]
    with pytest.raises(FencedError, match="open another"), block(producer):
        pass


def test_ctrl_c_during_an_abort_is_raised_once_abort_and_rewind_are_done() -> None:
    producer, script = scripted(abort_transaction=[KeyboardInterrupt(), None])
    member = FakeConsumer()

    with pytest.raises(KeyboardInterrupt), block(producer, member):
        raise ZeroDivisionError

    assert script.calls[-2:] == ["abort_transaction", "abort_transaction"]
    assert member.sought == [2]


def test_ctrl_c_while_beginning_leaves_no_transaction_open() -> None:
    producer, script = scripted(begin_transaction=[KeyboardInterrupt(), None])

    with pytest.raises(KeyboardInterrupt), block(producer):
        pass
    with block(producer):
        pass

    assert script.calls == [
        "begin_transaction",
        "abort_transaction",
        "begin_transaction",
        "commit_transaction",
    ]


def ctrl_c_behind(function: str) -> Callable[[FrameType, str, object], Any]:
    """A trace that raises KeyboardInterrupt where a function of `Transaction` has returned."""

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_qualname == f"Transaction.{function}" and event == "return":
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    return trace


def test_ctrl_c_between_the_begin_and_the_block_leaves_a_producer_that_goes_on() -> None:
    """It had a transaction open for ever, in which no block was; it could not be closed either."""
    producer, script = scripted()
    before = sys.gettrace()
    sys.settrace(ctrl_c_behind("__enter__"))
    try:
        with pytest.raises(KeyboardInterrupt), block(producer):
            pass
    finally:
        sys.settrace(before)
    with block(producer):
        pass

    assert script.calls == [
        "begin_transaction",
        "abort_transaction",
        "begin_transaction",
        "commit_transaction",
    ]


@pytest.mark.parametrize("is_held", [True, False])
def test_a_producer_can_be_closed_though_its_block_will_never_end(is_held: bool) -> None:
    producer, script = scripted()
    transaction = producer.transaction()
    transaction.__enter__()
    if not is_held:
        del transaction

    producer.close()

    assert script.calls == ["begin_transaction", "abort_transaction"]


def test_a_block_whose_producer_was_closed_is_aborted() -> None:
    producer, script = scripted()

    with pytest.raises(RejectedError, match="was closed in its block"), block(producer) as t:
        producer.close()
        with pytest.raises(RejectedError, match="the transaction is over"):
            t.produce("out", b"late")

    assert t.result is BlockResult.ABORTED
    assert script.calls == ["begin_transaction", "abort_transaction"]


def test_a_rewind_that_fails_is_made_up_for_before_the_next_block() -> None:
    producer, script = scripted()
    member = FakeConsumer()
    member.answers = [KafkaError(KafkaError._TIMED_OUT)]

    with pytest.raises(ZeroDivisionError) as caught, block(producer, member):
        raise ZeroDivisionError
    sought_after_the_failure = list(member.sought)
    with block(producer, member):
        sought_at_the_next_begin = list(member.sought)

    assert "could not be rewound" in caught.value.__notes__[0]
    assert sought_after_the_failure == []
    assert sought_at_the_next_begin == [2]
    assert script.calls[-1] == "commit_transaction"


def test_a_fatal_report_out_of_a_callback_is_told_as_what_it_is() -> None:
    wrapped = SystemError("returned a result with an exception set")
    wrapped.__cause__ = KafkaException(fatal(KafkaError._FENCED))
    producer, script = scripted(flush=[wrapped])

    with pytest.raises(FencedError) as caught, block(producer):
        pass

    assert caught.value.__cause__ is wrapped
    assert "abort_transaction" not in script.calls


def test_a_full_queue_waits_for_room() -> None:
    producer, script = scripted(produce=[BufferError(), BufferError(), None])

    with block(producer) as t:
        t.produce("out", b"v")

    assert script.calls.count("produce") == 3


def test_a_transaction_that_failed_in_the_background_tells_its_cause_to_produce() -> None:
    cause = requires_abort(KafkaError.TRANSACTION_ABORTABLE)
    producer, script = scripted(
        begin_transaction=[None, cause], produce=[KafkaError(KafkaError._STATE)]
    )

    with pytest.raises(AbortableError, match="TRANSACTION_ABORTABLE"), block(producer) as t:
        t.produce("out", b"v")

    assert script.calls[-1] == "abort_transaction"


def test_a_record_that_comes_after_the_abort_of_its_block_leaves_no_transaction_open() -> None:
    """Another thread's record asked for the cause by a begin, and began one for good."""
    producer, script = scripted(produce=[KafkaError(KafkaError._STATE)])

    with pytest.raises(AbortableError, match="Begin another"), block(producer) as t:
        t.produce("out", b"v")

    assert script.calls == [
        "begin_transaction",
        "produce",
        "begin_transaction",
        "abort_transaction",
        "abort_transaction",
    ]


@pytest.mark.parametrize(
    "refused",
    [requires_abort(KafkaError.TRANSACTION_ABORTABLE), requires_abort(KafkaError._INCONSISTENT)],
)
def test_an_idle_block_after_an_aborted_commit_sends_its_offsets_again(refused: KafkaError) -> None:
    """It found them sent already, said committed, and the group stood where it had been."""
    producer, script = scripted(commit_transaction=[refused])
    member = FakeConsumer()

    with pytest.raises(AbortableError, match=refused.name()), block(producer, member):
        pass
    script.calls.clear()
    with block(producer, member):
        pass
    with block(producer, member):
        pass

    assert script.calls == [
        "begin_transaction",
        "send_offsets_to_transaction",
        "commit_transaction",
        "begin_transaction",
        "commit_transaction",
    ]


def test_taking_over_waits_while_the_cluster_asks_for_patience() -> None:
    script = ClientScript(init_transactions=[retriable(KafkaError.COORDINATOR_NOT_AVAILABLE)])

    with pytest.raises(RetriableError, match="taking over"):
        ScriptedProducer(script)


@pytest.fixture(autouse=True)
def no_consumer_left_behind() -> Iterator[None]:
    from txn.client.block_offsets import _ahead

    yield
    assert not _ahead


def test_a_timeout_that_the_broker_refuses_is_told_as_a_setting_of_the_take_over() -> None:
    script = ClientScript(init_transactions=[fatal(KafkaError.INVALID_TRANSACTION_TIMEOUT)])
    with pytest.raises(
        ConfigError,
        match=r"transaction\.timeout\.ms=60000.*transaction\.max\.timeout\.ms is 900000",
    ):
        ScriptedProducer(script)


def test_a_setting_is_refused_by_the_name_that_people_know() -> None:
    with pytest.raises(ConfigError, match=r"^acks=1 does not fit: ") as told:
        producer_settings({"acks": 1}, transactional_id=None, bootstrap_servers="h:1", keywords={})
    assert told.value.property == "acks"


def test_a_record_that_never_had_a_partition_is_told_without() -> None:
    lost = [DeliveryFailure("bad name", -1, KafkaError(KafkaError.TOPIC_EXCEPTION))]
    failure = undelivered(lost, whose="producer 'p'", in_transaction=True)
    assert str(failure).startswith("producer 'p' could not store a record in 'bad name': ")
