"""What a server can do is found out before anything is trained, and said in one line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import tinker

from tbtui.policies.base import LossName, PolicyError
from tbtui.policies.tinker.capabilities import (
    ServerAbilities,
    ask_server,
    ask_training,
)
from tbtui.policies.work import context_limit
from tests.policies.tinker.toy import LOSSES, NATIVE, Toy, refusal
from tests.tinker_server.server import TinkerServer, serving
from tests.tinker_server.service import ServedModel

UNKNOWN = ServerAbilities("toy", None)


async def asked(toy: Toy, loss: LossName = "importance_sampling") -> ServerAbilities:
    return await ask_training(toy.client, UNKNOWN, loss)


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_server_that_sums_and_has_the_losses(loss: LossName) -> None:
    toy = Toy()
    abilities = await asked(toy, loss)
    assert abilities.reduction == "sum"
    assert abilities.native_losses == {loss} & NATIVE
    if loss in NATIVE:
        assert abilities.notes == ()
    else:
        assert abilities.notes == (
            f"loss_fn={loss} is computed here, not by the Tinker server: exact, but each gradient"
            " costs one more forward pass, and the optimiser step waits for it",
        )
    assert set(toy.log) == {"forward"}


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_server_that_averages(loss: LossName) -> None:
    has = NATIVE - {"gspo"}
    toy = Toy("averages", losses=has)
    abilities = await asked(toy, loss)
    assert abilities.reduction == "sequence_mean"
    assert abilities.native_losses == {"importance_sampling", loss} & has
    assert "SkyRL" in abilities.notes[0]
    assert "grad_clip" in abilities.notes[0]
    assert ("computed here" in abilities.notes[-1]) == (loss not in has)
    assert set(toy.log) == {"forward"}


async def test_a_server_that_averages_without_the_stand_in() -> None:
    with pytest.raises(PolicyError, match="has no importance_sampling"):
        await asked(Toy("averages", losses=("ppo",)), "ppo")


async def test_a_loss_that_the_server_lacks_or_defines_otherwise() -> None:
    missing = await asked(Toy(losses=()), "ppo")
    assert missing.native_losses == set()
    assert len(missing.notes) == 1
    toy = Toy()
    toy.lies = 1.5
    other = await asked(toy, "ppo")
    assert other.native_losses == set()
    assert other.notes[0] == "the Tinker server's ppo is not the loss that we know by that name"


@pytest.mark.parametrize("loss", ["ppo", "gspo"])
async def test_a_server_that_tells_no_loss(loss: LossName) -> None:
    abilities = await asked(Toy(tells=False), loss)
    assert abilities.reduction == "sum"
    assert "taken for granted" in abilities.notes[0]
    # Whether it knows of the prompt in a sequence's ratio can't be told.
    assert abilities.native_losses == {loss} - {"gspo"}


async def test_a_server_that_fails() -> None:
    toy = Toy()
    toy.fails = {"forward": refusal(401, "who are you")}
    with pytest.raises(PolicyError, match="API key"):
        await asked(toy)


async def test_a_server_that_stops_at_what_it_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tbtui.policies.tinker.capabilities._PATIENCE_SEC", 0.05)

    class Stuck(Toy):
        def forward(self, data: object, loss_fn: str, *rest: object) -> object:  # type: ignore[override]
            if loss_fn != "cross_entropy":
                self.hold = {"forward": asyncio.Event()}
                raise refusal(422, "no such loss")
            return super().forward(data, loss_fn)  # type: ignore[arg-type]

    with pytest.raises(PolicyError, match="has not answered since; choose another loss_fn"):
        await asked(Stuck(), "ppo")


class Models:
    """The one question to a `tinker.RestClient`."""

    def __init__(self, *models: tinker.types.SupportedModel, error: Exception | None = None):
        self._models = models
        self._error = error

    async def get_server_capabilities(self) -> tinker.types.GetServerCapabilitiesResponse:
        if self._error is not None:
            raise self._error
        return tinker.types.GetServerCapabilitiesResponse(supported_models=list(self._models))


def rest(*names: str, error: Exception | None = None) -> tinker.RestClient:
    models = [
        tinker.types.SupportedModel(model_name=name, max_context_length=4096) for name in names
    ]
    return cast(tinker.RestClient, Models(*models, error=error))


async def test_an_unknown_model_names_the_nearest_and_a_few_others() -> None:
    names = ["Qwen/Qwen3-8B", "Qwen/Qwen3-32B", *(f"vendor/model-{i}" for i in range(8))]
    with pytest.raises(PolicyError) as caught:
        await ask_server(rest(*names), "qwen/qwen3-8b")
    assert str(caught.value) == (
        "model_name=qwen/qwen3-8b: the Tinker server has no such model; the nearest is"
        " Qwen/Qwen3-8B; it also has Qwen/Qwen3-32B, vendor/model-0, vendor/model-1, vendor/model-2"
        " and 5 more"
    )
    with pytest.raises(PolicyError, match=r"no such model; it has a$"):
        await ask_server(rest("a"), "something else")
    with pytest.raises(PolicyError, match="it names none that it has"):
        await ask_server(rest(), "x")


@pytest.mark.parametrize("status", [404, 422])
async def test_a_server_that_does_not_say_which_models_it_has(status: int) -> None:
    abilities = await ask_server(rest(error=refusal(status, "what?")), "m")
    assert abilities.context_limit is None
    assert abilities.notes == ("the Tinker server doesn't say which models it has",)
    assert context_limit(None, 2048, "m", "the Tinker server") == 2048
    with pytest.raises(PolicyError) as caught:
        context_limit(None, None, "m", "the Tinker server")
    assert str(caught.value) == (
        "context_limit: the Tinker server doesn't say how long a context m has; set it"
    )
    with pytest.raises(PolicyError, match="billing"):
        await ask_server(rest(error=refusal(402, "pay")), "m")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TinkerServer]:
    models = {
        "starter": ServedModel(),
        "frozen": ServedModel(trainable=False),
        "mute": ServedModel(sampleable=False),
    }
    async with serving(state_dir=tmp_path, models=models) as server:
        yield server


async def test_of_a_real_server(server: TinkerServer) -> None:
    with tinker.ServiceClient(base_url=server.url, api_key="tml-test") as service:
        asking = tinker.RestClient(base_url=server.url, api_key="tml-test")
        abilities = await ask_server(asking, "starter")
        assert abilities.context_limit
        assert context_limit(abilities.context_limit, 100, "starter", "the Tinker server") == 100
        for name, what in (("frozen", "train"), ("mute", "sample from")):
            with pytest.raises(PolicyError) as caught:
                await ask_server(asking, name)
            assert str(caught.value) == (
                f"model_name={name}: the Tinker server has this model, but not to {what}; it has"
                " starter"
            )
        client = await service.create_lora_training_client(base_model="starter")
        for loss in LOSSES:
            found = await ask_training(client, abilities, loss)
            assert found.native_losses == {loss} & NATIVE
            assert found.reduction == "sum"
            assert len(found.notes) == (loss not in NATIVE)
