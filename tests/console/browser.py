"""A real browser for the pages: the chromium of the system, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS: Final = ["--no-sandbox", "--disable-gpu"]
"""A GPU that software plays costs a third of the browser's CPU."""
SIZE: Final = ViewportSize(width=1280, height=900)


@contextmanager
def open_page(
    browser: Browser,
    url: str,
    *,
    scheme: str = "light",
    scripts: bool = True,
    size: ViewportSize = SIZE,
) -> Iterator[tuple[Page, list[str]]]:
    """A page of the browser at an address, and the complaints of the browser about it."""
    complaints: list[str] = []
    context = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport=size,
        java_script_enabled=scripts,
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url)
    yield page, complaints
    context.close()


@contextmanager
def chromium_browser() -> Iterator[Browser]:
    """The browser; a process has one at a time."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()
