"""Options are checked before anything happens; a misspelled one is an error."""

import base64
import logging
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import txn.spark
from spark.secured import TouchedByLoading
from txn.errors import ConfigError
from txn.security.client import Store
from txn.spark import tokens
from txn.spark.options import EARLIEST, LATEST, Boundary, sink_settings, source_settings

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_unknown_option_is_refused_with_the_closest_name() -> None:
    with pytest.raises(
        ConfigError,
        match=r"unknown option 'startOffsets' for reading; did you mean startingOffsets\?",
    ):
        source_settings({**SERVERS, "subscribe": "t", "startOffsets": "earliest"})


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.isolation.levle", "kafka.isolation.level"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("startTimestamp", "startingTimestamp"),
        ("kafka.fetch.min.byte", "kafka.fetch.min.bytes"),
    ],
)
def test_misspelled_option_gets_the_name_it_is_close_to(option: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        source_settings({**SERVERS, "subscribe": "t", option: "1"})
    assert str(raised.value) == f"unknown option {option!r} for reading; did you mean {hint}?"


@pytest.fixture
def told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    """The log of a process that was told nothing yet."""
    monkeypatch.setattr("txn.spark.options._ignored", set())
    caplog.set_level(logging.WARNING, "txn.spark")
    return caplog


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("auto.offset.reset", "a property of Kafka has its prefix here: kafka.auto.offset.reset"),
        ("bootstrap.servers", "a property of Kafka has its prefix here: kafka.bootstrap.servers"),
        ("group.id", "the source joins no group; see txn.group"),
        ("kafka.group.id", "the source joins no group; see txn.group"),
        ("groupIdPrefix", "the source joins no group; see txn.group"),
        ("security.protocol", "a property of Kafka has its prefix here: kafka.security.protocol"),
        ("truncate", "writing has no such option; txn.strict.options=true refuses it"),
        ("path", "writing has no such option; txn.strict.options=true refuses it"),
    ],
)
def test_option_that_spark_ignores_is_ignored_and_told_once_with_a_hint(
    option: str, hint: str, told: pytest.LogCaptureFixture
) -> None:
    """A job of `format("kafka")` with such an option did not start."""
    for _ in range(2):
        assert sink_settings({**SERVERS, "topic": "t", option: "1"}) == sink_settings(
            {**SERVERS, "topic": "t"}
        )
    assert told.messages == [f"option.ignored {option}: {hint}"]
    source_settings({**SERVERS, "subscribe": "t", option: "1"})


@pytest.mark.parametrize("option", ["group.id", "truncate", "path", "kafka.no.such"])
def test_strict_options_refuse_what_nobody_knows(option: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option {option!r} for writing"):
        sink_settings({option: "1", **SERVERS, "topic": "t", "txn.strict.options": "true"})


def test_option_of_txn_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'txn\.wibble' for writing"):
        sink_settings({**SERVERS, "topic": "t", "txn.wibble": "1"})


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        (source_settings, {"subscribe": "t", "kafka.key.serializer": "X"}),
        (source_settings, {"subscribe": "t", "kafka.value.serializer": "X"}),
        (source_settings, {"subscribe": "t", "kafka.partitioner.class": "X"}),
        (source_settings, {"subscribe": "t", "kafka.transactional.id": "X"}),
        (source_settings, {"subscribe": "t", "kafka.partitioner.ignore.keys": "true"}),
        (sink_settings, {"topic": "t", "kafka.enable.auto.commit": "false"}),
        (sink_settings, {"topic": "t", "kafka.auto.offset.reset": "latest"}),
        (sink_settings, {"topic": "t", "kafka.key.deserializer": "X"}),
        (sink_settings, {"topic": "t", "kafka.exclude.internal.topics": "false"}),
        (sink_settings, {"topic": "t", "kafka.ssl.endpoint.identification.algorithm": ""}),
        (source_settings, {"subscribe": "t", "kafka.ssl.endpoint.identification.algorithm": ""}),
    ],
)
def test_option_that_spark_takes_in_this_direction_is_taken(
    settings: Callable[[dict[str, str]], object], given: dict[str, str]
) -> None:
    """One dictionary for reader and writer is common."""
    settings({**SERVERS, **given})


