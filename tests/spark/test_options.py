"""Options are checked before anything happens; a misspelled one is an error."""

import pytest

from txn.errors import ConfigError
from txn.spark.options import EARLIEST, LATEST, sink_settings, source_settings

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_unknown_option_is_refused_with_the_closest_name() -> None:
    with pytest.raises(
        ConfigError,
        match="unknown option 'startOffsets' for reading; the closest one is startingOffsets",
    ):
        source_settings({**SERVERS, "subscribe": "t", "startOffsets": "earliest"})


def test_reading_option_is_unknown_to_the_sink() -> None:
    with pytest.raises(ConfigError, match="unknown option 'subscribe' for writing"):
        sink_settings({**SERVERS, "subscribe": "t"})


def test_names_are_found_in_any_case() -> None:
    settings = source_settings({**SERVERS, "SUBSCRIBE": "a, b", "maxoffsetspertrigger": "7"})
    assert settings.topics.names == ("a", "b")
    assert settings.offsets_per_trigger_max == 7


def test_defaults_are_those_of_sparks_kafka_source_but_read_committed() -> None:
    settings = source_settings({**SERVERS, "subscribe": "t"})
    assert settings.read_committed
    assert settings.fails_on_data_loss
    assert settings.starting is None
    assert settings.columns == (
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
    )


def test_missing_servers_are_named() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is missing"):
        sink_settings({"topic": "t"})


@pytest.mark.parametrize(
    "chosen", [{}, {"subscribe": "t", "assign": '{"t": [0]}'}], ids=["none", "two"]
)
def test_exactly_one_way_to_choose_topics(chosen: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="exactly one of subscribe, subscribePattern and assign"):
        source_settings({**SERVERS, **chosen})


def test_security_other_than_plaintext_is_refused_clearly() -> None:
    with pytest.raises(ConfigError, match="SASL_SSL is not supported yet: only PLAINTEXT is"):
        sink_settings({**SERVERS, "kafka.security.protocol": "SASL_SSL"})


def test_plaintext_is_accepted_as_kafka_spells_it() -> None:
    sink_settings({**SERVERS, "kafka.security.protocol": "PLAINTEXT"})


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("earliest", EARLIEST),
        ("Latest", LATEST),
        ('{"t": {"0": 23, "1": -2}}', {"t": {0: 23, 1: -2}}),
    ],
)
def test_positions_are_words_or_json(text: str, means: object) -> None:
    settings = source_settings({**SERVERS, "subscribe": "t", "startingOffsets": text})
    assert settings.starting == means


@pytest.mark.parametrize("text", ["", "first", '{"t": 3}', '{"t": {"0": -3}}', '{"t": {"x": 1}}'])
def test_positions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="startingOffsets cannot be"):
        source_settings({**SERVERS, "subscribe": "t", "startingOffsets": text})


def test_columns_keep_their_order_and_are_known() -> None:
    chosen = {**SERVERS, "subscribe": "t", "columns": "offset,Value"}
    assert source_settings(chosen).columns == ("value", "offset")
    with pytest.raises(ConfigError, match="names out of key, value"):
        source_settings({**chosen, "columns": "body"})


def test_margin_that_leaves_no_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="no batch could ever be committed"):
        sink_settings({**SERVERS, "txn.timeout.ms": "30000"})


def test_number_out_of_its_bounds_is_refused_with_them() -> None:
    with pytest.raises(ConfigError, match=r"txn\.timeout\.ms cannot be '0': it takes a whole num"):
        sink_settings({**SERVERS, "txn.timeout.ms": "0"})


def test_asynchronous_progress_tracking_is_refused() -> None:
    with pytest.raises(ConfigError, match="asynchronous progress tracking"):
        sink_settings({**SERVERS, "asyncProgressTrackingEnabled": "true"})
    sink_settings({**SERVERS, "asyncProgressTrackingEnabled": "false"})


def test_option_with_another_meaning_here_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"set txn\.timeout\.ms instead"):
        sink_settings({**SERVERS, "kafka.transaction.timeout.ms": "1000"})
