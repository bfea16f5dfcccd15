"""Where bundled tasks, themes and the guide lie: in a checkout, or inside an installed wheel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

Resource = Literal["tasks", "themes"]

_PACKAGE = Path(__file__).resolve().parent


def bundled_dir(resource: Resource) -> Path:
    """Directory of a bundled resource.

    A wheel holds them as `tbtui/bundled/<resource>`; in a checkout they lie at the repository's
    top level, beside the package.

    Raises:
        FileNotFoundError: neither place has it, so the installation is incomplete.
    """
    installed = _PACKAGE / "bundled" / resource
    if installed.is_dir():
        return installed
    checkout = _PACKAGE.parent
    # An unrelated `tasks` directory in site-packages must not be mistaken for ours.
    if (checkout / "pyproject.toml").is_file() and (checkout / resource).is_dir():
        return checkout / resource
    raise FileNotFoundError(
        f"bundled {resource} not found in {installed} or {checkout / resource}: reinstall tbtui"
    )


def tasks_dir() -> Path:
    """Directory that holds the bundled datasets (`starter/`, `maze/`, `workshop/`)."""
    return bundled_dir("tasks")


def themes_dir() -> Path:
    """Directory that holds the bundled theme files."""
    return bundled_dir("themes")


def guide_dir() -> Path:
    """Directory of the guide's pages, `NAME.md` each."""
    return _PACKAGE / "guide"


def guide_pages() -> list[str]:
    """Names of the guide's pages, in the order of its contents."""
    linked = re.findall(
        r"^\| \[[\w-]+\]\(([\w-]+)\.md\)", _contents().read_text("utf-8"), re.MULTILINE
    )
    return [_contents().stem, *linked]


def guide_page(name: str) -> Path:
    """The file of a page of the guide.

    Raises:
        FileNotFoundError: there is no such page; the message lists those there are.
    """
    if name not in (pages := guide_pages()):
        import difflib  # few names are wrong, and it takes longer to import than to say so

        near = difflib.get_close_matches(name, pages, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"its pages: {', '.join(pages)}"
        raise FileNotFoundError(f"the guide has no page {name!r}; {hint}")
    return guide_dir() / f"{name}.md"


def guide_sections() -> list[tuple[str, str, str]]:
    """Page, heading and anchor of every section of the guide; the last two are empty for the pages
    themselves."""
    found = []
    for page in guide_pages():
        text = guide_page(page).read_text("utf-8")
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        found += [(page, "", ""), *((page, each, _anchor(each)) for each in headings)]
    return found


def _anchor(heading: str) -> str:
    """As GitHub makes it, and Textual's viewer looks for it."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.strip().lower()))


def _contents() -> Path:
    return guide_dir() / "index.md"
