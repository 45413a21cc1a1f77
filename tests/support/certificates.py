"""Certificates for tests of TLS, and the settings of brokers and clients that use them."""

import datetime
import selectors
import ssl
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trustme

from support.wire_client import WAIT_S, RawConnection
from txn import _core

HOSTS = ("localhost", "127.0.0.1")


class Issuer:
    """A certificate authority that writes into a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._authority = trustme.CA()
        self.path = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(self.path)

    def issue(self, name: str, *hosts: str, expired: bool = False, **subject: Any) -> Path:
        """Write a PEM file with a key and its certificate chain; return its path."""
        if expired:
            subject["not_after"] = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
            subject["not_before"] = datetime.datetime(2019, 1, 1, tzinfo=datetime.UTC)
        made = self._authority.issue_cert(*(hosts or HOSTS), **subject)
        path = self.directory / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_bytes(made.private_key_and_cert_chain_pem.bytes())
        return path

    def broker(self, certificate: Path, client_auth: str = "none", **more: str) -> dict[str, str]:
        """Broker properties: an SSL listener, then a plain one."""
        return {
            "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "ssl.keystore.location": str(certificate),
            "ssl.truststore.location": str(self.path),
            "ssl.client.auth": client_auth,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def client(self, certificate: Path | None = None, **more: Any) -> dict[str, Any]:
        """Settings of librdkafka."""
        own = {} if certificate is None else _pair("ssl.certificate.location", certificate)
        settings = {name.replace("_", "."): value for name, value in more.items()}
        return {"security.protocol": "ssl", "ssl.ca.location": str(self.path), **own, **settings}

    def context(self, certificate: Path | None = None) -> ssl.SSLContext:
        """The context of a client in Python."""
        context = ssl.create_default_context(cafile=str(self.path))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


def _pair(name: str, certificate: Path) -> dict[str, str]:
    return {name: str(certificate), "ssl.key.location": str(certificate)}


class TlsConnection(RawConnection):
    """A bare Kafka connection over TLS."""

    def __init__(self, servers: str, context: ssl.SSLContext, host: str = "localhost") -> None:
        super().__init__(servers)
        self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self.socket.settimeout(WAIT_S)


def principals_of(issuer: Issuer, clients: Sequence[Path]) -> list[str]:
    """The principals that a listener gives to the subjects of certificates."""
    seen: list[str] = []

    def note(subject: str) -> str:
        seen.append(f"User:{subject}")
        return seen[-1]

    pem = issuer.issue("broker-of-principals").read_bytes()
    protocols = ["TLSv1.2", "TLSv1.3"]
    files = (pem, pem, None, issuer.path.read_bytes(), "required", protocols, tuple[str, ...]())
    server = _core.Server(
        [("SSL", "127.0.0.1", 0, _core.TlsContext(files, note))],
        _core.Durability(1),
        reactors=1,
        max_request_bytes=1 << 20,
        max_queued_bytes=-1,
        max_connections=100,
        max_idle_ms=-1,
        sync_acks_all=False,
    )
    reactor = threading.Thread(target=server.run_reactor, args=(0,))
    reactor.start()
    try:
        [(host, port)] = server.addresses
        for client in clients:
            with TlsConnection(f"{host}:{port}", issuer.context(client)) as connection:
                connection.send_frame(struct.pack(">hhih", 18, 0, 7, -1))
                with selectors.DefaultSelector() as selector:
                    selector.register(server.wakeup_fd, selectors.EVENT_READ)
                    assert selector.select(WAIT_S), "the request did not come"
                assert server.take()[0][8] == seen[-1]
    finally:
        server.stop()
        reactor.join()
    return seen
