"""The guide: its pages, with links between them."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import ClassVar, override

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Markdown, MarkdownViewer, OptionList

from tbtui.resources import guide_dir, guide_page, guide_pages
from tbtui.ui.screens.dialogs import Dialog, Hint
from tbtui.ui.textual_seam import Columns, Ground

CONTENTS = "index"


class GuideScreen(Dialog[None], Ground):
    """The list of pages, and one of them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "close"),
        Binding("backspace", "back", "back"),
        Binding("n", "next(1)", "next page"),
        Binding("p", "next(-1)", "previous page"),
        Binding("space,pagedown", "scroll_page(1)", "page down", priority=True),
        Binding("b,pageup", "scroll_page(-1)", "page up", priority=True),
    ]

    def __init__(self, page: str = CONTENTS) -> None:
        """Begin at a page, or at a section of it (`steering#take-over`).

        Raises:
            FileNotFoundError: there is no such page.
        """
        super().__init__()
        name, _, section = page.partition("#")
        file = guide_page(name)
        self._first = f"{file}#{section}" if section else file
        self._pages = guide_pages()

    @override
    def compose(self) -> ComposeResult:
        with Columns():
            yield OptionList(*self._pages, id="pages")
            yield GuideViewer()
        yield Hint(
            ("enter choose", ""),
            ("n p next", "next(1)"),
            ("space scroll", "scroll_page(1)"),
            ("backspace back", "back"),
            ("esc close", "close"),
        )

    async def on_mount(self) -> None:
        await self.query_one(GuideViewer).go(self._first)

    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        await self.query_one(GuideViewer).go(guide_page(self._pages[event.option_index]))

    def on_markdown_viewer_navigator_updated(self) -> None:
        page = self.query_one(GuideViewer).navigator.location.stem
        self.query_one("#pages", OptionList).highlighted = self._pages.index(page)

    def action_close(self) -> None:
        self.dismiss()

    async def action_back(self) -> None:
        await self.query_one(GuideViewer).back()

    async def action_next(self, by: int) -> None:
        viewer = self.query_one(GuideViewer)
        here = self._pages.index(viewer.navigator.location.stem)
        await viewer.go(guide_page(self._pages[(here + by) % len(self._pages)]))

    def action_scroll_page(self, by: int) -> None:
        viewer = self.query_one(GuideViewer)
        viewer.scroll_relative(y=by * max(1, viewer.size.height - 2), animate=False)


class GuideViewer(MarkdownViewer):
    """Follows links within the guide; an address elsewhere is opened in a browser."""

    def __init__(self) -> None:
        super().__init__(show_table_of_contents=False, open_links=False)
        self._files = {guide_page(name) for name in guide_pages()}

    @override
    async def go(self, location: str | PurePath) -> None:
        text = str(location)
        if "://" in text:
            self.app.open_url(text)
            return
        page, anchor = Markdown.sanitize_location(text)
        if page != Path() and (guide_dir() / page).resolve() not in self._files:
            self.app.notify(f"{page} is not a page of the guide", severity="warning")
            return
        await super().go(location)
        if page != Path():
            self.scroll_home(animate=False)
            if anchor:
                self.call_after_refresh(self.document.goto_anchor, anchor)
