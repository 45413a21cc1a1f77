"""Histories that both brokers play; each function is one, its name says which."""

import importlib
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Final

from differential.script import Talk

MODULES: Final = (
    "init_producer_id",
    "transactions",
    "fencing",
    "produce",
    "fetch",
    "fetch_sessions",
    "offsets",
    "listing",
    "hostile",
)

Script = Callable[[Talk], None]


def scripts_of(module: ModuleType) -> list[Script]:
    """The scripts that a module holds."""
    written = [
        value
        for value in vars(module).values()
        if isinstance(value, FunctionType)
        and value.__module__ == module.__name__
        and not value.__name__.startswith("_")
    ]
    return [*written, *getattr(module, "GENERATED", [])]


SCRIPTS: Final[list[Script]] = [
    script
    for name in MODULES
    for script in scripts_of(importlib.import_module(f"differential.scripts.{name}"))
]
