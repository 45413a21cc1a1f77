"""Templates: every text from outside is escaped, and has no invisible character.

Jinja's autoescape makes a text safe for HTML. `printable` then writes out the characters that a
browser would obey or hide, as marks that turn the direction of text. Both hold for every
expression of every template, so no page has to think of them.
"""

import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from txn.counts import counted
from txn.moments import duration, moment, relative
from txn.printable import printable

HERE: Final = Path(__file__).parent


def environment() -> Environment:
    """The templates of the console; their names are paths below this package."""
    made = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "moment": _moment,
        "duration": duration,
        "number": lambda number: f"{number:,}",
        "component": lambda text: quote(str(text), safe=""),
        "bytes": size,
        "counted": counted,
    }
    made.globals |= {"relative": relative, "moment_text": moment}
    return made


def size(count: int) -> str:
    """A number of bytes as a person reads it: `1.2 MiB`."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def _visible(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _moment(at_ms: int) -> Markup:
    """A time as an element that programs read too."""
    try:
        at = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
        iso = at.isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):  # clients may set any
        return escape(moment(at_ms))
    return Markup('<time datetime="{}">{}</time>').format(iso, moment(at_ms))
