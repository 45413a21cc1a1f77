"""Finds, at a start, logs that are gone although a coordinator's record proves or names them.

A log that a completed commit proves is refused: if it were served, it would begin at offset 0
again. A log that only a committed offset names is served and reported, because clients may commit
any offset.
"""

from collections.abc import Callable, Iterable

from txn.broker.host import Host
from txn.coordinator.lost_logs import KnownEnd
from txn.logs import log


def refuse_lost_logs(host: Host, known: Iterable[KnownEnd]) -> None:
    """Refuse the partitions without a log that are known to have had one."""
    for each in known:
        if host.is_untouched(*each.place):
            host.refuse_partition(*each.place, reason_of(each))


def report_lost_logs(
    host: Host, known: Iterable[KnownEnd], advice_on: Callable[[str, int], str]
) -> None:
    """Log the partitions without a log that may have had one."""
    for each in known:
        if host.is_untouched(*each.place):
            topic, partition = each.place
            reason = f"{reason_of(each)}. {advice_on(topic, partition)}"
            log.error("log.missing", topic=topic, partition=partition, reason=reason)


def reason_of(known: KnownEnd) -> str:
    """The loss in words."""
    topic, partition = known.place
    return f"{topic}-{partition}: {known.finding}"
