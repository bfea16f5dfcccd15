"""`tbtui export-model`: a run's weights as a Hugging Face model, with a model card."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.config import RunConfig, parse_run_settings, parse_settings
from tbtui.config.values import to_json
from tbtui.engines.grpo.checkpoint_state import (
    CheckpointError,
    LoadedCheckpoint,
    best,
    checkpoint_of,
    entries_of,
    latest,
)
from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.journal.events import EvalFinished, RunStarted
from tbtui.journal.rundir import RunDirectory, find_run
from tbtui.policies import sampling_of
from tbtui.terminal import counted, visible
from tbtui.view.preview import changed_settings

_NOT_OF_THE_MODEL = ("logs_dir", "run_name", "wandb_project", "wandb_name", "trackio_project")
_LOCAL = "tbtui's embedded model"


def export_model(run: str, directory: Path, *, step: int | None, merge: bool) -> None:
    """Write the weights of a run's checkpoint as a model that transformers and vLLM load.

    Args:
        run: a run's directory, or its name.
        directory: a new or empty one; it has all of the model or stays as it was.
        step: of the checkpoint; None: the best one by held-out pass rate, else the latest.
        merge: write a whole model where the run trained an adapter.

    Raises:
        UserError: there is no such run or checkpoint, its weights lie elsewhere, or `directory`
            can't be written.
    """
    found = find_run(run, parse_settings([]).logs_dir)
    _require_empty(directory)
    checkpoint = _checkpoint(found, step)
    config = _config(found, run, directory)
    if checkpoint.state.policy not in ("local", "torch"):
        raise UserError(
            f"{found.name}: policy={checkpoint.state.policy} keeps its weights on its server;"
            f" {checkpoint.path} says where"
        )
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".tbtui-export-") as name:
            writing = Path(name) / "model"
            _write(checkpoint, config, writing, merge=merge)
            card = _card(found, checkpoint, config, whole=(writing / "config.json").is_file())
            (writing / "README.md").write_text(card, encoding="utf-8")
            size = sum(file.stat().st_size for file in writing.rglob("*") if file.is_file())
            writing.replace(directory)  # over an empty directory, too
    except OSError as error:
        shown = error.strerror or error
        raise UserError(f"{directory}: {shown}; give a directory that can be written") from error
    sys.stdout.write(
        visible(f"step {checkpoint.state.step} of {found.name} is in {directory}")
        + f" ({size / 1e6:,.1f} MB); README.md there says how to load it\n"
    )


def _require_empty(directory: Path) -> None:
    try:
        taken = directory.exists() and (not directory.is_dir() or any(directory.iterdir()))
    except OSError as error:
        raise UserError(f"{directory}: {error.strerror}") from error
    if taken:
        raise UserError(f"{directory} is there already; give a new or empty directory")


def _checkpoint(run: RunDirectory, step: int | None) -> LoadedCheckpoint:
    if step is None:
        found = best(run) or latest(run)
        if found is None:
            raise CheckpointError(f"{run.name} has no checkpoint; save_every= and eval_every= save")
        return found
    return checkpoint_of(run, step)


def _config(run: RunDirectory, typed: str, directory: Path) -> RunConfig:
    line = to_type("export-model", typed, directory)
    if not run.config.is_file():
        raise UserError(f"{run.path} has no config.toml, which says what was trained")
    return parse_run_settings(run.config, (), (), command=line)


def _write(
    checkpoint: LoadedCheckpoint, config: RunConfig, directory: Path, *, merge: bool
) -> None:
    if checkpoint.state.policy == "local":
        from tbtui.policies.local.export import export

        export(checkpoint.path, directory)
        return
    from tbtui.policies.torch import settings_of
    from tbtui.policies.torch.model_export import export_checkpoint

    export_checkpoint(checkpoint.path, settings_of(config), directory, merge=merge)


@dataclass(frozen=True, slots=True)
class _Record:
    """What the journal says of the weights."""

    first: EvalFinished | None
    """The first evaluation: of the weights that training began with."""
    evaluation: EvalFinished | None
    """The last one of the exported weights."""
    tasks: int
    """Tasks that were trained on."""


def _record(run: RunDirectory, step: int) -> _Record:
    first = evaluation = None
    tasks = 0
    for entry in entries_of(run, (RunStarted.kind, EvalFinished.kind)):
        match event := entry.event:
            case RunStarted():
                tasks = sum(task.split == "train" for task in event.tasks)
            case EvalFinished():
                first = first or (event if event.step == 0 else None)
                evaluation = event if event.step == step else evaluation
    return _Record(first, evaluation, tasks)


def _card(
    run: RunDirectory, checkpoint: LoadedCheckpoint, config: RunConfig, *, whole: bool
) -> str:
    """The model card, whose head is what the Hugging Face hub reads (docs: hub/model-cards)."""
    step = checkpoint.state.step
    record = _record(run, step)
    base = _LOCAL if checkpoint.state.policy == "local" else str(config.model_name)
    head: dict[str, Any] = {
        "library_name": "transformers" if whole else "peft",
        "pipeline_tag": "text-generation",
        "tags": ["tbtui", "grpo", "reinforcement-learning", "terminal-bench"],
    }
    if base != _LOCAL and not Path(base).expanduser().is_dir():
        # Only a name on the hub is one there.
        head["base_model"] = base
        head["base_model_relation"] = "finetune" if whole else "adapter"
    where = Path(config.tasks_dir or "starter").name
    torch = checkpoint.state.policy == "torch"
    adapter = f"a LoRA adapter of rank {config.lora_rank}, alpha {config.lora_alpha:g}"
    trained = adapter if torch and config.lora_rank else "all weights"
    kind = "a whole model" if whole else "the adapter"
    lines = [
        "---",
        *(f"{name}: {json.dumps(value)}" for name, value in head.items()),
        "---",
        "",
        f"# {run.name}, step {step}",
        "",
        f"{base}, post-trained with GRPO on terminal tasks by tbtui"
        f" {checkpoint.state.tbtui_version}. This is {kind}.",
        "",
        "| | |",
        "|---|---|",
        f"| base model | {base}{'' if base == _LOCAL else ', whose licence applies'} |",
        f"| trained | {trained}{', merged into the base' * (whole and trained == adapter)} |",
        f"| learning rate | {config.learning_rate:g}, {config.lr_schedule} |",
        f"| sampled at | {sampling_of(config, config.temperature).text} |",
        f"| steps | {step} |",
        f"| trained on | {counted(record.tasks, 'task')} of `{where}` |",
        f"| held out, before | {_rate(record.first)} |",
        f"| held out, after step {step} | {_rate(record.evaluation)} |",
        "",
        "## Use",
        "",
        *_use(base, whole=whole),
        "",
        "## Settings that differ from the defaults",
        "",
        *_settings(to_json(config)),
    ]
    return "\n".join(lines) + "\n"


def _rate(evaluation: EvalFinished | None) -> str:
    if evaluation is None or evaluation.pass_rate is None:
        return "not evaluated"
    unscored = f", {evaluation.unscored} more not scored" if evaluation.unscored else ""
    return (
        f"pass rate {evaluation.pass_rate:.3f} ({evaluation.scored} trials at temperature"
        f" {evaluation.temperature:g}{unscored})"
    )


def _use(base: str, *, whole: bool) -> list[str]:
    if whole:
        code = ['AutoModelForCausalLM.from_pretrained("DIRECTORY")']
        serve = "vllm serve DIRECTORY"
    else:
        code = [
            f"base = AutoModelForCausalLM.from_pretrained({json.dumps(base)})",
            'PeftModel.from_pretrained(base, "DIRECTORY")',
        ]
        serve = f"vllm serve {base} --enable-lora --lora-modules tuned=DIRECTORY"
    names = "from transformers import AutoModelForCausalLM"
    imports = [names] if whole else ["from peft import PeftModel", names]
    return ["```python", *imports, "", *code, "```", "", "```sh", serve, "```"]


def _settings(settings: Mapping[str, Any]) -> list[str]:
    changed = [
        (name, value)
        for name, value in changed_settings(settings, to_json(RunConfig()))
        if name not in _NOT_OF_THE_MODEL
    ]
    if not changed:
        return ["None."]
    return [
        "| setting | value |",
        "|---|---|",
        *(f"| {n} | `{json.dumps(v)}` |" for n, v in changed),
    ]
