"""The reference that is made from the code: settings, commands, metrics, error codes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from txn.config import BROKER_PROPERTIES, TOPIC_PROPERTIES, Property
from txn.wire.error_codes import ErrorCode

_ROW_ENDS: Final = str.maketrans({"|": "\\|", "\n": " ", "<": "&lt;", "*": "\\*"})


def reference_pages() -> Mapping[str, str]:
    """Return the Markdown of each page by its name."""
    return {
        "reference/broker-settings": _settings_page(
            "Every broker setting",
            "`txn settings` prints the same. [Settings](../settings.md) has the effects.",
            BROKER_PROPERTIES,
        ),
        "reference/topic-settings": _settings_page(
            "Every topic setting",
            "`txn settings --topic` prints the same. [Settings](../settings.md) has the effects.",
            TOPIC_PROPERTIES,
        ),
        "reference/commands": "\n".join(_commands_page()),
        "reference/metrics": "\n".join(_metrics_page()),
        "reference/error-codes": "\n".join(_codes_page()),
    }


def _settings_page(title: str, lead: str, table: Mapping[str, Property]) -> str:
    known = {name: table[name] for name in sorted(table) if not table[name].is_internal}
    lines = [f"# {title}", "", lead]
    for name, entry in known.items():
        default = "" if entry.default is None else entry.default
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        lines += ["", f"## {name}", "", entry.about or "As in Apache Kafka.", ""]
        lines += [
            f"- Type: {entry.kind.name.lower()}",
            f"- Takes: {entry.expects.translate(_ROW_ENDS)}",
        ]
        lines += [f"- Default: `{shown}`" if shown else "- Default: none"]
        if table is BROKER_PROPERTIES and entry.is_dynamic:
            lines += [f"- A running broker takes it: `txn configs set broker {name}=…`"]
    return "\n".join([*lines, ""])


def _commands_page() -> Iterator[str]:
    from txn.cli.commands import COMMANDS, Commands

    yield "# Every command and its options\n"
    yield "`txn COMMAND --help` prints the same. [The command line](../cli.md) lists the tasks.\n"
    yield "Exit codes: 0 means done, 1 refused, 2 wrong usage or no broker that answers."
    group = Commands(name="txn")
    for name in COMMANDS:
        command = group.get_command(None, name)
        yield from _command_lines(f"txn {name}", command)
        for below_name, below in getattr(command, "commands", {}).items():
            yield from _command_lines(f"txn {name} {below_name}", below)


def _command_lines(words: str, command: Any) -> Iterator[str]:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    yield f"\n## {words}\n"
    yield from _help_lines(command.help or "")
    if getattr(command, "commands", None):
        yield f"Its commands: {', '.join(f'`{words} {each}`' for each in command.commands)}."
        return
    usage = " ".join([words, "[OPTIONS]", *(_argument(each) for each in arguments)])
    yield f"```text\n{usage}\n```\n"
    yield from _table(
        ("option", "meaning"),
        (
            (_spelling(each), getattr(each, "help", None) or "")
            for each in shown
            if each.param_type_name == "option" or getattr(each, "help", None)
        ),
    )


def _help_lines(text: str) -> Iterator[str]:
    """The paragraphs of a help; those that keep their lines become blocks of text."""
    for paragraph in text.strip().split("\n\n"):
        if paragraph.lstrip().startswith("\b"):
            kept = "\n".join(line for line in paragraph.splitlines() if line.strip() != "\b")
            if kept.strip():
                yield f"```text\n{kept.strip(chr(10))}\n```\n"
        else:
            yield f"{paragraph.translate(_ROW_ENDS)}\n"


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _spelling(option: Any) -> str:
    if option.param_type_name == "argument":
        return f"`{_argument(option)}`"
    names = ", ".join(f"`{each}`" for each in (*option.opts, *option.secondary_opts))
    return names if option.is_flag or not option.metavar else f"{names} `{option.metavar}`"


def _metrics_page() -> Iterator[str]:
    from txn.server.metrics.table import METRICS

    yield "# Every metric\n"
    yield "[Metrics](../metrics.md) explains names, times and reasons.\n"
    for kind in ("counter", "gauge", "histogram"):
        yield f"## {kind.capitalize()}s\n"
        yield from _table(
            ("metric", "labels", "meaning", "in Apache Kafka"),
            (
                (
                    f"`{name}`",
                    ", ".join(entry.labels),
                    entry.about,
                    f"`{entry.kafka}`" if entry.kafka else "–",
                )
                for name, entry in sorted(METRICS.items())
                if entry.kind == kind
            ),
        )
        yield ""


def _codes_page() -> Iterator[str]:
    yield "# Every error code\n"
    yield "The Kafka protocol has these codes. [Error codes](../errors/codes.md) has steps.\n"
    yield from _table(("code", "name"), ((str(int(code)), f"`{code.name}`") for code in ErrorCode))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    made = [" | ".join(cell.translate(_ROW_ENDS) for cell in row) for row in rows]
    if made:
        yield f"| {' | '.join(head)} |"
        yield "|---" * len(head) + "|"
        yield from (f"| {row} |" for row in made)
