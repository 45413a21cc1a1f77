"""The audit log: one line for a refusal or an act, and a bound on the lines of a second."""

import logging

import pytest

from support.sessions import session
from txn.broker.audit import ACTS_AT_ONCE, ACTS_PER_SECOND, LINES_MAX, NAME_MAX, AuditLog
from txn.broker.host import Context
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


def act(audit: AuditLog, event: str = "topic.created", times: int = 1) -> None:
    context = Context(ApiKey.CREATE_TOPICS, 7, "shop", session())
    for _ in range(times):
        audit.acted(context, event, "TOPIC", "pay", partitions=1)


def test_a_script_that_makes_many_topics_has_all_its_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "txn")
    act(AuditLog(clock=lambda: 0.0), times=ACTS_AT_ONCE)
    assert len(caplog.messages) == ACTS_AT_ONCE


def test_a_flood_of_acts_is_counted_and_hides_no_other_kind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One client could fill the disk of the log, because each success was a line.

    Without an authorizer every client may act.
    """
    caplog.set_level(logging.INFO, "txn")
    now = [0.0]
    audit = AuditLog(clock=lambda: now[0])
    act(audit, times=ACTS_AT_ONCE + 500)
    assert len(caplog.messages) == ACTS_AT_ONCE
    act(audit, "topic.deleted")
    assert caplog.messages[-1].startswith("topic.deleted ")
    now[0] = 2.0
    act(audit, times=500)
    assert len(caplog.messages) == ACTS_AT_ONCE + 1 + 2 * ACTS_PER_SECOND
    assert caplog.messages[ACTS_AT_ONCE + 1].endswith("partitions=1 left_out=500")
