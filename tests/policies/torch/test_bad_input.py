"""What `policy=torch` can't work with ends with one line that says what to do, and exit code 2."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="needs the extra `torch`")
pytest.importorskip("peft", reason="needs the extra `torch`")

from tbtui.policies.base import PolicyRefusedError
from tbtui.policies.local.export import export
from tbtui.policies.local.tokenizer import SHIPPED
from tbtui.policies.torch.model_files import ModelFiles, require_disk
from tests.cli.process import tbtui

pytestmark = pytest.mark.slow


def change(path: Path, **changes: object) -> None:
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, **changes}))


def no_causal_model(model: Path) -> None:
    change(model / "config.json", architectures=["BertForMaskedLM"], model_type="bert")


def no_chat_template(model: Path) -> None:
    change(model / "tokenizer_config.json", chat_template=None)
    (model / "chat_template.jinja").unlink(missing_ok=True)


def nothing(model: Path) -> None:
    """The model is as it should be; a setting is not."""


@pytest.mark.parametrize(
    ("spoil", "setting", "line"),
    [
        (no_causal_model, "lora_rank=4", "no causal language model"),
        (no_chat_template, "lora_rank=4", "renderer="),
        (nothing, "context_limit=9999", "has a context of 1024 tokens; give at most that"),
        (nothing, "lora_targets=query", "lora_targets=query: the model has no such module"),
    ],
    ids=["no-causal-model", "no-chat-template", "context", "lora-target"],
)
def test_it_ends_with_one_line(
    tmp_path: Path, spoil: Callable[[Path], None], setting: str, line: str
) -> None:
    model = tmp_path / "model"
    export(SHIPPED, model)
    spoil(model)
    done = tbtui(
        *("run", "--no-ui", f"model_name={model}", "train_device=cpu", setting),
        f"logs_dir={tmp_path}",
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert line in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stdout + done.stderr


def test_a_disk_too_small_for_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelFiles("org/name", {}, None, None, to_download=int(3e9))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=int(2e9)))
    with pytest.raises(PolicyRefusedError, match=r"3\.0 GB to download, and 2\.0 GB free") as said:
        require_disk(model)
    assert "set HF_HOME to a larger disk" in str(said.value)
    assert "\n" not in str(said.value)
