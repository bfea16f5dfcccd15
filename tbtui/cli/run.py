"""`tbtui run` and `tbtui eval`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, override

import typer
from typer.core import TyperCommand

from tbtui.cli.common import (
    EventsAsJson,
    FramesPerSecond,
    Json,
    NoUi,
    Run,
    frames_of,
    view_of,
)
from tbtui.command_line import EXIT_FAILED, say

if TYPE_CHECKING:
    pass


class RunCommand(TyperCommand):
    """`run`, whose help lists every setting."""

    @override
    def format_options(self, ctx: Any, formatter: Any) -> None:
        from tbtui.config import setting_rows

        super().format_options(ctx, formatter)
        for heading, rows in setting_rows():
            with formatter.section(heading):
                formatter.write_dl(rows)


def run(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE|FILE.toml", help="Settings; all of them are listed below."
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on with this run: its directory, or its name in logs_dir. Settings given"
            " here replace the run's own where they may.",
        ),
    ] = None,
    no_ui: NoUi = False,
    as_json: EventsAsJson = False,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            help="Start a run that outlives this terminal; print where it is (--json: a record)"
            " once it has begun.",
        ),
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print every setting in force and exit.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Print what each outcome of a trial leads to and exit."),
    ] = False,
    fps: FramesPerSecond = None,
) -> None:
    """Train a model on terminal tasks.

    With no settings at all: the embedded model, on the bundled starter tasks, in sandboxes of this
    machine.

    Exit status: 0 finished, 1 failed (the reason is the last line), 2 bad input, 130 interrupted.
    """
    from tbtui.config import parse_settings, to_toml

    frames = frames_of(fps)
    config = parse_settings(settings or [])
    directory = None
    if resume is not None and (print_config or explain):
        from tbtui.engines.resume import request_resume

        request = request_resume(resume, settings or [])
        config, directory = request.config, request.directory
    if print_config and config.engine == "prime-rl":
        from tbtui.cli.prime_rl import print_configuration

        raise typer.Exit(0 if print_configuration(config) else EXIT_FAILED)
    if print_config:
        from tbtui.config.values import require_no_errors, warning
        from tbtui.engines.request import config_problems

        # What this machine lacks is no fault of what is printed.
        problems = [warning(p.text) if p.of_machine else p for p in config_problems(config)]
        for text in require_no_errors(problems):
            say(text)
    if explain:
        from tbtui.commands.explain import print_explanation

        print_explanation(config, directory)
    if print_config:
        typer.echo(to_toml(config), nl=False)
    if explain or print_config:
        return
    from tbtui import launch

    view = view_of(no_ui=no_ui or detach, as_json=as_json)
    if resume is not None:
        raise typer.Exit(launch.resume(resume, settings or [], view, detach=detach, fps=frames))
    raise typer.Exit(launch.launch(config, view, detach=detach, fps=frames))


def evaluate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|CHECKPOINT] NAME=VALUE", help="What to evaluate; settings as for run."
        ),
    ] = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="The run's latest checkpoint, not its best.")
    ] = False,
    no_ui: NoUi = False,
    as_json: EventsAsJson = False,
) -> None:
    """Evaluate weights on held-out tasks, without training them: a run's best (or --latest)
    checkpoint, a checkpoint directory or, with neither, the starting weights.

    Settings are those of the run that the checkpoint is of, with yours over them; tasks_dir,
    eval_tasks, eval_group_size (attempts at each task, for pass@k) and eval_temperature say what is
    attempted and how often.

    Exit status: 0 finished, 1 failed (the reason is the last line), 2 bad input, 130 interrupted.
    """
    from tbtui.commands.evaluate import evaluate as run_evaluation

    raise typer.Exit(
        run_evaluation(
            arguments or [], use_latest=latest, view=view_of(no_ui=no_ui, as_json=as_json)
        )
    )


def probe(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL|RUN|CHECKPOINT] [TASKS] NAME=VALUE",
            help="What to try, on which tasks; settings as for run.",
        ),
    ] = None,
    no_ui: NoUi = False,
    as_json: Json = False,
) -> None:
    """Try a model on a few training tasks, before a run: is there anything to learn from?

    Each task is tried eval_group_size times (4) with each arm, an agent at a temperature
    (probe=terminus-2@1,terminus-2@0.7), within a budget (budget.hours, .rollouts, .tokens,
    .dollars; a quarter of an hour). It prints the share of answers that the agent can read and of
    those that are cut off, pass@1 and pass@k, the expected share of groups with a signal, speed and
    memory; then a verdict, and the command to run next.

    Exit status: 0 go: the run is worth its trials as it is, 3 not as it is (another temperature,
    agent, budget or tasks; the last lines say which), 1 failed, 2 bad input, 130 interrupted.
    """
    from tbtui.commands.probe import probe as run_probe

    raise typer.Exit(run_probe(arguments or [], view_of(no_ui=no_ui, as_json=as_json)))


def fork(
    run: Run,
    trial: Annotated[
        str, typer.Argument(metavar="TRIAL", help="Its id, or its label (copy-03/2).")
    ],
    turn: Annotated[
        str,
        typer.Option(
            "--turn",
            metavar="K|bisect|all",
            help="The first turn that is sampled anew; bisect and all measure turns' values.",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE", help="Settings that replace the run's."),
    ] = None,
    trials: Annotated[
        int, typer.Option("-n", metavar="N", help="How many forks, of each turn.")
    ] = 8,
    policy: Annotated[
        str | None, typer.Option("--policy", help="Another policy goes on than the run's.")
    ] = None,
    checkpoint: Annotated[
        int | None,
        typer.Option(
            "--checkpoint", metavar="STEP", help="Its weights go on; default: the run's latest."
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="Default: as in training.")
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--go-on", help="Also where a screen differs from the recorded one.")
    ] = False,
    no_ui: NoUi = False,
    as_json: EventsAsJson = False,
) -> None:
    """Start trials that go on from a turn of another one, with its conversation and its sandbox.

    Of a live run they are trials of that run, unless other weights or settings are asked for; else
    they are a run of their own. The sandbox is restored from a snapshot (snapshots=turns), or the
    recorded keys are typed again and each screen is compared.

    --turn bisect finds the turn at which the task was lost (or won): it forks the trial from few
    turns and follows the larger change of the chance to solve it. --turn all forks it from each.

    Exit status: 0 finished, 1 failed (the reason is the last line), 2 bad input, 130 interrupted.
    """
    from tbtui.commands.fork import ForkOptions
    from tbtui.commands.fork import fork as fork_trial

    options = ForkOptions(trial, turn, trials, policy, checkpoint, temperature, go_on)
    raise typer.Exit(
        fork_trial(run, options, settings or [], view_of(no_ui=no_ui, as_json=as_json))
    )


def bisect(
    run: Run,
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task of the run's data set.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE", help="Settings that replace the run's."),
    ] = None,
    trials: Annotated[int, typer.Option("-n", metavar="N", help="Trials of each checkpoint.")] = 8,
    as_json: Json = False,
) -> None:
    """Find the saved checkpoints between which a task was won or lost.

    It evaluates the first and the last, and halves from there: of 32 checkpoints seven at most.
    Interrupted, the same command goes on.

    Exit status: 0 finished, 1 failed (the reason is the last line), 2 bad input, 130 interrupted.
    """
    from tbtui.commands.bisect import bisect as bisect_checkpoints

    raise typer.Exit(bisect_checkpoints(run, task, trials, settings or [], as_json=as_json))
