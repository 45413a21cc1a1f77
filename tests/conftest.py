"""Fixtures for every test: those of the peers, and the profile of Hypothesis."""

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from support import engines, quick_java
from support.exploring import EXPLORES
from txn.client.engine import EngineName

pytest_plugins = [
    "harnesses.peers.kept",
    "harnesses.peers.kafka",
    "harnesses.peers.secured",
    "support.file_times",
    "support.processes",
]

settings.register_profile("same-cases", derandomize=True)
if not EXPLORES:
    settings.load_profile("same-cases")


LONGEST = (
    "tests/test_wheel.py",  # it waits for the registry while others work
    "tests/test_transcripts.py",
    "tests/spark/patterns/",
    "tests/spark/kill/",
    "tests/test_pages.py",
    "tests/crash/",
    "tests/clients/",
    "tests/spark/",
    "tests/console/",
    "tests/differential/",
    "tests/sim/",
)
"""Files and folders of minutes, the first to begin first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files. At the end workers have short ones, and none waits for long."""
    items.sort(key=_place_in_line)


def pytest_collection_finish() -> None:
    """Free later garbage collections from visiting every collected test and module."""
    gc.freeze()


def _place_in_line(item: pytest.Item) -> int:
    places = (place for place, name in enumerate(LONGEST) if item.nodeid.startswith(name))
    return next(places, len(LONGEST))


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


@pytest.fixture(params=engines.ALL)
def engine(request: pytest.FixtureRequest) -> EngineName:
    """An engine of `txn.Producer`; the test runs with each."""
    name: EngineName = request.param
    return name
