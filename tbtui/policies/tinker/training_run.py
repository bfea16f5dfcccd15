"""The training run on the server: its client, and what is made of its weights."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from tbtui.policies.base import Datum, LossName, PolicyError, PolicyRefusedError
from tbtui.policies.meter import RequestMeter
from tbtui.policies.tinker.capabilities import ServerAbilities, ask_training
from tbtui.policies.tinker.checkpoints import (
    TinkerCheckpoint,
    checkpoint_name,
    read_checkpoint,
    require_fitting,
    write_checkpoint,
)
from tbtui.policies.tinker.errors import sdk_errors, status_code
from tbtui.policies.tinker.hooks import watch_creation, watch_sampling, watch_training
from tbtui.policies.tinker.samplers import Sampler, SamplerGoneError
from tbtui.policies.tinker.session import TinkerSession
from tbtui.policies.tinker.training import Training
from tbtui.policies.work import ServerSettings

if TYPE_CHECKING:
    import tinker

Making = Callable[[], Awaitable["tinker.TrainingClient"]]

log = logging.getLogger(__name__)

_FORGETTING_SEC = 60.0
_ASKING_SEC = 10.0
_ALREADY_GONE = (404, 405, 410, 501)
"""The server hasn't got the checkpoint, or deletes none."""


@dataclass(frozen=True, slots=True)
class TinkerSettings(ServerSettings):
    """Those of a policy on a Tinker server."""

    checkpoint: str | None = None
    """To start from: a `tinker://` path, or a checkpoint directory that `save` wrote."""
    lora_rank: int = 32
    seed: int = 0
    loss: LossName = "importance_sampling"
    """The one that will be asked for, so that it can be seen at start whether the server has it."""
    checkpoint_ttl_hours: int | None = None
    run_name: str | None = None
    """For the server's list of sessions."""


