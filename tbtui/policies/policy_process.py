"""A process that computes for a policy: calls to it, how it serves them, the orders to train.

The policies that compute on this machine have them: `local` one, `torch` one that trains and, with
`sampler=transformers`, one that samples. Messages are pickled: both ends are this program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Protocol

import numpy as np
import numpy.typing as npt

from tbtui.ipc import Channel, ChannelClosedError, exit_words, parent_socket, spawn, wait_for_exit
from tbtui.policies.base import (
    Activity,
    Datum,
    GradientResult,
    LossSettings,
    OnDrawn,
    OptimSettings,
    PolicyError,
    PolicyLostError,
    PolicyRefusedError,
    StepResult,
)
from tbtui.policies.work import Startable, Work

Array = npt.NDArray[np.float32]
Weights = Literal["trained", "reference"]

_EXIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ProcessCall[Order]:
    """Client to process: do `order`, and answer under this number."""

    number: int
    order: Order


@dataclass(frozen=True, slots=True)
class Dropped:
    """Client to process: the answer to call `number` isn't wanted any more, and need not come."""

    number: int


@dataclass(frozen=True, slots=True)
class Ready[Loaded]:
    """Process to client, once: the model is loaded, and what is known of it."""

    loaded: Loaded


@dataclass(frozen=True, slots=True)
class Running:
    """Process to client: so many calls are computed at once from now on."""

    count: int
    progress: int = 0
    """Grows as they are worked on."""
    drawn: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    """What is new of completions: the call's number, its tokens before, the new ones."""


@dataclass(frozen=True, slots=True)
class Done[Result]:
    """Process to client: call `number` is done."""

    number: int
    result: Result


@dataclass(frozen=True, slots=True)
class Failed:
    """Process to client: call `number` failed (None: the process could not start)."""

    number: int | None
    reason: str
    refused: bool = False
    """What the settings ask for can't be had."""

    def error(self) -> PolicyError:
        return PolicyRefusedError(self.reason) if self.refused else PolicyError(self.reason)


type ToProcess[Order] = ProcessCall[Order] | Dropped
type FromProcess[Loaded, Result] = Ready[Loaded] | Running | Done[Result] | Failed


