"""Bad input gets a clear error, alone, and loses nothing."""

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import txn
from support.clients import create_topic, plain_producer, read_all, send
from support.wire_client import RawConnection, request
from txn import _core
from txn._core import encode_batch

UNSUPPORTED_VERSION = 35
CORRUPT_MESSAGE = 2


def serve(*arguments: str, listen: str = "127.0.0.1:0") -> subprocess.CompletedProcess[str]:
    """Run `txn serve` on arguments it refuses."""
    return subprocess.run(
        [sys.executable, "-m", "txn", "serve", "--listen", listen, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_an_unknown_property_is_named_with_the_closest_known_one() -> None:
    with pytest.raises(txn.ConfigError, match=r"'num\.partition'.*did you mean num\.partitions"):
        txn.Broker(properties={"num.partition": 3})


def test_a_value_that_does_not_fit_is_refused_with_what_would() -> None:
    with pytest.raises(txn.ConfigError, match=r"num\.partitions cannot be 'many'.*whole number"):
        txn.Broker(num_partitions="many")


def test_the_command_refuses_a_bad_property_in_one_line_with_exit_code_2() -> None:
    done = serve("-o", "nonsense=1")
    assert done.returncode == 2
    assert done.stderr == "txn: unknown broker property 'nonsense'\n"


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:99999", ":"])
def test_the_command_refuses_an_address_it_cannot_read(listen: str) -> None:
    done = serve(listen=listen)
    assert done.returncode == 2
    assert "HOST:PORT" in done.stderr


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with txn.Broker(tmp_path / "data"):
        with pytest.raises(txn.DirectoryError, match="in use by another broker"):
            txn.Broker(tmp_path / "data")
        done = serve("--data", str(tmp_path / "data"))
    assert done.returncode == 1
    assert "in use by another broker" in done.stderr


def test_a_directory_with_strange_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(txn.DirectoryError, match=r"thesis\.tex"):
        txn.Broker(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_file_in_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no directory")
    with pytest.raises(txn.DirectoryError, match="cannot use"):
        txn.Broker(tmp_path / "data")


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    txn.Broker(tmp_path / "data", node_id=7).close()
    with pytest.raises(txn.DirectoryError, match=r"belongs to node 7.*node\.id=7"):
        txn.Broker(tmp_path / "data", node_id=1)


def test_a_damaged_meta_properties_is_named(tmp_path: Path) -> None:
    txn.Broker(tmp_path / "data").close()
    (tmp_path / "data" / "meta.properties").write_bytes(b"\xff\x00")
    with pytest.raises(txn.DirectoryError, match=r"meta\.properties"):
        txn.Broker(tmp_path / "data")


def test_a_taken_port_is_refused_and_the_directory_stays_usable(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(txn.AddressError, match=f"{port}: the address is in use. Stop"):
            txn.Broker(tmp_path / "data", port=port)
    txn.Broker(tmp_path / "data").close()


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [
        ("127.0.0.1", 99999, "a port is a number up to 65535"),
        ("192.0.2.1", 0, "the address is not of this machine"),
    ],
)
def test_an_address_that_cannot_be_is_refused_with_the_reason(
    host: str, port: int, reason: str
) -> None:
    with pytest.raises(txn.AddressError, match=f"cannot listen on {host}:{port}: {reason}") as told:
        txn.Broker(host=host, port=port)
    assert (told.value.host, told.value.port) == (host, port)


def test_a_transaction_timeout_that_the_broker_refuses_is_told_as_a_setting() -> None:
    """The story: it was told as a failure while waiting for records to be stored."""
    with (
        txn.Broker() as broker,
        pytest.raises(
            txn.ConfigError, match=r"transaction\.timeout\.ms=1000000000, more than the broker"
        ),
    ):
        txn.Producer(
            {"transaction.timeout.ms": 10**9},
            bootstrap_servers=broker.bootstrap_servers,
            transactional_id="a",
        )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", 2**31 - 1), id="2 GB length prefix"),
        pytest.param(struct.pack(">i", -1), id="negative length prefix"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", id="http"),
        pytest.param(struct.pack(">i", 8) + b"\xff" * 8, id="garbage frame"),
        pytest.param(struct.pack(">ihhih", 10, 3, 9999, 1, -1), id="unknown version"),
        pytest.param(struct.pack(">ihhih", 10, 999, 0, 1, -1), id="unknown api"),
        pytest.param(struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1), id="huge array"),
    ],
)
def test_garbage_costs_the_sender_its_connection_and_nobody_else_anything(
    servers: str, data: bytes
) -> None:
    create_topic(servers, "orders")
    with RawConnection(servers) as connection:
        connection.send_raw(data)
        assert connection.is_closed_by_peer()
    send(plain_producer(servers), "orders", [b"still here"])
    assert read_all(servers, "orders") == [b"still here"]


def test_half_a_frame_waits_without_holding_up_others(servers: str) -> None:
    create_topic(servers, "orders")
    with RawConnection(servers) as connection:
        connection.send_raw(struct.pack(">i", 1000) + b"half")
        send(plain_producer(servers), "orders", [b"one"])
        assert read_all(servers, "orders") == [b"one"]


def test_an_unknown_version_of_api_versions_is_answered_as_kafka_does(servers: str) -> None:
    with RawConnection(servers) as connection:
        connection.send_frame(struct.pack(">hhih", 18, 99, 5, -1) + b"\x00")
        answer = connection.read_frame()
    correlation_id, error, count = struct.unpack_from(">ihi", answer)
    assert (correlation_id, error) == (5, UNSUPPORTED_VERSION)
    assert len(answer) == 10 + 6 * count
    assert (18, 0, 5) in struct.iter_unpack(">hhh", answer[10:])


def test_a_corrupt_batch_is_refused_and_nothing_is_stored(servers: str) -> None:
    create_topic(servers, "orders")
    batch = bytearray(encode_batch([(None, b"value")], 1_700_000_000_000))
    batch[-1] ^= 1
    schema = request(0, 9)
    topic = schema.__dataclass_fields__["topic_data"].type.__args__[0]
    partition = topic.__dataclass_fields__["partition_data"].type.__args__[0]
    with RawConnection(servers) as connection:
        response = connection.call(
            schema(
                transactional_id=None,
                acks=-1,
                timeout=_seconds(5),
                topic_data=(
                    topic(
                        name="orders", partition_data=(partition(index=0, records=bytes(batch)),)
                    ),
                ),
            )
        )
    assert response.responses[0].partition_responses[0].error_code == CORRUPT_MESSAGE
    assert read_all(servers, "orders") == []


def _seconds(value: float) -> object:
    import datetime

    from kio.static.primitive import i32Timedelta

    return i32Timedelta.parse(datetime.timedelta(seconds=value))


def test_P9_a_damaged_segment_is_named_and_untouched_and_other_partitions_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole start was refused for one partition."""
    with txn.Broker(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        create_topic(broker.bootstrap_servers, "sound")
        producer = plain_producer(broker.bootstrap_servers)
        for number in range(10):
            send(producer, "orders", [b"%d" % number * 100])
    segment = tmp_path / "data" / "orders-0" / "00000000000000000000.log"
    damaged = bytearray(segment.read_bytes())
    damaged[200] ^= 1
    segment.write_bytes(damaged)
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()

    with txn.Broker(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        client = _core.KafkaClient(servers, timeout_ms=1000)
        with pytest.raises(_core.KafkaError) as refused:
            list(client.fetch("orders", 0, 0, 1))
        send(plain_producer(servers), "sound", [b"value"])
        assert read_all(servers, "sound") == [b"value"]

    assert refused.value.args[1] == 56
    (told,) = (line for line in caplog.messages if line.startswith("log.damaged"))
    assert f"topic=orders partition=0 path={segment} position=170 reason=" in told
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert segment.read_bytes() == bytes(damaged)


def test_P9_a_torn_tail_is_cut_and_the_rest_is_served(tmp_path: Path) -> None:
    with txn.Broker(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        producer = plain_producer(broker.bootstrap_servers)
        for number in range(10):
            send(producer, "orders", [b"%d" % number])
    segment = tmp_path / "data" / "orders-0" / "00000000000000000000.log"
    whole = segment.read_bytes()
    next_batch = (10).to_bytes(8) + whole[8 : len(whole) // 10]
    segment.write_bytes(whole + next_batch[:-5])
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()

    with txn.Broker(tmp_path / "data") as broker:
        assert read_all(broker.bootstrap_servers, "orders") == [b"%d" % n for n in range(10)]
    assert segment.read_bytes() == whole
