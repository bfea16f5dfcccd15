"""What is trained, by which engine, and where its model runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tbtui.config.settings.about import HARNESS, OURS, About, Fixed, SettingGroup, mapped, refused

_FOR_TINKER = "it is for Tinker servers"


class Model(SettingGroup, frozen=True, kw_only=True):
    """The engine, the policy and its model."""

    heading: ClassVar[str] = "What is trained"

    engine: Annotated[
        Literal["grpo", "prime-rl"],
        About(
            "Trainer: tbtui's own GRPO, or Prime-RL, launched and watched from here",
            "grpo: needs no GPU",
        ),
        Fixed.WEIGHTS,
        OURS,
    ] = "grpo"
    prime_rl_dir: Annotated[
        Path | None,
        About(
            "Checkout of Prime-RL, with the environment that its uv sync makes",
            "none: PRIME_RL_DIR",
            trust="code",
        ),
        OURS,
    ] = None
    prime_rl_config: Annotated[
        Path | None,
        About(
            "Configuration file of Prime-RL, used unchanged but for where it writes; naming the"
            " file without prime_rl_config= does the same",
            "none: the file is written from these settings",
            trust="code",
        ),
        OURS,
    ] = None
    num_train_gpus: Annotated[
        int,
        About("Prime-RL: GPUs that train", "Prime-RL's default", "GPUs", ge=1),
        mapped("deployment.num_train_gpus", "deployment.gpus_per_node"),
    ] = 1
    num_infer_gpus: Annotated[
        int,
        About("Prime-RL: GPUs that sample", "Prime-RL's default", "GPUs", ge=1),
        mapped("deployment.num_infer_gpus", "deployment.gpus_per_node"),
    ] = 1
    policy: Annotated[
        Literal["local", "torch", "tinker", "vllm"],
        About(
            "Where the model runs: embedded on this machine (local), a Hugging Face model on this"
            " machine (torch), on a Tinker server or, for evaluation only, on a vLLM server",
            "local: needs no key and no GPU; torch where model_name is a directory or a hub's name",
        ),
        Fixed.WEIGHTS,
        refused("Prime-RL serves the model with its own vLLM"),
    ] = "local"
    model_name: Annotated[
        str,
        About(
            "Model to train: starter, a directory, or a name on the Hugging Face hub (org/name)",
            "the model that tbtui ships",
        ),
        Fixed.WEIGHTS,
        mapped("model.name"),
    ] = "starter"
    checkpoint: Annotated[
        str | None,
        About(
            "Checkpoint to start from: a directory, or tinker://... of a Tinker server",
            "none: the model's own weights",
            trust="path",
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
        mapped("resume.dir"),
    ] = None
    tinker_base_url: Annotated[
        str | None,
        About(
            "Address of the Tinker server",
            "none: the hosted service",
            trust="host",
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
        refused(_FOR_TINKER, None),
    ] = None
    vllm_base_url: Annotated[
        str | None,
        About(
            "Address of the vLLM server (its key, if it wants one: OPENAI_API_KEY)",
            "none: OPENAI_BASE_URL, else http://localhost:8000/v1",
            trust="host",
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
        refused("Prime-RL starts a vLLM server itself", None),
    ] = None
    lora_rank: Annotated[
        int,
        About(
            "Rank of the trained LoRA adapter; 0: all weights are trained (policy=torch)",
            "Tinker's default",
            "dimensions",
            ge=0,
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
        mapped("trainer.model.lora.rank", "trainer.model.lora.alpha"),
    ] = 32
    context_limit: Annotated[
        int | None,
        About(
            "Most tokens of prompt and completion together",
            "none: the model's whole context",
            "tokens",
            ge=1,
        ),
        Fixed.WEIGHTS,
        mapped("seq_len", "inference.vllm.max_model_len", HARNESS + "context_limit"),
    ] = None
    tokenizer: Annotated[
        str | None,
        About(
            "Tokenizer: a directory, or a name on the Hugging Face hub",
            "none: the one that the server names for its model",
            trust="code",
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
        mapped("tokenizer.name"),
    ] = None
    renderer: Annotated[
        str,
        About(
            "Renderer of chat messages into tokens: template, embedded, cookbook:NAME, or"
            " module:Class",
            "template: the chat template that comes with the tokenizer",
            trust="class",
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
        mapped("orchestrator.renderer.name"),
    ] = "template"
    thinking: Annotated[
        Literal["keep", "strip", "off"],
        About(
            "Thinking of earlier turns stays in the prompt (keep) or is left out (strip), or the"
            " model doesn't think (off)",
            "keep: a trial is one training sequence; with strip each turn begins a new one",
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
        mapped("orchestrator.renderer.thinking_retention"),
    ] = "keep"
    checkpoint_ttl_hours: Annotated[
        int | None,
        About(
            "Time after which a Tinker server deletes a checkpoint",
            "none: never, and its storage may be charged; a run can be resumed only while its"
            " checkpoint exists",
            "hours",
            ge=1,
            depends_on_policy=True,
        ),
        refused(_FOR_TINKER, None),
    ] = None
    policy_restarts: Annotated[
        int,
        About(
            "Times that a lost policy is made anew from the last checkpoint",
            "a server that restarts doesn't end a run overnight",
            "times",
            ge=0,
        ),
        refused("Prime-RL ends when its inference server does", 0),
    ] = 5
