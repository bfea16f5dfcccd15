"""The commands of `tbtui ctl`. Nothing but Typer is imported before one of them runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from tbtui.command_line import noun
from tbtui.ctl.options import (
    AsJson,
    CommandOptions,
    Content,
    Ended,
    LogsDir,
    OfRun,
    Run,
    Trial,
    changing,
)
from tbtui.journal.verbs import GROUP_VERBS, RUN_VERBS, TRIAL_VERBS
from tbtui.vocabulary import CommandVerb

ctl_app = noun(
    "Look at runs and steer live ones, from scripts or by hand.\n\n"
    "RUN is a run's directory, or its name if it is live or in ./runs; left out, it is the only"
    " live one. Exit status: 0 done, 1 refused or not possible now, 2 bad input."
)
run_app = noun("The whole run.")
trial_app = noun("Single trials.")
group_app = noun("Groups of a step that waits for a review.")
task_app = noun("Tasks, and how they have gone.")
policy_app = noun("The policy and its server.")
config_app = noun("The settings in force.")
for _name, _app in (
    ("run", run_app),
    ("trial", trial_app),
    ("group", group_app),
    ("task", task_app),
    ("policy", policy_app),
    ("config", config_app),
):
    ctl_app.add_typer(_app, name=_name)


# The whole run


@run_app.command("list")
def list_runs(logs_dir: LogsDir = None, ended: Ended = False, as_json: AsJson = False) -> None:
    """List live runs, and what each waits for."""
    from tbtui.ctl import lists

    lists.list_runs(logs_dir, ended=ended, as_json=as_json)


@run_app.command("show")
def show_run(run: Run = None, content: Content = False, as_json: AsJson = False) -> None:
    """Show one run in full."""
    from tbtui.ctl import lists

    lists.show_run(run, content=content, as_json=as_json)


@run_app.command("stop", help=f"{RUN_VERBS['stop'].does[:-1]} (tbtui run --resume RUN).")
@changing
def stop_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Has no default, since the run ends.")],
    options: CommandOptions,
) -> int:
    from tbtui.ctl import changes

    return changes.change_run("stop", run, options)


def _run_command(verb: CommandVerb) -> Callable[..., int]:
    def command(run: Run = None, *, options: CommandOptions) -> int:
        from tbtui.ctl import changes

        return changes.change_run(verb, run, options)

    return command


for _verb in ("pause", "freeze", "resume"):
    run_app.command(_verb, help=RUN_VERBS[_verb].does)(changing(_run_command(_verb)))


@run_app.command("accept", short_help=RUN_VERBS["accept"].does)
@changing
def accept_step(
    run: Run = None,
    step: Annotated[
        int | None, typer.Option("--step", min=1, help="Default: the earliest that waits.")
    ] = None,
    *,
    options: CommandOptions,
) -> int:
    """Go on with the step under review, as it stands: what nobody decided upon is trained on."""
    from tbtui.ctl import changes

    return changes.accept_step(step, run, options)


# Single trials


@trial_app.command("list", short_help="List what each trial does, and for how long.")
def list_trials(
    run: OfRun = None, ended: Ended = False, content: Content = False, as_json: AsJson = False
) -> None:
    """List what each trial does, for how long, and when it was last heard of (idle)."""
    from tbtui.ctl import lists

    lists.list_trials(run, ended=ended, content=content, as_json=as_json)


@trial_app.command("show")
def show_trial(
    trial: Trial, run: OfRun = None, content: Content = False, as_json: AsJson = False
) -> None:
    """Show one trial in full."""
    from tbtui.ctl import lists

    lists.show_trial(trial, run, content=content, as_json=as_json)


@trial_app.command("events")
def list_events(
    trial: Trial,
    run: OfRun = None,
    after: Annotated[int, typer.Option(min=0, help="Only events after this number.")] = 0,
    content: Content = False,
    as_json: AsJson = False,
) -> None:
    """List all events of a trial; as JSON one event a line."""
    from tbtui.ctl import lists

    lists.list_events(trial, run, after, content=content, as_json=as_json)


@trial_app.command("type", help=TRIAL_VERBS["type"].does)
@changing
def type_in_trial(
    trial: Trial,
    what: Annotated[
        list[str], typer.Argument(metavar="TEXT...", help="Typed as it is; --enter sends it.")
    ],
    keys: Annotated[bool, typer.Option("--keys", help="TEXT... are tmux's keys: C-c, Up.")] = False,
    enter: Annotated[bool, typer.Option("--enter", help="Press Enter afterwards.")] = False,
    run: OfRun = None,
    *,
    options: CommandOptions,
) -> int:
    from tbtui.ctl import changes

    return changes.type_in_trial(what, trial, run, options, keys=keys, enter=enter)


def _trial_command(verb: CommandVerb) -> Callable[..., int]:
    def command(trial: Trial, run: OfRun = None, *, options: CommandOptions) -> int:
        from tbtui.ctl import changes

        return changes.change_trial(verb, trial, run, options)

    return command


for _verb, _rule in TRIAL_VERBS.items():
    if _verb not in ("type", "relabel", "message", "fork"):  # they have arguments of their own
        trial_app.command(_verb.replace("_", "-"), help=_rule.does)(changing(_trial_command(_verb)))


@trial_app.command("message", help=TRIAL_VERBS["message"].does)
@changing
def write_to_agent(
    trial: Trial,
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="The message.")],
    run: OfRun = None,
    *,
    options: CommandOptions,
) -> int:
    from tbtui.ctl import changes

    return changes.write_to_agent(" ".join(text), trial, run, options)


@trial_app.command("fork", help=TRIAL_VERBS["fork"].does)
@changing
def fork_trial(
    trial: Trial,
    turn: Annotated[
        str,
        typer.Option(
            "--turn",
            metavar="K|bisect|all",
            help="Their first own turn; bisect and all measure the values of turns.",
        ),
    ],
    trials: Annotated[int, typer.Option("-n", min=1, help="How many forks, of each turn.")] = 8,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="Default: the run's.")
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--go-on", help="Also where a screen differs from the recorded one.")
    ] = False,
    run: OfRun = None,
    *,
    options: CommandOptions,
) -> int:
    from tbtui.algorithm.turn_value import read_turn
    from tbtui.ctl import changes

    arguments: dict[str, object] = {"turn": read_turn(turn), "trials": trials, "go_on": go_on}
    if temperature is not None:
        arguments["temperature"] = temperature
    return changes.change_trial("fork", trial, run, options, arguments)


@trial_app.command("relabel", help=TRIAL_VERBS["relabel"].does)
@changing
def relabel_trial(
    trial: Trial,
    reward: Annotated[
        float | None, typer.Option("--reward", help="The one to train on; needs --reason.")
    ] = None,
    verdict: Annotated[
        bool, typer.Option("--verdict", help="Take it back: the verifier's reward again.")
    ] = False,
    run: OfRun = None,
    *,
    options: CommandOptions,
) -> int:
    from tbtui.ctl import changes

    return changes.relabel_trial(trial, reward, run, options, take_back=verdict)


# Groups, tasks, the policy, settings


@group_app.command("list")
def list_groups(run: OfRun = None, content: Content = False, as_json: AsJson = False) -> None:
    """List what the steps under review would be trained on, and what is suspicious about it."""
    from tbtui.ctl import lists

    lists.list_groups(run, content=content, as_json=as_json)


@group_app.command("refill", help=GROUP_VERBS["refill"].does)
@changing
def refill_group(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Its id: tbtui ctl group list.")],
    run: OfRun = None,
    *,
    options: CommandOptions,
) -> int:
    from tbtui.ctl import changes

    return changes.refill_group(group, run, options)


@task_app.command("list")
def list_tasks(run: OfRun = None, as_json: AsJson = False) -> None:
    """List the run's tasks and their pass rates."""
    from tbtui.ctl import lists

    lists.list_tasks(run, as_json=as_json)


