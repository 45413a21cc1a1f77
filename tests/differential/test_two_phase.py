"""InitProducerId 6 (KIP-939) beside an Apache Kafka that serves it.

There it is unstable: a node announces and answers it with `unstable.api.versions.enable`, and lets
a client have it with `transaction.two.phase.commit.enable`, like txn.
"""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import txn
from differential import script
from differential.accepted import KNOWN, TWO_PHASE
from differential.pair import Pair
from differential.script import NOBODY, TIMEOUT_MS, ScriptProducer, Talk
from differential.scripts import init_producer_id, scripts_of, two_phase
from differential.side import API_VERSIONS, Side
from differential.topics import make_topic, wake
from harnesses.peers.kafka import KafkaNode

pytestmark = pytest.mark.peer

INIT_PRODUCER_ID, NEWEST = 22, 6
SWITCH = "transaction.two.phase.commit.enable"


class NewestTalk(Talk):
    """Says InitProducerId 6 where a script names no version."""

    def init(
        self,
        transactional_id: str | None,
        version: int = NEWEST,
        *,
        shown: tuple[Any, int] = NOBODY,
        timeout_ms: int = TIMEOUT_MS,
        **more: Any,
    ) -> ScriptProducer:
        return super().init(transactional_id, version, shown=shown, timeout_ms=timeout_ms, **more)


@pytest.fixture(scope="module")
def two_phase_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    switches = {SWITCH: "true", "unstable.api.versions.enable": "true"}
    with (
        txn.Broker(properties={SWITCH: True}) as broker,
        KafkaNode(tmp_path_factory.mktemp("kafka-two-phase"), switches) as node,
    ):
        known = (*TWO_PHASE, *KNOWN)
        pair = Pair(Side(broker.bootstrap_servers), Side(node.bootstrap_servers), known)
        wake(pair)
        yield pair
        pair.txn.close()
        pair.kafka.close()


@pytest.fixture
def talk(two_phase_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Talk:
    monkeypatch.setitem(script.NEWEST, "InitProducerId", NEWEST)
    two_phase_pair.begin(uuid.uuid4().hex[:8])
    return NewestTalk(two_phase_pair, make_topic(two_phase_pair, two_phase_pair.own("t")))


def test_both_announce_it(two_phase_pair: Pair) -> None:
    for side in (two_phase_pair.txn, two_phase_pair.kafka):
        answer = side.ask(API_VERSIONS, 0, {})
        (entry,) = (one for one in answer["api_keys"] if one["api_key"] == INIT_PRODUCER_ID)
        assert (entry["min_version"], entry["max_version"]) == (0, NEWEST)


@pytest.mark.parametrize(
    "played",
    [*scripts_of(two_phase), *scripts_of(init_producer_id)],
    ids=lambda played: played.__name__,
)
def test_both_brokers_answer_alike(talk: Talk, played: Callable[[Talk], None]) -> None:
    played(talk)
    assert not talk.pair.differences, talk.pair.report()


def test_every_accepted_difference_still_occurs(two_phase_pair: Pair) -> None:
    stale = [entry.name for entry in TWO_PHASE if entry.name not in two_phase_pair.accepted]
    assert not stale, f"accepted differences that no script sees any more: {stale}"
