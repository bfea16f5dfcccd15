"""A trial in the test's own process, without a worker."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from tbtui.rollout.light_harbor import litellm_deferred
from tbtui.rollout.link import TrialLink
from tbtui.rollout.messages import Completion, FromWorker, SampleWanted, TrialFacts, TrialSpec
from tbtui.rollout.recording import Recorder
from tbtui.rollout.supervision import Patience
from tests.rollout.hanging import RELEASE

with litellm_deferred():
    from tbtui.rollout import trial

BRIEF = Patience(
    grace_sec=0.2, handling_sec=1.0, teardown_sec=0.8, cancel_sec=0.4, attempts=3, tick_sec=0.05
)


class Here:
    """A trial in this process, its policy a list of answers."""

    def __init__(self, spec: TrialSpec, script: list[str]) -> None:
        self.messages: list[FromWorker] = []
        self._script = script
        self._news = asyncio.Event()
        self.hung = False
        self.link = TrialLink(
            spec, post=self._on_message, requests=itertools.count(), recorder=Recorder()
        )
        self.task = asyncio.create_task(trial.run_trial(self.link, BRIEF))

    def _on_message(self, message: FromWorker) -> None:
        self.messages.append(message)
        self._news.set()
        if isinstance(message, SampleWanted) and self._script:
            text = self._script.pop(0)
            answer = Completion(message.request, message.trial, text, False, 1, 1)
            asyncio.get_running_loop().call_soon(self.link.deliver, answer)

    async def until(self, kind: type[Any], **fields: object) -> None:
        wanted = set(fields.items())
        while not any(
            isinstance(m, kind) and wanted <= {(k, getattr(m, k)) for k in fields}
            for m in self.messages
        ):
            self._news.clear()
            await self._news.wait()

    async def facts(self) -> TrialFacts:
        try:
            async with asyncio.timeout(60):
                await asyncio.wait((self.task,))
        finally:  # what is deaf would else keep the event loop for ever, and the test with it
            (self.link.spec.trials_dir / self.link.spec.trial / RELEASE).touch()
        self.hung = bool(self.link.left_behind)
        others = asyncio.all_tasks() - {asyncio.current_task(), self.task}
        if others:
            await asyncio.wait(others, timeout=10)
        return self.task.result()
