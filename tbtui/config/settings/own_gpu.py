"""How a Hugging Face model is trained and sampled on this machine (`policy=torch`)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from tbtui.config.settings.about import About, Fixed, refused
from tbtui.config.settings.model import Model

_FOR_TORCH = "it is for policy=torch; Prime-RL trains and serves the model itself"


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
        refused(_FOR_TORCH, 32.0),
    ] = 32.0
    lora_targets: Annotated[
        tuple[str, ...],
        About(
            "Modules that get a LoRA adapter, by the end of their names (q_proj,v_proj)",
            "empty: every linear layer but the output head, as LoRA Without Regret advises",
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
        refused(_FOR_TORCH, []),
    ] = ()
    dtype: Annotated[
        Literal["auto", "bf16", "fp32"],
        About(
            "Numbers that the model computes in; the optimiser's are fp32 always",
            "auto: bf16 on a GPU that has it, else fp32",
            depends_on_policy=True,
        ),
        Fixed.WEIGHTS,
        refused(_FOR_TORCH, "auto"),
    ] = "auto"
    train_device: Annotated[
        str,
        About(
            "Device that trains: cuda, cuda:1, mps, cpu",
            "auto: the first GPU, else the CPU",
            depends_on_policy=True,
        ),
        refused(_FOR_TORCH, "auto"),
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
        refused(_FOR_TORCH, 0),
    ] = 0
    gradient_checkpointing: Annotated[
        bool,
        About(
            "Compute activations again in the backward pass, not keep them: a third more time,"
            " a fraction of the memory",
            "on: long trials don't fit a GPU otherwise",
            depends_on_policy=True,
        ),
        refused(_FOR_TORCH, True),
    ] = True
    sampler: Annotated[
        Literal["auto", "transformers", "vllm"],
        About(
            "What samples: transformers in a process of its own, or a vLLM server that tbtui"
            " starts",
            "auto: vllm for an adapter on CUDA, else transformers",
            depends_on_policy=True,
        ),
        refused(_FOR_TORCH, "auto"),
    ] = "auto"
    vllm_devices: Annotated[
        tuple[str, ...],
        About(
            "GPUs that vLLM samples on, as CUDA_VISIBLE_DEVICES counts them",
            "empty: the one that trains",
            depends_on_policy=True,
        ),
        refused(_FOR_TORCH, []),
    ] = ()
