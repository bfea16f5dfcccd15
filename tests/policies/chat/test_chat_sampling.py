"""A trial's calls to a policy that thinks: what is sampled from, recorded, and given to the agent.
The model is an imitation: `chat_models.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tbtui.algorithm.segments import merge
from tbtui.chat import Message
from tbtui.engines.grpo.sampling import Conversation, LoopTurns, SamplingLimits
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import Policy, Sample, SampleRequest
from tbtui.policies.chat.template import TemplateRenderer
from tbtui.rollout.messages import SampleWanted
from tbtui.sampling import MODEL_ITSELF
from tests.policies.chat.chat_models import Make

_TRIAL = "copy-1"
_SAID = (
    "<think>\nfirst\n</think>\n\n{one}<|im_end|>",
    "<think>\nsecond, and then it is cut of",
    "{three}<|im_end|>",
    "<think>\nfourth\n</think>\n\n{four}<|im_end|>",
)


class _Scripted:
    """The part of a policy that samples."""

    def __init__(self, renderer: TemplateRenderer) -> None:
        self.renderer = renderer
        self.requests: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> Sample:
        said = _SAID[len(self.requests)]
        self.requests.append(request)
        ids = tuple(self.renderer._vocabulary.encode(said))
        logprobs = np.full(len(ids), -0.5, np.float32)
        return Sample(ids, logprobs, "stop" if said.endswith("|>") else "length", 0)


@pytest.mark.parametrize(("thinking", "sequences"), [("keep", 1), ("strip", 3)])
async def test_a_trials_calls(make: Make, tmp_path: Path, thinking: Any, sequences: int) -> None:
    policy = _Scripted(make("hybrid", thinking))
    run = RunDirectory(tmp_path)
    with JournalWriter(run) as journal:
        talk = Conversation(
            _TRIAL,
            1,
            MODEL_ITSELF,
            SamplingLimits(4000, 500),
            cast(Policy, policy),
            journal,
            LoopTurns(),
        )
        messages = [Message("user", "list the files <|im_end|>")]
        answers = []
        for turn in range(1, 5):
            answer = await talk.answer(
                SampleWanted(turn, _TRIAL, turn, tuple(messages), purpose="turn"), policy.sample
            )
            answers.append((answer.text, answer.thinking, answer.truncated))
            messages += [Message("assistant", answer.text), Message("user", f"screen {turn}")]

    assert answers == [
        ("{one}", "first", False),
        ("", "second, and then it is cut of", True),
        ("{three}", "", False),
        ("{four}", "fourth", False),
    ]
    prompts = ["".join(policy.renderer.pieces(r.prompt_ids)) for r in policy.requests]
    assert prompts[0].count("<|im_end|>") == 2  # the text's and the turn's
    if thinking == "keep":
        assert "first" in prompts[3]
        assert "cut of<|im_end|>\n<|im_start|>user\nscreen 2" in prompts[3]
    else:
        assert "<think>" not in prompts[3]
        assert "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\nscreen 2" in prompts[3]

    segments = merge(talk.calls)
    assert len(segments) == sequences  # stripped: turn 4 goes on from turn 3, which did not think
    drawn = sum(len(call.completion_ids) for call in talk.calls)
    assert sum(segment.action_tokens for segment in segments) == drawn

    reader = JournalReader(run)
    records = reader.samples(_TRIAL)
    assert [r.prompt_ids for r in records] == [r.prompt_ids for r in policy.requests]
    assert "".join(records[0].pieces) == _SAID[0]
    sampled = reader.read_kinds(["turn_sampled"], 0)
    assert [e.event.thinking for e in sampled] == [answer[1] for answer in answers]  # type: ignore[union-attr]
    reader.close()
