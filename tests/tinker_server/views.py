"""What the simple requests are answered with: the request's fields in, the answer's out; None is
an answer without a body."""

from __future__ import annotations

from typing import Any

from tests.tinker_server.checkpoints import expiry
from tests.tinker_server.service import Service
from tests.tinker_server.settings import ServedModel


def create_session(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    session = service.create_session(content)
    return {
        "type": "create_session",
        "session_id": session.session_id,
        "info_message": "This server trains all weights: LoRA settings are ignored.",
    }


def heartbeat(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    session = service.open_session(content["session_id"])
    service.record.heartbeat(session.session_id)
    return {"type": "session_heartbeat"}


def finish(service: Service, content: dict[str, Any]) -> None:
    service.finish(content["session_id"], content["reason"]["type"], content.get("detail"))


def capabilities(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    def describe(name: str, model: ServedModel) -> dict[str, Any]:
        return {
            "model_name": name,
            "max_context_length": model.max_context_length or service.context_limit,
            "trainable": model.trainable,
            "sampleable": model.sampleable,
        }

    return {"supported_models": [describe(*each) for each in service.settings.models.items()]}


def get_info(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    run = service.run(content["model_id"])
    return {
        "type": "get_info",
        "model_id": run.run_id,
        "model_name": run.base_model,
        "is_lora": False,
        "model_data": {
            "arch": "tbtui-embedded",
            "model_name": run.base_model,
            "tokenizer_id": "embedded",
        },
    }


def create_sampling_session(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    sampler = service.create_sampling_session(content)
    return {
        "type": "create_sampling_session",
        "sampling_session_id": sampler.sampling_session_id,
    }


def get_sampler(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    sampler = service.sampler(content["sampler_id"])
    return {
        "sampler_id": sampler.sampling_session_id,
        "base_model": sampler.base_model,
        "model_path": sampler.model_path,
    }


def get_session(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    session = service.session(content["session_id"])
    return {
        "training_run_ids": session.training_run_ids,
        "sampler_ids": session.sampler_ids,
        "user_metadata": session.user_metadata,
        "display_name": session.display_name,
    }


def training_run(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    return service.store.describe_run(service.store.run(content["run_id"]))


def checkpoints(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    run = service.store.run(content["run_id"])
    found = service.store.of_run(run.run_id)
    return {"checkpoints": [service.store.describe(each) for each in found]}


def path(content: dict[str, Any]) -> str:
    return f"tinker://{content['run_id']}/{content['checkpoint_id']}"


def delete_checkpoint(service: Service, content: dict[str, Any]) -> None:
    service.store.delete(path(content))


def set_ttl(service: Service, content: dict[str, Any]) -> None:
    service.store.set_expiry(path(content), expiry(content.get("ttl_seconds")))


def weights_info(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    return {"base_model": service.store.find(content["tinker_path"]).base_model, "is_lora": False}


def all_runs(service: Service) -> list[Any]:
    return [service.store.describe_run(run) for run in service.store.runs()]


def all_checkpoints(service: Service) -> list[Any]:
    runs = service.store.runs()
    return [
        service.store.describe(each) for run in runs for each in service.store.of_run(run.run_id)
    ]
