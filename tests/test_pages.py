"""Every code block of README.md, CONTRIBUTING.md, deploy/, docs/ and examples/ is run, or held
against its subject.

The Python of a page runs in one process from top to bottom, as a reader types it. Each line of
a shell block is tried by the row of `LINES` that it matches. A block or a line that no row
matches fails: there is no way to mark one as not to be run. `test_transcripts.py` types the pages
of the tutorial and the how-tos.
"""

import logging
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

import pytest
from markdown_it import MarkdownIt

import deploy_page
import test_readme
import test_wheel
import txn
from harnesses.peers.kafka import ONE_NODE
from kit import everywhere
from support import clients, transcript
from support.brokers import BrokerProcess
from support.command_line import run_txn
from support.console import ConsoleProcess
from support.damaged import flip_bit, segment_of
from transactions_page import picture
from txn.broker.audit import AuditLog
from txn.broker.host import Context
from txn.cli.cluster import cluster
from txn.cli.commands import COMMANDS, Commands
from txn.config import STANDARD_AUTHORIZER, BrokerSettings
from txn.metadata.records import ClientQuotaRecord
from txn.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from txn.security.sessions import ANONYMOUS
from txn.wire.api_keys import ApiKey

ACLS_ADDED: Final = "txn acls add --topic orders --operation Write --allow-principal User:ada"

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "deploy" / "README.md",
    *sorted(set((ROOT / "docs").rglob("*.md")) - set(transcript.PAGES)),
    *sorted((ROOT / "examples").rglob("*.md")),
]

SHOWN: Final = {
    ("README.md", True): [r"\|7 apples\|"],
    ("docs/python-client.md", False): [
        *(
            "2 orders\n",
            "ABORTED\n2 orders still",
            r"apple b'ann' .*\('trace', b'a1'\)",
            "\\d s old",
        ),
        *(
            "{'item': 'apple', 'total': 14}\n{'item': 'pear', 'total': 9}\n2 dead letters",
            "fenced: ",
        ),
        "the audit log is full ABORTED",
    ],
    ("docs/concepts/delivery-semantics.md", False): [
        f"{loop} \\['APPLES', 'PEARS', 'PLUMS'\\]\n"
        for loop in ("at_most_once", "at_least_once", "exactly_once", "exactly_once_by_hand")
    ],
    ("docs/concepts/delivery-semantics.md", True): [r"\['apples', 'pears'\]"],
    ("docs/tracing.md", False): [
        *(r'"name": "send orders"', r'"name": "send invoices"', r'"name": "transaction"'),
        *(r'"txn.outcome": "commit"', r'"messaging.consumer.group.name": "shop"'),
    ],
    ("docs/spark.md", True): ["7 apples", "3 pears", "1 plum", r"\|ann\| +2\|", "done"],
}
"""Output of the Python of a page, among other lines, without Spark and with it.

A page whose program asserts what it shows needs no row.
"""


@dataclass(frozen=True)
class Block:
    """A fenced or indented block; an indented one has no language."""

    page: str
    line: int
    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    return [
        Block(str(page.relative_to(ROOT)), token.map[0] + 1, token.info.strip(), token.content)
        for token in MarkdownIt().parse(page.read_text())
        if token.type in ("fence", "code_block") and token.map is not None
    ]


BLOCKS: Final = [block for page in PAGES for block in blocks_of(page)]


def programs() -> dict[tuple[str, bool], str]:
    """The Python of each page by (page, whether it needs Spark): from the first block that does."""
    found: dict[tuple[str, bool], str] = {}
    for block in BLOCKS:
        if block.language == "python":
            needs_spark = (block.page, True) in found or "pyspark" in block.text
            key = (block.page, needs_spark)
            found[key] = f"{found.get(key, '')}{block.text}\n"
    return found


PYTHON: Final = programs()


def test_blocks_are_found() -> None:
    assert {block.page for block in BLOCKS} >= {"README.md", "docs/spark.md", "docs/performance.md"}
    assert set(SHOWN) <= set(PYTHON)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_installs_txn_from_a_package_index(page: Path) -> None:
    """No index has it, and a package of that name there would be somebody else's."""
    assert re.findall(r"pip install '?txn\b", page.read_text()) == []


