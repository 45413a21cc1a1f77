"""`txn` with arguments, as its entry point reads them, in this process."""

import io
import sys
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from unittest.mock import patch

from txn.cli import main


def text_of(content: bytes) -> io.TextIOWrapper:
    """A stream to read text from."""
    return io.TextIOWrapper(io.BytesIO(content))


class Terminal:
    """A standard input at which a person gives one answer."""

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self, _limit: int = -1) -> str:
        return self._answer


def run_txn(*arguments: object, stdin: bytes | None = None) -> tuple[int, str, str]:
    """Run a command; return its exit code, output and errors. None: its input is this process's."""
    written, err = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(written, "utf-8", "backslashreplace")
    code: object = 0
    with (
        patch.object(sys, "argv", ["txn", *map(str, arguments)]),
        nullcontext() if stdin is None else patch.object(sys, "stdin", text_of(stdin)),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert code is None or isinstance(code, int), code
    out.flush()
    return code or 0, written.getvalue().decode("utf-8", "backslashreplace"), err.getvalue()
