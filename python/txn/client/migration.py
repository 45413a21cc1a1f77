"""Names of `confluent_kafka.Producer` that `txn.Producer` does without, and their replacements."""

from collections.abc import Mapping
from typing import Final

ON_DELIVERY: Final = (
    "a record that is not stored makes the block, or flush(), raise. For a callback per record "
    "give on_delivery= to the producer"
)
BLOCK: Final = "use `with producer.transaction() as t:`"
ADMIN: Final = "use a confluent_kafka.admin.AdminClient"

INSTEAD: Final[Mapping[str, str]] = {
    "abort_transaction": f"{BLOCK}; an exception inside it aborts",
    "begin_transaction": BLOCK,
    "callback": ON_DELIVERY,
    "commit_transaction": f"{BLOCK}; its end commits",
    "init_transactions": "opening the producer has done it",
    "list_topics": ADMIN,
    "on_delivery": ON_DELIVERY,
    "poll": "it polls by itself",
    "purge": "an exception inside the block drops its records",
    "send_offsets_to_transaction": "give transaction() the consumer, or call its send_offsets()",
}


def hint_for(name: str) -> str:
    """Return what to use instead of a name, after a colon; nothing for one that is unknown."""
    return f": {INSTEAD[name]}" if name in INSTEAD else ""


def refuse_others(names: Mapping[str, object]) -> None:
    """Refuse keyword arguments of `produce` that it does not have.

    Raises:
        TypeError: there is one; the message says what to use instead.
    """
    for name in names:
        raise TypeError(f"produce() has no argument {name!r}{hint_for(name)}")