class PolicyProcess[Order, Result, Loaded]:
    """A running policy process. Once it has failed, every call fails with the same reason."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        channel: Channel[ToProcess[Order], FromProcess[Loaded, Result]],
        name: str,
    ) -> None:
        """`name`: what errors call it."""
        self._process = process
        self._channel = channel
        self._name = name
        self.running = 0
        """Calls that are computed at this moment, as the process says it; not all do."""
        self.progress: int | None = None
        """Grows as calls are worked on; None: the process doesn't say."""
        self.drawn = 0
        """Tokens of completions that were shown while they were drawn."""
        self._calls: dict[int, asyncio.Future[Result]] = {}
        self._on_drawn: dict[int, OnDrawn] = {}
        self._number = 0
        self._failure: PolicyError | None = None
        self._ready: asyncio.Future[Loaded] = asyncio.get_running_loop().create_future()
        self._receiver = asyncio.create_task(self._receive())

    @classmethod
    async def start(
        cls, module: str, arguments: Sequence[str], log: IO[bytes] | None,
        *, name: str = "the policy's process", env: Mapping[str, str] | None = None,
    ) -> tuple[PolicyProcess[Order, Result, Loaded], Loaded]:  # fmt: skip
        """Raises `PolicyError` when the process can't start or refuses what it is to load."""
        try:
            process, sock = spawn(module, arguments, log=log, env=env)
        except OSError as error:
            raise PolicyError(f"can't start {name}: {error.strerror}") from error
        running = cls(process, await Channel.over(sock), name)
        try:
            return running, await running._ready
        except BaseException:
            await running.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    async def call(self, order: Order, on_drawn: OnDrawn | None = None) -> Result:
        """Have `order` done. Raises `PolicyError` when it fails or the process is gone.

        `on_drawn`: gets what the process shows of a completion before it is done. Where the caller
        is cancelled the process learns that its answer isn't wanted.
        """
        if self._failure is not None:
            raise self._failure
        self._number += 1
        number = self._number
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        if on_drawn is not None:
            self._on_drawn[number] = on_drawn
        try:
            await self._channel.send(ProcessCall(number, order))
            return await future
        except ChannelClosedError as error:
            raise self._failure or PolicyLostError(f"{self._name} is gone") from error
        except asyncio.CancelledError:
            if self._failure is None:
                with contextlib.suppress(ChannelClosedError):
                    self._channel.post(Dropped(number))
            raise
        finally:
            self._calls.pop(number, None)
            self._on_drawn.pop(number, None)

    async def close(self) -> None:
        """End the process; calls in flight fail."""
        self._fail(PolicyError("the policy has been closed"))
        self._receiver.cancel()
        await asyncio.gather(self._receiver, return_exceptions=True)
        await self._channel.close()
        if await wait_for_exit(self._process, _EXIT_SECONDS) is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def _receive(self) -> None:
        async for message in self._channel:
            match message:
                case Ready(loaded):
                    self._ready.set_result(loaded)
                case Running(count, progress, drawn):
                    self.running, self.progress = count, progress
                    for number, before, ids in drawn:
                        self.drawn += len(ids)
                        if number in self._on_drawn:
                            self._on_drawn[number](before, ids)
                case Failed(None):
                    self._ready.set_exception(message.error())
                case Done(number, result):
                    if number in self._calls and not self._calls[number].done():
                        self._calls[number].set_result(result)
                case Failed(int() as number):
                    if number in self._calls and not self._calls[number].done():
                        self._calls[number].set_exception(message.error())
        ending = _ending(await wait_for_exit(self._process, _EXIT_SECONDS))
        reason = f"{self._name} {ending}"
        # One that has never been ready would fail again.
        self._fail(PolicyLostError(reason) if self._ready.done() else PolicyError(reason))

    def _fail(self, failure: PolicyError) -> None:
        self._failure = self._failure or failure
        self.running = 0
        if not self._ready.done():
            self._ready.set_exception(failure)
        for future in self._calls.values():
            if not future.done():
                future.set_exception(failure)


def _ending(status: int | None) -> str:
    if status is None:
        return "closed its channel and hangs"
    if status < 0:
        hint = " (out of memory?)" if -status == signal.SIGKILL else ""
        return f"was {exit_words(status)}{hint}"
    return f"{exit_words(status)}; see the run's log"


async def run_process[Order, Result, Loaded](
    arguments: Sequence[str],
    load: Callable[[], tuple[Loaded, Callable[[Order], Result]]],
    executor_of: Callable[[Order | None], Executor],
) -> None:
    """In the process: load the model, then do what is asked for until the client leaves.

    What is dropped is done all the same: the orders behind it may rely on it.

    Args:
        arguments: those that `PolicyProcess.start` made the process with.
        load: what is known of the model, and what carries an order out; may raise `PolicyError`.
        executor_of: where an order is carried out; None: where the model is loaded.
    """
    loop = asyncio.get_running_loop()
    sock = parent_socket(arguments)
    channel: Channel[FromProcess[Loaded, Result], ToProcess[Order]] = await Channel.over(sock)

    def answer(call: ProcessCall[Order]) -> FromProcess[Loaded, Result]:
        try:
            return Done(call.number, perform(call.order))
        except PolicyError as error:
            return Failed(call.number, str(error), isinstance(error, PolicyRefusedError))
        except MemoryError:
            return Failed(call.number, "the policy's process has no memory left for this request")

    def reply(finished: asyncio.Future[FromProcess[Loaded, Result]]) -> None:
        if finished.cancelled():
            return
        error = finished.exception()
        if error is not None:
            # A defect of ours: nothing here can go on from it, and the parent sees the exit.
            loop.call_exception_handler({"message": "policy call failed", "exception": error})
            os._exit(70)
        try:
            channel.post(finished.result())
        except ChannelClosedError:
            return  # the parent left; the loop below sees it too

    try:
        loaded, perform = await loop.run_in_executor(executor_of(None), load)
    except PolicyError as error:
        await channel.send(Failed(None, str(error), isinstance(error, PolicyRefusedError)))
    else:
        await channel.send(Ready(loaded))
        async for message in channel:
            if isinstance(message, ProcessCall):
                executor = executor_of(message.order)
                loop.run_in_executor(executor, answer, message).add_done_callback(reply)
    await channel.close()


