"""Spark redacts the secrets among a query's options in plans and in its UI."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from txn.security.client_names import SECRETS
from txn.spark.session import KEYS_HIDDEN

SPARKS_OWN = r"(?i)secret|password|token|access[.]?key"
"""The default of `spark.redaction.regex` in Spark 4.2."""

OPTIONS = sorted({f"kafka.{name}" for name in SECRETS} | {"txn.token"})


@pytest.mark.parametrize("option", OPTIONS)
def test_every_secret_matches_spark_s_own_expression_or_that_of_register(option: str) -> None:
    """`kafka.sasl.oauthbearer.config` matched neither, so plans showed it."""
    assert re.search(SPARKS_OWN, option) or re.search(KEYS_HIDDEN, option)


def test_the_expression_of_register_is_no_secret_itself() -> None:
    """Spark Connect does not tell a setting whose value matches Spark's expression."""
    assert not re.search(SPARKS_OWN, KEYS_HIDDEN)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_secret_matches_the_documented_expressions(option: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    documented = re.search(r"`(\(\?i\)url\|[^`]+)`", page)
    assert documented is not None
    assert re.search(SPARKS_OWN, option) or re.search(documented[1], option)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_register_hides_secrets_and_leaves_hidden_what_spark_hides(spark: SparkSession) -> None:
    """Its expression stood in place of Spark's default, and plans showed the `url` of a table."""
    jvm = spark._jvm
    assert jvm is not None
    shown = []
    for option in (*OPTIONS, "url"):
        options = jvm.PythonUtils.toScalaMap({option: "x"})
        redacted = spark._jsparkSession.sessionState().conf().redactOptions(options)
        shown += [option] if redacted.apply(option) == "x" else []
    assert shown == []
