"""Programs of `examples/` on an engine that they do not name.

    python -m support.on_engine native examples/testing/right.py copy 127.0.0.1:9092

A program that opens `txn.Producer(…)` and `txn.Consumer(…)` without `engine` gets the given one. So
`make crash-everywhere` plays each program with both engines.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from txn.client.consumer import Consumer
from txn.client.engine import EngineName, engine_name
from txn.client.pool import ProducerPool
from txn.client.producer import Producer
from txn.processor.processor import Processor


def make_default(engine: EngineName) -> None:
    """Make an engine the default of this process."""
    for kind in (Producer, ProducerPool, Processor):
        defaults = kind.__init__.__kwdefaults__
        assert defaults is not None
        assert "engine" in defaults
        defaults["engine"] = engine
    construct: Callable[..., Consumer] = Consumer.__new__

    def new(cls: type[Consumer], *args: Any, **more: Any) -> Consumer:
        if cls is Consumer and more.get("engine") is None:
            more["engine"] = engine
        return construct(cls, *args, **more)

    Consumer.__new__ = staticmethod(new)  # type: ignore[method-assign]


def function_of(path: Path, name: str) -> Callable[..., object]:
    """Return a function of a program."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    function: Callable[..., object] = getattr(module, name)
    return function


def command(engine: EngineName, path: Path, name: str) -> list[str]:
    """Return the command of a program for `crash_everywhere`."""
    # Not by `-m`: the program may run in another directory.
    script = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r}); "
    script += "from support.on_engine import main; main(sys.argv[1:])"
    return [sys.executable, "-c", script, engine, str(path), name, "{servers}"]


def main(words: list[str]) -> None:
    """Run a function of a program with the bootstrap servers."""
    engine, path, name, servers = words
    make_default(engine_name(engine))
    function_of(Path(path), name)(servers)


if __name__ == "__main__":
    main(sys.argv[1:])
