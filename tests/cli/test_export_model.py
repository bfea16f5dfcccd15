"""`tbtui export-model` on a run of the embedded model, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import Result

from tbtui.engines.grpo.checkpoint_state import entries_of
from tbtui.journal.events import EvalFinished
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.local.checkpoint_file import read_checkpoint
from tbtui.policies.local.model import Parameters
from tests.cli.process import invoke, tbtui

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one step, evaluated before and after it."""
    logs = tmp_path_factory.mktemp("runs")
    done = tbtui(
        *("run", "--no-ui", "max_steps=1", "batch_size=1", "group_size=4", "eval_every=1"),
        *("tasks=copy-*,move-*", "eval_tasks=copy-0[123]", f"logs_dir={logs}", "run_name=a"),
    )
    assert done.returncode == 0, done.stderr
    return logs / "a"


def exported(*arguments: object) -> Result:
    return invoke("export-model", *map(str, arguments))


def test_a_step_is_a_model_with_a_card(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "models" / "a"
    done = exported(run, out, "--step", 1)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(f"step 1 of a is in {out} (")
    assert json.loads((out / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    source = read_checkpoint(run / "checkpoints" / "step-000001")
    stored = load_file(out / "model.safetensors")
    trained = Parameters(source.config, source.weights)
    assert np.array_equal(stored["model.embed_tokens.weight"], trained.embedding)
    card = (out / "README.md").read_text()
    assert 'library_name: "transformers"' in card
    assert "base_model" not in card, "the embedded model has no name on the hub"
    last = entries_of(RunDirectory(run), (EvalFinished.kind,))[-1].event
    assert isinstance(last, EvalFinished)
    assert f"| held out, after step 1 | pass rate {last.pass_rate:.3f} (3 trials" in card
    assert "| group_size | `4` |" in card
    for row in ("trained | all weights", "learning rate | 0.0", "sampled at | temperature 1"):
        assert f"| {row}" in card
    assert str(run.parent) not in card
    assert [path.name for path in out.parent.iterdir()] == ["a"], "nothing is left beside it"


def test_what_is_refused(run: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine").write_text("kept")
    file = tmp_path / "file"
    file.write_text("kept")
    for arguments, words in (
        ((run, taken), f"{taken} is there already; give a new or empty directory"),
        ((run, file), f"{file} is there already"),
        ((run, tmp_path / "new", "--step", 7), "a has no checkpoint of step 7; it has: 0, 1"),
        ((tmp_path / "no-run", tmp_path / "new"), "no such run"),
        ((run, file / "below"), "give a directory that can be written"),
    ):
        done = exported(*arguments)
        assert done.exit_code == 2, done
        assert words in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert (taken / "mine").read_text() == "kept"
    assert not (tmp_path / "new").exists()
