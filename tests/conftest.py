"""Fixtures for every test: those of the peers, and the profile of Hypothesis."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from support import quick_java
from support.exploring import EXPLORES

pytest_plugins = ["harnesses.peers.kafka", "harnesses.peers.secured"]

settings.register_profile("same-cases", derandomize=True)
if not EXPLORES:
    settings.load_profile("same-cases")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, so that workers end at about the same time."""
    items.sort(key=lambda item: "tests/spark/kill" not in item.nodeid)


def pytest_configure() -> None:
    """Hear Ctrl-C, which a shell has programs in its background ignore; start JVMs quickly."""
    quick_java.use()
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _ctrl_c_is_heard() -> Iterator[None]:
    """A test that left another handler of SIGINT would break those after it in its process."""
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before
