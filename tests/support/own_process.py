"""A part of a test in a process of its own.

Clients that other tests of a worker left open connect and disconnect at any moment. So a count of
a worker's descriptors says nothing of the test that counts them.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

WAIT_S: Final = 60.0

CALL: Final = "import sys; from support.own_process import call; call(*sys.argv[1:])"


def in_own_process(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function of a test's module in a new interpreter; what it raises fails the test.

    The arguments travel as JSON.
    """
    code = function.__code__
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    words = [code.co_filename, code.co_name, json.dumps(arguments)]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CALL, *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr


def call(path: str, name: str, arguments: str) -> None:
    """Load a test's module from its file, and call a function of it."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None, f"{path} is Python"
    assert spec.loader is not None, f"{path} is Python"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    getattr(module, name)(*json.loads(arguments))
