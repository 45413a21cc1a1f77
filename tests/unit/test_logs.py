"""Lines that a client can bring about at will."""

import logging

import pytest

from txn.logs import EventLog, RareLog


def test_an_event_has_one_line_a_second_which_says_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 10.0
    rare = RareLog(EventLog(logging.getLogger("txn")), clock=lambda: now_s)

    for number in range(5):
        rare.warning("request.malformed", number=number)
    rare.warning("request.late", number=5)
    now_s = 11.0
    rare.warning("request.malformed", number=6)
    now_s = 12.0
    rare.warning("request.malformed", number=7)

    assert caplog.messages == [
        "request.malformed number=0",
        "request.late number=5",
        "request.malformed number=6 left_out=4",
        "request.malformed number=7",
    ]


def test_an_exception_is_told_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    rare = RareLog(EventLog(logging.getLogger("txn")), clock=lambda: 0.0)

    for _ in range(2):
        try:
            raise ValueError("a bug")
        except ValueError:
            rare.exception("request.failed", api_key=3)

    (told,) = caplog.records
    assert told.getMessage() == "request.failed api_key=3"
    assert told.exc_info
