"""Options of `format("txn")` for the listeners of a secured Apache Kafka, and an attack."""

from pathlib import Path
from typing import Any

from harnesses.peers.secured import PASSWORD, USER, SecuredKafka

SCRAM = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="{USER}" password="{PASSWORD}";'
)


def scram_over_tls(kafka: SecuredKafka) -> dict[str, str]:
    """Options of a Spark job as people have them for `format("kafka")`."""
    return {
        "kafka.bootstrap.servers": kafka.servers["SASL_SSL"],
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": SCRAM,
        "kafka.ssl.truststore.location": str(kafka.directory / "ca.pem"),
        "kafka.ssl.truststore.type": "PEM",
    }


class TouchedByLoading:
    """A pickle of it runs code when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)
