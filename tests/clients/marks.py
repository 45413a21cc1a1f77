"""The mark of the tests that only `make clients` plays."""

import pytest

from support.samples import EVERY

long = pytest.mark.skipif(EVERY > 1, reason="make clients plays it")
"""Also of each run on the control."""
