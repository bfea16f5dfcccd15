"""Everything the server knows: sessions, training runs, sampling sessions, checkpoints."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

from tbtui.policies.local.checkpoint_file import read_checkpoint
from tbtui.policies.local.tokenizer import SHIPPED, TOKENIZER, LocalTokenizer
from tests.tinker_server.checkpoints import (
    CheckpointRecord,
    CheckpointStore,
    RunRecord,
    expiry,
)
from tests.tinker_server.errors import HttpError
from tests.tinker_server.faults import Faults
from tests.tinker_server.futures import Futures, Promise, Work, carry_out
from tests.tinker_server.record import Record
from tests.tinker_server.samplers import Sampler
from tests.tinker_server.sampling import SamplingSession, draw, sampling_request
from tests.tinker_server.settings import MAX_LORA_RANK, ServerSettings, Session
from tests.tinker_server.settings import ServedModel as ServedModel
from tests.tinker_server.training import TrainingRun, optim_settings
from tests.tinker_server.wire import Answer, TrainingRequest


class Service:
    """Lives on one event loop. Every method raises `HttpError` for what can't be."""

    def __init__(self, settings: ServerSettings, faults: Faults, record: Record) -> None:
        self.settings = settings
        self.faults = faults
        self.record = record
        self.store = CheckpointStore(settings.state_dir)
        self.futures = Futures(faults, settings.poll_seconds)
        self._sampler = Sampler()
        self._sessions: dict[str, Session] = {}
        self._runs: dict[str, TrainingRun] = {}
        self._samplers: dict[str, SamplingSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        config = read_checkpoint(SHIPPED).config
        self.context_limit = config.context_limit
        self._vocabulary = config.vocab_size
        self._end_id = LocalTokenizer(TOKENIZER).end_id

    # Sessions

    def create_session(self) -> Session:
        session = Session(str(uuid.uuid4()))
        self._sessions[session.session_id] = session
        return session

    def session(self, session_id: str) -> Session:
        if session_id not in self._sessions:
            raise HttpError(404, f"session {session_id} not found")
        return self._sessions[session_id]

    def open_session(self, session_id: str) -> Session:
        session = self.session(session_id)
        if session.finished:
            raise HttpError(410, f"session {session_id} has finished")
        return session

    def finish(self, session_id: str, status: str, detail: str | None) -> None:
        session = self.session(session_id)
        self.record.finished_with(session_id, status, detail)
        if session.finished:
            return
        session.finished = True
        for run_id in session.training_run_ids:
            if run := self._runs.get(run_id):
                self._close_later(run)

    # Training runs

    def run(self, model_id: str) -> TrainingRun:
        if model_id not in self._runs:
            raise HttpError(404, f"model {model_id} not found")
        self.open_session(model_id.split(":")[0])
        return self._runs[model_id]

    def create_model(self, content: dict[str, Any]) -> Promise:
        base_model = content["base_model"]
        model = self.settings.models.get(base_model)
        if model is None:
            raise HttpError(404, f"base model {base_model} is not served here")
        if not model.trainable:
            raise HttpError(422, f"base model {base_model} can't be trained here")
        rank = (content.get("lora_config") or {}).get("rank", MAX_LORA_RANK)
        if not 0 < rank <= MAX_LORA_RANK:
            raise HttpError(
                400,
                f"Lora_config.rank {rank} exceeds max LoRA rank {MAX_LORA_RANK} for model"
                f" {base_model}",
            )
        return self._new_run(
            content, "create_model", base_model, lambda run: run.start(None, None), {}
        )

    def load_weights(self, content: dict[str, Any]) -> Promise:
        """Into a new model."""
        record = self.store.find(content["path"])
        optimizer: bool = content["optimizer"]
        directory = self.store.directory(record)

        async def start(run: TrainingRun) -> None:
            # Weights alone: a new training, whose reference they are.
            await (run.start(None, directory) if optimizer else run.start(directory, None))

        base_model = content.get("base_model") or record.base_model
        return self._new_run(content, "load_weights", base_model, start, {"path": record.path})

    def _new_run(
        self,
        content: dict[str, Any],
        kind: str,
        base_model: str,
        start: Callable[[TrainingRun], Any],
        answer: dict[str, Any],
    ) -> Promise:
        session = self.open_session(content["session_id"])
        run_id = f"{session.session_id}:train:{content['model_seq_id']}"
        if run_id in self._runs:
            promise = self._runs[run_id].known(0)
            assert promise is not None
            return promise
        run = self._runs[run_id] = TrainingRun(
            run_id, base_model, self.futures, self.faults, self.record
        )
        session.training_run_ids.append(run_id)

        async def work() -> Answer:
            await start(run)
            self.store.add_run(RunRecord(run_id, base_model, time.time()))
            return {"model_id": run_id, "type": kind, **answer}

        return run.submit(0, kind, work, model_id=run_id)

    def in_turn(self, run: TrainingRun, seq_id: int, kind: str, work: Work) -> Promise:
        """Have `work` done in `run`'s order; what was asked before is not done again."""
        return run.known(seq_id) or run.submit(seq_id, kind, work)

    def gradient(self, request: TrainingRequest) -> Promise:
        run = self.run(request.model_id)
        kind = "forward" if request.forward_only else "forward_backward"
        return self.in_turn(run, request.seq_id, kind, lambda: run.gradient(request))

    def optim_step(self, content: dict[str, Any]) -> Promise:
        run = self.run(content["model_id"])
        settings = optim_settings(content.get("adam_params") or content["optimizer_params"])
        return self.in_turn(run, content["seq_id"], "optim_step", lambda: run.step(settings))

    # Checkpoints

    def save_weights(self, content: dict[str, Any]) -> Promise:
        run = self.run(content["model_id"])
        name = content["path"]
        if "/" in name or name.startswith("."):
            raise HttpError(422, f"{name!r} can't be a checkpoint's name")
        expires_at = expiry(content.get("ttl_seconds"))
        record = CheckpointRecord(run.run_id, name, run.base_model, time.time(), expires_at)

        async def save() -> Answer:
            await run.policy.save(self.store.directory(record))
            self.store.write_record(record)
            return {"path": record.path, "type": "save_weights"}

        return self.in_turn(run, content["seq_id"], "save_weights", save)

    def save_weights_for_sampler(self, content: dict[str, Any]) -> Promise:
        """A sampling session of a snapshot without a name."""
        run = self.run(content["model_id"])
        if content.get("path") is not None:
            raise HttpError(422, "named sampling weights are not supported")
        session_id = run.run_id.split(":")[0]
        sampler_id = f"{session_id}:sample:{content['sampling_session_seq_id']}"

        async def save() -> Answer:
            directory = self.store.ephemeral(sampler_id)
            await run.policy.save(directory)
            self._samplers[sampler_id] = SamplingSession(sampler_id, directory)
            return {"sampling_session_id": sampler_id, "type": "save_weights_for_sampler"}

        return self.in_turn(run, content["seq_id"], "save_weights_for_sampler", save)

    # Sampling

    def sampler(self, sampler_id: str) -> SamplingSession:
        if sampler_id not in self._samplers:
            raise HttpError(404, f"sampling session {sampler_id} not found")
        return self._samplers[sampler_id]

    def create_sampling_session(self, content: dict[str, Any]) -> SamplingSession:
        """A session of a base model: what training clients publish has sessions of its own."""
        session = self.open_session(content["session_id"])
        sampler_id = f"{session.session_id}:sample:{content['sampling_session_seq_id']}"
        base_model = content.get("base_model")
        model = self.settings.models.get(base_model or "")
        if model is None:
            raise HttpError(404, f"base model {base_model} is not served here")
        if not model.sampleable:
            raise HttpError(422, f"base model {base_model} can't be sampled here")
        sampler = SamplingSession(sampler_id, SHIPPED)
        return self._samplers.setdefault(sampler_id, sampler)

    def sample(self, content: dict[str, Any]) -> Promise:
        sampler = self.sampler(content["sampling_session_id"])
        self.open_session(sampler.sampling_session_id.split(":")[0])
        if sampler.expired:
            raise HttpError(
                404, f"the weights of sampling session {sampler.sampling_session_id} have expired"
            )
        request = sampling_request(content, self.context_limit, self._vocabulary, self._end_id)
        request_id = f"{sampler.sampling_session_id}:{content['seq_id']}"
        if (promise := self.futures.find(request_id)) is not None:
            return promise
        ids = [f"{request_id}:0"]
        promise = self.futures.add(request_id, "asample", sample_sequence_ids=ids)
        task = asyncio.create_task(
            carry_out(promise, lambda: draw(request, sampler, self._sampler), self.faults)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return promise

    # What a test does to it

    def expire(self, path: str | None) -> None:
        """Let the checkpoint or (None) all sampling weights but the base model's expire."""
        if path is not None:
            self.store.set_expiry(path, time.time() - 1)
            return
        for sampler in self._samplers.values():
            sampler.expired |= sampler.weights != SHIPPED

    def delete_run(self, run_id: str) -> None:
        """As if somebody had deleted it elsewhere: its checkpoints are gone, too."""
        self.store.delete_run(run_id)
        if run := self._runs.pop(run_id, None):
            self._close_later(run)

    def _close_later(self, run: TrainingRun) -> None:
        task = asyncio.create_task(run.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._closing, return_exceptions=True)
        await asyncio.gather(*(run.close() for run in self._runs.values()))
        await self._sampler.close()
