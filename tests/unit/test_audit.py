"""The audit log: one line for a refusal, and a bound on the lines of a second."""

import logging

import pytest

from txn.broker.audit import LINES_MAX, NAME_MAX, AuditLog
from txn.security.acls import Operation, ResourceType
from txn.wire.api_keys import ApiKey


def refuse(audit: AuditLog, name: str = "pay") -> None:
    audit.refused("User:ada", "10.0.0.1", ApiKey.FETCH, Operation.READ, ResourceType.TOPIC, name)


def test_a_refusal_is_one_line_without_content(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "txn")
    refuse(AuditLog(clock=lambda: 0.0))
    assert caplog.messages == [
        "access.refused principal=User:ada host=10.0.0.1 request=FETCH operation=READ "
        "resource=TOPIC:pay"
    ]


def test_a_line_has_the_beginning_of_a_very_long_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "txn")
    refuse(AuditLog(clock=lambda: 0.0), "g" * NAME_MAX)
    refuse(AuditLog(clock=lambda: 0.0), "g" * 32_767)
    assert caplog.messages[1] == caplog.messages[0] + "…"


def test_a_flood_of_refusals_is_counted_and_not_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "txn")
    now = [0.0]
    audit = AuditLog(clock=lambda: now[0])
    for _ in range(LINES_MAX + 7):
        refuse(audit)
    assert len(caplog.messages) == LINES_MAX
    now[0] = 1.0
    refuse(audit)
    assert caplog.messages[-1].endswith("resource=TOPIC:pay left_out=7")
