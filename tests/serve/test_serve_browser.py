"""A run's page in a real browser: chromium, driven by playwright."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tbtui.journal.rundir import RunDirectory
from tests.ui.synthetic import START, Simulation
from tests.waiting import wait_until

from .serving import Serving, gone

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium on PATH"),
]

_CATCH_TERMINAL = """
Object.defineProperty(Object.prototype, "fitAddon", {
  configurable: true,
  set(value) {
    Object.defineProperty(this, "fitAddon", { value, writable: true, enumerable: true });
    window.caught = this.terminal;
  },
});
"""
"""The page's terminal is nobody else's: it is caught as its owner takes it."""

_TEXT = """() => {
  const terminal = window.caught, rows = [];
  for (let y = 0; terminal && y < terminal.rows; y++)
    rows.push(terminal.buffer.active.getLine(y).translateToString(true));
  return rows.join("\\n");
}"""


_COUNT_COLOURS = """async (url) => {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


class Page:
    """A tab with the run in it."""

    def __init__(self, page: playwright.Page, address: str) -> None:
        self.page = page
        self.asked: list[str] = []
        """Every host that it has asked for something."""
        self.errors: list[str] = []
        page.on("request", lambda request: self.asked.append(urlsplit(request.url).netloc))
        page.on("websocket", lambda socket: self.asked.append(urlsplit(socket.url).netloc))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        page.add_init_script(_CATCH_TERMINAL)
        page.goto(address)

    @property
    def text(self) -> str:
        return str(self.page.evaluate(_TEXT))

    def shows(self, text: str) -> None:
        wait_until(lambda: text in self.text, lambda: f"{self.notice}\n{self.text}")

    @property
    def notice(self) -> str:
        return self.page.inner_text("#said") if self.page.is_visible("#said") else ""


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield chromium
        chromium.close()


def _colours(page: Page, path: Path) -> int:
    """How many there are in a picture of the page."""
    page.page.screenshot(path=path)
    url = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
    return int(page.page.evaluate(_COUNT_COLOURS, url))


def test_a_live_run_in_a_page(
    browser: playwright.Browser,
    serving: Callable[..., Serving],
    live_run: Simulation,
    tmp_path: Path,
) -> None:
    server = serving(live_run.run)
    tab = browser.new_page(viewport={"width": 1400, "height": 900})
    page = Page(tab, server.address)
    page.shows("trials · ")
    page.shows("step 1 of")
    assert not page.notice
    # Drawn, not only received: letters and panes of many colours, where a blank page has one.
    assert _colours(page, tmp_path / "page.png") > 50

    database = live_run.run.database
    before = database.read_bytes(), database.with_name("run.db-wal").read_bytes()
    tab.keyboard.press("Space")
    page.shows("Read-only: ")
    tab.keyboard.press("?")
    page.shows("everywhere")
    tab.keyboard.press("Escape")
    page.shows("trials · ")
    tab.keyboard.press("Enter")
    page.shows("─ turns")
    assert (database.read_bytes(), database.with_name("run.db-wal").read_bytes()) == before

    live_run.advance(START + 40.0)
    tab.keyboard.press("Escape")
    page.shows("step 2 of")

    tab.set_viewport_size({"width": 760, "height": 480})
    wait_until(lambda: len(page.text.splitlines()) < 30)
    page.shows("step 2 of")

    # A link in what a model wrote, wherever it is clicked: no page opens.
    assert tab.evaluate("() => window.open('https://example.org')") is None
    assert set(page.asked) == {urlsplit(server.url).netloc}
    assert not page.errors

    viewers = server.viewers()
    assert len(viewers) == 1
    tab.close()
    assert gone(viewers)


def test_leaving_and_coming_back(browser: playwright.Browser, server: Serving) -> None:
    tab = browser.new_page()
    page = Page(tab, server.address)
    page.shows("replay past")
    tab.keyboard.press("q")
    wait_until(lambda: page.notice == "You have left.")
    tab.get_by_role("button", name="Open it again").click()
    page.shows("replay past")
    assert server.end() == 0
    wait_until(lambda: page.notice == "tbtui serve has ended.")
    tab.close()


def test_the_token_leaves_the_address_and_servers_keep_apart(
    browser: playwright.Browser, serving: Callable[..., Serving], past_run: RunDirectory
) -> None:
    server, another = serving(past_run), serving(past_run)
    context = browser.new_context()
    first, second = context.new_page(), context.new_page()
    first.goto(server.url)
    assert "open the address that tbtui serve printed" in first.inner_text("body")
    for tab, served in ((first, server), (second, another)):
        Page(tab, served.address).shows("replay past")
        assert tab.url == served.url
        assert tab.evaluate("() => document.cookie") == ""
        assert not tab.evaluate("() => document.referrer")
    again = Page(first, server.url)
    again.shows("replay past")
    assert not again.errors
    context.close()


def test_a_link_in_another_page(browser: playwright.Browser, server: Serving) -> None:
    """In a chat, say. A browser keeps a strict cookie to itself while it follows one."""
    context = browser.new_context()
    tab = context.new_page()
    chat = f"<a href='{server.address}'>first</a> <a href='{server.url}'>later</a>"
    tab.route(
        "http://chat.example/", lambda route: route.fulfill(content_type="text/html", body=chat)
    )
    tab.route("http://chat.example/favicon.ico", lambda route: route.abort())
    for link in ("first", "later"):
        page = Page(tab, "http://chat.example/")
        tab.get_by_text(link).click()
        tab.wait_for_selector("#terminal")
        page.shows("replay past")
        assert tab.url == server.url
    context.close()
