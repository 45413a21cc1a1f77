"""AlterClientQuotas and DescribeClientQuotas beside Apache Kafka: the same requests and answers."""

import random
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

import txn
from harnesses.peers.kafka import KafkaNode
from support.client_quotas import IdentifiedConnection, alter, alteration, describe
from support.clients import create_topic

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

ROUNDS: Final = 150
SETTLE_S: Final = 20.0

ENTITIES: Final[list[list[tuple[str, str | None]]]] = [
    [("user", "ada")],
    [("user", None)],
    [("client-id", "shop")],
    [("client-id", None)],
    [("user", "ada"), ("client-id", "shop")],
    [("user", None), ("client-id", "shop")],
    [("user", "bob"), ("client-id", None)],
    [("ip", "10.0.0.1")],
    [("ip", None)],
    [],
    [("user", "")],
    [("group", "g")],
    [("ip", "10.0.0.1"), ("user", "ada")],
    [("user", "eve"), ("user", "ada")],
]
KEYS: Final = [
    *("producer_byte_rate", "consumer_byte_rate", "request_percentage"),
    *("controller_mutation_rate", "connection_creation_rate", "no_such_rate"),
]
VALUES: Final = [1e6, 2e6, 5e6, 1e6 + 0.5, 1e6 + 1e-7, 0.0, -1.0, 1e19, 2.0**31, 9.3e18]
"""Those that are taken are so large that no request of this test is throttled."""


@pytest.fixture(scope="module")
def txn_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with txn.Broker(tmp_path_factory.mktemp("quotas") / "data") as broker:
        yield broker.bootstrap_servers


def an_entry(draw: random.Random) -> dict[str, Any]:
    entity = draw.choice(ENTITIES[:9] if draw.random() < 0.8 else ENTITIES)
    keys = draw.sample(KEYS[:5] if draw.random() < 0.9 else KEYS, draw.choice([1, 1, 2]))
    if draw.random() < 0.05:
        keys.append(keys[0])
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [
            {"key": key, "value": draw.choice(VALUES), "remove": draw.random() < 0.3}
            for key in keys
        ],
    }


def a_filter(draw: random.Random) -> tuple[list[tuple[str, int, str | None]], bool]:
    components = []
    for kind in draw.sample(["user", "client-id", "ip", "group"], draw.choice([0, 1, 1, 2])):
        match_type = draw.choice([0, 0, 1, 2, 2, 3]) if draw.random() < 0.5 else 0
        wants_name = (match_type == 0) != (draw.random() < 0.05)
        name = draw.choice(["ada", "shop", "10.0.0.1", "bob"]) if wants_name else None
        components.append((kind, match_type, name))
    if components and draw.random() < 0.05:
        components.append(components[0])
    return components, draw.random() < 0.4


def told(servers: str, components: list[tuple[str, int, str | None]], strict: bool) -> Any:
    answer = describe(servers, components, strict=strict)
    if answer.entries is None:
        return int(answer.error_code), answer.error_message, None
    entries = [
        (
            sorted((part.entity_type, part.entity_name) for part in entry.entity),
            sorted((one.key, one.value) for one in entry.values),
        )
        for entry in answer.entries
    ]
    return int(answer.error_code), answer.error_message, sorted(entries, key=str)


def altered(servers: str, entries: list[dict[str, Any]], validate_only: bool) -> list[Any]:
    results = alter(servers, *entries, validate_only=validate_only)
    return sorted(((sorted(entity.items()), *rest) for entity, *rest in results), key=str)


@pytest.fixture
def shared_kafka(kafka_peer: str, txn_servers: str) -> Iterator[str]:
    """The node that other tests share: no quota is left to slow them, nor here."""
    yield kafka_peer
    for servers in (kafka_peer, txn_servers):
        _, _, entries = told(servers, [], strict=False)
        removals = [
            alteration(dict(entity), {key: None for key, _ in values}) for entity, values in entries
        ]
        assert {code for _, code, _ in alter(servers, *removals)} <= {0}


def is_one_fault(entry: dict[str, Any]) -> bool:
    """Say whether Kafka's answer has one cause: of several faults its map names any."""
    return len(entry["ops"]) == 1 and len(entry["entity"]) < 2


def without_messages(results: list[Any]) -> list[Any]:
    return [result[:2] for result in results]


@pytest.mark.parametrize("seed", range(3))
def test_generated_requests_are_answered_alike(
    shared_kafka: str, txn_servers: str, seed: int
) -> None:
    draw = random.Random(seed)
    for n in range(ROUNDS):
        entries = [an_entry(draw) for _ in range(draw.choice([1, 1, 2, 3]))]
        validate_only = draw.random() < 0.1
        theirs = altered(shared_kafka, entries, validate_only)
        ours = altered(txn_servers, entries, validate_only)
        if not all(is_one_fault(entry) for entry in entries):
            theirs, ours = without_messages(theirs), without_messages(ours)
        assert ours == theirs, (n, entries)
        wanted = a_filter(draw)
        deadline = time.monotonic() + SETTLE_S
        expected = told(txn_servers, *wanted)
        while told(shared_kafka, *wanted) != expected and time.monotonic() < deadline:
            time.sleep(0.01)  # Kafka's broker follows its controller
        assert told(shared_kafka, *wanted) == expected, (n, wanted)


# ---------------------------------------------------------------- which quota binds

LEVELS: Final[list[dict[str, str | None]]] = [
    {"user": "ANONYMOUS", "client-id": "shop"},
    {"user": "ANONYMOUS", "client-id": None},
    {"user": "ANONYMOUS"},
    {"user": None, "client-id": "shop"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "shop"},
    {"client-id": None},
]
LOW, HIGH = 10.0, 1e9
RATE: Final = "producer_byte_rate"
LEVEL_ROUNDS: Final = 40


@pytest.fixture(scope="module")
def a_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node of its own: quotas would slow the tests that share one."""
    with KafkaNode(tmp_path_factory.mktemp("kafka")) as node:
        yield node.bootstrap_servers


def test_the_same_of_the_eight_levels_binds(a_kafka: str, txn_servers: str) -> None:
    both = (a_kafka, txn_servers)
    for servers in both:
        create_topic(servers, "orders")
    draw = random.Random(8)
    for _ in range(LEVEL_ROUNDS):
        chosen = sorted(draw.sample(range(len(LEVELS)), draw.choice([1, 2, 3, 5])))
        limits = {level: draw.choice([LOW, HIGH]) for level in chosen}
        entries = [
            alteration(entity, {RATE: limits.get(level)}) for level, entity in enumerate(LEVELS)
        ]
        for servers in both:
            assert {code for _, code, _ in alter(servers, *entries)} == {0}
        is_bound = limits[chosen[0]] == LOW
        for servers in both:
            assert is_throttled_soon(servers, is_bound) == is_bound, (servers, limits)
    for servers in both:
        alter(servers, *(alteration(entity, {RATE: None}) for entity in LEVELS))


def is_throttled_soon(servers: str, expected: bool) -> bool:
    """Say whether a producer is throttled; Kafka's broker follows its controller after a moment."""
    deadline = time.monotonic() + 5
    while True:
        with IdentifiedConnection(servers) as client:
            is_throttled = client.produce("orders", 1000) > 0
        if is_throttled == expected or time.monotonic() > deadline:
            return is_throttled