def test_a_comma_too_many_in_servers_is_no_address() -> None:
    for text in ("h:1,g:2,", ",h:1, g:2"):
        access = sink_settings({"kafka.bootstrap.servers": text, "topic": "t"}).connection
        assert access.bootstrap_servers == "h:1,g:2"


def test_a_query_is_as_patient_as_sparks_source_in_an_outage() -> None:
    """It ended after a minute; Spark's source asks three times, each for a minute."""
    for access in (
        source_settings({**SERVERS, "subscribe": "t"}).connection,
        sink_settings({**SERVERS, "topic": "t"}).connection,
    ):
        assert access.timeout_ms == 180_000


def test_table_of_the_catalog_is_told_that_spark_gives_it_no_options() -> None:
    for settings in (source_settings, sink_settings):
        with pytest.raises(ConfigError, match=r"keeps none for a table .* CREATE TEMP VIEW"):
            settings({})
    with pytest.raises(ConfigError, match=r"this is CREATE TABLE, .* CREATE TEMP VIEW"):
        source_settings({**SERVERS, "subscribe": "t", "provider": "txn", "owner": "me"})


HARMLESS = {
    "kafka.acks": "1",
    "kafka.batch.size": "32768",
    "kafka.enable.idempotence": "false",
    "kafka.exclude.internal.topics": "true",
    "kafka.group.id": "g",
    "kafka.linger.ms": "5",
    "kafka.max.poll.records": "500",
    "kafka.partitioner.ignore.keys": "false",
    "kafka.request.timeout.ms": "30000",
    "kafka.retries": "3",
    "fetchOffset.numRetries": "3",
    "fetchOffset.retryIntervalMs": "10",
    "groupIdPrefix": "p",
    "kafkaConsumer.pollTimeoutMs": "512",
    "kafka.schema.registry.url": "http://registry",
}


@pytest.mark.parametrize("option", HARMLESS)
def test_option_that_tunes_the_java_client_is_ignored_and_told_once(
    option: str, told: pytest.LogCaptureFixture
) -> None:
    given = {**SERVERS, option: HARMLESS[option]}
    for _ in range(2):
        assert sink_settings({**given, "topic": "t"}) == sink_settings({**SERVERS, "topic": "t"})
        source_settings({**given, "subscribe": "t"})
    (line,) = told.messages
    assert line.startswith(f"option.ignored {option}: ")


def test_option_of_the_other_direction_is_ignored_as_spark_ignores_it(
    told: pytest.LogCaptureFixture,
) -> None:
    """One dictionary for reader and writer is common."""
    both = {**SERVERS, "subscribe": "in", "startingOffsets": "earliest", "topic": "out"}
    both |= {"includeHeaders": "false", "kafka.isolation.level": "read_committed"}
    assert sink_settings(both) == sink_settings({**SERVERS, "topic": "out"})
    source_settings({**both, "txn.id": "q", "checkpointLocation": "/c"})
    assert sorted(line.split()[1] for line in told.messages) == [
        *("checkpointLocation:", "includeHeaders:", "kafka.isolation.level:", "startingOffsets:"),
        *("subscribe:", "topic:", "txn.id:"),
    ]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("kafka.key.deserializer", "X", "keys are read as bytes. Cast the column key instead"),
        ("kafka.enable.auto.commit", "true", "offsets are kept in the query's checkpoint"),
        ("kafka.auto.offset.reset", "latest", "set startingOffsets to earliest or latest instead"),
        ("kafka.interceptor.classes", "X", "an interceptor is Java"),
        ("kafka.exclude.internal.topics", "false", "Name them by subscribe"),
    ],
)
def test_option_that_would_change_the_rows_read_is_refused_with_its_reason(
    option: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        source_settings({**SERVERS, "subscribe": "t", option: value})
    assert message in str(raised.value)
    assert option.lower() in str(raised.value).lower()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("kafka.value.serializer", "X", "values are written as bytes. Cast the column value"),
        ("kafka.interceptor.classes", "X", "an interceptor is Java"),
        ("kafka.partitioner.class", "X", "give them a column partition"),
        ("kafka.partitioner.ignore.keys", "TRUE", "Leave the key out instead"),
        ("kafka.transactional.id", "X", "makes its own transactional ids from txn.id"),
    ],
)
def test_option_that_would_change_the_rows_written_is_refused_with_its_reason(
    option: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        sink_settings({**SERVERS, "topic": "t", option: value})
    assert message in str(raised.value)
    assert option.lower() in str(raised.value).lower()


def test_topic_option_on_a_reader_says_what_reads() -> None:
    with pytest.raises(ConfigError, match="The option topic is for writing; to read, set subscri"):
        source_settings({**SERVERS, "topic": "t"})


def test_names_are_trimmed_as_spark_trims_them() -> None:
    assert source_settings({**SERVERS, "subscribe": " a ,, b"}).topics.names == ("a", "b")
    assert source_settings({**SERVERS, "subscribePattern": " a.* "}).topics.pattern == "a.*"
    assert sink_settings({**SERVERS, "topic": " t "}).topic == "t"


@pytest.mark.parametrize("given", [{"subscribe": " , "}, {"subscribePattern": " "}, {"topic": ""}])
def test_empty_names_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=rf"option {next(iter(given))} cannot be"):
        (sink_settings if "topic" in given else source_settings)({**SERVERS, **given})