@dataclass(frozen=True, slots=True)
class Accumulate:
    data: tuple[Datum, ...]
    loss: LossSettings


@dataclass(frozen=True, slots=True)
class Apply:
    settings: OptimSettings


@dataclass(frozen=True, slots=True)
class Score:
    data: tuple[Datum, ...]
    weights: Weights


@dataclass(frozen=True, slots=True)
class Save:
    directory: Path


@dataclass(frozen=True, slots=True)
class Load:
    directory: Path


@dataclass(frozen=True, slots=True)
class Publish:
    root: Path | None = None
    """Where the directory of the weights is made, for a sampler that is another process."""


@dataclass(frozen=True, slots=True)
class Scored:
    logprobs: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class PublishedWeights:
    version: int
    directory: Path | None = None
    """For the sampler to read; None: it was given this version before, or needs none."""


type TrainingOrder = Accumulate | Apply | Score | Save | Load
type TrainingResult = GradientResult | StepResult | Scored | None


class ModelTrainer(Protocol):
    """What computes in the process; as the methods of `Policy`, but each blocks."""

    def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult: ...

    def apply(self, settings: OptimSettings) -> StepResult: ...

    def score(self, data: Sequence[Datum], weights: Weights) -> tuple[Array, ...]: ...

    def save(self, directory: Path) -> None: ...

    def load(self, directory: Path) -> None: ...


def carry_out(trainer: ModelTrainer, order: TrainingOrder) -> TrainingResult:
    """In the process: do what an order asks for."""
    match order:
        case Accumulate(data, loss):
            return trainer.accumulate(data, loss)
        case Apply(settings):
            return trainer.apply(settings)
        case Score(data, weights):
            return Scored(trainer.score(data, weights))
        case Save(directory):
            trainer.save(directory)
        case Load(directory):
            trainer.load(directory)
    return None


class TrainedInProcess[R](Startable[R]):
    """The part of `tbtui.policies.base.Policy` that such a process carries out."""

    def __init__(self) -> None:
        self._work = Work()

    @abstractmethod
    async def _train(self, activity: Activity, order: TrainingOrder) -> object:
        """Have an order carried out; returns its result."""

    async def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        """Raises `PolicyError` for data that can't be trained on. The gradient then lacks a part,
        so the next `apply` takes no step either."""
        result = await self._train("training", Accumulate(tuple(data), loss))
        assert isinstance(result, GradientResult)
        return result

    async def apply(self, settings: OptimSettings) -> StepResult:
        """Raises `PolicyError` when there is no whole, finite gradient; the weights are then what
        they were, and the accumulated gradient is zero."""
        result = await self._train("training", Apply(settings))
        assert isinstance(result, StepResult)
        return result

    async def score(self, data: Sequence[Datum], weights: Weights) -> tuple[Array, ...]:
        result = await self._train("training", Score(tuple(data), weights))
        assert isinstance(result, Scored)
        return result.logprobs

    async def save(self, directory: Path) -> None:
        await self._train("saving", Save(directory))

    async def load(self, directory: Path) -> None:
        """Go on with the training that `directory` is a checkpoint of: weights (trained and
        published), optimiser and version become what they were when it was saved."""
        await self._train("loading", Load(directory))

    async def forget(self, directory: Path) -> None:
        """There is nothing of it elsewhere."""
