"""`sasl.jaas.config` is read as Java reads it, and its faults are told without its text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.errors import ConfigError
from txn.security.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (f'{PLAIN} required username="ann" password="pw";', {"username": "ann", "password": "pw"}),
        (f"{PLAIN} REQUIRED username='a\"b' password=pw ;", {"username": 'a"b', "password": "pw"}),
        (f'{PLAIN} optional password="a\\"b\\\\c;d=e";', {"password": 'a"b\\c;d=e'}),
        (f'{PLAIN} required p="\\101\\n\\q\\477";', {"p": "A\nq'7"}),
        (f'{PLAIN} required\n  // a comment\n  p="x" /* and\n another */;', {"p": "x"}),
        (f'{PLAIN} required p="";', {"p": ""}),
        (f"{PLAIN} sufficient;", {}),
        (f'{PLAIN} required "p q"="x";', {"p q": "x"}),
        (f'{PLAIN} required p=";";', {"p": ";"}),
        (f"{PLAIN} required p=pässwörd$1.2-3;", {"p": "pässwörd$1.2-3"}),
    ],
)
def test_a_line_is_read_as_java_reads_it(line: str, options: dict[str, str]) -> None:
    module = parse_jaas(line)
    assert (module.name, module.class_name) == ("PlainLoginModule", PLAIN)
    assert module.options == options


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("", "begins with the class of a login module"),
        (PLAIN, "begins with the class"),
        (f"{PLAIN} maybe;", "`required` follows the class"),
        (f'{PLAIN} required password="hunter2"', "a semicolon has to end it"),
        (f'{PLAIN} required password="hunter2', "neither quoted nor part of a name"),
        (f"{PLAIN} required password=hunter2!;", "neither quoted nor part of a name"),
        (f"{PLAIN} required password=2hunter;", "neither quoted nor part of a name"),
        (f"{PLAIN} required password hunter2 x;", 'NAME="VALUE"'),
        (f"{PLAIN} required password=;", 'NAME="VALUE"'),
        (f"{PLAIN} required hunter2;", "NAME=VALUE"),
        (f'{PLAIN} required p="hunter2" p="hunter2";', "there twice"),
        (f'{PLAIN} required; {PLAIN} required p="hunter2";', "one login module"),
    ],
)
def test_a_fault_is_told_by_its_rule_and_not_by_the_text(line: str, rule: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_jaas(line)
    assert rule in str(raised.value)
    assert "hunter2" not in str(raised.value)


@given(st.text(alphabet=st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])))
def test_every_password_survives_the_quoting_that_java_asks_for(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'{PLAIN} required password="{quoted}";').options == {"password": password}


@given(st.lists(st.sampled_from([*" \t\n\"'\\=;/*#-.7", PLAIN, "required", "kEy", "sEcReT"])))
def test_no_line_ends_in_a_traceback_or_shows_its_words(parts: list[str]) -> None:
    said = message_of("".join(parts))
    assert "sEcReT" not in said
    assert "kEy" not in said


@given(st.text())
def test_no_text_ends_in_a_traceback(text: str) -> None:
    message_of(text)


def message_of(text: str) -> str:
    try:
        parse_jaas(text)
    except ConfigError as error:
        return str(error)
    return ""


def test_a_module_shows_no_option_when_it_is_printed() -> None:
    module = parse_jaas(f'{PLAIN} required password="hunter2";')
    assert repr(module) == "LoginModule(PlainLoginModule)"
