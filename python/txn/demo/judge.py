"""Reads everything back and compares it with a computation of its own.

The reader is confluent-kafka with isolation.level=read_committed, which shares no code with
txn's Spark source; the expected rows come from the files, joined in plain Python.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from txn.demo import flights
from txn.demo.flights import AIRLINES, AIRPORTS, FLIGHTS, PLANES, WEATHER, Row
from txn.errors import TxnError

READ_TIMEOUT_S = 60.0
"""Silence of a broker after which the judge gives up."""

READ_WAIT_S = 0.2
"""Time that one read gathers: it ends early only when it is full, not at a partition's end."""


@dataclass(frozen=True, slots=True)
class ComparedRows:
    """One thing that was checked."""

    what: str
    expected: int
    found: int
    missing: int
    repeated: int
    wrong: int

    @property
    def holds(self) -> bool:
        """Nothing is missing, repeated or wrong."""
        return self.expected == self.found and not (self.missing or self.repeated or self.wrong)


class Judge:
    """The truth about the flights, and how much of it the topics have."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._flights = list(flights.read(FLIGHTS))
        self._enriched = _expected_enriched(self._flights)
        self._statistics = _expected_statistics(self._flights)

    def flights(self) -> ComparedRows:
        """Every flight is in its topic exactly once, as it was in the file."""
        expected = {row["id"]: _without_none(row) for row in self._flights}
        return compare("flights loaded", expected, self._rows(FLIGHTS.name))

    def enriched(self, topic: str) -> ComparedRows:
        """Every flight came out exactly once, joined as plain Python joins it."""
        return compare("flights enriched", self._enriched, self._rows(topic))

    def statistics(self, topic: str) -> ComparedRows:
        """The last update of every group is right, and no update came twice."""
        return compare_updates("delay statistics", self._statistics, self._rows(topic))

    def held_back(self, topic: str) -> ComparedRows:
        """No abandoned transaction holds readers back: stable offset and log end are the same."""
        stable = self._end(topic, "read_committed")
        end = self._end(topic, "read_uncommitted")
        return ComparedRows(f"{topic}: readable to its end", end, stable, end - stable, 0, 0)

    def _end(self, topic: str, isolation: str) -> int:
        """The sum of the offsets at which a reader of this isolation level has to stop."""
        consumer = Consumer({**_settings(self._bootstrap_servers), "isolation.level": isolation})
        try:
            partitions = (
                consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic].partitions
            )
            return sum(
                consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=READ_TIMEOUT_S)[1]
                for n in partitions
            )
        finally:
            consumer.close()

    def _rows(self, topic: str) -> Iterator[Row]:
        for value in committed_values(self._bootstrap_servers, topic):
            yield json.loads(value or b"null")


def committed_values(bootstrap_servers: str, topic: str) -> Iterator[bytes | None]:
    """Yield the value of every committed record; those of a partition in offset order.

    Raises:
        TxnError: nothing came for `READ_TIMEOUT_S`.
    """
    consumer = Consumer(_settings(bootstrap_servers))
    try:
        known = consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic].partitions
        left = set(known)
        consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in known])
        deadline = time.monotonic() + READ_TIMEOUT_S
        while left:
            messages = consumer.consume(10_000, timeout=READ_WAIT_S)
            if messages:
                deadline = time.monotonic() + READ_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise TxnError(
                    f"no answer from {bootstrap_servers} for {READ_TIMEOUT_S:.0f} s "
                    f"while reading {topic}, partitions {sorted(left)}"
                )
            for message in messages:
                error = message.error()
                if error is None:
                    yield message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def _settings(bootstrap_servers: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "txn-demo-judge",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }


def _expected_enriched(rows: Iterable[Row]) -> dict[object, Row]:
    airlines = {row["carrier"]: row["name"] for row in flights.read(AIRLINES)}
    airports = {row["faa"]: row["name"] for row in flights.read(AIRPORTS)}
    planes = {row["tailnum"]: row for row in flights.read(PLANES)}
    weather = {(row["origin"], row["time_hour"]): row for row in flights.read(WEATHER)}
    nothing: Row = {}
    expected = {}
    for row in rows:
        plane = planes.get(row["tailnum"], nothing)
        sky = weather.get((row["origin"], row["time_hour"]), nothing)
        names = "id carrier flight tailnum origin dest time_hour dep_delay arr_delay".split()
        joined: Row = {name: row[name] for name in names}
        joined |= {
            "airline": airlines.get(row["carrier"]),
            "destination": airports.get(row["dest"]),
            "plane_year": plane.get("year"),
            "manufacturer": plane.get("manufacturer"),
            "model": plane.get("model"),
            "seats": plane.get("seats"),
        }
        joined |= {name: sky.get(name) for name in ("temp", "wind_speed", "visib")}
        expected[row["id"]] = _without_none(joined)
    return expected


def _expected_statistics(rows: Iterable[Row]) -> dict[object, Row]:
    groups: dict[tuple[object, object], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["carrier"], row["time_hour"]].append(row)
    return {group: _statistics(group, members) for group, members in groups.items()}


def _statistics(group: tuple[object, object], members: list[Row]) -> Row:
    departed = [int(str(row["dep_delay"])) for row in members if row["dep_delay"] is not None]
    arrived = [int(str(row["arr_delay"])) for row in members if row["arr_delay"] is not None]
    return _without_none(
        {
            "carrier": group[0],
            "hour": group[1],
            "flights": len(members),
            "departed": len(departed),
            "dep_delay_total": sum(departed) if departed else None,
            "arr_delay_total": sum(arrived) if arrived else None,
            "dep_delay_max": max(departed, default=None),
        }
    )


def compare(what: str, expected: dict[object, Row], rows: Iterable[Row]) -> ComparedRows:
    """Compare rows with the expected ones of the same `id`."""
    seen: Counter[object] = Counter()
    wrong = 0
    for row in rows:
        seen[row["id"]] += 1
        wrong += expected.get(row["id"]) != row
    count = sum(seen.values())
    missing = len(expected.keys() - seen.keys())
    return ComparedRows(what, len(expected), count, missing, count - len(seen), wrong)


def compare_updates(what: str, expected: dict[object, Row], rows: Iterable[Row]) -> ComparedRows:
    """Compare the last update of every group with the expected one.

    A group's updates count its flights upwards; a repeated or replayed one does not grow.
    """
    last: dict[object, Row] = {}
    repeated = 0
    for row in rows:
        group = (row["carrier"], row["hour"])
        before = last.get(group)
        repeated += before is not None and int(str(row["flights"])) <= int(str(before["flights"]))
        last[group] = row
    wrong = sum(1 for group, row in last.items() if expected.get(group) != row)
    missing = len(expected.keys() - last.keys())
    return ComparedRows(what, len(expected), len(last), missing, repeated, wrong)


def _without_none(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}
