"""A model on a Tinker server, as engines see it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt

from tbtui.policies.base import (
    Activity,
    ChatRenderer,
    Datum,
    Ended,
    GradientResult,
    LossName,
    LossSettings,
    OptimSettings,
    PolicyError,
    PolicyInfo,
    PolicyLostError,
    PolicyStatus,
    Sample,
    SampleRequest,
    StepResult,
)
from tbtui.policies.chat.make import load_renderer, may_think
from tbtui.policies.meter import RequestMeter
from tbtui.policies.tinker.capabilities import ServerAbilities, ask_server
from tbtui.policies.tinker.checkpoints import (
    read_checkpoint,
    require_fitting,
    starting_path,
)
from tbtui.policies.tinker.errors import THE_SERVER
from tbtui.policies.tinker.hooks import watch_beginning
from tbtui.policies.tinker.samplers import (
    CurrentSampler,
    Sampler,
    SamplerGoneError,
    sampling_error,
)
from tbtui.policies.tinker.session import TinkerSession, open_session, server_address
from tbtui.policies.tinker.training_run import TinkerSettings, TrainingRun
from tbtui.policies.work import (
    Startable,
    Work,
    context_limit,
    fitted,
    library_log_to,
    unless_closed,
)

if TYPE_CHECKING:
    import tinker


_HONOURED = frozenset(
    {
        "checkpoint",
        "tinker_base_url",
        "renderer",
        "checkpoint_ttl_hours",
        "lora_rank",
        "kl_penalty_coef",
        "importance_cap",
    }
)


_CREATING = "waiting for the server to make a training client"


class TinkerPolicy(Startable[ChatRenderer]):
    """Implements `tbtui.policies.base.Policy`.

    A version of the weights is the number of optimiser steps behind them. Once a training request
    has raised `PolicyLostError`, all of them do; what has been published can still be sampled
    from.
    """

    def __init__(
        self, settings: TinkerSettings, log: IO[bytes], meter: RequestMeter | None = None
    ) -> None:
        """
        Args:
            log: where what the SDK and its libraries log goes.
            meter: counts requests; one of its own when None.
        """
        self._settings = settings
        self._log = log
        self._meter = meter or RequestMeter()
        self._resources = contextlib.ExitStack()
        self._session: TinkerSession | None = None
        self._run: TrainingRun | None = None
        self._published = CurrentSampler(self._publish_anew)
        self._version = 0
        """The trained weights' version, once everything asked for so far has been carried out."""
        self._over: asyncio.Future[None] | None = None
        """Raises why training can't be asked for anything any more, once it is done."""
        self._resumed: Path | None = None
        """Checkpoint that it began with, as long as nothing was trained since."""
        self._closed = False
        self._unanswered: set[asyncio.Future[tinker.SampleResponse]] = set()
        self._work = Work()
        self._starting = ""
        """What is waited for while it starts."""

    async def start(self, resume: Path | None = None) -> None:
        """Raises `PolicyError` when there is no key, the server can't be reached, lacks something
        that the settings ask for, or has no weights for us.

        `resume`: one training client is made, with the weights of this checkpoint.
        """
        settings = self._settings
        self._resources.enter_context(library_log_to(self._log))
        self._over = asyncio.get_running_loop().create_future()
        server = server_address(settings.base_url)
        model_name, rank = settings.model_name, settings.lora_rank
        checkpoint = None
        if resume is None:
            origin = starting_path(
                settings.checkpoint, model_name=model_name, lora_rank=rank, server=server
            )
        else:
            checkpoint = read_checkpoint(resume)
            require_fitting(
                checkpoint, resume, model_name=model_name, lora_rank=rank, server=server
            )
            origin = checkpoint.reference
        with watch_beginning(self._meter):
            session = await open_session(settings.base_url, settings.run_name, self._meter)
            self._session = session
            abilities = await ask_server(session.rest, settings.model_name)
        limit = context_limit(
            abilities.context_limit, settings.context_limit, settings.model_name, THE_SERVER
        )
        run = TrainingRun(session, settings, self._meter, origin)
        if settings.tokenizer is not None or settings.renderer == "embedded":
            # What doesn't depend on the server is refused before a place in its queue is taken.
            tokenizer = settings.tokenizer or settings.model_name
            renderer = await load_renderer(
                settings.renderer, tokenizer, settings.thinking, settings.tool_format, self._tell
            )
            self._tell(_CREATING)
            await run.create(resume, checkpoint)
        else:
            self._tell(_CREATING)
            named = await run.create(resume, checkpoint)
            tokenizer = named or settings.model_name
            renderer = await load_renderer(
                settings.renderer, tokenizer, settings.thinking, settings.tool_format, self._tell
            )
        self._tell("publishing the first weights on the server")
        abilities, sampler = await run.prepare(abilities)
        self._tell("")
        self._published.publish(sampler)
        self._version, self._resumed = sampler.version, resume
        self._run, self._renderer = run, renderer
        self._info = PolicyInfo(
            name="tinker",
            model_name=settings.model_name,
            parameters=None,
            context_limit=limit,
            losses=get_args(LossName),
            divides_gradient=False,
            # SkyRL's server, known by its averages, loads what is sampled over what is trained.
            keeps_published=abilities.reduction == "sum",
            honours=_honours(settings, abilities),
            tokenizer=renderer.digest,
            thinks=may_think(renderer),
            notes=(*abilities.notes, *renderer.notes),
            address=server,
        )

    async def sample(self, request: SampleRequest) -> Sample:
        """Raises `ContextOverflowError` when not one token fits behind the prompt. A completion
        is cut off where the context ends. When the server has dropped the weights, they are
        published once more."""
        asked = fitted(request, self.info.context_limit)
        started = time.monotonic()
        sampler = self._published.sampler
        try:
            response = await self._ask(sampler, asked)
        except SamplerGoneError:
            sampler = await self._published.instead_of(sampler)
            self._meter.retried()
            response = await self._ask(sampler, asked)
        drawn = sampler.read(response, asked)
        self._work.answered(drawn, time.monotonic() - started)
        self._meter.answered(len(request.prompt_ids), response.prompt_cache_hit_tokens)
        return drawn

    async def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        training, self._resumed = self._going_on().training, None
        return await self._call_alone("training", training.accumulate(data, loss))

    async def apply(self, settings: OptimSettings) -> StepResult:
        training = self._going_on().training
        self._version += 1
        try:
            return await self._call_alone("training", training.apply(settings))
        except PolicyLostError:
            raise
        except PolicyError:
            self._version -= 1  # the step was not taken
            raise

    async def score(
        self, data: Sequence[Datum], weights: Literal["trained", "reference"]
    ) -> tuple[npt.NDArray[np.float32], ...]:
        run = self._going_on()
        if weights == "trained":
            return await self._call_alone("training", run.training.score(data))
        return await self._call_alone("training", run.score_reference(data))

    async def publish(self) -> int:
        run, version = self._going_on(), self._version
        if version != self._published.version:
            self._published.publish(await self._call_alone("saving", run.publish(version)))
        return version

    async def save(self, directory: Path) -> None:
        run = self._going_on()
        await self._call_alone("saving", run.save(directory, self._version))

    async def load(self, directory: Path) -> None:
        """Go on with the training that `directory` is a checkpoint of: weights (trained and
        published), optimiser, version and reference become what they were when it was saved.

        Raises:
            PolicyError: it is of another model, rank or server, or the server no longer has it.
        """
        run, resumed = self._going_on(), self._resumed
        self._resumed = None
        if directory == resumed:
            return  # it began with it
        sampler = await self._call_alone("loading", run.load(directory))
        self._version = sampler.version
        self._published.replace(sampler)

    async def forget(self, directory: Path) -> None:
        if self._closed or self._run is None:
            raise PolicyError("the policy is not running")
        await self._run.forget(directory)

    def status(self) -> PolicyStatus:
        in_flight = len(self._unanswered)
        # Which of them the server works on, it doesn't report.
        stored = None if self._run is None else self._run.stored_bytes
        server = self._meter.status()
        status = self._work.status(in_flight, running=in_flight, server=server, stored_bytes=stored)
        return dataclasses.replace(status, starting=self._starting)

    async def close(self, ended: Ended = "success") -> None:
        """End the session; what is still in flight fails with `PolicyError`."""
        self._closed = True
        self._end(PolicyError("the policy has been closed"))
        for answer in tuple(self._unanswered):
            answer.cancel()
        session, self._session = self._session, None
        try:
            if session is not None:
                await session.close(ended)
        finally:
            self._resources.close()

    def _tell(self, line: str) -> None:
        self._starting = line

    async def _ask(self, sampler: Sampler, request: SampleRequest) -> tinker.SampleResponse:
        if self._closed:
            raise PolicyError("the policy has been closed")
        with self._meter.request("sample"):
            answer = sampler.ask(request, self.renderer.stop_ids)
            self._unanswered.add(answer)
            try:
                return await unless_closed(answer, "sampling: the policy has been closed")
            except PolicyError:
                raise
            except Exception as error:
                address = "" if self._session is None else f" at {self._session.address}"
                raise sampling_error(error, "sampling", f"{THE_SERVER}{address}") from error
            finally:
                self._unanswered.discard(answer)

    async def _publish_anew(self) -> Sampler:
        """For samples: the server has dropped what was published."""
        return await self._unless_over(self._going_on().publish(self._version))

    def _going_on(self) -> TrainingRun:
        """Raises unless training can be asked for something."""
        if self._over is not None and self._over.done():
            self._over.result()
        if self._run is None:
            raise PolicyError("the policy has not been started")
        return self._run

    async def _call_alone[T](self, activity: Activity, work: Coroutine[object, object, T]) -> T:
        with self._work.beside_sampling(activity):
            return await self._unless_over(work)

    async def _unless_over[T](self, work: Coroutine[object, object, T]) -> T:
        """The result of `work`, unless what is being trained is lost first, or the policy closed:
        a server may never answer what came after a request that it lost."""
        assert self._over is not None
        task = asyncio.create_task(work)
        try:
            await asyncio.wait((task, self._over), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._over.result()
            return await task
        except PolicyLostError as error:
            self._end(error)
            raise
        finally:
            task.cancel()

    def _end(self, error: PolicyError) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)
            self._over.exception()  # later calls raise it


def _honours(settings: TinkerSettings, abilities: ServerAbilities) -> frozenset[str]:
    honours = set(_HONOURED)
    if settings.renderer != "embedded":
        honours |= {"tokenizer", "thinking", "tool_format"}
    # A server that averages is SkyRL's: it ignores the limit of the gradient's norm.
    if abilities.reduction == "sum":
        honours.add("grad_clip")
    return frozenset(honours)
