"""The result of `pip install .`: the wheel, alone in an empty environment.

Deselect with `-m "not wheel"`: it compiles in release mode and installs from the registry.
"""

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from txn.manual.pages import all_pages, images

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(1800)]

CHECKOUT = Path(__file__).parent.parent

PROGRAM = """
import confluent_kafka
import txn

with txn.Broker() as broker:
    servers = broker.bootstrap_servers
    with txn.Producer(bootstrap_servers=servers, transactional_id="wheel") as producer:
        try:
            with producer.transaction() as t:
                t.produce("out", b"aborted")
                raise KeyError
        except KeyError:
            pass
        with producer.transaction() as t:
            t.produce("out", b"committed")
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest",
    })
    consumer.subscribe(["out"])
    message = consumer.poll(30)
    print(txn.__file__)
    print(message.value() if message is not None else "nothing came")
    consumer.close()
"""


EXTRAS: Mapping[str, list[str]] = {
    "": [],
    "console": [],
    "spark": [],
    "otel": ["opentelemetry-sdk"],
    "registry": [],
    "testing": [],
}
"""Extras that the pages tell to install, with other packages; they are installed here."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "maturin", "build", "--release", "--out", str(place)]
    run(build, cwd=CHECKOUT)
    (made,) = place.glob("txn-*.whl")
    return made


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Path:
    """An environment with nothing but the wheel and its requirements."""
    return installed(wheel, "")


def installed(wheel: Path, extra: str) -> Path:
    place = wheel.parent / f"env-{extra}"
    venv.create(place)
    what = f"{wheel}[{extra}]" if extra else str(wheel)
    # This environment's pip installs there. Bytecode of a thousand modules that no test imports is
    # not compiled.
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        place / "bin" / "python",
        "install",
    ]
    run([*pip, "--quiet", "--no-compile", what, *EXTRAS[extra]], cwd=wheel.parent)
    return place


def test_the_wheel_runs_a_broker_and_a_transaction(environment: Path) -> None:
    output = run([environment / "bin" / "python", "-I", "-c", PROGRAM], cwd=environment)

    where, what = output.splitlines()[-2:]
    assert Path(where).is_relative_to(environment), where
    assert what == "b'committed'"


def test_the_wheel_brings_the_command(environment: Path) -> None:
    assert "serve" in run([environment / "bin" / "txn", "--help"], cwd=environment)


def test_the_wheel_brings_every_page_of_the_documentation(environment: Path) -> None:
    """The pages of `docs/` lie beside the code by a link, which a build could pass over."""
    txn_command = environment / "bin" / "txn"
    made = run([txn_command, "docs", "--path"], cwd=environment, XDG_CACHE_HOME=str(environment))
    site = Path(made.strip()).parent
    found = {str(path.relative_to(site).with_suffix("")) for path in site.rglob("*.html")}
    assert found == {"index", *all_pages()}
    assert {path.relative_to(site).as_posix() for path in site.rglob("*.png")} == images().keys()
    program = (
        "import json; from txn.manual.pages import all_pages\n"
        "print(json.dumps({name: page.text for name, page in all_pages().items()}))"
    )
    texts = run([environment / "bin" / "python", "-I", "-c", program], cwd=environment)
    assert json.loads(texts) == {name: page.text for name, page in all_pages().items()}
    assert "txn docs quotas" in run([txn_command, "docs", "search", "quotas"], cwd=environment)


def test_the_readme_runs_with_the_wheel_and_its_extra_and_no_warning(wheel: Path) -> None:
    """A newcomer's first hour; pandas 3 made PySpark warn, and the example failed."""
    assert "7 apples" in run_page(installed(wheel, "spark"), "README.md")


def test_without_its_extra_otel_says_how_to_get_it(environment: Path) -> None:
    program = "try:\n    import txn.otel\nexcept ModuleNotFoundError as error:\n    print(error)"
    output = run([environment / "bin" / "python", "-I", "-c", program], cwd=environment)
    assert "pip install '.[otel]'" in output


def test_the_wheel_with_otel_traces_by_its_page_and_by_the_entry_point(wheel: Path) -> None:
    place = installed(wheel, "otel")
    assert '"txn.outcome": "commit"' in run_page(place, "docs/tracing.md")
    program = (
        "from importlib.metadata import entry_points\n"
        "(found,) = entry_points(group='opentelemetry_instrumentor', name='txn')\n"
        "instrumentor = found.load()()\n"
        "instrumentor.instrument(raise_exception_on_conflict=True)\n"
        "import txn\n"
        "print(type(vars(txn.Producer)['make_transaction']).__name__)"
    )
    output = run([place / "bin" / "python", "-I", "-W", "error", "-c", program], cwd=place)
    assert output == "FunctionWrapper\n"


def test_the_wheel_with_console_serves_pages_with_their_files(wheel: Path) -> None:
    place = installed(wheel, "console")
    program = (
        "import json, subprocess, sys, urllib.request, http.cookiejar as jar, txn\n"
        "txn_command = sys.argv[1]\n"
        "with txn.Broker() as broker:\n"
        "    at = ['--bootstrap', broker.bootstrap_servers, '--listen', '127.0.0.1:0', '--json']\n"
        "    console = subprocess.Popen([txn_command, 'console', *at], stdout=subprocess.PIPE)\n"
        "    url = json.loads(console.stdout.readline())['url']\n"
        "    cookies = urllib.request.HTTPCookieProcessor(jar.CookieJar())\n"
        "    opener = urllib.request.build_opener(cookies)\n"
        "    print('holds readers back' in opener.open(url).read().decode())\n"
        "    for name in ('console.css', 'console.js', 'mark.svg'):\n"
        "        opener.open(url.partition('?')[0] + 'assets/' + name)\n"
        "    console.terminate()\n"
        "    print(console.wait())"
    )
    txn_command = place / "bin" / "txn"
    command: list[str | Path] = [place / "bin" / "python", "-I", "-c", program, txn_command]
    assert run(command, cwd=place) == "True\n0\n"


def test_the_wheel_with_testing_runs_the_shortest_test_of_its_page(wheel: Path) -> None:
    """No extra had pytest, and each page told to install it."""
    place = installed(wheel, "testing")
    page = (CHECKOUT / "docs" / "testing.md").read_text()
    (shortest, *_) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (place / "test_shortest.py").write_text(shortest)
    output = run([place / "bin" / "python", "-m", "pytest", "-q", "test_shortest.py"], cwd=place)
    assert output.splitlines()[-1].startswith("1 passed")


def run_page(place: Path, page: str) -> str:
    """Run the Python of a page, with warnings as errors; return the output."""
    text = (CHECKOUT / page).read_text()
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    (place / "page.py").write_text(program)
    return run([place / "bin" / "python", "-W", "error", "page.py"], cwd=place)


def run(command: Sequence[str | Path], *, cwd: Path, **variables: str) -> str:
    """Run to success, away from the import path of this interpreter; return the output."""
    env = clean(os.environ) | variables
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Without variables that tell Python, pytest and Spark where to look; Spark is on loopback."""
    names = ("PYTHON", "PYSPARK", "PYTEST", "SPARK_HOME")
    kept = {name: value for name, value in environment.items() if not name.startswith(names)}
    return kept | {"SPARK_LOCAL_IP": "127.0.0.1"}
