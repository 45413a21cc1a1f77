"""Which topics the demo uses."""

from typing import Final

PARTITIONS: Final = 6
ENRICHED: Final = "flights-enriched"
STATISTICS: Final = "delay-statistics"


def output_topics(*, is_stock: bool) -> tuple[str, str]:
    """(enriched flights, statistics) of the run through txn or through Spark's own sink."""
    return (f"{ENRICHED}-stock", f"{STATISTICS}-stock") if is_stock else (ENRICHED, STATISTICS)
