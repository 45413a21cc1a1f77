"""SASL listeners: real clients of each mechanism, and clients that do it wrong."""

import contextlib
import logging
import struct
import time
import tracemalloc
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

import txn
from support.wire_client import RawConnection
from txn.broker.apis import metadata
from txn.broker.host import Context
from txn.logs import RareLog, log
from txn.security.scram import SHA_256, salted_password
from txn.server.lifecycle.broker import service_of
from txn.server.security import logins
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

WAIT_S = 20
LISTENER = "SASL_PLAINTEXT"
PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="alice-secret" user_bob="bob-secret";'
)
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    "connection.failed.authentication.delay.ms": 1,
}
ALICE = b"\0alice\0alice-secret"


@pytest.fixture(scope="module")
def broker() -> Iterator[txn.Broker]:
    with txn.Broker(properties=SETTINGS) as running:
        yield running


def client_settings(broker: txn.Broker, mechanism: str, name: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": LISTENER,
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
        "log_level": 0,
    }


def counts_of(broker: txn.Broker) -> Counter[tuple[str, str, bool, str]]:
    """The log-ins so far."""
    found = service_of(broker).logins
    assert found is not None, "it has a SASL listener"
    return found.counts


def admin_of(broker: txn.Broker) -> AdminClient:
    return AdminClient(client_settings(broker, "PLAIN", "alice", "alice-secret"))


def upsert(
    broker: txn.Broker, name: str, mechanism: ScramMechanism, iterations: int = 4096
) -> None:
    change = UserScramCredentialUpsertion(
        name, ScramCredentialInfo(mechanism, iterations), b"carol-secret"
    )
    admin = admin_of(broker)  # its futures fail when it goes
    admin.alter_user_scram_credentials([change])[name].result(WAIT_S)


def connect(broker: txn.Broker) -> RawConnection:
    return RawConnection(broker.bootstrap_servers)


