"""Who gets into the console, and which requests it refuses."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from console.conftest import Story
from support.clients import WAIT_S
from support.command_line import run_txn
from support.console import ConsoleProcess
from txn.cli.cluster import Cluster
from txn.console.access import IDLE_S, Access
from txn.console.site import Site
from txn.console.sources import Way


def test_the_token_begins_a_session_and_leaves_the_address(story: Story) -> None:
    browser = story.console.stranger()
    answer = browser.get(f"/readers/orders?part=1&token={story.console.token}")
    assert (answer.status, answer.headers["location"]) == (303, "/readers/orders?part=1")
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert browser.get("/").status == 200


def test_without_a_session_every_page_leads_to_the_log_in(story: Story) -> None:
    answer = story.console.stranger().get("/readers/orders?part=2")
    assert answer.status == 303
    assert answer.headers["location"] == "/login?next=%2Freaders%2Forders%3Fpart%3D2"
    with story.console.stranger().stream("/") as answer_to_script:
        assert answer_to_script.status == 401


def test_a_wrong_token_is_refused(story: Story) -> None:
    browser = story.console.stranger()
    assert browser.get("/?token=wr%C3%B6ng").status == 403
    assert browser.post("/login", {"token": "wrong"}).status == 403
    assert browser.get("/").status == 303


def test_the_log_in_leads_to_no_other_site(story: Story) -> None:
    for target in ("https://evil.example/", "//evil.example/", "/\\evil.example", "evil"):
        form = {"token": story.console.token, "next": target}
        assert story.console.stranger().post("/login", form).headers["location"] == "/"


def test_a_token_in_the_address_leads_to_no_other_site(story: Story) -> None:
    """`//evil.example/?token=…` led to evil.example, as a browser reads `//` as a host."""
    browser = story.console.stranger()
    for path in ("//evil.example/", "//evil.example"):
        answer = browser.get(f"{path}?token={story.console.token}")
        assert (answer.status, answer.headers["location"]) == (303, "/")


def test_a_new_session_of_a_browser_ends_its_former_one(story: Story) -> None:
    browser = story.console.browser()
    former = story.console.stranger()
    former.cookie = browser.cookie
    assert browser.get(f"/?token={story.console.token}").status == 303
    assert former.get("/").status == 303
    former.cookie = browser.cookie
    assert browser.post("/login", {"token": story.console.token}).status == 303
    assert former.get("/").status == 303
    assert browser.get("/").status == 200


def test_consoles_have_cookies_of_different_names(tmp_path: Path) -> None:
    """Two tunnels lead to the same port of this machine one after the other, or of two names."""
    first, second = (Site(Way(Cluster(), tmp_path), (), may_write=False) for _ in range(2))
    assert first.cookie != second.cookie


def test_a_tab_that_follows_its_page_does_not_keep_a_session(tmp_path: Path) -> None:
    access = Access(Way(Cluster(), tmp_path))
    key = access.by_token(access.token)
    session = access.session(key)
    assert session is not None
    session.used -= IDLE_S - 100
    before = session.used
    assert access.session(key, is_use=False) is session
    assert session.used == before
    session.used -= 200
    access.end_idle()
    assert session.has_ended
    assert access.session(key) is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_host_of_another_name_is_refused(story: Story, host: str) -> None:
    """A page of another site may let its own name point to this machine (DNS rebinding)."""
    assert story.console.browser().get("/", Host=host).status in (400, 421)


def test_the_names_of_this_machine_are_served_at_any_port(story: Story) -> None:
    """A tunnel of ssh has another port than the console."""
    assert story.console.browser().get("/", Host="localhost:9999").status == 200
    assert story.console.browser().get("/", Host="[::1]:80").status == 200


def test_a_change_from_another_site_or_without_the_secret_is_refused(story: Story) -> None:
    browser = story.console.browser()
    form = {"csrf": browser.csrf()}
    assert browser.post("/logout", form, Origin="http://evil.example").status == 403
    assert browser.post("/logout", form, Origin="null").status == 403
    assert browser.post("/logout", form, Sec_Fetch_Site="cross-site").status == 403
    assert browser.post("/logout", {"csrf": "wrong"}).status == 403
    assert browser.post("/logout", {}).status == 403
    other = story.console.browser()
    assert other.post("/logout", form).status == 403
    assert browser.get("/").status == 200


def test_a_log_out_ends_the_session_for_a_copied_cookie_too(story: Story) -> None:
    browser = story.console.browser()
    copied = story.console.stranger()
    copied.cookie = browser.cookie
    csrf = browser.csrf()
    assert browser.post("/logout", {"csrf": csrf}, Origin=story.console.base).status == 303
    assert copied.get("/").status == 303


def test_every_answer_forbids_foreign_scripts_frames_and_guessed_types(story: Story) -> None:
    browser = story.console.browser()
    for path in ("/", "/nothing", "/login", "/assets/console.js", "/assets/x"):
        headers = browser.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"], path
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        # With no-referrer a browser sends `Origin: null` with our own forms, which is refused.
        assert headers["referrer-policy"] == "same-origin"


def test_a_form_that_is_large_or_of_another_kind_is_refused(story: Story) -> None:
    browser = story.console.browser()
    assert browser.post("/logout", {"csrf": "x" * 100_000}).status == 400
    assert browser.post("/logout", {}, Content_Type="text/plain").status == 400
    assert browser.get("/logout").status == 405


def test_the_start_line_has_the_address_and_sigterm_ends_it_beside_open_streams(
    story: Story,
) -> None:
    command = [sys.executable, "-m", "txn", "console", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--bootstrap", story.servers], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as output:
        line = output.readline()
        assert line.startswith("console on http://127.0.0.1:"), line
        assert "/?token=" in line
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    second = ConsoleProcess("--bootstrap", story.servers)
    with second.browser().stream("/") as stream:
        assert stream.readline() == b"event: part\n"
        part = json.loads(stream.readline().removeprefix(b"data: "))
        assert "pay-3" in part
        assert second.stop() == 0


def test_wrong_usage_is_one_line(tmp_path: Path) -> None:
    for words, told in (
        (("--listen", f"{'x' * 80}:0"), "is no name of a host"),
        (("--listen", "0.0.0.0:0"), "reach it from another machine by `ssh -L`\n"),
        (("--listen", "9080"), "HOST:PORT"),
        (("--data", tmp_path / "none"), "no directory"),
        (("--data", tmp_path, "--bootstrap", "127.0.0.1:1"), "give one"),
    ):
        code, _, errors = run_txn("console", *words)
        assert code == 2
        assert told in errors
        assert errors.count("\n") == 1


def test_without_its_extra_the_command_says_how_to_get_it() -> None:
    program = (
        "import sys; sys.modules['starlette'] = None; sys.argv = ['txn', 'console']\n"
        "from txn.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install '.[console]'" in done.stderr


def test_brokers_that_do_not_answer_are_a_page_with_the_next_step() -> None:
    console = ConsoleProcess("--bootstrap", "127.0.0.1:1")
    answer = console.browser().get("/")
    assert answer.status == 503
    assert "Start one of these brokers, and reload this page" in answer.text
    assert console.stop() == 0


def test_a_log_out_ends_the_streams_of_its_session(story: Story) -> None:
    """An open tab went on to show the cluster after the log-out in another one."""
    browser = story.console.browser()
    csrf = browser.csrf()
    with browser.stream("/") as stream:
        assert stream.readline() == b"event: part\n"
        assert browser.post("/logout", {"csrf": csrf}).status == 303
        while stream.readline():
            pass
