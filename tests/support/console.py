"""`txn console` as a process, and a browser without scripts for it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import IO

from support.brokers import UNBUFFERED
from support.clients import WAIT_S


@dataclass(frozen=True)
class Answer:
    """An answer of the console."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Browser:
    """A client that keeps the cookie, as a browser does."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._port = port
        self._host = host
        self.cookie = ""

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, None, headers)

    def post(self, path: str, form: Mapping[str, str], **headers: str) -> Answer:
        return self.send("POST", path, urllib.parse.urlencode(form), headers)

    def send(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answer:
        """Send one request; a name of `headers` has _ for -."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=WAIT_S)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            given.setdefault("Content-Type", "application/x-www-form-urlencoded")
        if self.cookie:
            given["Cookie"] = self.cookie
        connection.request(method, path, body, given)
        found = connection.getresponse()
        answer = Answer(found.status, dict(found.getheaders()), found.read())
        connection.close()
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    def csrf(self) -> str:
        """The secret in the forms of this session."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.get("/").text)
        assert found is not None
        return found[1]

    @contextmanager
    def stream(
        self, path: str, accept: str = "text/event-stream"
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer that is read while it arrives, as the events of a page are."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=WAIT_S)
        connection.request("GET", path, headers={"Cookie": self.cookie, "Accept": accept})
        with closing(connection), connection.getresponse() as answer:
            yield answer


class ConsoleProcess:
    """A console that listens at a free port."""

    def __init__(self, *options: object, stderr: IO[str] | None = None) -> None:
        command = [sys.executable, "-m", "txn", "console", "--listen", "127.0.0.1:0", "--json"]
        buffered = {name: value for name, value in os.environ.items() if name != UNBUFFERED}
        self._process = subprocess.Popen(
            [*command, *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=buffered,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the console did not start"
        self.url: str = json.loads(line)["url"]
        parts = urllib.parse.urlsplit(self.url)
        assert parts.port is not None
        self.port = parts.port
        self.token = dict(urllib.parse.parse_qsl(parts.query))["token"]

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stranger(self) -> Browser:
        """A browser without a session."""
        return Browser(self.port)

    def browser(self) -> Browser:
        """A browser that came with the token."""
        browser = Browser(self.port)
        assert browser.get(f"/?token={self.token}").status == 303
        return browser

    def stop(self) -> int:
        """Stop it by SIGTERM; return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(WAIT_S)
        finally:
            self._process.kill()
            assert self._process.stdout is not None
            self._process.stdout.close()
