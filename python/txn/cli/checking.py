"""`txn serve --check`: checks the settings of a broker without starting it."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from txn.clock import now_ms
from txn.config import BrokerSettings, split_address
from txn.metadata.image import Image
from txn.security.listeners import read_listeners
from txn.server.lifecycle.serve import Start
from txn.server.metrics.listener import checked_address
from txn.server.security.certificates import Certificates
from txn.server.security.logins import Offers
from txn.server.settings.config_file import DIRECTORIES, is_secret

HIDDEN: Final = "[hidden]"
COMMAND_LINE: Final = "command line"


@dataclass(frozen=True, slots=True)
class Checked:
    """The settings of a start, none of them a secret: (name, value, its source)."""

    data: str | None
    address: str | None
    settings: tuple[tuple[str, str, str], ...]
    not_used: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """The settings as text."""
        yield f"data directory: {self.data or 'temporary, removed at exit'}"
        if self.address is not None:
            yield f"address: {self.address}"
        for name, value, source in self.settings:
            yield f"{name}={value}  ({source})"
        yield "every other setting has its default, as `txn settings` lists it"
        if self.not_used:
            yield f"not used by txn: {', '.join(self.not_used)}"

    def as_data(self) -> dict[str, Any]:
        """The settings as a JSON object."""
        return {
            "data": self.data,
            "address": self.address,
            "settings": [
                {"name": name, "value": value, "source": source}
                for name, value, source in self.settings
            ],
            "not_used": list(self.not_used),
        }


def checked(start: Start) -> Checked:
    """Check the settings of a start, its certificates and the users in it.

    No port is taken, and the data directory is not looked at. Raises ConfigError.
    """
    settings = BrokerSettings(start.properties)
    specs = read_listeners(settings, start.host, start.port)
    Certificates.load(settings, specs)
    offers = Offers(Image(), settings, now_ms)
    for spec in specs:
        if spec.is_sasl:
            offers.of(spec.name)
    _check_metrics(settings)
    file = "" if start.file is None else str(start.file.path)
    references = {} if start.file is None else start.file.references
    return Checked(
        _data(start, references),
        None if start.host is None else f"{start.host}:{start.port}",
        tuple(
            (
                name,
                HIDDEN if is_secret(name) else _shown(name, text, start, references),
                COMMAND_LINE if name in start.given else file,
            )
            for name, text in sorted(start.properties.items())
        ),
        () if start.file is None else start.file.not_used,
    )


def _check_metrics(settings: BrokerSettings) -> None:
    """Refuse an address for metrics that a start refuses. Raises ConfigError."""
    address = settings["metrics.listener"]
    if address is None:
        return
    host, port = split_address(address)
    with suppress(OSError):  # a name that this machine does not know may be one of another
        checked_address(host, port, is_remote_allowed=settings["metrics.allow.remote"])


def _shown(name: str, text: str, start: Start, references: Mapping[str, str]) -> str:
    """A setting's value; that of a config provider, which keeps secrets, is shown as its
    reference."""
    return text if name in start.given else references.get(name, text)


def _data(start: Start, references: Mapping[str, str]) -> str | None:
    if start.data is None:
        return None
    is_of_file = start.file is not None and start.data == start.file.data
    filled = [references[name] for name in DIRECTORIES if name in references] if is_of_file else []
    return filled[0] if filled else str(start.data)
