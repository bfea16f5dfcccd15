"""What a run watches and costs, and what it leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec

from tbtui.config.settings.about import About, Fixed, Live
from tbtui.config.settings.probe import Probing

AlarmAction = Literal["off", "warn", "pause", "halt"]
"""What an alarm leads to, beside being journalled: nothing, a word, a paused run, or its end."""


class Monitoring(Probing, frozen=True, kw_only=True):
    """Alarms, the bill, and GPUs that are shown."""

    heading: ClassVar[str] = "Alarms, costs and GPUs"

    on_alarm: Annotated[
        dict[str, AlarmAction],
        About(
            "What an alarm leads to (on_alarm.NAME=ACTION)",
            "empty: each one warns, and weights that don't reach the sampler pause",
        ),
    ] = msgspec.field(default_factory=dict)
    prices: Annotated[
        dict[str, Annotated[float, msgspec.Meta(ge=0)]],
        About(
            "prices.prompt, .sampled and .trained, from which costs are counted; optional:"
            " .cached (prompt tokens in the sampler's cache) and .scored (forward passes alone),"
            " else as prompt, and .storage (of checkpoints, dollars a gigabyte and month)",
            "empty: Tinker's public ones where they are known (`tbtui run --explain`), else costs"
            " are unknown",
            "US dollars a million tokens",
        ),
    ] = msgspec.field(default_factory=dict)
    max_cost: Annotated[
        float | None,
        About(
            "The same as budget.dollars; of both the lower one counts",
            "none: max_steps decides",
            "US dollars",
            gt=0,
        ),
        Live("holds from the end of the step under way on"),
    ] = None
    budget: Annotated[
        dict[str, Annotated[float, msgspec.Meta(gt=0)]],
        About(
            "What the run may spend (budget.dollars, .hours, .rollouts, .tokens): at 80% it warns,"
            " at 100% it finishes the step, saves, evaluates if that is paid for, and ends (exit"
            " status 0)",
            "empty: max_steps decides",
        ),
        Live("holds from the end of the step under way on"),
    ] = msgspec.field(default_factory=dict)
    alerts: Annotated[
        tuple[str, ...],
        About(
            "Receivers of alerts about alarms, budgets, the end and a crash: https://... gets a"
            " POST with JSON, command:... is run with it on its input, wandb raises its own;"
            " $NAME in an address is taken from the environment",
            "empty: the screen and the terminal alone",
            trust="alert",
        ),
    ] = ()
    gpu_hosts: Annotated[
        tuple[str, ...],
        About(
            "Other machines whose GPUs are shown, as ssh knows them (ssh HOST nvidia-smi)",
            "empty: this machine's alone",
            trust="host",
        ),
    ] = ()


class Output(Monitoring, frozen=True, kw_only=True):
    """The run directory, checkpoints and trackers."""

    heading: ClassVar[str] = "Output"

    logs_dir: Annotated[
        Path,
        About("Directory of runs", "in the directory where tbtui was started"),
    ] = Path("runs")
    run_name: Annotated[
        str | None,
        About("Directory of this run in logs_dir", "none: date and time"),
        Fixed.NAME,
    ] = None
    on_hangup: Annotated[
        Literal["detach", "stop"],
        About(
            "When the terminal goes away (a lost connection, a closed window): the run goes on"
            " without it (detach), or ends (stop)",
            "detach: an hour's work is worth more than its window; `tbtui attach` shows it again",
        ),
    ] = "detach"
    keep: Annotated[
        Literal["all", "failed", "none"],
        About("Trials whose recordings and logs stay on disk", "all; tokens stay in any case"),
    ] = "all"
    save_every: Annotated[
        int,
        About(
            "Steps between checkpoints; 0: only at the end",
            "little is lost by a crash; 1 with policy=tinker, where a save takes no time here",
            "steps",
            ge=0,
        ),
        Live("counts from the first step, as before"),
    ] = 10
    keep_checkpoints: Annotated[
        int,
        About(
            "Newest checkpoints to keep, beside the best one; 0: all",
            "a few to go back to, and a bounded disk",
            "checkpoints",
            ge=0,
        ),
        Live("older ones are removed at the next save"),
    ] = 3
    tensorboard: Annotated[
        bool,
        About("Write TensorBoard files into the run directory", "off: needs tbtui[tensorboard]"),
    ] = False
    trackio_project: Annotated[
        str | None,
        About("Log metrics to this Trackio project", "none: off"),
    ] = None
    wandb_project: Annotated[
        str | None,
        About("Log metrics to this wandb project", "none: off"),
    ] = None
    wandb_name: Annotated[
        str | None,
        About("Name of the wandb run", "none: the run directory's"),
    ] = None
