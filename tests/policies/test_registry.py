"""The kinds of policy: each is registered, and checks settings without a heavy import."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args, get_type_hints

import pytest

from tbtui.config import RunConfig, parse_settings
from tbtui.policies.registry import POLICIES, policy_problems
from tests.cli.process import invoke

_CHECK = """
import sys
from tbtui.config import parse_settings
from tbtui.policies.registry import policy_problems
list(policy_problems(parse_settings(["policy=tinker", "model_name=x"])))
print({"numpy", "tinker", "httpx", "tokenizers", "transformers"} & set(sys.modules))
"""


def test_each_kind_that_can_be_set_is_registered() -> None:
    assert set(POLICIES) == set(get_args(get_type_hints(RunConfig)["policy"]))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("lora_rank=32", "lora_rank: the embedded policy trains all its weights"),
        ("temperature=0.7", "temperature=0.7: the embedded policy trains on"),
        ("top_p=0.9", "top_p=0.9: the embedded policy trains on log-probabilities of all tokens"),
        ("min_p=0.1", "min_p=0.1: the embedded policy trains on"),
        ("policy=tinker model_name=x top_k=20", "top_k=20: a Tinker server trains on"),
        (
            "policy=tinker model_name=x min_p=0.1",
            "min_p=0.1: the Tinker API has",
        ),
        (
            "policy=vllm model_name=x max_steps=0 top_k=20",
            "top_k=20: a vLLM server returns",
        ),
        ("policy=openai model_name=x max_steps=0 top_k=20", "top_k=20: OpenAI's API has"),
        ("policy=openai model_name=x max_steps=0 min_p=0.1", "min_p=0.1: OpenAI's API has"),
        ("policy=openai model_name=x max_steps=0 stop=a,b,c,d,e", "takes 4 at most"),
        ("tinker_base_url=http://x", "tinker_base_url: policy=local asks no Tinker server"),
        ("vllm_base_url=x", "vllm_base_url: policy=local asks no vLLM server"),
        ("policy=tinker", "model_name: name a model of the Tinker server"),
        ("policy=tinker model_name=x temperature=0.7", "temperature=0.7: a Tinker server"),
        ("policy=tinker tinker_base_url=http://me:key@x", "leave user and password out"),
        ("policy=tinker model_name=x vllm_base_url=x", "leave it out, or give policy=vllm"),
        ("policy=vllm model_name=x max_steps=1", "can only be evaluated"),
        ("policy=vllm model_name=x n_epochs=1", "can only be evaluated"),
        ("policy=vllm max_steps=0", "model_name: give the name under which"),
        ("policy=vllm model_name=x max_steps=0 checkpoint=x", "a vLLM server has the weights"),
        ("policy=vllm model_name=x max_steps=0 eval_temperature=0.5", "log-probabilities"),
        ("policy=vllm model_name=x max_steps=0 tinker_base_url=x", "or give policy=tinker"),
    ],
)
def test_what_a_kind_cannot_do(settings: str, text: str) -> None:
    (problem, *_) = policy_problems(parse_settings(settings.split()))
    assert text in problem.text
    assert "\n" not in problem.text


@pytest.mark.parametrize(
    "settings",
    [
        "",
        "policy=tinker model_name=x",
        "policy=vllm model_name=x max_steps=0 temperature=0.7",
        "policy=openai model_name=x max_steps=0 openai_base_url=http://x top_k=9 min_p=0.1 stop=a",
    ],
)
def test_nothing_is_wrong_with_the_defaults(settings: str) -> None:
    assert not list(policy_problems(parse_settings(settings.split())))


def test_checks_import_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHECK], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("policy=torch", "model_name: name the model to train: a directory"),
        ("model_name=org/name lora_rank=0 lora_alpha=8", "lora_alpha: lora_rank=0 trains all"),
        ("model_name=org/name temperature=0.7", "temperature=0.7: a model trained here"),
        ("model_name=org/name train_device=gpu", "train_device=gpu: write cuda"),
        (
            "model_name=org/name train_device=cuda:0,cuda:1",
            "on 2 GPUs Prime-RL does: tbtui run engine=prime-rl model_name=org/name",
        ),
        (
            "model_name=org/name sampler=vllm vllm_devices=1,1",
            "vllm_devices=1,1: a GPU is named twice",
        ),
        (
            "model_name=org/name sampler=vllm vllm_devices=cuda:1",
            "vllm_devices=cuda:1: 'cuda:1' is no GPU",
        ),
        (
            "model_name=org/name sampler=vllm vllm_devices=0",
            "vllm_devices=0: GPU 0 is the one that trains (train_device=auto)",
        ),
        (
            "model_name=org/name train_device=cuda:2 sampler=vllm vllm_devices=1,2",
            "vllm_devices=1,2: GPU 2 is the one that trains",
        ),
        (
            "model_name=org/name sampler=transformers vllm_devices=1",
            "vllm_devices=1: sampler=transformers samples where it trains",
        ),
        (
            "model_name=org/name policy=torch vllm_base_url=http://x vllm_devices=1",
            "vllm_devices=1: the server at vllm_base_url has its own GPUs",
        ),
        (
            "model_name=org/name policy=torch tinker_base_url=x",
            "tinker_base_url: policy=torch asks",
        ),
        (
            "policy=tinker model_name=x lora_rank=0",
            "lora_rank=0: a Tinker server trains an adapter",
        ),
    ],
)
def test_what_the_torch_policy_cannot_do(settings: str, text: str) -> None:
    # Where the extra is missing, that is said too.
    assert any(text in each.text for each in policy_problems(parse_settings(settings.split())))


def test_a_torch_policy_may_sample_from_a_vllm_server() -> None:
    config = parse_settings(["policy=torch", "model_name=org/name", "vllm_base_url=http://x"])
    assert not any("vllm_base_url" in each.text for each in policy_problems(config))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("TINKER_API_KEY", "tml-x")
    (problem, *_) = policy_problems(parse_settings(["model_name=org/name"]))
    assert "torch and peft not installed; run it as uv run --extra torch tbtui" in problem.text
    assert problem.text.endswith(
        "or policy=tinker, on a server, for which there is a TINKER_API_KEY"
    )
    # The settings can be looked at all the same.
    printed = invoke("run", "--print-config", "model_name=org/name")
    assert (printed.exit_code, printed.stderr) == (0, f"tbtui: {problem.text}\n")
    assert 'policy = "torch"' in printed.stdout


def test_gpus_are_counted_as_cuda_visible_devices_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def problems(*settings: str) -> list[str]:
        config = parse_settings(["model_name=org/name", "sampler=vllm", *settings])
        return [each.text for each in policy_problems(config) if "devices" in each.text]

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    assert problems("vllm_devices=0") == problems("vllm_devices=5") == []
    assert "GPU 4 is the one that trains" in problems("vllm_devices=4")[0]
    assert "GPU 5 is the one that trains" in problems("train_device=cuda:1", "vllm_devices=5")[0]
    assert problems("train_device=cpu", "vllm_devices=4") == []
