"""The table of metrics, its page, and the listener's answers to anybody."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from txn.errors import AddressError, ConfigError
from txn.server.metrics.health import Health
from txn.server.metrics.http_rounds import CONNECTIONS_MAX, HEAD_BYTES_MAX
from txn.server.metrics.listener import MetricsListener
from txn.server.metrics.scrape import api_name
from txn.server.metrics.table import METRICS

PAGES = b"There are /metrics, /healthz and /readyz.\n"
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "metrics.md"
DASHBOARD = ROOT / "deploy" / "grafana" / "txn.json"
ALERTS = ROOT / "deploy" / "prometheus" / "txn-alerts.yml"
OF_A_SCRAPE = {"instance", "job", "le"}
"""Labels that Prometheus adds, and that of buckets."""


class Probes:
    """A broker that works, and is not ready."""

    def live(self) -> Health:
        return Health(True, {"status": "ok"})

    def ready(self) -> Health:
        return Health(False, {"status": "not ready"})


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    listener = MetricsListener("127.0.0.1", 0, is_remote_allowed=False)
    listener.start(Probes())
    listener.serve_metrics(lambda: b"a 1\n")
    yield listener.address
    listener.stop()


def ask(address: tuple[str, int], request: bytes) -> tuple[bytes, bytes]:
    """Status line and body of an answer, read until the connection is closed."""
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(request)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], body


def test_the_page_lists_every_metric_as_the_table_has_it() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    expected = [
        f"| `{name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.about}"
        f" | {f'`{one.kafka}`' if one.kafka else ''} |"
        for name, one in METRICS.items()
    ]
    assert rows == expected


def test_every_name_follows_the_scheme() -> None:
    for name, metric in METRICS.items():
        assert re.fullmatch(r"(kafka|txn|process)_[a-z_]+", name)
        assert name.startswith("kafka_") == bool(metric.kafka)
        assert name.endswith("_total") == (metric.kind == "counter")
        assert name.endswith("_seconds") >= (metric.kind == "histogram")


def test_an_api_has_kafkas_name_and_a_key_that_kafka_does_not_have_none() -> None:
    assert api_name(22) == "InitProducerId"
    assert api_name(0) == "Produce"
    assert api_name(-1) == "Unknown"


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /metrics HTTP/1.1", b"200 OK", b"a 1\n"),
        (b"GET /metrics?name=a HTTP/1.0", b"200 OK", b"a 1\n"),
        (b"HEAD /metrics HTTP/1.1", b"200 OK", b""),
        (b"GET /healthz HTTP/1.1", b"200 OK", b'{"status": "ok"}\n'),
        (b"HEAD /healthz HTTP/1.1", b"200 OK", b""),
        (b"GET /readyz HTTP/1.1", b"503 Service Unavailable", b'{"status": "not ready"}\n'),
        (b"HEAD /readyz HTTP/1.1", b"503 Service Unavailable", b""),
        (b"GET / HTTP/1.1", b"404 Not Found", PAGES),
        (b"GET /../metrics HTTP/1.1", b"404 Not Found", PAGES),
        (b"POST /metrics HTTP/1.1", b"405 Method Not Allowed", b"Use GET or HEAD.\n"),
        (b"POST /healthz HTTP/1.1", b"405 Method Not Allowed", b"Use GET or HEAD.\n"),
        (b"\x16\x03\x01 no HTTP", b"400 Bad Request", b"This is no HTTP/1 request.\n"),
    ],
)
def test_a_request_is_answered(
    address: tuple[str, int], request_line: bytes, status: bytes, body: bytes
) -> None:
    said = ask(address, request_line + b"\r\nHost: a\r\n\r\n")
    assert said == (b"HTTP/1.1 " + status, body)


def test_a_head_without_end_is_refused(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"a" * HEAD_BYTES_MAX)
        assert client.recv(12) == b"HTTP/1.1 431"


def test_clients_that_say_nothing_or_leave_do_not_keep_others_for_good(
    address: tuple[str, int],
) -> None:
    silent = socket.create_connection(address)
    socket.create_connection(address).close()
    assert ask(address, b"GET /metrics HTTP/1.1\r\n\r\n")[1] == b"a 1\n"
    silent.close()


def test_half_sent_requests_keep_no_probe_waiting(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request was read at a time, for up to 2 s: sixteen of them starved every probe."""
    monkeypatch.setattr("txn.server.metrics.http_rounds.REQUEST_S", 3_600)
    with ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX + 20):
            slow = stack.enter_context(socket.create_connection(address, timeout=20))
            slow.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        assert ask(address, b"GET /healthz HTTP/1.1\r\n\r\n")[0] == b"HTTP/1.1 200 OK"
        assert ask(address, b"GET /metrics HTTP/1.1\r\n\r\n")[1] == b"a 1\n"


def test_a_half_sent_request_is_given_up(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=20) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        assert slow.recv(1) == b""


