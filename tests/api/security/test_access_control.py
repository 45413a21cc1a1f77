"""Access control on a running broker: every API asks, and a change counts at once."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

import txn
from api.security.access_control import (
    ADMIN,
    ANONYMOUS,
    CLIENT,
    COMMITTED,
    GROUP,
    ID_FAILED,
    INVALID_RECORD,
    STRANGER,
    TOPIC,
    TOPIC_FAILED,
    UNKNOWN_TOPIC,
    UNKNOWN_TOPIC_ID,
    Refusal,
    all_topics,
    allow,
    ask,
    creations,
    partition_of,
    produce,
    secured,
)
from api.security.cluster_refusals import CLUSTER_REFUSALS
from api.security.transaction_refusals import TRANSACTION_REFUSALS
from support.acl_filters import any_acl
from support.clients import create_topic, plain_producer, read_all, send
from support.served import APIS
from support.wire_client import RawConnection
from support.wire_producer import WireProducer
from txn.broker.apis.guards import for_everybody
from txn.broker.apis.index import APIS_BY_MODULE
from txn.broker.audit import audit
from txn.config import STANDARD_AUTHORIZER
from txn.security.acls import Operation, Permission
from txn.wire.api_keys import ApiKey


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[txn.Broker]:
    with secured(tmp_path_factory.mktemp("secured") / "data") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"a"])
        yield broker


REFUSALS = [*CLUSTER_REFUSALS, *TRANSACTION_REFUSALS]


@pytest.mark.parametrize(
    "refusal", REFUSALS, ids=lambda refusal: f"{refusal.key.name}-{refusal.version}"
)
def test_a_stranger_is_refused(broker: txn.Broker, refusal: Refusal) -> None:
    answer = ask(broker, STRANGER, refusal.key, refusal.version, **refusal.fields)
    assert refusal.codes(answer) == refusal.expected


def test_every_api_but_these_refuses_a_stranger() -> None:
    """Those of delegation tokens give nothing to anybody: there are none."""
    everybodys = {key for key, api in APIS.items() if api.guard is for_everybody}
    assert everybodys == {
        *(ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
        *(ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN),
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        *APIS_BY_MODULE["other_groups"],
    }
    assert APIS.keys() - everybodys == {refusal.key for refusal in REFUSALS}


def test_a_change_counts_for_the_next_request_of_an_open_connection(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "pay")
        with RawConnection(broker.bootstrap_servers, STRANGER) as stranger:
            assert (produce(stranger, "pay"), stranger.fetch_code("pay")) == (TOPIC_FAILED,) * 2
            allow(broker, STRANGER, (TOPIC, "pay", Operation.READ))
            assert (produce(stranger, "pay"), stranger.fetch_code("pay")) == (TOPIC_FAILED, 0)
            allow(broker, STRANGER, (TOPIC, "pay", Operation.WRITE))
            assert (produce(stranger, "pay"), stranger.fetch_code("pay")) == (INVALID_RECORD, 0)
            denied = creations(STRANGER, Permission.DENY, (TOPIC, "pay", Operation.ALL))
            ask(broker, ADMIN, ApiKey.CREATE_ACLS, 3, **denied)
            assert (produce(stranger, "pay"), stranger.fetch_code("pay")) == (TOPIC_FAILED,) * 2
            deleted = any_acl(permission_type=Permission.DENY)
            ask(broker, ADMIN, ApiKey.DELETE_ACLS, 3, filters=[deleted])
            assert (produce(stranger, "pay"), stranger.fetch_code("pay")) == (INVALID_RECORD, 0)


def test_a_topic_that_is_not_there_is_refused_as_one_that_is(broker: txn.Broker) -> None:
    with RawConnection(broker.bootstrap_servers, STRANGER) as stranger:
        assert (produce(stranger, "none"), stranger.fetch_code("none")) == (TOPIC_FAILED,) * 2
    with RawConnection(broker.bootstrap_servers, ADMIN) as admin:
        assert (produce(admin, "none"), admin.fetch_code("none")) == (UNKNOWN_TOPIC,) * 2


def transactional_batch() -> bytes:
    """The header of an empty transactional batch; it is looked at before it is checked."""
    batch = bytearray(61)
    batch[8:12] = (49).to_bytes(4, "big")
    batch[16] = 2  # magic
    batch[21:23] = (0x10).to_bytes(2, "big")
    return bytes(batch)


def test_a_transactional_produce_needs_its_transactional_id(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "pay")
        allow(broker, STRANGER, (TOPIC, "pay", Operation.WRITE))
        records = {"index": 0, "records": transactional_batch()}
        answer = ask(
            broker,
            STRANGER,
            ApiKey.PRODUCE,
            9,
            transactional_id="t",
            acks=1,
            timeout=1000,
            topic_data=[{"name": "pay", "partition_data": [records]}],
        )
    assert int(answer.responses[0].partition_responses[0].error_code) == ID_FAILED


def test_a_denial_by_host_is_of_ipv4_clients_on_a_socket_of_ipv6_too(tmp_path: Path) -> None:
    every_topic = (TOPIC, "*", Operation.ALL)
    with txn.Broker(
        tmp_path / "data",
        host="::ffff:127.0.0.1",
        durability="process",
        properties={
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "allow.everyone.if.no.acl.found": "true",
        },
    ) as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        with RawConnection(f"127.0.0.1:{port}", ADMIN) as admin:
            for host, permission in (("*", Permission.ALLOW), (STRANGER, Permission.DENY)):
                admin.ask(ApiKey.CREATE_ACLS, 3, **creations(host, permission, every_topic))
            assert (produce(admin, "none"), admin.fetch_code("none")) == (UNKNOWN_TOPIC,) * 2
        with RawConnection(f"127.0.0.1:{port}", STRANGER) as stranger:
            assert (produce(stranger, "none"), stranger.fetch_code("none")) == (TOPIC_FAILED,) * 2


# ---------------------------------------------------------------- an id and a name


def metadata_of(broker: txn.Broker, address: str, *topics: tuple[UUID, str]) -> list[Any]:
    """The topics of an answer to a Metadata request that may make them: code and name of each."""
    answer = ask(
        broker,
        address,
        ApiKey.METADATA,
        12,
        topics=[{"topic_id": topic_id, "name": name} for topic_id, name in topics],
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    return [(int(one.error_code), one.name or None) for one in answer.topics]


def test_a_name_beside_an_id_neither_shows_nor_makes_a_topic(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "hidden")
        asked = [(uuid4(), "hidden"), (uuid4(), "made")]
        assert metadata_of(broker, STRANGER, *asked) == [(UNKNOWN_TOPIC_ID, None)] * 2
        assert {one for _, one in all_topics(broker)} == {"hidden"}


def test_the_name_of_a_hidden_topic_is_not_told_for_its_id(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "hidden")
        ((hidden, _),) = all_topics(broker)
        assert metadata_of(broker, STRANGER, (hidden, "x")) == [(TOPIC_FAILED, None)]
        assert metadata_of(broker, ADMIN, (hidden, "x")) == [(0, "hidden")]


def test_a_client_that_may_not_make_topics_has_no_coordinator_topic_made(tmp_path: Path) -> None:
    """Where creation was not wanted nobody asked for CREATE, and the topic was made anyhow."""
    name = "__transaction_state"
    told = []
    with secured(tmp_path / "data") as broker:
        allow(broker, STRANGER, (TOPIC, name, Operation.DESCRIBE))
        for may_make in (False, True):
            answer = ask(
                broker,
                STRANGER,
                ApiKey.METADATA,
                12,
                topics=[{"topic_id": None, "name": name}],
                allow_auto_topic_creation=may_make,
                include_topic_authorized_operations=False,
            )
            told += [(int(one.error_code), one.is_internal) for one in answer.topics]
        made = [*(tmp_path / "data").glob(f"{name}-*")]
    assert told == [(UNKNOWN_TOPIC, True), (TOPIC_FAILED, True)]
    assert not made


def test_lists_leave_out_the_resources_that_may_not_be_seen(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "seen")
        create_topic(broker.bootstrap_servers, "hidden")
        allow(broker, STRANGER, (TOPIC, "seen", Operation.READ))
        wanted = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
        answer = ask(broker, STRANGER, ApiKey.METADATA, 12, topics=None, **wanted)
    may = 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert [(one.name, one.topic_authorized_operations) for one in answer.topics] == [("seen", may)]


def test_committed_offsets_of_unseen_topics_are_left_out(tmp_path: Path) -> None:
    with secured(tmp_path / "data") as broker:
        for topic in ("seen", "hidden"):
            create_topic(broker.bootstrap_servers, topic)
        committed = {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": partition_of("seen", **COMMITTED) + partition_of("hidden", **COMMITTED),
        }
        ask(broker, ADMIN, ApiKey.OFFSET_COMMIT, 8, **committed)
        allow(broker, STRANGER, (GROUP, "g", Operation.READ), (TOPIC, "seen", Operation.READ))
        answer = ask(broker, STRANGER, ApiKey.OFFSET_COMMIT, 8, **committed)
        codes = [int(topic.partitions[0].error_code) for topic in answer.topics]
        fields = {"groups": [{"group_id": "g", "topics": None}], "require_stable": False}
        fetched = ask(broker, STRANGER, ApiKey.OFFSET_FETCH, 8, **fields)
    assert codes == [0, TOPIC_FAILED]
    assert [topic.name for topic in fetched.groups[0].topics] == ["seen"]


@pytest.mark.parametrize("key", [ApiKey.CREATE_ACLS, ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS])
def test_without_an_authorizer_entries_are_refused(tmp_path: Path, key: ApiKey) -> None:
    fields = {
        ApiKey.CREATE_ACLS: creations("*", Permission.ALLOW, (TOPIC, "pay", Operation.READ)),
        ApiKey.DESCRIBE_ACLS: any_acl(),
        ApiKey.DELETE_ACLS: {"filters": [any_acl()]},
    }[key]
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        answer = ask(broker, CLIENT, key, 3, **fields)
    results = getattr(answer, "results", None) or getattr(answer, "filter_results", None)
    (refused,) = results or [answer]
    is_described = key == ApiKey.DESCRIBE_ACLS
    said = f"No Authorizer is configured{' on the broker' if is_described else '.'}"
    assert (int(refused.error_code), refused.error_message) == (54, said)


def test_an_authorizer_that_is_not_here_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(txn.ConfigError, match="no other authorizer runs in this broker"):
        txn.Broker(tmp_path / "data", properties={"authorizer.class.name": "com.acme.Guard"})


def test_a_super_user_needs_no_entry(tmp_path: Path) -> None:
    properties = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": ANONYMOUS}
    with txn.Broker(tmp_path / "data", durability="process", properties=properties) as broker:
        create_topic(broker.bootstrap_servers, "pay")
        with RawConnection(broker.bootstrap_servers, STRANGER) as anybody:
            assert (produce(anybody, "pay"), anybody.fetch_code("pay")) == (INVALID_RECORD, 0)


# ---------------------------------------------------------------- the audit log


def test_refusals_and_acts_of_administrators_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "txn")
    with secured(tmp_path / "data") as broker:
        allow(broker, STRANGER, (TOPIC, "seen", Operation.READ))
        with RawConnection(broker.bootstrap_servers, STRANGER) as stranger:
            produce(stranger, "pay")
        ask(broker, STRANGER, ApiKey.DELETE_ACLS, 3, filters=[any_acl()])
    assert (
        f"acl.added principal={ANONYMOUS} host={ADMIN} resource=TOPIC:LITERAL:seen "
        f'entry="ALLOW {ANONYMOUS} READ from {STRANGER}"' in caplog.text
    )
    assert (
        f"access.refused principal={ANONYMOUS} host={STRANGER} request=PRODUCE operation=WRITE "
        "resource=TOPIC:pay" in caplog.text
    )
    assert (
        f"access.refused principal={ANONYMOUS} host={STRANGER} request=DELETE_ACLS operation=ALTER "
        "resource=CLUSTER:kafka-cluster" in caplog.text
    )


def test_a_topic_that_a_request_names_many_times_is_one_refusal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The story: each of its 199,000 places in one Fetch was asked for and written, on the thread of
    # the reactor. A client without any permission held up the others for seconds.
    caplog.set_level(logging.INFO, "txn")
    with secured(tmp_path / "data") as broker:
        before = audit.refusals()
        with RawConnection(broker.bootstrap_servers, STRANGER) as stranger:
            batches = [{"name": "pay", "partition_data": [{"index": 0, "records": None}]}] * 1_000
            fields = {"transactional_id": None, "acks": 1, "timeout": 1_000}
            answer = stranger.ask(ApiKey.PRODUCE, 9, **fields, topic_data=batches)
        after = audit.refusals()
    codes = {int(one.partition_responses[0].error_code) for one in answer.responses}
    assert (len(answer.responses), codes) == (1_000, {TOPIC_FAILED})
    of_topic = (Operation.WRITE, TOPIC)
    assert after[of_topic] - before.get(of_topic, 0) == 1
    assert caplog.text.count("access.refused") == 1


def test_a_client_with_every_right_sees_no_difference(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "paid")
    with (
        txn.Producer(bootstrap_servers=servers, transactional_id="shop") as producer,
        producer.transaction() as transaction,
    ):
        transaction.produce("paid", b"7 apples")
    with WireProducer(servers, "wired") as wired:
        started = wired.ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id="wired",
            transaction_timeout=1000,
            producer_id=-1,
            producer_epoch=-1,
        )
        owner = {"producer_id": started.producer_id, "producer_epoch": started.producer_epoch}
        of_txn = {"transactional_id": "wired", **owner}
        added = wired.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **of_txn, group_id="g")
        ended = wired.ask(ApiKey.END_TXN, 3, **of_txn, committed=True)
    assert read_all(servers, "paid") == [b"7 apples"]
    assert (int(added.error_code), int(ended.error_code)) == (0, 0)
