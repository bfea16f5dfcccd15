"""The guide's pages: each is linked from the contents, and no link is dead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tbtui.resources import guide_dir, guide_page, guide_pages
from tests.cli.process import tbtui

PAGES = sorted(guide_dir().glob("*.md"))


def test_the_contents_have_every_page() -> None:
    assert sorted(guide_pages()) == sorted(page.stem for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_link_is_dead(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8")):
        assert "://" in target or (page.parent / target).is_file(), target


def test_a_page_is_printed_and_an_unknown_one_refused() -> None:
    result = tbtui("guide", "steering")
    assert (result.returncode, result.stdout) == (0, guide_page("steering").read_text("utf-8"))
    result = tbtui("guide", "stering")
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line == "tbtui: the guide has no page 'stering'; did you mean 'steering'?"


@pytest.mark.parametrize("name", ["architecture", "recipes"])
def test_every_file_that_is_named_exists(name: str) -> None:
    package = guide_dir().parent
    named = re.findall(r"`([\w./]+\.(?:py|md))`", guide_page(name).read_text("utf-8"))
    assert named
    for each in {name for name in named if "NAME" not in name}:
        assert (package / each).is_file() or (package.parent / each).is_file(), each
