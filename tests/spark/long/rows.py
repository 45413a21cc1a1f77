"""The flights of 2013, year after year, and the rows that a job has to make of them.

Row `n` is flight `n % FLIGHT_COUNT` of the year `n // FLIGHT_COUNT`, so any row is known from its
number alone. Every `DOUBLED`th row is sent a second time, `DOUBLED_AFTER` rows later and into
another partition; the job has to drop it.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from txn.demo import flights
from txn.demo.flights import FLIGHT_COUNT, FLIGHTS

PARTITIONS: Final = 4
"""Of the input."""

YEAR_S: Final = 365 * 86_400
DAY_S: Final = 86_400
DOUBLED: Final = 7
DOUBLED_AFTER: Final = 500

CLOSING: Final = 10**12
"""Numbers from here on are of rows that only move the watermark."""
NOBODY: Final = "--"
"""Their carrier and origin."""

Totals = dict[tuple[int, str, str], tuple[int, int]]
"""(day as seconds, origin, carrier) → (flights, minutes of delay)."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record to send."""

    partition: int
    value: bytes


@dataclass(frozen=True, slots=True)
class _Flight:
    at_s: int
    origin: str
    carrier: str
    delay: int
    fields: bytes
    """All fields of the file, as the inside of a JSON object."""


class Years:
    """The flights of a year, and of all years after it."""

    def __init__(self) -> None:
        read = (_flight(row) for row in flights.read(FLIGHTS))
        self._flights = sorted(read, key=lambda flight: flight.at_s)  # October follows January

    def send(self, start: int, end: int) -> Iterator[Record]:
        """The records of the rows `[start, end)`, with the second ones that are due."""
        for number in range(start, end):
            yield Record(number % PARTITIONS, self._value(number))
            earlier = number - DOUBLED_AFTER
            if earlier >= 0 and earlier % DOUBLED == 0:
                yield Record((earlier + 1) % PARTITIONS, self._value(earlier))

    def closing(self, count: int, step: int) -> Iterator[Record]:
        """A row for each partition, later than all of the first `count` rows by `step` years."""
        at_s = self._at_s(max(count - 1, 0)) + (1 + step) * YEAR_S
        for partition in range(PARTITIONS):
            row = {
                "id": CLOSING + step * PARTITIONS + partition,
                "at": at_s,
                "origin": NOBODY,
                "carrier": NOBODY,
            }
            yield Record(partition, json.dumps(row).encode())

    def line(self, number: int) -> bytes:
        """The output of row `number`."""
        flight = self._flights[number % FLIGHT_COUNT]
        return (
            f"{number}|{self._at_s(number)}|{flight.origin}|{flight.carrier}|{flight.delay}"
        ).encode()

    def totals(self, count: int) -> Totals:
        """Flights and delay of each day, origin and carrier, of the first `count` rows."""
        found: Totals = {}
        for number in range(count):
            flight = self._flights[number % FLIGHT_COUNT]
            at_s = self._at_s(number)
            key = (at_s - at_s % DAY_S, flight.origin, flight.carrier)
            many, delay = found.get(key, (0, 0))
            found[key] = (many + 1, delay + flight.delay)
        return found

    def _at_s(self, number: int) -> int:
        year, index = divmod(number, FLIGHT_COUNT)
        return self._flights[index].at_s + year * YEAR_S

    def _value(self, number: int) -> bytes:
        flight = self._flights[number % FLIGHT_COUNT]
        return b'{"id": %d, "at": %d, %b}' % (number, self._at_s(number), flight.fields)


def lines_of(totals: Totals) -> Iterable[bytes]:
    """The output for windows: day, origin, carrier, flights, delay."""
    for (day_s, origin, carrier), (many, delay) in totals.items():
        yield f"{day_s}|{origin}|{carrier}|{many}|{delay}".encode()


def _flight(row: flights.Row) -> _Flight:
    at = datetime.fromisoformat(str(row["time_hour"]).replace("Z", "")).replace(tzinfo=UTC)
    del row["id"]
    delay = row["dep_delay"]
    return _Flight(
        at_s=int(at.timestamp()),
        origin=str(row["origin"]),
        carrier=str(row["carrier"]),
        delay=delay if isinstance(delay, int) else 0,
        fields=flights.value_of(row)[1:-1],
    )
