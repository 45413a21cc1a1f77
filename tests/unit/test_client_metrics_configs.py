"""The settings of a subscription to the metrics of clients."""

import pytest

from txn.errors import ConfigError
from txn.metadata.client_metrics_configs import IntervalError, check_client_metrics


@pytest.mark.parametrize("text", ["100", " 5000\n", "+5000", "3600000"])
def test_an_interval_is_a_whole_number_as_of_every_setting(text: str) -> None:
    check_client_metrics({"interval.ms": text})


@pytest.mark.parametrize("text", ["", "x", "1_000", "1000.0", "0x400", "\u0665000", "9999999999"])
def test_an_interval_that_is_no_number_of_32_bits_is_refused_in_Kafkas_words(text: str) -> None:
    """Python alone reads underscores between digits, and numbers of any size."""
    told = f"Invalid value {text} for configuration interval.ms: Not a number of type INT"
    with pytest.raises(ConfigError) as refusal:
        check_client_metrics({"interval.ms": text})
    assert str(refusal.value) == told
    assert not isinstance(refusal.value, IntervalError)


@pytest.mark.parametrize("text", ["-2147483648", "99", "3600001", "2147483647"])
def test_an_interval_out_of_bounds_is_refused_as_one(text: str) -> None:
    with pytest.raises(IntervalError, match="interval must be between 100 and 3600000"):
        check_client_metrics({"interval.ms": text})