def test_compression_may_have_kafkas_name() -> None:
    given = {**SERVERS, "topic": "t", "kafka.compression.type": "zstd"}
    assert sink_settings(given).compression == "zstd"
    assert sink_settings({**given, "compression": "lz4"}).compression == "lz4"


def test_size_of_a_fetch_may_have_kafkas_name() -> None:
    given = {**SERVERS, "subscribe": "t", "kafka.max.partition.fetch.bytes": "9"}
    assert source_settings(given).fetch_bytes == 9
    assert source_settings({**given, "fetch.bytes": "7"}).fetch_bytes == 7
    assert source_settings({**SERVERS, "subscribe": "t"}).fetch_bytes == 4 << 20


def test_progress_topic_is_no_output() -> None:
    with pytest.raises(ConfigError, match="is the sink's own progress topic"):
        sink_settings({**SERVERS, "topic": "__txn_spark"})


@pytest.mark.parametrize("servers", ["localhost", "a:1,b", "", "a:x"])
def test_servers_without_a_port_are_refused(servers: str) -> None:
    with pytest.raises(
        ConfigError, match=r"kafka\.bootstrap\.servers cannot be .* takes HOST:PORT"
    ):
        source_settings({"kafka.bootstrap.servers": servers, "subscribe": "t"})


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


def test_security_settings_of_a_job_are_read_as_they_stand() -> None:
    line = 'a.b.ScramLoginModule required username="ann" password="hunter2";'
    given = {
        "kafka.Security.Protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": line,
        "kafka.ssl.truststore.location": "/t.pem",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    settings = sink_settings({**SERVERS, **given})
    security = settings.connection.security
    assert (security.username, security.password) == ("ann", "hunter2")
    assert security.trusted == Store("kafka.ssl.truststore.location", "/t.pem")
    assert not security.check_hostname
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kafka.sasl.jaas.config": "hunter2"}, r"kafka\.security\.protocol is missing though"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI"},
            r"kafka\.sasl\.mechanism cannot be GSSAPI: Kerberos",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.trustore.location": "/t"},
            r"did you mean kafka\.ssl\.truststore\.location",
        ),
        ({"kafka.securty.protocol": "SSL"}, r"did you mean kafka\.security\.protocol"),
        ({"txn.token": "hunter2"}, r"txn\.token names a function that the session does not have"),
    ],
)
def test_a_mistake_of_security_is_told_by_the_options_name(
    given: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as raised:
        sink_settings({**SERVERS, **given})
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in repr(vars(raised.value))


OAUTHBEARER = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}


def test_an_option_names_a_function_for_tokens() -> None:
    secret = "hunter2"
    tokens.add({"here": lambda: f"token-of-{secret}"})
    options = {**SERVERS, **OAUTHBEARER, "txn.token": "here"}
    first, second = (sink_settings(options, tokens.registered).connection for _ in range(2))
    source = pickle.loads(pickle.dumps(first)).security.token
    assert source.call() == "token-of-hunter2"
    assert first == second
    assert secret not in repr(source)
    txn.spark.sink("h:1", "t", id="q", **OAUTHBEARER, txn_token="here")