@task_app.command("weight")
@changing
def weigh_task(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task, or a kind of tasks.")],
    weight: Annotated[
        float | None,
        typer.Argument(metavar="[WEIGHT]", help="1 is as usual, 2 twice as often, 0 never."),
    ] = None,
    pin: Annotated[
        bool | None, typer.Option("--pin/--unpin", help="Have it in every batch, or no longer.")
    ] = None,
    mute: Annotated[
        bool | None, typer.Option("--mute/--unmute", help="Draw it no more, or again.")
    ] = None,
    run: OfRun = None,
    *,
    options: CommandOptions,
) -> int:
    """Weigh how often a task is drawn, from the next batch on."""
    from tbtui.ctl import changes

    given = {"weight": weight, "pinned": pin, "muted": mute}
    arguments = {name: value for name, value in given.items() if value is not None}
    return changes.weigh_task(task, arguments, run, options)


@policy_app.command("show")
def show_policy(run: Run = None, as_json: AsJson = False) -> None:
    """Show what is trained, how busy it is, and how its server is."""
    from tbtui.ctl import lists

    lists.show_policy(run, as_json=as_json)


@config_app.command("show")
def show_settings(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this one.")] = None,
    run: OfRun = None,
    as_json: AsJson = False,
) -> None:
    """Show the settings in force now."""
    from tbtui.ctl import lists

    lists.show_settings(name, run, as_json=as_json)


@config_app.command("set")
@changing
def set_settings(
    settings: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...")],
    run: OfRun = None,
    *,
    options: CommandOptions,
) -> int:
    """Change settings of a live run. One that can't change while it runs is refused, and why."""
    from tbtui.ctl import changes

    return changes.change_settings(settings, run, options)