class TrainingRun:
    """One model in training. Begins with `create` and `prepare`."""

    def __init__(
        self,
        session: TinkerSession,
        settings: TinkerSettings,
        meter: RequestMeter,
        origin: str | None,
    ) -> None:
        """
        Args:
            origin: `tinker://...` of the weights that training starts from, which are the
                reference; None: the base model.
        """
        self._session = session
        self._settings = settings
        self._meter = meter
        self._origin = origin
        self._client: tinker.TrainingClient | None = None
        self._abilities: ServerAbilities | None = None
        self._training: Training | None = None
        self._reference: Sampler | None = None
        self._stored: dict[str, int] = {}
        """Checkpoints at the server by path: their sizes in bytes."""
        self._version = 0
        """Optimiser steps behind the weights that it began with."""

    @property
    def training(self) -> Training:
        if self._training is None:
            raise PolicyError("the policy has not been started")
        return self._training

    async def create(
        self, resume: Path | None = None, checkpoint: TinkerCheckpoint | None = None
    ) -> str | None:
        """A training client with the weights to start from, or those of `checkpoint`, which is
        what `resume` holds. Returns the model's tokenizer, as the server names it.

        Raises:
            PolicyError: the server has no such weights, or they are of another rank.
        """
        settings, service, origin = self._settings, self._session.service, self._origin
        if resume is not None and checkpoint is not None:
            self._version = checkpoint.weights_version
            client = await self._loaded(resume, checkpoint)
        elif origin is None:
            doing = f"creating a training run of {settings.model_name}"
            client = await self._created(
                doing,
                lambda: service.create_lora_training_client(
                    settings.model_name, rank=settings.lora_rank, seed=settings.seed
                ),
            )
        else:
            client = await self._created(
                f"checkpoint={settings.checkpoint}",
                lambda: service.create_training_client_from_state(origin),
            )
            rank = client.get_info().lora_rank
            if rank is not None and rank != settings.lora_rank:
                raise PolicyRefusedError(
                    f"lora_rank={settings.lora_rank}: checkpoint={settings.checkpoint} has rank"
                    f" {rank}; set lora_rank={rank}"
                )
        self._client = client
        return client.get_info().model_data.tokenizer_id

    async def prepare(self, abilities: ServerAbilities) -> tuple[ServerAbilities, Sampler]:
        """Find out what else the server can do, and publish the weights to start from."""
        assert self._client is not None
        abilities = await ask_training(self._client, abilities, self._settings.loss)
        self._abilities = abilities
        self._train(self._client)
        published = await self.publish(self._version)
        if not self._version:
            self._reference = published
        return abilities, published

    async def publish(self, version: int) -> Sampler:
        """The trained weights as `version`, once everything asked for before has been done."""
        assert self._client is not None
        submit = self._client.save_weights_and_get_sampling_client
        with sdk_errors("publishing the weights"), self._meter.request("save"):
            client = await self.training.in_order(submit)
        watch_sampling(self._meter, client)
        return Sampler(client, version)

    async def save(self, directory: Path, version: int) -> None:
        """The server keeps the weights, which are `version`, and the optimiser; `directory` keeps
        where."""
        import tinker as sdk

        assert self._client is not None
        client, settings = self._client, self._settings
        name = checkpoint_name(settings.run_name, version)
        hours = settings.checkpoint_ttl_hours
        ttl = None if hours is None else hours * 3600
        with sdk_errors("saving the training's state"), self._meter.request("save"):
            saved = await self.training.in_order(lambda: client.save_state(name, ttl))
        now = time.time()
        checkpoint = TinkerCheckpoint(
            state_path=saved.path,
            model_name=settings.model_name,
            lora_rank=settings.lora_rank,
            server=self._session.address,
            weights_version=version,
            reference=self._origin,
            sdk_version=sdk.__version__,
            saved_at=now,
            expires_at=None if ttl is None else now + ttl,
            size_bytes=await self._size(saved.path),
        )
        self._hold(checkpoint)
        await asyncio.to_thread(write_checkpoint, directory, checkpoint)

    @property
    def stored_bytes(self) -> int | None:
        """Size of the checkpoints that were saved or loaded and not forgotten; None: unknown."""
        return sum(self._stored.values()) if self._stored else None

    def _hold(self, checkpoint: TinkerCheckpoint) -> None:
        if checkpoint.size_bytes is not None:
            self._stored[checkpoint.state_path] = checkpoint.size_bytes

    async def _size(self, path: str) -> int | None:
        """Size of a checkpoint at the server, in bytes; None where it doesn't report that."""
        import tinker as sdk

        run = path.removeprefix("tinker://").partition("/")[0]
        try:
            async with asyncio.timeout(_ASKING_SEC):
                listed = await self._session.rest.list_checkpoints(run)
        except (TimeoutError, sdk.TinkerError, ValueError) as error:
            log.info("the size of %s is unknown: %s", path, error)
            return None
        sizes = {each.tinker_path: each.size_bytes for each in listed.checkpoints}
        return sizes.get(path)

    async def load(self, directory: Path) -> Sampler:
        """Go on from the checkpoint in `directory`; returns its weights, published."""
        assert self._abilities is not None
        settings = self._settings
        checkpoint = read_checkpoint(directory)
        require_fitting(
            checkpoint,
            directory,
            model_name=settings.model_name,
            lora_rank=settings.lora_rank,
            server=self._session.address,
        )
        client = await self._loaded(directory, checkpoint)
        self._client = client
        self._train(client)
        if checkpoint.reference != self._origin:
            self._reference, self._origin = None, checkpoint.reference
        return await self.publish(checkpoint.weights_version)

    async def _loaded(self, directory: Path, checkpoint: TinkerCheckpoint) -> tinker.TrainingClient:
        """A training client with the weights and the optimiser of `checkpoint`."""
        service, path = self._session.service, checkpoint.state_path
        self._hold(checkpoint)
        try:
            return await self._created(
                f"{directory}: loading {path}",
                lambda: service.create_training_client_from_state_with_optimizer(path),
                kind="load",
            )
        except PolicyError as error:
            raise PolicyError(
                f"{error}{checkpoint.expiry}; if the server no longer has it, begin a new run, with"
                " checkpoint=... to start from another one"
            ) from error

    async def forget(self, directory: Path) -> None:
        """Delete the checkpoint at the server. Nothing happens where it is gone already."""
        try:
            checkpoint = read_checkpoint(directory)
        except PolicyError:
            return  # it was never finished: its name at the server is unknown
        deleting = self._session.rest.delete_checkpoint_from_tinker_path(checkpoint.state_path)
        doing = f"deleting the checkpoint {checkpoint.state_path}"
        self._stored.pop(checkpoint.state_path, None)
        try:
            async with asyncio.timeout(_FORGETTING_SEC):
                with sdk_errors(doing, training=False):
                    await deleting
        except TimeoutError:
            raise PolicyError(
                f"{doing}: no answer from {self._session.address} in {_FORGETTING_SEC:g} s"
            ) from None
        except PolicyError as error:
            if status_code(error) not in _ALREADY_GONE:
                raise

    async def score_reference(self, data: Sequence[Datum]) -> tuple[npt.NDArray[np.float32], ...]:
        """Each datum's log-probabilities on its mask under the weights that training started
        from. What computes them needs room for one more token: a sequence as long as the server's
        context raises `PolicyError`."""
        if self._reference is None:
            self._reference = await self._make_reference()
        try:
            return await self._reference.score(data)
        except SamplerGoneError:
            self._reference = await self._make_reference()
            return await self._reference.score(data)

    async def _make_reference(self) -> Sampler:
        service, origin, model = self._session.service, self._origin, self._settings.model_name
        if origin is None:
            with sdk_errors("the reference", training=False):
                client = await service.create_sampling_client(base_model=model)
        else:
            doing = f"the reference {origin}"
            start = await self._created(
                doing, lambda: service.create_training_client_from_state(origin)
            )
            with sdk_errors(doing, training=False):
                client = await start.save_weights_and_get_sampling_client()
        watch_sampling(self._meter, client)
        return Sampler(client, 0)

    async def _created(
        self, doing: str, submit: Making, kind: Literal["create", "load"] = "create"
    ) -> tinker.TrainingClient:
        with (
            watch_creation(self._meter),
            sdk_errors(doing, training=False),
            self._meter.request(kind),
        ):
            return await submit()

    def _train(self, client: tinker.TrainingClient) -> None:
        assert self._abilities is not None
        watch_training(self._meter, client)
        self._training = Training(client, self._abilities, self._meter)
