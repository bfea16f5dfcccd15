"""Makes the shipped tokenizer and checkpoint.

Three parts, all seeded, some minutes on one core: learn the tokenizer from demonstrations;
imitate good demonstrations until the skill is there; then imitate mostly flawed ones for a while,
so that the policy starts out unsure of itself, with every kind of task solved now and then.
The tasks held out in the shipped set are never shown.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tbtui.policies.local.checkpoint_file import Checkpoint, write_checkpoint
from tbtui.policies.local.gradient import TrainingSequence, loss_and_gradient
from tbtui.policies.local.learner import AdamW
from tbtui.policies.local.model import Array, ModelConfig, Parameters, Rotary
from tbtui.policies.local.renderer import (
    CONFIRM_HEADING,
    CONFIRM_QUESTION,
    ERRORS_HEADING,
    ERRORS_REQUEST,
    PROMPT,
    STATE_HEADING,
    WARNINGS_HEADING,
    harbor_directory,
    preamble_of,
    read_template,
)
from tbtui.policies.local.tokenizer import SPECIAL, LocalTokenizer
from tests.by_hand.starter.demonstrations import (
    ANSWER_PARTS,
    CONFIRM,
    FAILED,
    PLANS,
    READY,
    TASK_PHRASES,
    UNREADABLE,
    WORKED,
    Turn,
    flawed_demonstration,
    good_demonstration,
)
from tests.by_hand.starter.world import StarterTask, draw_task
from tests.by_hand.starter.write import starter_tasks

TOKENIZER_FILE = "tokenizer.json"
VOCABULARY = 1024
DEMONSTRATIONS_FOR_TOKENIZER = 6000
BATCH = 16
FLAWED_SHARE: Mapping[str, float] = {
    "create": 0.61, "mkdir": 0.67, "copy": 0.48, "move": 0.63,
    "count": 0.51, "remove": 0.64, "append": 0.62, "nested": 0.36,
}  # fmt: skip
"""In the last part. Chosen so that each kind starts out solved about one time in three: the more
there is to get right in a kind, the more often it goes wrong without any help."""


class Phase(NamedTuple):
    """Steps of imitation at a peak learning rate, and the share of flawed demonstrations."""

    name: str
    steps: int
    learning_rate: float
    flawed: Mapping[str, float]
    with_terminal: bool
    often: Collection[str] = ()


PHASES = (
    Phase("skill", 900, 2e-3, {}, with_terminal=True),
    # The only kind with two words to copy is the last to be learned.
    Phase("words", 300, 1.5e-3, {}, with_terminal=True, often=("create",)),
    Phase("doubt", 160, 1e-3, FLAWED_SHARE, with_terminal=False),
)


class Demonstrator:
    """Draws demonstrations of tasks that are not in the held-out set."""

    def __init__(self, seed: int, preamble: str) -> None:
        self._rng = random.Random(seed)
        self._preamble = preamble
        self._held_out = {t.task.instruction for t in starter_tasks() if t.split == "heldout"}

    def task(self, often: Collection[str] = ()) -> StarterTask:
        """With `often`, tasks of those kinds are three times as likely as others."""
        while True:
            task = draw_task(self._rng)
            if task.instruction in self._held_out:
                continue
            if not often or task.kind in often or self._rng.random() < 1 / 3:
                return task

    def demonstrate(self, flawed: Mapping[str, float], often: Collection[str] = ()) -> list[Turn]:
        task = self.task(often)
        is_flawed = self._rng.random() < flawed.get(task.kind, 0.0)
        make = flawed_demonstration if is_flawed else good_demonstration
        return make(self._rng, task, self._preamble)


def make_tokenizer(path: Path, preamble: str, seed: int) -> LocalTokenizer:
    demonstrator = Demonstrator(seed, preamble)
    texts: list[str] = []
    for _ in range(DEMONSTRATIONS_FOR_TOKENIZER):
        for turn in demonstrator.demonstrate({}):
            texts += [turn.observation.removeprefix(preamble), turn.answer]
    fixed = (
        preamble, STATE_HEADING, CONFIRM_HEADING, CONFIRM_QUESTION, ERRORS_HEADING,
        ERRORS_REQUEST, WARNINGS_HEADING, PROMPT, READY, WORKED, FAILED, UNREADABLE, CONFIRM,
        *PLANS.values(), *ANSWER_PARTS, *TASK_PHRASES,
    )  # fmt: skip
    return train_tokenizer([*texts, *[preamble] * 3], fixed, VOCABULARY, path)


def train_tokenizer(
    texts: Iterable[str], fixed_texts: Sequence[str], vocab_size: int, path: Path
) -> LocalTokenizer:
    """Learn the merges from `texts`, add `fixed_texts` as tokens, write the result to `path`."""
    tokenizer = Tokenizer(models.BPE())
    # White space is never part of a word's token, so a name is the same token wherever it stands
    # and a small model can simply copy it.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(fixed_texts),
        special_tokens=[AddedToken(name, special=True, normalized=False) for name in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in fixed_texts])
    path.write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
    return LocalTokenizer(path)


def encode_demonstration(
    tokenizer: LocalTokenizer, turns: list[Turn], *, with_terminal: bool
) -> TrainingSequence:
    """The conversation's tokens; trained are those of answers worth imitating. No loss yet.

    `with_terminal` also trains what the terminal shows after a command. It echoes the command
    letter by letter, which teaches a small model to copy sooner than the answers alone do.
    """
    ids: list[int] = []
    trained: list[int] = []
    for number, turn in enumerate(turns):
        shown = [tokenizer.user_id, *tokenizer.encode(turn.observation), tokenizer.end_id]
        if with_terminal and number:
            trained += range(len(ids) + 1, len(ids) + len(shown))
        ids += [*shown, tokenizer.assistant_id]
        said = [*tokenizer.encode(turn.answer), tokenizer.end_id]
        if turn.imitate:
            trained += range(len(ids), len(ids) + len(said))
        ids += said
    return TrainingSequence(np.array(ids, np.int64), np.array(trained, np.int64), _imitation(1))


def _imitation(total: int) -> Callable[[Array], tuple[float, Array]]:
    """Negative log-likelihood divided by the batch's number of trained tokens."""

    def loss(logprobs: Array) -> tuple[float, Array]:
        return -float(logprobs.sum()) / total, np.full(len(logprobs), -1 / total, np.float32)

    return loss


