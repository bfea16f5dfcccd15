"""What the tests of models trained here share: models, made once for all that read them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tbtui.policies.local.export import export
from tbtui.policies.local.tokenizer import SHIPPED

# For this process and all that it starts: such small models gain nothing by threads, which wait
# for each other where other tests run beside them.
os.environ.setdefault("OMP_NUM_THREADS", "1")

Model = Callable[[str], Path]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The directory of a tiny model by its architecture, or of the "embedded" one; nobody writes
    there."""

    @cache
    def made(name: str) -> Path:
        directory = tmp_path_factory.mktemp(name)
        if name == "embedded":
            export(SHIPPED, directory)
        else:
            from tests.policies.torch import tiny_models

            tiny_models.make(name, directory)
        return directory

    return made


@pytest.fixture(scope="session")
def embedded(model: Model) -> Path:
    return model("embedded")
