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


@pytest.mark.parametrize(
    "pattern", ["(", r"a\b", r"(a)\1", r"\p{L}", "a*+", "(?>a)", "(?u)a", "(?m)a", "(a*)*"]
)
def test_a_pattern_that_is_none_or_could_mean_another_thing_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="has the pattern"):
        principal_mapper(f"RULE:{pattern}/b/")


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        (r"CN=(\d+)", "CN=\u0663"),
        (r"CN=(\w+)", "CN=\xe9"),
        (r"CN=a\sb", "CN=a\xa0b"),
        (r"CN=a\sb", "CN=a\x1cb"),
        (r"(?i)CN=kiss", "CN=\u212ai\u017fs"),
        (r"(?i)CN=[i-k]", "CN=\u0131"),
        (r"CN=(.*)", "CN=a\rO=b"),
        (r"CN=(.*)", "CN=a\u2028b"),
        (r"CN=a$\n", "CN=a\r\n"),
    ],
)
def test_a_pattern_matches_no_subject_that_java_would_refuse(pattern: str, subject: str) -> None:
    assert principal_mapper(f"RULE:{pattern}/admin/")(subject) is None


@pytest.mark.parametrize(
    "replacement", ["$1", "$10", "$", "$x", "${a}", "${", r"$2\$3", "$99999999999"]
)
def test_a_replacement_by_which_kafka_would_refuse_every_client_is_refused(
    replacement: str,
) -> None:
    groups = "" if replacement in ("$1", "$10") else "(a)"
    with pytest.raises(ConfigError, match="has the replacement"):
        principal_mapper(f"RULE:CN={groups}.*/{replacement}/")


def test_a_named_group_can_be_in_the_replacement() -> None:
    rules = "RULE:CN=(?<name>[a-z]+),.*/<${name}>/"

    assert principal_mapper(rules)("CN=duke,O=Org") == "User:<duke>"
