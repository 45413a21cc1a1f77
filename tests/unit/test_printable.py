"""Names chosen by others are printed so that a terminal obeys none of them."""

import logging

import pytest

from txn.logs import log
from txn.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders-0", "orders-0"),
        ("Müller & 東京 [red]", "Müller & 東京 [red]"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b2J", r"\x9b2J"),
        ("a\u202eb\u2066c\u200bd", r"a\u202eb\u2066c\u200bd"),
        ("a\nb\r\tc\x7f", r"a\nb\r\tc\x7f"),
        ("\udcff", r"\udcff"),
    ],
)
def test_what_does_not_print_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("name", ["\x1b[31mred", "turned\u202e", "\x9b2J", "two\nlines"])
def test_a_log_line_gives_no_orders_to_a_terminal(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The story: an escape character is no space, so a client's name went out as it was."""
    with caplog.at_level(logging.WARNING, "txn"):
        log.warning("request.late", client_id=name)
    (line,) = caplog.messages
    assert line.isprintable()
