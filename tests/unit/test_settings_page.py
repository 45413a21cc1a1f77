"""docs/settings.md has every setting, and no other."""

import re
from pathlib import Path
from typing import Final

from txn.config import BROKER_PROPERTIES, TOPIC_PROPERTIES
from txn.metadata.group_configs import GROUP_PROPERTIES
from txn.server.settings.config_file import READ_HERE
from txn.server.settings.kafka_settings import NOT_USED

PAGE: Final = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
NAMED: Final = set(re.findall(r"`([a-z]+(?:\.[a-z0-9]+)*)`", PAGE))
"""Words in backticks that are written like a setting."""

IN_TABLES: Final = {
    name
    for line in PAGE.splitlines()
    if line.startswith("| `")
    for name in re.findall(r"`([a-z.0-9]+)`", line.split(" | ")[0])
}


def test_every_setting_is_on_the_page() -> None:
    assert sorted((BROKER_PROPERTIES.keys() | TOPIC_PROPERTIES.keys()) - NAMED) == []


def test_no_other_setting_is_on_the_page() -> None:
    known = BROKER_PROPERTIES.keys() | TOPIC_PROPERTIES.keys() | GROUP_PROPERTIES.keys()
    assert sorted(IN_TABLES - known) == []
    # The text around the tables names settings of Kafka, and events of the log.
    settings = {name for name in NAMED - known if name in NOT_USED | READ_HERE}
    assert settings <= {"num.io.threads", "log.dirs"}
