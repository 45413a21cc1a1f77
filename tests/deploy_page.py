"""The commands of deploy/README.md, in a directory that stands for the machine's root.

`LINES` has a row for each command, as in `test_pages.py`. Some commands need a service manager, a
container engine or other users of the machine, and are not run. Their rows give the reason, and
hold the words against the unit or the image.
"""

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from support.command_line import run_txn
from support.deployed import DEPLOY, PASSWORD, metrics_of, settings_in

UNIT: Final = (DEPLOY / "txn.service").read_text()
IMAGE: Final = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text())
ROOT_DIRECTORIES: Final = ("/etc/txn", "/etc/systemd/system", "/var/lib/txn", "/run/secrets")


def rooted(line: str, place: Path) -> list[str]:
    """The words of a command, with the machine's directories below `place`."""
    found = []
    for word in shlex.split(line):
        inside = word.startswith(ROOT_DIRECTORIES)
        found.append(f"{place}{word}" if inside else word)
    return found


def furnish(place: Path) -> None:
    """Put down the files that the page takes as given, unless an earlier command has."""
    for name in ROOT_DIRECTORIES:
        (place / name[1:]).mkdir(parents=True, exist_ok=True)
    password = place / "run/secrets/admin"
    password.write_text(f"{PASSWORD}\n")
    made = settings_in(place, place / "var/lib/txn")
    settings = place / "etc/txn/server.properties"
    settings.write_text(made.read_text())


def run_words(words: list[str]) -> str:
    """Run `txn` with words, to success; return its output."""
    code, printed, errors = run_txn(*words[1:])
    assert (words[0].rpartition("/")[2], code) == ("txn", 0), errors
    return printed


def try_add_user(line: str, place: Path) -> None:
    """It runs as the page has it: the first user is there for a start."""
    furnish(place)
    run_words(rooted(line, place))
    assert list((place / "var/lib/txn").glob("__cluster_metadata-0/*.log"))


def try_venv(line: str, place: Path) -> None:
    """Not run: test_wheel.py installs the wheel into an empty environment. The unit finds it."""
    made, installed = line.split(" && ")
    prefix = shlex.split(made)[-1]
    assert shlex.split(installed) == [f"{prefix}/bin/pip", "install", "."]
    assert f"ExecStart={prefix}/bin/txn serve " in UNIT


def try_useradd(line: str, place: Path) -> None:
    """Not run: it would add a user to this machine. It is the one of the unit."""
    words = shlex.split(line)
    (home,) = [words[at + 1] for at, word in enumerate(words) if word == "--home-dir"]
    name = words[-1]
    assert f"User={name}\n" in UNIT
    assert home == f"/var/lib/{re.findall(r'StateDirectory=(.*)', UNIT)[0]}"


def try_install(line: str, place: Path) -> None:
    """It runs, but as the user of the tests: there is no user `txn` on this machine."""
    furnish(place)
    (place / "broker.pem").touch()
    if not (place / "deploy").exists():
        (place / "deploy").symlink_to(DEPLOY)
    kept = (place / "etc/txn/server.properties").read_bytes()
    words = rooted(line, place)
    for option in ("-o", "-g"):
        if option in words:
            at = words.index(option)
            assert words[at + 1] == "txn"
            del words[at : at + 2]
    subprocess.run(words, cwd=place, check=True)
    mode = int(words[words.index("-m") + 1], 8)
    target = Path(words[-1])
    sources = words[words.index("-m") + 2 : -1]
    made = [target / Path(source).name for source in sources] or [target]
    assert {path.stat().st_mode & 0o7777 for path in made} == {mode}
    kind = {"/var/lib/txn": "State", "/etc/txn": "Configuration"}.get(shlex.split(line)[-1])
    if "-d" in words:
        assert f"{kind}DirectoryMode={mode:04o}\n" in UNIT
    (place / "etc/txn/server.properties").write_bytes(kept)  # of this place


