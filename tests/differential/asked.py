"""Requests of administrators to both brokers, and their answers without the texts for people."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from differential.access_arena import comparable
from differential.pair import SETTLE_S, Pair
from differential.script import Talk
from differential.side import Side
from txn.wire.api_keys import ApiKey


class Asked(NamedTuple):
    """A request to both brokers."""

    api: ApiKey
    version: int
    fields: dict[str, Any]


Script = Callable[[Talk], Iterator[Asked]]


def differences(talk: Talk, script: Script) -> list[str]:
    """The requests of a script that the brokers answer differently, with both answers."""
    return [
        f"{asked}\n  txn   {ours}\n  Kafka {theirs}"
        for asked in script(talk)
        for ours, theirs in [_both(talk.pair, asked)]
        if ours != theirs
    ]


def _both(pair: Pair, asked: Asked) -> tuple[Any, Any]:
    """Both answers. Kafka describes an alteration only a while after it has answered it."""
    ours, theirs = (_answer(side, asked) for side in (pair.txn, pair.kafka))
    deadline = time.monotonic() + SETTLE_S
    while asked.api == ApiKey.DESCRIBE_CONFIGS and ours != theirs and time.monotonic() < deadline:
        theirs = _answer(pair.kafka, asked)
    return ours, theirs


def _answer(side: Side, asked: Asked) -> Any:
    return comparable(side.ask(asked.api, asked.version, asked.fields))