def test_clients_that_take_no_answer_keep_no_probe_waiting() -> None:
    listener = MetricsListener("127.0.0.1", 0, is_remote_allowed=False)
    listener.start(Probes())
    listener.serve_metrics(lambda: bytes(16 << 20))
    with ExitStack() as stack:
        for _ in range(20):
            slow = stack.enter_context(socket.create_connection(listener.address, timeout=20))
            slow.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert slow.recv(1) == b"H"
        said = ask(listener.address, b"GET /healthz HTTP/1.1\r\n\r\n")
        assert said[0] == b"HTTP/1.1 200 OK"
        whole = ask(listener.address, b"GET /metrics HTTP/1.1\r\n\r\n")[1]
        assert len(whole) == 16 << 20
    listener.stop()


def test_a_page_is_made_once_for_all_requests_that_wait_for_it() -> None:
    """Each probe of a busy control loop waited for a second of its own."""
    listener = MetricsListener("127.0.0.1", 0, is_remote_allowed=False)
    begun, may_end = threading.Event(), threading.Event()
    made: list[bool] = []

    def metrics() -> bytes:
        begun.set()
        made.append(may_end.wait(20))
        return b"a 1\n"

    listener.start(Probes())
    listener.serve_metrics(metrics)
    with ExitStack() as stack:
        clients = []
        for _ in range(10):
            client = stack.enter_context(socket.create_connection(listener.address, timeout=20))
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            clients.append(client)
            assert begun.wait(20)
        may_end.set()
        answers = [b"".join(iter(partial(client.recv, 65536), b"")) for client in clients]
    listener.stop()
    assert all(answer.endswith(b"\r\n\r\na 1\n") for answer in answers)
    assert len(made) == 2


def test_probes_are_answered_before_there_are_metrics() -> None:
    listener = MetricsListener("127.0.0.1", 0, is_remote_allowed=False)
    listener.start(Probes())
    assert ask(listener.address, b"GET /healthz HTTP/1.1\r\n\r\n")[0] == b"HTTP/1.1 200 OK"
    said = ask(listener.address, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert said == (b"HTTP/1.1 503 Service Unavailable", b"The broker starts.\n")
    listener.stop()


def test_metrics_that_fail_cost_their_request_alone() -> None:
    listener = MetricsListener("127.0.0.1", 0, is_remote_allowed=False)
    given = iter([b"a 1\n"])
    listener.start(Probes())
    listener.serve_metrics(lambda: next(given))
    assert ask(listener.address, b"GET /metrics HTTP/1.1\r\n\r\n")[1] == b"a 1\n"
    assert ask(listener.address, b"GET /metrics HTTP/1.1\r\n\r\n") == (b"", b"")
    assert ask(listener.address, b"GET / HTTP/1.1\r\n\r\n")[0] == b"HTTP/1.1 404 Not Found"
    listener.stop()


def test_an_address_that_others_can_reach_has_to_be_allowed() -> None:
    with pytest.raises(ConfigError, match=r"set metrics\.allow\.remote=true"):
        MetricsListener("0.0.0.0", 0, is_remote_allowed=False)
    listener = MetricsListener("0.0.0.0", 0, is_remote_allowed=True)
    listener.stop()


def test_an_address_that_is_taken_is_named() -> None:
    one = MetricsListener("127.0.0.1", 0, is_remote_allowed=False)
    with pytest.raises(AddressError, match=r"cannot serve metrics on 127\.0\.0\.1"):
        MetricsListener(*one.address, is_remote_allowed=False)
    one.stop()


def labels_of(expression: str) -> set[str]:
    """The labels of the metrics that an expression names, all of which there are."""
    found = set(re.findall(r"\b(?:kafka|txn|process)_[a-z_]+", expression))
    histograms = {name for name, one in METRICS.items() if one.kind == "histogram"}
    names = {name.removesuffix("_bucket") if name[:-7] in histograms else name for name in found}
    assert names or "up{" in expression, expression
    assert names <= METRICS.keys(), expression
    return OF_A_SCRAPE.union(*(METRICS[name].labels for name in names))


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are() -> None:
    targets = [
        target
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel.get("targets", ())
    ]
    assert len(targets) > 20
    for target in targets:
        labels = labels_of(target["expr"])
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        grouped = re.findall(r"by \(([^)]*)\)", target["expr"])
        assert shown <= labels, target
        assert {name for names in grouped for name in names.split(", ")} <= labels, target


def test_the_alerts_ask_for_metrics_that_there_are() -> None:
    # An expression goes on until the next key of its rule.
    expressions = re.findall(r"\n +expr: (.*?)\n +(?:for|labels):", ALERTS.read_text(), re.DOTALL)
    assert len(expressions) == ALERTS.read_text().count("- alert: ")
    for expression in expressions:
        labels_of(expression)
