"""What is trained, by which engine, and where its model runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tbtui.config.settings.about import About, Fixed, SettingGroup


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
    ] = "grpo"
    prime_rl_dir: Annotated[
        Path | None,
        About(
            "Checkout of Prime-RL, with the environment that its uv sync makes",
            "none: PRIME_RL_DIR",
            trust="code",
        ),
    ] = None
    prime_rl_config: Annotated[
        Path | None,
        About(
            "Configuration file of Prime-RL, used unchanged but for where it writes; naming the"
            " file without prime_rl_config= does the same",
            "none: the file is written from these settings",
            trust="code",
        ),
    ] = None
    num_train_gpus: Annotated[
        int,
        About("Prime-RL: GPUs that train", "Prime-RL's default", "GPUs", ge=1),
    ] = 1
    num_infer_gpus: Annotated[
        int,
        About("Prime-RL: GPUs that sample", "Prime-RL's default", "GPUs", ge=1),
    ] = 1
    policy: Annotated[
        Literal["local", "torch", "tinker", "vllm", "openai"],
        About(
            "Where the model runs: embedded on this machine (local), a Hugging Face model on this"
            " machine (torch), on a Tinker server or, for evaluation only, on a vLLM server or"
            " behind any Chat Completions API (openai)",
            "local: needs no key and no GPU; torch where model_name is a directory or a hub's name",
        ),
        Fixed.WEIGHTS,
    ] = "local"
    model_name: Annotated[
        str,
        About(
            "Model to train: starter or maze (embedded), a directory, or a name on the Hugging Face"
            " hub (org/name)",
            "the model that tbtui ships",
        ),
        Fixed.WEIGHTS,
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
    ] = None
    openai_base_url: Annotated[
        str | None,
        About(
            "Address of a server with a Chat Completions API (its key: OPENAI_API_KEY)",
            "none: OPENAI_BASE_URL, else https://api.openai.com/v1",
            trust="host",
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
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
    ] = "keep"
    tool_format: Annotated[
        Literal["auto", "hermes", "qwen-coder", "glm", "llama3", "deepseek", "json"],
        About(
            "How the model writes tool calls (hermes: Qwen's and Hermes's; json: described in the"
            " prompt, for any model)",
            "auto: as its chat template has it, else json",
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
    ] = "auto"
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
    ] = None
    policy_restarts: Annotated[
        int,
        About(
            "Times that a lost policy is made anew from the last checkpoint",
            "a server that restarts doesn't end a run overnight",
            "times",
            ge=0,
        ),
    ] = 5


class OwnGpu(Model, frozen=True, kw_only=True):
    """LoRA, precision, devices, and what samples."""

    heading: ClassVar[str] = "A model on your own GPU (policy=torch)"

    lora_alpha: Annotated[
        float,
        About(
            "Scale of the LoRA adapter: its output is multiplied by lora_alpha / lora_rank",
            "with a constant one the best learning rate hardly depends on the rank (LoRA Without"
            " Regret, Thinking Machines 2025)",
            gt=0,
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
    ] = 32.0
    lora_targets: Annotated[
        tuple[str, ...],
        About(
            "Modules that get a LoRA adapter, by the end of their names (q_proj,v_proj)",
            "empty: every linear layer but the output head, as LoRA Without Regret advises",
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
    ] = ()
    dtype: Annotated[
        Literal["auto", "bf16", "fp32"],
        About(
            "Numbers that the model computes in; the optimiser's are fp32 always",
            "auto: bf16 on a GPU that has it, else fp32",
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
    ] = "auto"
    train_device: Annotated[
        str,
        About(
            "Device that trains: cuda, cuda:1, mps, cpu",
            "auto: the first GPU, else the CPU",
            depends_on_policy=True,
        ),
    ] = "auto"
    micro_batch_tokens: Annotated[
        int,
        About(
            "Most tokens, padding included, of one forward and backward pass; the gradient is the"
            " same whatever it is",
            "0: one that fits; halved by itself where memory runs out",
            "tokens",
            ge=0,
            depends_on_policy=True,
        ),
    ] = 0
    gradient_checkpointing: Annotated[
        bool,
        About(
            "Compute activations again in the backward pass, not keep them: a third more time,"
            " a fraction of the memory",
            "on: long trials don't fit a GPU otherwise",
            depends_on_policy=True,
        ),
    ] = True
    sampler: Annotated[
        Literal["auto", "transformers", "vllm"],
        About(
            "What samples: transformers in a process of its own, or a vLLM server that tbtui"
            " starts",
            "auto: vllm for an adapter on CUDA, else transformers",
            depends_on_policy=True,
        ),
    ] = "auto"
    vllm_devices: Annotated[
        tuple[str, ...],
        About(
            "GPUs that vLLM samples on, as CUDA_VISIBLE_DEVICES counts them",
            "empty: the one that trains",
            depends_on_policy=True,
        ),
    ] = ()
