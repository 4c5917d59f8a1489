"""Pages in headless Chromium, with their requests, errors and dialogs recorded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page, Request

NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS = 60_000
"""Far more than a page needs, even on a loaded machine."""


@dataclass(frozen=True)
class Window:
    """A page, the URLs it requested, and its errors and dialogs."""

    page: Page
    asked: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def texts(self, selector: str) -> list[str]:
        return [text.strip() for text in self.page.locator(selector).all_text_contents()]


@contextmanager
def browsing() -> Iterator[Browser]:
    """Start a browser, or skip the test where none is installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no page is opened")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("chromium is not installed: no page is opened")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def window(browser: Browser, url: str, width: int = 1280, dark: bool = False) -> Iterator[Window]:
    """Open a page in a session of its own."""
    scheme = "dark" if dark else "light"
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(WAIT_MS)
    found = Window(page)

    def note(request: Request) -> None:
        found.asked.append(request.url)

    def refuse(dialog: Dialog) -> None:
        found.faults.append(f"dialog {dialog.message}")
        dialog.dismiss()

    page.on("request", note)
    page.on("pageerror", lambda error: found.faults.append(str(error)))
    page.on("console", lambda said: found.faults.append(said.text) if said.type == "error" else None)
    page.on("dialog", refuse)
    page.goto(url)
    yield found
    page.close()