def test_the_text_of_an_option_runs_no_code(tmp_path: Path) -> None:
    """The option held a pickled function, so SQL alone ran code in Spark's driver."""
    touched = tmp_path / "touched"
    text = base64.b64encode(pickle.dumps(TouchedByLoading(touched))).decode()
    options = {**SERVERS, **OAUTHBEARER, "txn.token": text}
    with pytest.raises(
        ConfigError, match=r"txn\.token names a function that the session"
    ) as raised:
        settings = source_settings({**options, "subscribe": "t"}, tokens.registered)
        settings.connection.security.token.call()  # type: ignore[union-attr]
    assert text not in str(raised.value)
    assert not touched.exists()


@pytest.mark.parametrize("function", ["a.b.c", threading.Lock().acquire])
def test_what_cannot_travel_as_a_function_for_tokens_is_refused(function: Any) -> None:
    with pytest.raises(ConfigError, match=r"is no function|cannot be sent to Spark's workers"):
        tokens.add({"wrong": function})


def test_a_sink_shows_no_option() -> None:
    options = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    secret = {"kafka.sasl.username": "ann", "kafka.sasl.password": "hunter2"}
    sink = txn.spark.sink("h:1", "t", id="q", **options, **secret)
    assert "hunter2" not in repr(sink)


def test_plaintext_is_accepted_as_kafka_spells_it() -> None:
    sink_settings({**SERVERS, "kafka.security.protocol": "PLAINTEXT"})


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("earliest", EARLIEST),
        ("Latest", LATEST),
        ('{"t": {"0": 23, "1": -2}}', {"t": {0: 23, 1: -2}}),
        ('{"t": {"0": 23}, "topic ids": {"t": "AA"}, "left out": {"u": {"0": 1}}}', {"t": {0: 23}}),
        (r'{"t": {"0": 23}, "{\"topic ids\": {\"t\": \"AA\"}}": {}}', {"t": {0: 23}}),
    ],
)
def test_positions_are_words_or_json(text: str, means: Any) -> None:
    settings = source_settings({**SERVERS, "subscribe": "t", "startingOffsets": text})
    assert settings.starting == Boundary("startingOffsets", means)


def test_a_topic_may_have_one_position_for_its_partitions() -> None:
    text = '{"t": "earliest", "u": "Latest", "v": {"0": 5}}'
    settings = source_settings({**SERVERS, "subscribe": "t", "startingOffsets": text})
    expected = Boundary("startingOffsets", {"v": {0: 5}}, {"t": EARLIEST, "u": LATEST})
    assert settings.starting == expected
    assert expected.names(EARLIEST)
    assert expected.names(LATEST)


@pytest.mark.parametrize(
    "text", ["", "first", '{"t": 3}', '{"t": "first"}', '{"t": {"0": -3}}', '{"t": {"x": 1}}']
)
def test_positions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="startingOffsets cannot be"):
        source_settings({**SERVERS, "subscribe": "t", "startingOffsets": text})


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("15m", 900_000),
        ("2min", 120_000),
        ("3h", 10_800_000),
        ("1d", 86_400_000),
        ("7s", 7_000),
        ("512ms", 512),
        ("512", 512),
        (" 1999US ", 1),
    ],
)
def test_delay_is_a_time_as_spark_has_them(text: str, milliseconds: int) -> None:
    """Utils.timeStringAsMs: a number without a unit is milliseconds."""
    settings = source_settings({**SERVERS, "subscribe": "t", "maxTriggerDelay": text})
    assert settings.trigger_delay_ms_max == milliseconds


@pytest.mark.parametrize("text", ["", "1.5s", "-1s", "5 m", "3 weeks", "3w"])
def test_delay_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"maxTriggerDelay cannot be .*it takes a time as 15m"):
        source_settings({**SERVERS, "subscribe": "t", "maxTriggerDelay": text})


@pytest.mark.parametrize("text", ["", "-1", "noon", "1e3", "2026-01-01"])
def test_time_that_is_none_is_refused(text: str) -> None:
    for option in ("startingTimestamp", "endingTimestamp"):
        with pytest.raises(ConfigError, match=f"{option} cannot be .*milliseconds since 1970"):
            source_settings({**SERVERS, "subscribe": "t", option: text})


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
