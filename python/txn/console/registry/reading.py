"""The side of the console: it starts a process for the key and the value of one record."""

import base64
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Final

from txn.console.contents import Form, lines, noted
from txn.errors import ConfigError

MAGIC: Final = 0
HEADER_BYTES: Final = 5
"""A zero byte, and four with the number of the schema."""

BYTES_MAX: Final = 1 << 20
"""The most bytes of a key or value that are decoded."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the process for one record."""

    computing_s: int = 10
    """Seconds of a processor."""
    wait_s: int = 20
    memory_bytes: int = 256 << 20
    """Bytes of its address space."""


DECODERS: Final = (
    "confluent_kafka.schema_registry.avro",
    "google.protobuf.json_format",
    "jsonschema.validators",
)

Lines = tuple[Sequence[str], str | None]


class Schemas:
    """The schemas of a registry.

    Args:
        url: Its address.
        limits: The cost of one page view.

    Raises:
        ConfigError: the packages for it are not installed, or the address is none.
    """

    def __init__(self, url: str, limits: Limits = Limits()) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            for each in DECODERS:
                import_module(each)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"--registry needs packages of its extra ({error.name}). Run `pip install "
                "'.[registry]'` in txn's checkout"
            ) from None
        try:
            SchemaRegistryClient({"url": url})
        except ValueError as error:
            raise ConfigError(f"--registry {url!r} is no address: {error}") from None
        self._url = url
        self._limits = limits

    def lines(self, topic: str, key: bytes | None, value: bytes | None) -> tuple[Lines, Lines]:
        """The lines of a key and a value, each with a note: its schema, or why it is text."""
        parts = {"key": key, "value": value}
        wanted = {
            name: part for name, part in parts.items() if part is not None and _fault(part) is None
        }
        answer, fault = self._asked(topic, wanted) if wanted else ({}, None)

        def shown(name: str) -> Lines:
            part = parts[name]
            if part is None:
                return lines(None, Form.TEXT)
            found, note = answer[name] if name in answer else (None, _fault(part) or fault)
            return _as_text(part, note) if found is None else (found, note)

        return shown("key"), shown("value")

    def _asked(
        self, topic: str, wanted: Mapping[str, bytes]
    ) -> tuple[dict[str, tuple[list[str] | None, str | None]], str | None]:
        """The answer of the process about each part, and the reason that there is none."""
        parts = {name: base64.b64encode(part).decode() for name, part in wanted.items()}
        limits = asdict(self._limits)
        request = {"url": self._url, "topic": topic, "parts": parts, "limits": limits}
        # The address may have a password, so it is no argument: every user sees those.
        done = subprocess.run(
            [sys.executable, "-P", "-m", "txn.console.registry.decoding"],
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode == 0:
            answer: dict[str, tuple[list[str] | None, str | None]] = json.loads(done.stdout)
            return answer, None
        return {}, f"It was not decoded: {self._why(done.returncode)}"

    def _why(self, code: int) -> str:
        if code == -signal.SIGXCPU:
            return f"it takes more than {self._limits.computing_s} s of computing"
        if code == -signal.SIGALRM:
            return f"the registry and the decoder take more than {self._limits.wait_s} s"
        return f"the decoder ended with code {code}"


def _fault(part: bytes) -> str | None:
    """The reason that a part is not decoded; None for one that is."""
    if len(part) < HEADER_BYTES or part[0] != MAGIC:
        return "It begins with no number of a schema"
    return "It is too large to be decoded here" if len(part) > BYTES_MAX else None


def _as_text(content: bytes, note: str | None) -> Lines:
    found, more = lines(content, Form.TEXT)
    return found, noted(note, more)
