"""Names from other clients that `txn.Producer` and its blocks lack, and their replacements."""

from collections.abc import Mapping
from typing import Final, NoReturn

ON_DELIVERY: Final = (
    "a record that is not stored makes the block, or flush(), raise. For a callback per record "
    "call send(topic, value, on_delivery=...), which also returns a delivery to wait for"
)
BLOCK: Final = "use `with producer.transaction() as t:`"
ADMIN: Final = "use a confluent_kafka.admin.AdminClient"

INSTEAD: Final[Mapping[str, str]] = {
    "abort": f"{BLOCK}; an exception inside it aborts",
    "abort_transaction": f"{BLOCK}; an exception inside it aborts",
    "begin_transaction": BLOCK,
    "begin": BLOCK,
    "callback": ON_DELIVERY,
    "commit": f"{BLOCK}; its end commits",
    "commit_transaction": f"{BLOCK}; its end commits",
    "init_transactions": "opening the producer has done it",
    "list_topics": ADMIN,
    "on_delivery": ON_DELIVERY,
    "poll": "it polls by itself",
    "purge": "an exception inside the block drops its records",
    "send_offsets_to_transaction": "give transaction() the consumer, or call its send_offsets()",
}

INSTEAD_IN_BLOCK: Final[Mapping[str, str]] = {
    "abort": "raise an exception inside the block, which aborts",
    "abort_transaction": "raise an exception inside the block, which aborts",
    "commit": "the end of the block commits",
    "commit_transaction": "the end of the block commits",
    "flush": "the end of the block waits for every record",
    "poll": "the producer polls by itself",
    "rollback": "raise an exception inside the block, which aborts",
    "send_offsets_to_transaction": "it is send_offsets(offsets, consumer)",
}


def hint_for(name: str, instead: Mapping[str, str] = INSTEAD) -> str:
    """Return what to use instead of a name, after a colon; nothing for one that is unknown."""
    return f": {instead[name]}" if name in instead else ""


def refuse_async(kind: str) -> NoReturn:
    """Refuse an `async with` statement.

    Raises:
        TypeError: always; the message says what to use instead.
    """
    raise TypeError(
        f"{kind} has no coroutines: use `with`, or open txn.aio.Producer and txn.aio.Consumer, "
        "which are for asyncio"
    )


def refuse_unknown_arguments(names: Mapping[str, object]) -> None:
    """Refuse keyword arguments of `produce` that it does not have.

    Raises:
        TypeError: there is one; the message says what to use instead.
    """
    for name in names:
        raise TypeError(f"produce() has no argument {name!r}{hint_for(name)}")
