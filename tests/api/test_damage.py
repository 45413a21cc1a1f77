"""P9 over the wire: a fetch of damaged records is refused, and everything else is served."""

from pathlib import Path

import pytest

import txn
from clients import create_topic, plain_producer, read_all, send
from txn import _core

CORRUPT_MESSAGE = 2


def test_P9_a_fetch_of_damage_answers_corrupt_message_and_others_go_on(tmp_path: Path) -> None:
    with txn.Broker(tmp_path) as broker:
        for topic in ("bad", "good"):
            create_topic(broker.bootstrap_servers, topic)
            send(plain_producer(broker.bootstrap_servers), topic, [b"value"])
    path = tmp_path / "bad-0" / f"{0:020}.log"
    stored = bytearray(path.read_bytes())
    stored[-2] ^= 1
    path.write_bytes(stored)
    with txn.Broker(tmp_path) as broker:
        client = _core.KafkaClient(broker.bootstrap_servers, timeout_ms=1000)
        with pytest.raises(_core.KafkaError) as refused:
            list(client.fetch("bad", 0, 0, 1))
        assert refused.value.args[1] == CORRUPT_MESSAGE
        assert read_all(broker.bootstrap_servers, "good") == [b"value"]
        send(plain_producer(broker.bootstrap_servers), "bad", [b"more"])