def try_as_user(line: str, place: Path) -> None:
    """It runs as the user of the tests, with the password from a file in place of a prompt."""
    furnish(place)
    words = rooted(line, place)
    assert words[:4] == ["runuser", "-u", "txn", "--"]
    assert f"ExecStart={words[4]} " in UNIT
    command = words[4:]
    if command[1] == "users":
        command += ["--password-file", f"{place}/run/secrets/admin"]
    run_words(command)


def try_systemctl(line: str, place: Path) -> None:
    """Not run: a test has no service manager. test_deploy.py runs the unit's commands."""
    assert (DEPLOY / f"{shlex.split(line)[-1]}.service").is_file()
    assert "[Install]\nWantedBy=multi-user.target" in UNIT


def try_build(line: str, place: Path) -> None:
    """Not run: the base images are in a registry. test_deploy.py reads the file's steps."""
    words = shlex.split(line)
    assert (DEPLOY.parent / words[words.index("-f") + 1]).samefile(DEPLOY / "Containerfile")
    assert words[-1] == "."


def try_podman_run(line: str, place: Path) -> None:
    """Not run in a container: the words behind the image are run here, in its directories."""
    words = shlex.split(line)
    image = words.index("txn", words.index("--name") + 2 if "--name" in words else 0)
    mounted = {words[at + 1].split(":")[1] for at, word in enumerate(words) if word == "-v"}
    assert mounted >= {"/var/lib/txn", "/etc/txn"}
    assert 'VOLUME ["/var/lib/txn"]' in IMAGE
    assert 'ENTRYPOINT ["txn"]' in IMAGE
    if command := words[image + 1 :]:
        paths = [word for word in command if word.startswith("/")]
        assert all(any(path.startswith(one) for one in mounted) for path in paths)
        try_add_user(shlex.join(["txn", *command]), place)
    else:  # the image's own command, which test_deploy.py runs
        (port,) = re.findall(r"EXPOSE (\d+)", IMAGE)
        assert words[words.index("-p") + 1] == f"{port}:{port}"


def try_podman_kill(line: str, place: Path) -> None:
    """Not run: it sends the signal of the unit's reload, which test_deploy.py sends."""
    words = shlex.split(line)
    assert f"ExecReload=kill -{words[words.index('--signal') + 1]} " in UNIT


def check_providers(text: str, place: Path) -> None:
    """The settings are read, with the secret from the file of the credential."""
    credentials = place / "run/credentials"
    credentials.mkdir(parents=True)
    (credentials / "key-password").write_text("secret of the key")
    furnish(place)
    settings = place / "etc/txn/server.properties"
    here = text.replace("/run/credentials/txn.service", str(credentials))
    assert here != text
    settings.write_text(settings.read_text() + here)
    printed = run_words(["txn", "serve", "--config", str(settings), "--check"])
    assert "secret of the key" not in printed


def check_scrape(text: str, place: Path) -> None:
    """The rules are those of deploy/, the job is the alerts', the target that of the settings."""
    (rules,) = re.findall(r"^rule_files: \[(.*)\]$", text, re.MULTILINE)
    alerts = (DEPLOY / "prometheus" / rules).read_text()
    (job,) = re.findall(r"job_name: (\w+)", text)
    assert f'job="{job}"' in alerts
    (target,) = re.findall(r'targets: \["(.*)"\]', text)
    assert metrics_of(DEPLOY / "server.properties") == target


LINES: Final[dict[str, Callable[[str, Path], None]]] = {
    r"txn users add .*": try_add_user,
    r"python3 -m venv .*": try_venv,
    r"useradd .*": try_useradd,
    r"install .*": try_install,
    r"runuser .*": try_as_user,
    r"systemctl .*": try_systemctl,
    r"podman build .*": try_build,
    r"podman run .*": try_podman_run,
    r"podman kill .*": try_podman_kill,
}