def imitate(
    parameters: Parameters,
    tokenizer: LocalTokenizer,
    demonstrate: Callable[[], list[Turn]],
    phase: Phase,
    report: Callable[[str], None],
    threads: int = 1,
) -> None:
    """One phase of supervised learning: AdamW, warm-up over 20 steps, then a cosine to a tenth."""
    rotary, optimizer = Rotary(parameters.config), AdamW(parameters.config)
    started = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        for step in range(phase.steps):
            batch = [
                encode_demonstration(tokenizer, demonstrate(), with_terminal=phase.with_terminal)
                for _ in range(BATCH)
            ]
            loss = _imitation(sum(len(sequence.trained) for sequence in batch))
            batch = [TrainingSequence(s.tokens, s.trained, loss) for s in batch]
            outcomes, gradient = loss_and_gradient(parameters, rotary, batch, pool, threads)
            cosine = 0.1 + 0.45 * (1 + np.cos(np.pi * step / phase.steps))
            rate = phase.learning_rate * min(1, (step + 1) / 20) * cosine
            optimizer.step(parameters, gradient, rate, grad_clip=1.0)
            if step % 50 == 49 or step + 1 == phase.steps:
                total = sum(outcome.loss for outcome in outcomes)
                seconds = time.monotonic() - started
                report(f"{phase.name} {step + 1}/{phase.steps} loss {total:.3f} {seconds:.0f} s")


def warm_start(directory: Path, seed: int, report: Callable[[str], None]) -> None:
    """Write tokenizer.json and policy.npz into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    preamble = preamble_of(read_template(harbor_directory()))
    tokenizer = make_tokenizer(directory / TOKENIZER_FILE, preamble, seed)
    config = ModelConfig(vocab_size=tokenizer.vocab_size)
    parameters = Parameters.initial(config, seed)
    report(f"{config.size():,} parameters, {tokenizer.vocab_size} tokens")
    for number, phase in enumerate(PHASES):
        demonstrator = Demonstrator(seed + 1 + number, preamble)
        draw = partial(demonstrator.demonstrate, phase.flawed, phase.often)
        imitate(parameters, tokenizer, draw, phase, report)
    write_checkpoint(
        directory,
        Checkpoint(config, tokenizer.digest, 0, parameters.flat, None, None, 0),
        dtype=np.float16,
    )
