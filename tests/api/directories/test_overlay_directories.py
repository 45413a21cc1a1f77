"""A data directory in the lower layer of an overlay, as an image has it, is served like any other.

The story: the first start failed, and the second left a topic out. The opening of a file for
writing copies it to the upper layer, where it has another inode. A broker that had deleted a topic
did not start again: an overlay renames no directory of a lower layer.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient

from support import mounts
from support.brokers import BrokerProcess
from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from support.damaged import VALUES
from support.memory import MEMORY
from txn.inspect.verify import verify

pytestmark = pytest.mark.crash

SMALL_SEGMENTS: Final[Mapping[str, str]] = {"internal_segment_bytes": "1500", "retention_ms": "-1"}
"""Settings of topics with several segments."""


@pytest.fixture
def lower() -> Iterator[Path]:
    """A directory on another file system than the upper layer, if there is one.

    On the same one Linux gives a file that is copied up its former number.
    """
    with tempfile.TemporaryDirectory(prefix="txn-lower-", dir=MEMORY) as name:
        yield Path(name) / "data"


def overlaid(lower: Path, tmp_path: Path) -> BrokerProcess:
    """Start a broker in a mount namespace of its own."""
    merged = tmp_path / "merged"
    first, *rest = mounts.overlay(lower, tmp_path / "layers", merged)
    program = [*rest, *mounts.python("-m", "txn")]
    return BrokerProcess(merged, python=Path(first), program=program)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_directory_in_a_lower_layer_is_served_whole(
    lower: Path, tmp_path: Path, is_killed: bool
) -> None:
    made = BrokerProcess(lower)
    for topic in ("kept", "grown", "gone"):
        create_topic(made.bootstrap_servers, topic, 1, **SMALL_SEGMENTS)
        send(plain_producer(made.bootstrap_servers), topic, [value * 300 for value in VALUES])
    if is_killed:
        made.kill()
    else:
        assert made.stop() == 0
    untouched = {path: path.read_bytes() for path in lower.rglob("*") if path.is_file()}

    first = overlaid(lower, tmp_path)
    servers = first.bootstrap_servers
    values = [value * 300 for value in VALUES]
    assert read_all(servers, "kept") == values
    assert send(plain_producer(servers), "grown", [b"more"]) == [len(VALUES)]
    assert read_all(servers, "grown") == [*values, b"more"]
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics(["gone"])["gone"].result(WAIT_S)
    assert first.stop() == 0
    first.restart()
    assert read_all(first.bootstrap_servers, "kept") == values
    assert read_all(first.bootstrap_servers, "grown") == [*values, b"more"]
    first.kill()
    first.restart()
    assert read_all(first.bootstrap_servers, "grown") == [*values, b"more"]
    assert first.stop() == 0
    log = (tmp_path / "merged.log").read_text()
    assert " ERROR " not in log
    assert "partition.not_opened" not in log
    assert untouched == {path: path.read_bytes() for path in lower.rglob("*") if path.is_file()}
    removed = tmp_path / "layers" / "upper" / "gone-0"
    assert not removed.is_dir()  # but the device that stands for a removal
    assert removed.exists()
    assert verify(lower).findings == []