def handshake(connection: RawConnection, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return connection.ask(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)


def authenticate(connection: RawConnection, token: bytes = ALICE, version: int = 2) -> Any:
    return connection.ask(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=token)


def log_in(connection: RawConnection, token: bytes = ALICE) -> Any:
    handshake(connection)
    return authenticate(connection, token)


def is_served(connection: RawConnection) -> bool:
    connection.ask(ApiKey.METADATA, 1, topics=[])
    return True


# ------------------------------------------------------------ clients that are let in


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_produces_by_each_mechanism_with_a_password(
    broker: txn.Broker, mechanism: str
) -> None:
    name, password = "alice", "alice-secret"
    if mechanism != "PLAIN":
        name, password = "carol", "carol-secret"
        upsert(broker, name, ScramMechanism[mechanism.replace("-", "_")])
    failures: list[Any] = []
    producer = Producer(client_settings(broker, mechanism, name, password))
    producer.produce("orders", b"7 apples", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0
    assert failures == [None]


def test_a_handler_is_told_the_principal(
    broker: txn.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Context] = []
    api = metadata.APIS.apis[ApiKey.DESCRIBE_CLUSTER]
    handler = api.handler

    def note(node: Any, request: Any, context: Context) -> Any:
        seen.append(context)
        return handler(node, request, context)

    monkeypatch.setattr(api, "handler", note)
    with connect(broker) as connection:
        log_in(connection)
        connection.ask(ApiKey.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
    assert seen[0].session.principal == "User:alice"
    assert seen[0].session.listener.name == LISTENER


def test_a_client_of_old_sends_bare_tokens(broker: txn.Broker) -> None:
    with connect(broker) as connection:
        assert handshake(connection, version=0).error_code == ErrorCode.NONE
        connection.send_frame(ALICE)
        assert connection.read_frame() == b""
        assert is_served(connection)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_version_of_the_token_is_answered(broker: txn.Broker, version: int) -> None:
    with connect(broker) as connection:
        handshake(connection)
        assert authenticate(connection, version=version).error_code == ErrorCode.NONE
        assert is_served(connection)


def test_versions_are_told_before_the_handshake(broker: txn.Broker) -> None:
    with connect(broker) as connection:
        answer = connection.ask(
            ApiKey.API_VERSIONS, 3, client_software_name="me", client_software_version="1"
        )
        ranges = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        assert ranges[ApiKey.SASL_HANDSHAKE] == (0, 1)
        assert ranges[ApiKey.SASL_AUTHENTICATE] == (0, 2)
        assert ApiKey.GET_TELEMETRY_SUBSCRIPTIONS not in ranges
        assert log_in(connection).error_code == ErrorCode.NONE


def test_a_client_that_asks_for_too_high_a_version_may_ask_again(broker: txn.Broker) -> None:
    with connect(broker) as connection:
        for _ in range(2):
            connection.send_frame(struct.pack(">hhihx", ApiKey.API_VERSIONS, 99, 7, -1))
            code = ErrorCode.UNSUPPORTED_VERSION
            assert connection.read_frame()[4:6] == struct.pack(">h", code)
        assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == ErrorCode.NONE
        assert log_in(connection).error_code == ErrorCode.NONE
        for _ in range(2):
            assert connection.ask(ApiKey.API_VERSIONS, 0).error_code == ErrorCode.NONE


# ------------------------------------------------------------ clients that are not


def test_versions_are_told_once_before_the_handshake(broker: txn.Broker) -> None:
    """Every ApiVersions before the end of a log-in was answered."""
    with connect(broker) as connection:
        connection.ask(ApiKey.API_VERSIONS, 0)
        connection.send(ApiKey.API_VERSIONS, 0)
        assert connection.is_closed_by_peer()


@pytest.mark.parametrize("version", [0, 3, 4])
def test_versions_are_not_told_between_tokens(broker: txn.Broker, version: int) -> None:
    with connect(broker) as connection:
        handshake(connection)
        answer = connection.ask(
            ApiKey.API_VERSIONS,
            version,
            client_software_name="me",
            client_software_version="1",
        )
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert list(answer.api_keys) == []
        assert connection.is_closed_by_peer()


@pytest.mark.parametrize(
    "request_",
    [(ApiKey.METADATA, 1), (ApiKey.LIST_GROUPS, 0), (ApiKey.DESCRIBE_CLUSTER, 0)],
)
def test_any_other_request_before_authentication_closes_the_connection(
    broker: txn.Broker, request_: tuple[int, int]
) -> None:
    with connect(broker) as connection:
        connection.send_body(*request_, bytes(8))
        assert connection.is_closed_by_peer()


def test_a_token_before_the_handshake_closes_the_connection(broker: txn.Broker) -> None:
    with connect(broker) as connection:
        connection.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=ALICE)
        assert connection.is_closed_by_peer()


def test_a_wrong_mechanism_is_told_the_right_ones_and_closed(broker: txn.Broker) -> None:
    with connect(broker) as connection:
        answer = handshake(connection, "GSSAPI")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert set(answer.mechanisms) == {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
        assert connection.is_closed_by_peer()


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0nobody\0x", b"\xff", b""])
def test_a_refused_token_is_answered_and_the_connection_closed(
    broker: txn.Broker, token: bytes
) -> None:
    with connect(broker) as connection:
        answer = log_in(connection, token)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message
        assert connection.is_closed_by_peer()


def scram_final(first: bytes, answer: bytes, password: str) -> bytes:
    """The last message of a client of SCRAM-SHA-256 that knows the password."""
    fields = dict(part.split(b"=", 1) for part in answer.split(b","))
    salted = salted_password(SHA_256, password, b64decode(fields[b"s"]), int(fields[b"i"]))
    key = SHA_256.hmac(salted, b"Client Key")
    bare = b"c=biws,r=" + fields[b"r"]
    signed = b",".join((first.removeprefix(b"n,,"), answer, bare))
    signature = SHA_256.hmac(SHA_256.hash(key), signed)
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    return bare + b",p=" + b64encode(proof)


def test_a_scram_exchange_that_was_overheard_lets_nobody_in_again(broker: txn.Broker) -> None:
    upsert(broker, "carol", ScramMechanism.SCRAM_SHA_256)
    first = b"n,,n=carol,r=overheard"
    with connect(broker) as carol:
        handshake(carol, "SCRAM-SHA-256")
        final = scram_final(first, authenticate(carol, first).auth_bytes, "carol-secret")
        assert authenticate(carol, final).error_code == ErrorCode.NONE
        assert is_served(carol)
    with connect(broker) as mallory:
        handshake(mallory, "SCRAM-SHA-256")
        assert authenticate(mallory, first).error_code == ErrorCode.NONE
        assert authenticate(mallory, final).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert mallory.is_closed_by_peer()


def test_a_log_in_that_ends_anywhere_lets_nobody_in(broker: txn.Broker) -> None:
    upsert(broker, "carol", ScramMechanism.SCRAM_SHA_256)
    first = b"n,,n=carol,r=begun"
    for cut in (0, 1, 5, len("n,,n=carol,r=")):
        with connect(broker) as connection:
            handshake(connection, "SCRAM-SHA-256")
            answer = authenticate(connection, first[:cut])
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, first[:cut]
            assert connection.is_closed_by_peer()
    with connect(broker) as connection:
        handshake(connection, "SCRAM-SHA-256")
        final = scram_final(first, authenticate(connection, first).auth_bytes, "carol-secret")
        answer = authenticate(connection, final[:-4])
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.is_closed_by_peer()
    with connect(broker) as connection:
        handshake(connection, "SCRAM-SHA-256")
        authenticate(connection, first)
        connection.send_body(ApiKey.METADATA, 1, b"\0\0\0\0")
        assert connection.is_closed_by_peer()


def test_a_bare_token_that_is_refused_closes_the_connection(broker: txn.Broker) -> None:
    with connect(broker) as connection:
        handshake(connection, version=0)
        connection.send_frame(b"\0alice\0wrong")
        assert connection.is_closed_by_peer()


def test_a_message_beyond_the_limit_closes_the_connection_before_it_is_read(
    broker: txn.Broker,
) -> None:
    with connect(broker) as connection:
        connection.send_raw((524_288 + 1).to_bytes(4, "big"))
        assert connection.is_closed_by_peer()


def test_a_body_that_cannot_be_read_closes_the_connection(broker: txn.Broker) -> None:
    with connect(broker) as connection:
        connection.send_body(ApiKey.SASL_HANDSHAKE, 1, b"\x7f\xff")
        assert connection.is_closed_by_peer()


def test_a_handshake_on_a_listener_without_sasl_is_an_illegal_state(broker: txn.Broker) -> None:
    with RawConnection(broker.listeners["PLAINTEXT"]) as connection:
        assert handshake(connection).error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = authenticate(connection)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert is_served(connection)


def test_librdkafka_with_a_wrong_password_fails(broker: txn.Broker) -> None:
    told: list[int] = []
    settings = client_settings(broker, "PLAIN", "alice", "wrong")
    admin = AdminClient(settings | {"error_cb": lambda error: told.append(error.code())})
    with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT"):
        admin.list_topics(timeout=1)
    deadline = time.monotonic() + WAIT_S
    while KafkaError._AUTHENTICATION not in told:
        assert time.monotonic() < deadline, told
        admin.poll(0.1)


def test_a_failure_is_logged_with_its_reason_and_no_secret_and_counted(
    broker: txn.Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "rare_log", RareLog(log))  # silent since the last failure
    counts = counts_of(broker)
    before = counts[LISTENER, "PLAIN", False, "failed"]
    with caplog.at_level(logging.WARNING, logger="txn"), connect(broker) as connection:
        log_in(connection, b"\0alice\0hunter2")
    (line,) = [one.getMessage() for one in caplog.records if "authentication" in one.getMessage()]
    assert line == (
        "authentication.failed principal=User:alice client_host=127.0.0.1 listener=SASL_PLAINTEXT "
        'mechanism=PLAIN is_reauthentication=False reason="the password is wrong"'
    )
    assert counts[LISTENER, "PLAIN", False, "failed"] == before + 1


def test_a_client_that_fails_waits_alone() -> None:
    settings = {**SETTINGS, "connection.failed.authentication.delay.ms": 400}
    with (
        txn.Broker(properties=settings) as broker,
        connect(broker) as failing,
        connect(broker) as other,
    ):
        handshake(failing)
        began = time.monotonic()
        failing.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong")
        log_in(other)
        assert failing.has_nothing()
        answer = failing.receive(ApiKey.SASL_AUTHENTICATE, 2)
        assert time.monotonic() - began >= 0.4
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_hundreds_of_clients_that_fail_hold_up_nobody() -> None:
    settings = {**SETTINGS, "connection.failed.authentication.delay.ms": 5_000}
    with txn.Broker(properties=settings) as broker:
        failing = [connect(broker) for _ in range(300)]
        for connection in failing:
            handshake(connection)
            connection.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong")
        with connect(broker) as other:
            began = time.monotonic()
            assert log_in(other).error_code == ErrorCode.NONE
            assert time.monotonic() - began < 4
        for connection in failing:
            connection.socket.close()


# ------------------------------------------------------------ sessions that end


def test_a_session_that_was_not_prolonged_is_closed_with_its_next_request() -> None:
    settings = {**SETTINGS, "connections.max.reauth.ms": 1}
    with txn.Broker(properties=settings) as broker, connect(broker) as connection:
        answer = log_in(connection)
        assert answer.session_lifetime.total_seconds() == 0.001
        with pytest.raises(ConnectionError):
            while is_served(connection):
                pass


def test_a_client_that_authenticates_again_in_time_goes_on_and_another_principal_does_not() -> None:
    settings = {**SETTINGS, "connections.max.reauth.ms": 60_000}
    with txn.Broker(properties=settings) as broker, connect(broker) as connection:
        assert log_in(connection).session_lifetime.total_seconds() == 60
        assert log_in(connection).session_lifetime.total_seconds() == 60
        assert is_served(connection)
        answer = handshake(connection)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE  # within a second of the last
        assert is_served(connection)
    with txn.Broker(properties=settings) as broker, connect(broker) as connection:
        log_in(connection)
        answer = log_in(connection, b"\0bob\0bob-secret")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.bob"
        )
        assert connection.is_closed_by_peer()


def test_a_session_that_ends_within_a_second_of_its_renewal_is_closed() -> None:
    """It was told 34, and a handshake after that second prolonged it all the same."""
    settings = {**SETTINGS, "connections.max.reauth.ms": 300}
    with txn.Broker(properties=settings) as broker, connect(broker) as connection:
        log_in(connection)
        log_in(connection)
        with pytest.raises(ConnectionError):
            while True:
                assert handshake(connection).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_between_two_authentications_no_other_request_is_served() -> None:
    settings = {**SETTINGS, "connections.max.reauth.ms": 60_000}
    with txn.Broker(properties=settings) as broker, connect(broker) as connection:
        log_in(connection)
        handshake(connection)
        connection.send(ApiKey.METADATA, 1, topics=[])
        assert connection.is_closed_by_peer()


def test_librdkafka_prolongs_its_session() -> None:
    settings = {**SETTINGS, "connections.max.reauth.ms": 1_500}
    failures: list[Any] = []
    with txn.Broker(properties=settings) as broker:
        producer = Producer(client_settings(broker, "PLAIN", "alice", "alice-secret"))
        counts = counts_of(broker)
        until = time.monotonic() + WAIT_S
        while counts[LISTENER, "PLAIN", True, "successful"] == 0 and time.monotonic() < until:
            producer.produce("orders", b"x", on_delivery=lambda error, _: failures.append(error))
            producer.flush(WAIT_S)
        assert counts[LISTENER, "PLAIN", True, "successful"] > 0
        assert set(failures) == {None}


# ------------------------------------------------------------ users


def test_users_are_made_described_and_taken_away(broker: txn.Broker) -> None:
    admin: Any = admin_of(broker)
    upsert(broker, "dave", ScramMechanism.SCRAM_SHA_256, 8192)
    upsert(broker, "dave", ScramMechanism.SCRAM_SHA_512)
    described = admin.describe_user_scram_credentials(["dave"])["dave"].result(WAIT_S)
    assert [(one.mechanism, one.iterations) for one in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192),
        (ScramMechanism.SCRAM_SHA_512, 4096),
    ]
    gone = UserScramCredentialDeletion("dave", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([gone])["dave"].result(WAIT_S)
    described = admin.describe_user_scram_credentials(["dave"])["dave"].result(WAIT_S)
    assert [one.mechanism for one in described.scram_credential_infos] == [
        ScramMechanism.SCRAM_SHA_512
    ]


def alter(broker: txn.Broker, deletions: Any = (), upsertions: Any = ()) -> list[Any]:
    with RawConnection(broker.listeners["PLAINTEXT"]) as connection:
        answer = connection.ask(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            0,
            deletions=[{"name": name, "mechanism": number} for name, number in deletions],
            upsertions=[
                {
                    "name": name,
                    "mechanism": number,
                    "iterations": iterations,
                    "salt": b"salt",
                    "salted_password": b"salted",
                }
                for name, number, iterations in upsertions
            ],
        )
    return sorted((one.user, one.error_code, one.error_message) for one in answer.results)


def test_each_change_is_checked_as_kafka_does(broker: txn.Broker) -> None:
    twice = "A user credential cannot be altered twice in the same request"
    assert alter(
        broker,
        [("gone", 1), ("both", 9)],
        [
            ("few", 1, 4095),
            ("many", 2, 16_385),
            ("", 1, 4096),
            ("unknown", 3, 4096),
            ("twice", 1, 4096),
            ("twice", 2, 4096),
            ("fine", 2, 16_384),
            ("both", 1, 4096),
        ],
    ) == [
        ("", ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ("both", ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ("few", ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        ("fine", ErrorCode.NONE, None),
        (
            "gone",
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
        ("many", ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        ("twice", ErrorCode.DUPLICATE_RESOURCE, twice),
        ("unknown", ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    ]


def test_a_user_that_is_not_there_or_asked_for_twice_is_told(broker: txn.Broker) -> None:
    with RawConnection(broker.listeners["PLAINTEXT"]) as connection:
        answer = connection.ask(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            0,
            users=[{"name": "nobody"}, {"name": "erin"}, {"name": "erin"}],
        )
    assert [(one.user, one.error_code) for one in answer.results] == [
        ("nobody", ErrorCode.RESOURCE_NOT_FOUND),
        ("erin", ErrorCode.DUPLICATE_RESOURCE),
    ]


def test_users_outlive_the_broker(tmp_path: Any) -> None:
    with txn.Broker(tmp_path / "data", properties=SETTINGS) as broker:
        upsert(broker, "carol", ScramMechanism.SCRAM_SHA_512)
    with txn.Broker(tmp_path / "data", properties=SETTINGS) as broker:
        settings = client_settings(broker, "SCRAM-SHA-512", "carol", "carol-secret")
        assert AdminClient(settings).list_topics(timeout=WAIT_S).topics


def test_a_user_that_is_replaced_logs_in_by_the_new_password_alone(broker: txn.Broker) -> None:
    upsert(broker, "carol", ScramMechanism.SCRAM_SHA_256)
    with connect(broker) as connection:
        handshake(connection, "SCRAM-SHA-256")
        assert b",i=4096" in authenticate(connection, b"n,,n=carol,r=abc").auth_bytes
    upsert(broker, "carol", ScramMechanism.SCRAM_SHA_256, 8192)
    with connect(broker) as connection:
        handshake(connection, "SCRAM-SHA-256")
        assert b",i=8192" in authenticate(connection, b"n,,n=carol,r=abc").auth_bytes


# ------------------------------------------------------------ starts that are refused


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"sasl.enabled.mechanisms": ""}, "names no mechanism"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI.*does not speak"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "plain.sasl.jaas.config has no users"),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": "ScramLoginModule required;",
            },
            "PLAIN takes PlainLoginModule",
        ),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "jwks.endpoint.url is not given"),
        ({"sasl.jaas.config": PLAIN_USERS}, "unknown broker property 'sasl.jaas.config'"),
        ({"listener.name.sasl_plaintext.num.partitions": "3"}, "unknown broker property"),
    ],
)
def test_a_listener_that_could_let_anybody_in_is_not_opened(
    properties: dict[str, str], reason: str
) -> None:
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **properties}
    with pytest.raises(txn.ConfigError, match=reason) as refused:
        txn.Broker(properties=settings)
    assert "secret" not in str(refused.value)


def test_the_bytes_of_a_failed_log_in_are_not_kept_while_its_client_waits() -> None:
    large, clients = 500_000, 10
    delay = {"connection.failed.authentication.delay.ms": 60_000}
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(txn.Broker(properties=SETTINGS | delay))
        counts = counts_of(broker)
        connections = [stack.enter_context(connect(broker)) for _ in range(clients)]
        for connection in connections:
            handshake(connection)
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        for connection in connections:
            connection.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=bytes(large))
        until = time.monotonic() + WAIT_S
        while counts[LISTENER, "PLAIN", False, "failed"] < clients and time.monotonic() < until:
            time.sleep(0.01)
        assert counts[LISTENER, "PLAIN", False, "failed"] == clients
        while (kept := tracemalloc.get_traced_memory()[0]) > large and time.monotonic() < until:
            time.sleep(0.01)  # a log-in is counted a moment before its bytes are freed
    assert kept <= large
