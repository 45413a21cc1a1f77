"""The processor of `invoices.py`, killed and disturbed at the steps of its protocol."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from txn.testing import crash_everywhere

ORDERS = [
    '{"item": "apple", "count": 7}',
    '{"item": "pear", "count": 1}',
    "nonsense",
    '{"item": "apple", "count": 2}',
    '{"item": "plum", "count": 2}',
    '{"item": "pear", "count": 4}',
]


def invoices() -> ModuleType:
    """The program, as a module."""
    path = Path(__file__).with_name("invoices.py")
    spec = importlib.util.spec_from_file_location("invoices", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["invoices"] = module
    spec.loader.exec_module(module)
    return module


def test_each_order_is_invoiced_or_buried_once_wherever_the_processor_is_stopped() -> None:
    report = crash_everywhere(
        invoices().run,
        input={"orders": ORDERS},
        output=["invoices", "orders-dead"],
        quick=6,
    )
    assert {"Produce 1", "EndTxn 1"} <= set(report.steps)
