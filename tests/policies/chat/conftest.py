"""The imitations of `chat_models.py`, each built and loaded once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tbtui.policies.base import Thinking
from tbtui.policies.chat.make import make_renderer
from tbtui.policies.chat.template import TemplateRenderer
from tests.policies.chat.chat_models import Make, write_model


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def make(folder: Path) -> Make:
    """`make(name, thinking)`"""

    @cache
    def build(name: str, thinking: Thinking = "keep") -> TemplateRenderer:
        renderer = make_renderer("template", str(write_model(name, folder)), thinking)
        assert isinstance(renderer, TemplateRenderer)
        return renderer

    return build
