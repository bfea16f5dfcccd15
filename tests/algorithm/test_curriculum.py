"""Posteriors of pass rates, and draws by them: what must hold for any rewards and any weights."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.curriculum import Beta, Chooser, PassRates, Say
from tbtui.journal.figures import task_shares
from tbtui.vocabulary import TaskSampling

TASKS = [f"t{number}" for number in range(8)]
parameters = st.floats(0.1, 200)
samplings = st.sampled_from(["uniform", "learnability", "thompson"])
says = st.builds(Say, st.sampled_from([0.0, 0.5, 1.0, 8.0]), st.booleans())
histories = st.lists(
    st.dictionaries(st.sampled_from(TASKS), st.lists(st.floats(0, 1), max_size=8)), max_size=8
)


def rates_of(history: list[dict[str, list[float]]], half_life: float = 5.0) -> PassRates:
    rates = PassRates(half_life)
    for step, groups in enumerate(history, 1):
        for task, rewards in groups.items():
            rates.score(step, f"{step}-{task}", task, rewards)
        rates.finish(step)
    return rates


@given(parameters, parameters)
def test_the_posteriors_figures_agree(a: float, b: float) -> None:
    belief = Beta(a, b)
    low, high = belief.interval
    assert 0 <= low <= belief.mean <= high <= 1
    assert 0 < belief.learnability <= 0.25
    # Of two trials the rewards differ with the chance 2 E[p(1-p)].
    assert 1 - belief.no_signal(2) == pytest.approx(2 * belief.learnability)
    assert belief.no_signal(1) == pytest.approx(1)
    shares = [belief.no_signal(size) for size in range(1, 12)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(shares))


@pytest.mark.parametrize(("a", "b"), [(1, 1), (3, 7), (0.5, 8.5), (40, 2), (0.1, 0.1)])
def test_the_interval_holds_what_it_says(a: float, b: float) -> None:
    """Against draws from the same distribution by the standard library."""
    rng = random.Random(0)
    drawn = sorted(rng.betavariate(a, b) for _ in range(20_000))
    low, high = Beta(a, b).interval
    assert low == pytest.approx(drawn[500], abs=0.01)
    assert high == pytest.approx(drawn[-500], abs=0.01)


@given(histories, st.floats(1, 50))
def test_what_was_seen_counts_and_fades(
    history: list[dict[str, list[float]]], half_life: float
) -> None:
    rates = rates_of(history, half_life)
    for task in TASKS:
        kept = [
            (0.5 ** ((len(history) - step) / half_life), rewards[task])
            for step, rewards in enumerate(history, 1)
            if task in rewards
        ]
        passed = sum(share * sum(rewards) for share, rewards in kept)
        scored = sum(share * len(rewards) for share, rewards in kept)
        belief, prior = rates.of(task), Beta()
        assert belief.a - prior.a == pytest.approx(passed)
        assert belief.b - prior.b == pytest.approx(scored - passed)


@given(histories, st.randoms(use_true_random=False))
def test_the_order_and_the_repetition_of_groups_change_nothing(
    history: list[dict[str, list[float]]], rng: random.Random
) -> None:
    once, again = rates_of(history), PassRates(5.0)
    for step, groups in enumerate(history, 1):
        shuffled = [*groups.items(), *groups.items()]
        rng.shuffle(shuffled)
        for task, rewards in shuffled:
            again.score(step, f"{step}-{task}", task, rewards)
        again.finish(step)
        # A step that is trained again.
        for task, rewards in shuffled:
            again.score(step, f"{step}-{task}", task, rewards)
        again.finish(step)
    assert [once.of(task) for task in TASKS] == [again.of(task) for task in TASKS]


@given(
    histories,
    samplings,
    st.floats(0, 1),
    st.dictionaries(st.sampled_from(TASKS), says),
    st.integers(1, 20),
    st.integers(0, 3),
)
def test_draws_keep_to_what_was_said(
    history: list[dict[str, list[float]]],
    sampling: TaskSampling,
    floor: float,
    said: dict[str, Say],
    count: int,
    seed: int,
) -> None:
    chooser = Chooser(sampling, floor, rates_of(history), said)
    drawn = chooser.draw(TASKS, count, random.Random(seed))
    assert drawn == chooser.draw(TASKS, count, random.Random(seed))
    names = [draw.task for draw in drawn]
    assert len(names) == count
    alive = {task for task in TASKS if not said.get(task, Say()).muted}
    if alive:
        assert set(names) <= alive
        assert len(set(names)) == min(count, len(alive))
    pinned = {task for task in TASKS if said.get(task, Say()).pinned}
    assert len(pinned & set(names)) == min(count, len(pinned))


@pytest.mark.parametrize("sampling", ["uniform", "learnability"])
def test_a_task_is_drawn_as_often_as_its_share_says(sampling: TaskSampling) -> None:
    rates = rates_of([{"t0": [0, 1, 0, 1], "t1": [0] * 8, "t2": [1] * 8, "t3": [1, 0, 0, 0]}])
    chooser = Chooser(sampling, 0.2, rates, {"t3": Say(3.0), "t4": Say(0.0)})
    floor = 0.2 if sampling == "learnability" else 0.0
    shares = task_shares(chooser.weights(TASKS), floor, chooser.untried(TASKS))
    assert math.fsum(shares.values()) == pytest.approx(1)
    rng, draws = random.Random(1), 20_000
    counts = Counter(chooser.draw(TASKS, 1, rng)[0].task for _ in range(draws))
    for task in TASKS:
        assert counts[task] / draws == pytest.approx(shares.get(task, 0.0), abs=0.015)


@pytest.mark.parametrize("sampling", ["learnability", "thompson"])
def test_untried_tasks_have_half_of_the_draws(sampling: TaskSampling) -> None:
    rates = rates_of([{"t0": [0, 1, 0, 1]}])
    chooser = Chooser(sampling, 0.0, rates, {"t1": Say(3.0), "t2": Say(0.0)})
    rng = random.Random(0)
    drawn = [chooser.draw(TASKS, 1, rng)[0] for _ in range(8000)]
    untried = Counter(draw.task for draw in drawn if draw.why == "untried")
    assert untried.total() / 8000 == pytest.approx(0.5, abs=0.02)
    assert untried["t1"] == pytest.approx(3 * untried["t3"], rel=0.2)
    assert not {"t0", "t2"} & untried.keys()
    known = Chooser(sampling, 0.0, rates_of([{task: [0.0, 1.0] for task in TASKS}]))
    assert {draw.why for draw in known.draw(TASKS, 8, rng)} == {"weight"}


@pytest.mark.parametrize("sampling", ["learnability", "thompson"])
def test_what_teaches_is_drawn_and_nothing_is_forgotten(sampling: TaskSampling) -> None:
    history = [{"t0": [0.0] * 8, "t1": [1.0] * 8, "t2": [1.0, 0.0] * 4}] * 3
    chooser = Chooser(sampling, 0.1, rates_of(history))
    rng = random.Random(0)
    counts = Counter(chooser.draw(TASKS[:3], 1, rng)[0].task for _ in range(4000))
    assert counts["t2"] > 0.8 * 4000
    assert min(counts["t0"], counts["t1"]) > 0.02 * 4000