@pytest.mark.parametrize(
    "page",
    [*PAGES, *transcript.PAGES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", text)
    missing = [link for link in links if ":" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize(
    "page",
    [*PAGES, *transcript.PAGES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_has_no_tab(page: Path) -> None:
    """Browsers, terminals and editors differ in its width, so columns would not line up."""
    assert [line for line in page.read_text().splitlines() if "\t" in line] == []


@pytest.mark.parametrize("folder", ["tutorial", "how-to"])
def test_an_index_lists_every_page_of_its_folder(folder: str) -> None:
    index = (ROOT / "docs" / folder / "index.md").read_text()
    pages = {path.name for path in (ROOT / "docs" / folder).glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\]\(([^)/]+\.md)\)", index)) == pages


@pytest.mark.parametrize(
    "key",
    [pytest.param(key, marks=[pytest.mark.spark] if key[1] else []) for key in PYTHON],
    ids=lambda key: f"{key[0]}{' with Spark' if key[1] else ''}",
)
def test_python_of_a_page_runs_from_top_to_bottom(key: tuple[str, bool], tmp_path: Path) -> None:
    """It runs in an empty directory; a warning is an error."""
    (tmp_path / "program.py").write_text(PYTHON[key])
    # Of an environment that was not made from the extra `spark`, which asks for an older one.
    newer_pandas = "ignore:PySpark does not yet fully support pandas"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", newer_pandas, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for shown in SHOWN.get(key, []):
        assert re.search(shown, done.stdout), shown


@pytest.mark.parametrize(
    "block",
    [block for block in BLOCKS if block.language != "python"],
    ids=lambda b: f"{b.page}:{b.line}",
)
def test_block_is_what_it_says(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if block.language == "text" and "ann writes" in block.text:
        assert ["```text", *block.text.splitlines(), "```"] == list(picture())
    elif block.language == "console":
        for command in re.findall(r"^\$ (.*)", block.text, re.MULTILINE):
            assert command in CONSOLE, f"{block.page}:{block.line}: who compares {command!r}?"
    elif block.language == "yaml" and "scrape_configs:" in block.text:
        deploy_page.check_scrape(block.text, tmp_path)
    elif block.language == "properties" and "config.providers=" in block.text:
        deploy_page.check_providers(block.text, tmp_path)
    elif block.language == "properties" and "security.protocol=" in block.text:
        check_way_in(block, tmp_path, monkeypatch)
    elif block.language == "properties" and "listener.name." in block.text:
        BrokerSettings(dict(line.split("=", 1) for line in block.text.splitlines()))
    elif block.language == "text" and block.text.startswith("crash_everywhere: "):
        everywhere.check_story(block.text)
    elif is_properties(block.text):
        check_properties(block.text)
    else:
        assert block.language in ("sh", ""), (
            f"{block.page}:{block.line}: what is a {block.language}?"
        )
        for line in block.text.splitlines():
            rows = deploy_page.LINES if block.page.startswith("deploy/") else LINES
            try_line(re.sub(r"\s+# .*", "", line), tmp_path, rows)


CONSOLE: Final = {
    "txn explain orders --bootstrap 127.0.0.1:9092": (
        test_readme.test_what_explain_prints_is_what_the_readme_shows
    )
}
"""Commands shown with their output, and the test that compares it."""


def check_way_in(block: Block, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of a client are read, and no connection with them is plain."""
    (place / "client.properties").write_text(block.text)
    for variable in re.findall(r"\$\{env:(\w+)\}", block.text):
        monkeypatch.setenv(variable, "a password")
    found = cluster(None, place / "client.properties", None)
    assert found.security.is_encrypted


def is_properties(text: str) -> bool:
    return all(re.fullmatch(r"[a-z.]+=\S+", line) for line in text.splitlines())


def check_properties(text: str) -> None:
    """The node of the docs is the one that the exchange of directories is tested with."""
    told = dict(line.split("=", 1) for line in text.splitlines())
    places = {"controller.quorum.voters", "listeners", "log.dirs"}
    assert {name: ONE_NODE.get(name) for name in told.keys() - places} == {
        name: value for name, value in told.items() if name not in places
    }


# ---------------------------------------------------------------- lines of shell


Rows = Mapping[str, Callable[[str, Path], None]]


def try_line(line: str, place: Path, rows: Rows) -> None:
    for pattern, attempt in rows.items():
        if re.fullmatch(pattern, line):
            attempt(line, place)
            return
    raise AssertionError(f"nobody knows how to try {line!r}")


def try_pip(line: str, place: Path) -> None:
    """`test_wheel.py` installs the same into an empty environment."""
    _, _, what, *others = shlex.split(line)
    extras = what.removeprefix(".").strip("[]").split(",")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= {"", *known["optional-dependencies"]}
    assert others == [each for extra in extras for each in test_wheel.EXTRAS[extra]]


INSTALLED: Final[dict[str, Callable[[str, Path], None]]] = {
    r"pip install \S+( opentelemetry-sdk)?": try_pip,
    r"python3 -m venv \S+|\. \S+/bin/activate": lambda line, place: None,
}
"""An environment is made by `test_wheel.py`."""


def try_make(line: str, place: Path) -> None:
    """The target exists, with all it depends on, and make prints the commands it would run."""
    command = ["make", "--dry-run", "--always-make", "-C", str(ROOT), *shlex.split(line)[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for command_line in re.findall(r"^\.venv/bin/txn (.*)", done.stdout, re.MULTILINE):
        assert run_txn(*command_line.split(), "--help")[0] == 0


def try_example(line: str, place: Path) -> None:
    """The program takes these arguments; `spark/patterns/` runs it."""
    _, program, *words = shlex.split(line)
    told = f"import sys; from {Path(program).stem} import PROGRAM; PROGRAM.given(sys.argv[1:])"
    subprocess.run([sys.executable, "-c", told, *words], cwd=(ROOT / program).parent, check=True)


def try_serve(line: str, place: Path) -> None:
    free = re.sub(r"127\.0\.0\.1:90(92|80)", "127.0.0.1:0", line)
    command = [sys.executable, "-m", "txn", *shlex.split(free)[1:]]
    process = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        said = output.readline()
        assert said.startswith("listening on "), said
        if "--console" in line:
            assert output.readline().startswith("console on http://127.0.0.1:")
        servers = said.split()[-1]
        producer = clients.plain_producer(servers)
        clients.send(producer, "orders", [b"1"])
        partitions = (
            producer.list_topics("orders", timeout=clients.WAIT_S).topics["orders"].partitions
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(clients.WAIT_S) == 0
    for setting in re.findall(r"-o (\S+)", line):
        assert setting == f"num.partitions={len(partitions)}"
    assert (place / "data" / "orders-0").is_dir()


def try_serve_ephemeral(line: str, place: Path) -> None:
    command = [sys.executable, "-m", "txn", *shlex.split(line)[1:]]
    process = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        assert re.fullmatch(r"listening on 127\.0\.0\.1:\d+\n", output.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(clients.WAIT_S) == 0


def try_log(line: str, place: Path) -> None:
    with txn.Broker(place / "data") as broker:
        clients.send(clients.plain_producer(broker.bootstrap_servers), "orders", [b"1"])
    words = shlex.split(line)
    code, printed, errors = run_txn(*words[1:])
    assert (code, errors) == (0, "")
    assert {"verify": "no findings", "dump": "data/orders-0"}[words[2]] in printed


def try_on_damage(line: str, place: Path) -> None:
    """The partition that it names has lost a record, and it exits with 0."""
    with txn.Broker(place / "data") as broker:
        clients.send(clients.plain_producer(broker.bootstrap_servers), "orders", [b"1"])
    flip_bit(segment_of(place / "data", "orders"), -2)
    code, printed, errors = run_txn(*shlex.split(line)[1:])
    assert (code, errors) == (0, "")
    assert "orders-0" in printed or "as one after a power failure" in printed


def try_console(line: str, place: Path) -> None:
    """It answers, beside a broker or on the directory of a stopped one, until SIGTERM."""
    with txn.Broker(place / "data") as broker:
        clients.send(clients.plain_producer(broker.bootstrap_servers), "orders", [b"1"])
        words = shlex.split(line.replace("127.0.0.1:9092", broker.bootstrap_servers))[2:]
        if "--data" not in line:
            answer_of_console(words, place)
    if "--data" in line:
        answer_of_console(words, place)


def answer_of_console(words: Sequence[str], place: Path) -> None:
    options = [str(place / word) if word == "data" else word for word in words]
    console = ConsoleProcess(*options)
    try:
        assert "No transaction holds readers back" in console.browser().get("/").text
    finally:
        assert console.stop() == 0


def try_perf(line: str, place: Path) -> None:
    """The processes that it looks at are those of a running broker."""
    (search,) = re.findall(r"\$\((.*)\)", line)
    broker = BrokerProcess(place / "data")
    try:
        found = subprocess.run(shlex.split(search), capture_output=True, text=True, check=True)
        assert str(broker.pid) in found.stdout.split()
    finally:
        broker.stop()


def try_command_config(line: str, place: Path) -> None:
    """It reads the file, and asks the broker that the file names."""
    with txn.Broker() as broker:
        clients.send(clients.plain_producer(broker.bootstrap_servers), "orders", [b"1"])
        settings = f"bootstrap.servers={broker.bootstrap_servers}\nsecurity.protocol=PLAINTEXT\n"
        (place / "client.properties").write_text(settings)
        assert run_txn(*shlex.split(line)[1:])[::2] == (0, "")


READ_BY_COMMANDS: Final = {
    "lines.txt": b"ann:7 apples\n",
    "day-1.jsonl": b'{"key": "ann", "value": "7 apples"}\n',
    "day-2.jsonl": b'{"value": {"base64": "/w=="}, "headers": {"trace": "1"}}\n',
    "cat.png": b"\x89PNG\n",
    "shop.json": b'{"partitions": []}',
    "ann.txt": b"secret\n",
}
"""Files that the lines of docs/cli.md read."""


def try_on_a_broker(line: str, place: Path) -> None:
    """It runs to its end, or to Ctrl-C, beside a broker with the things that it names."""
    for name, content in READ_BY_COMMANDS.items():
        (place / name).write_bytes(content)
    with txn.Broker() as broker:
        servers = broker.bootstrap_servers
        for topic in ("orders", "copies", "orders-dead"):
            clients.create_topic(servers, topic, retention_ms="-1")
        producer = clients.plain_producer(servers)
        clients.send(producer, "orders", [b"1", b"2", b"3"])
        clients.send(producer, "orders-dead", [b"1"])
        for prepared in (
            ("groups", "reset-offsets", "shop", "--topic", "orders", "--to", "2", "--yes"),
            ("users", "add", "ann", "--password-file", place / "ann.txt"),
            ("quotas", "set", "--user", "ann", "producer_byte_rate=1000"),
        ):
            assert run_txn(*prepared, "--bootstrap", servers)[0] == 0
        (place / "client.properties").write_text(f"bootstrap.servers={servers}\n")
        goes_on = line == "txn top" or "--follow" in line
        if not goes_on and not re.search(r"[|>&]", line):
            words = (*shlex.split(line)[1:], "--bootstrap", servers)
            code, _, said = run_txn(*words)
            assert (code, said) == (1 if "--drained" in line else 0, "")
            return
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=place,
            env={**os.environ, "PATH": path, "TXN_COMMAND_CONFIG": "client.properties"},
            stdout=pipe,
            stderr=pipe,
        )
        assert process.stdout is not None
        while goes_on and not select.select([process.stdout], [], [], 0.2)[0]:
            assert process.poll() is None
            clients.send(producer, "orders", [b"one more"])
        if goes_on:
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == (1 if "--drained" in line else 0), errors
    assert errors == b"" or (goes_on and errors.startswith(b"txn: stopped after ")), errors


def try_docs(line: str, place: Path) -> None:
    """It names a page that there is, or words that some page has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place))
        code, printed, errors = run_txn(*shlex.split(line)[1:])
    assert (code, errors) == (0, "")
    assert printed


def try_acls(line: str, place: Path) -> None:
    """It asks a broker whose clients may do everything, after the entry that the page adds."""
    properties = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": ANONYMOUS}
    with txn.Broker(place / "data", properties=properties) as broker:
        at = ("--bootstrap", broker.bootstrap_servers)
        added = run_txn(*shlex.split(ACLS_ADDED)[1:], *at)
        words = shlex.split(line.partition(" --bootstrap ")[0])[1:]
        code, printed, errors = run_txn(*words, *at)
    assert (code, errors) == (0, "")
    assert (added[0], added[2]) == (0, "")
    assert "User:ada" in printed


def try_quotas(line: str, place: Path) -> None:
    """It asks a broker, after the quota that the page sets first."""
    with txn.Broker(place / "data") as broker:
        at = ("--bootstrap", broker.bootstrap_servers)
        run_txn("quotas", "set", "--user", "ada", "producer_byte_rate=1048576", *at)
        words = shlex.split(line.partition(" --bootstrap ")[0])[1:]
        code, printed, errors = run_txn(*words, *at)
    assert (code, errors) == (0, "")
    assert "byte_rate" in printed


def try_serve_with_acls(line: str, place: Path) -> None:
    """It starts, and a client without rights is refused."""
    words = shlex.split(line.replace("127.0.0.1:9092", "127.0.0.1:0"))
    command = [sys.executable, "-m", "txn", *words[1:]]
    process = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        servers = output.readline().split()[-1]
        code, _, errors = run_txn("acls", "list", "--bootstrap", servers)
        process.send_signal(signal.SIGTERM)
        assert process.wait(clients.WAIT_S) == 0
    assert code != 0
    assert "CLUSTER_AUTHORIZATION_FAILED" in errors


def context_of(given: Mapping[str, str]) -> Context:
    session = SimpleNamespace(principal=given["principal"])
    return cast(Context, SimpleNamespace(session=session, client_host=given["host"]))


def try_audit(line: str, place: Path) -> None:
    """The audit log writes the same of such a refusal or act."""
    given = dict(re.findall(r'(\w+)="?([^"=]+?)"?(?= \w+=|$)', line))
    kind, *_, name = given["resource"].split(":")
    written: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: written.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("txn")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        if line.startswith("access.refused"):
            AuditLog().refused(
                given["principal"],
                given["host"],
                ApiKey[given["request"]],
                Operation[given["operation"]],
                ResourceType[kind],
                name,
            )
        elif line.startswith("quota."):
            entity = ((kind, None if name == "<default>" else name),)
            change = ClientQuotaRecord(entity, given["quota"], float(given["value"]))
            AuditLog().altered_quota(context_of(given), change)
        else:
            permission, principal, operation, host = re.split(" from | ", given["entry"])
            acl = Acl(
                ResourceType[kind],
                name,
                PatternType[given["resource"].split(":")[1]],
                principal,
                host,
                Operation[operation],
                Permission[permission],
            )
            AuditLog().administered(context_of(given), line.split()[0], acl)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert written == [line]


LINES: Final[dict[str, Callable[[str, Path], None]]] = {
    r"pip install \S+( opentelemetry-sdk)?": try_pip,
    r"make [a-z-]+( [A-Z]+=.*)?": try_make,
    r"txn serve --ephemeral": try_serve_ephemeral,
    r"python examples/spark/\w+\.py .*": try_example,
    r"txn console( .*)?": try_console,
    r"txn docs( .*)?": try_docs,
    r"txn serve .*authorizer.*": try_serve_with_acls,
    r"txn serve .*": try_serve,
    r"txn acls .*": try_acls,
    r"txn quotas .*": try_quotas,
    r"(access\.refused|acl\.added|quota\.set) .*": try_audit,
    r"txn log (verify|dump) .*": try_log,
    r"txn log (accept-loss|lost-cache) .*": try_on_damage,
    r"txn .* --command-config \S+": try_command_config,
    r"(seq \d+ \| )?txn (topics|produce|consume|offsets|configs|groups|cluster|top|users|explain)\b"
    r".*": try_on_a_broker,
    r"txn dead-letters .*": try_on_a_broker,
    r"txn transactions .*": try_on_a_broker,
    r"perf record -g -p \$\(pgrep .*\)": try_perf,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_of_the_command_line_names_every_command_by_its_purpose(name: str) -> None:
    """It named half of them, by the tools of Apache Kafka alone."""
    page = (ROOT / "docs/cli.md").read_text()
    rows = [line.split("|")[2] for line in page.splitlines() if line.count("|") == 4]
    below = getattr(Commands(name="txn").get_command(None, name), "commands", {})
    named = [row for row in rows if f"`txn {name}" in row]
    missing = [verb for verb in below if not any(f"{verb}`" in row for row in named)]
    assert named, name
    assert missing == []
