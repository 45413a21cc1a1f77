"""Kafka's `ssl.principal.mapping.rules`. The cases follow KIP-371 and Kafka's documentation."""

import pytest

from txn.errors import ConfigError
from txn.security.principals import principal_mapper

SUBJECT = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "subject", "principal"),
    [
        ("DEFAULT", SUBJECT, f"User:{SUBJECT}"),
        ("", SUBJECT, f"User:{SUBJECT}"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", SUBJECT, "User:Duke"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", SUBJECT, "User:duke"),
        (r"RULE:^CN=(.*?), *OU=(.*?),.*$/$1@$2/U , DEFAULT", SUBJECT, "User:DUKE@SERVICEUSERS"),
        (r"RULE:^CN=(.*?),OU=Others.*$/$1/, RULE:^.*O=(.*?),.*$/$1/", SUBJECT, "User:Org"),
        (r"RULE:^CN=(.*?),OU=Others.*$/$1/,DEFAULT", SUBJECT, f"User:{SUBJECT}"),
        (r"RULE:^CN=(.*?),OU=Others.*$/$1/", SUBJECT, None),
        (r"RULE:CN=/x/", SUBJECT, None),  # the whole subject has to match
        (r"RULE:^CN=([^,]*),.*$/$1$4-$11\$1\//", SUBJECT, "User:Duke$4-Duke1$1/"),
        (r"RULE:^CN=(a\,b)$/$1/", "CN=a,b", "User:a,b"),
        (r"RULE:(.*)/<$1>/", "CN=a", "User:<CN=a><>"),  # as Java's replaceAll does
    ],
)
def test_the_first_rule_that_applies_names_the_principal(
    rules: str, subject: str, principal: str | None
) -> None:
    assert principal_mapper(rules)(subject) == principal


@pytest.mark.parametrize(
    "rules", ["default", "RULE:a", "RULE:a/b", "DEFAULT RULE:a/b/", "RULE:a/b/X", "DEFAULT,x"]
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match="it takes DEFAULT and RULE:pattern/replacement/"):
        principal_mapper(rules)


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="has the pattern"):
        principal_mapper("RULE:(/b/")
