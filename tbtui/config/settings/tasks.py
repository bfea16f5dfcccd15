"""Which tasks a run trains and evaluates on, how long it goes on, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from tbtui.config.settings.about import About, Fixed, Live
from tbtui.config.settings.model import OwnGpu
from tbtui.vocabulary import TASK_HALF_LIFE, TaskSampling

MAX_STEPS = 40


class Tasks(OwnGpu, frozen=True, kw_only=True):
    """Tasks to train on, and tasks to hold out."""

    heading: ClassVar[str] = "Tasks"

    tasks_dir: Annotated[
        Path | None,
        About(
            "Directory of Harbor tasks, or a data set by name: workshop, maze, or a fetched one",
            "none: the bundled starter tasks, or those that the embedded model is for",
            trust="path",
        ),
        Fixed.TASKS,
    ] = None
    tasks: Annotated[
        tuple[str, ...],
        About(
            "Tasks to train on: names, globs (copy-*) and saved sets (@NAME); held-out tasks stay"
            " held out",
            "empty: all that are not held out",
        ),
        Fixed.TASKS,
    ] = ()
    eval_split: Annotated[
        float,
        About(
            "Share of tasks held out where no task declares a split",
            "enough held-out tasks to see overfitting",
            "share of tasks",
            ge=0,
            lt=1,
        ),
        Fixed.TASKS,
    ] = 0.2
    eval_tasks: Annotated[
        tuple[str, ...],
        About(
            "Tasks to hold out in place of a split, named as in tasks",
            "empty: eval_split decides",
        ),
        Fixed.TASKS,
    ] = ()


class Length(Tasks, frozen=True, kw_only=True):
    """Steps, and what a step is made of."""

    heading: ClassVar[str] = "Length and batch size"

    max_steps: Annotated[
        int,
        About(
            "Steps to train; 0: only evaluate",
            "the starter tasks are learned by then",
            "steps",
            ge=0,
        ),
        Live("the learning rate falls towards the new last step from the next one on"),
    ] = MAX_STEPS
    n_epochs: Annotated[
        int | None,
        About(
            "Passes over the training tasks; given alone it replaces max_steps",
            "none: max_steps decides",
            "passes",
            ge=1,
        ),
    ] = None
    batch_size: Annotated[
        int,
        About("Tasks (groups) in a step", "a step stays short on two cores", "tasks", ge=1),
        Fixed.BATCHES,
    ] = 4
    group_size: Annotated[
        int,
        About(
            "Trials of a task in a step: its group",
            "enough that most groups differ in reward",
            "trials",
            ge=1,
        ),
        Fixed.BATCHES,
    ] = 8
    seed: Annotated[
        int,
        About("Seed of the order of tasks and of every random draw", "runs can be repeated", ge=0),
        Fixed.BATCHES,
    ] = 0


class Choice(Length, frozen=True, kw_only=True):
    """Which of the training tasks a batch has."""

    heading: ClassVar[str] = "Choice of tasks"

    task_sampling: Annotated[
        TaskSampling,
        About(
            "How a batch's tasks are chosen: each once an epoch (uniform), or by what their groups"
            " are expected to teach, p(1-p) of the pass rate p: drawn by its mean (learnability) or"
            " the largest of draws from its posterior (thompson); half of these draws are of"
            " untried tasks, while there are any",
            "uniform: every task counts the same",
        ),
        Live("holds from the next batch that begins"),
    ] = "uniform"
    task_floor: Annotated[
        float,
        About(
            "Share of the groups whose task is drawn uniformly all the same, so that none is"
            " forgotten; of no account under task_sampling=uniform",
            "a tenth finds out which tasks have come into reach",
            "share of groups",
            ge=0,
            lt=1,
        ),
        Live("holds from the next batch that begins"),
    ] = 0.1
    task_half_life: Annotated[
        float,
        About(
            "Steps after which a group's rewards count half in what is believed of its task",
            "the policy of so many steps ago says less of today's",
            "steps",
            gt=0,
        ),
    ] = TASK_HALF_LIFE


class Order(Choice, frozen=True, kw_only=True):
    """How far sampling and training overlap."""

    heading: ClassVar[str] = "Order of sampling and training"

    num_substeps: Annotated[
        int,
        About(
            "Optimiser steps (optim_step) per batch",
            "1: all data of a batch are on-policy",
            "optimiser steps",
            ge=1,
        ),
        Fixed.BATCHES,
    ] = 1
    stream: Annotated[
        bool,
        About(
            "Accumulate gradients (forward_backward) group by group as trials finish, not once at"
            " the end of the batch",
            "off: all advantages and the normaliser are known first",
        ),
        Fixed.BATCHES,
    ] = False
    max_steps_off_policy: Annotated[
        int,
        About(
            "Batches that may be sampled ahead of training: the largest staleness",
            "0: sampling and training take turns, so a run can be repeated",
            "steps",
            ge=0,
        ),
        Fixed.BATCHES,
    ] = 0
