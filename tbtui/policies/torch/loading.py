"""Loads a Hugging Face causal language model, and says in one line why one can't be had.

Code that comes with a model is never run (`trust_remote_code`).
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tbtui.policies.base import PolicyRefusedError

if TYPE_CHECKING:
    import torch

Dtype = Literal["bfloat16", "float32"]
"""The numbers that a model computes in, under torch's names."""

_HEADS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""How the names of architectures end that draw a next token."""


def require_torch() -> None:
    """Raises `PolicyRefusedError` where the extra is not installed."""
    try:
        import peft  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise PolicyRefusedError(
            f"policy=torch: {error.name or error} can't be imported ({_first_line(error)}); install"
            " it again: uv sync --extra torch"
        ) from error


def resolve_device(name: str) -> str:
    """The device that a setting names, as torch calls it; "auto": the first GPU, else the CPU.

    Raises:
        PolicyRefusedError: there is no such device.
    """
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise PolicyRefusedError(
            f"train_device={name}: {_first_line(error)}; leave it out for the first GPU, or give"
            " train_device=cpu"
        ) from error
    return name


def resolve_dtype(name: Literal["auto", "bf16", "fp32"], device: str) -> Dtype:
    """The numbers that a setting names; "auto": bf16 on a GPU that computes in it, else fp32."""
    import torch

    if name != "auto":
        return "bfloat16" if name == "bf16" else "float32"
    if device.startswith("cuda"):
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    return "float32"


def load_config(model: Path | str) -> Any:
    """The model's `PretrainedConfig`.

    Raises:
        PolicyRefusedError: there is no such model, or it can't be had, or is no causal one.
    """
    require_torch()
    from transformers import AutoConfig

    if str(model).startswith((".", "/", "~")) and not Path(model).expanduser().is_dir():
        raise PolicyRefusedError(f"model_name={model}: there is no such directory")
    with _refusals(model):
        config = AutoConfig.from_pretrained(_source(model), trust_remote_code=False)
    named = config.architectures or []
    if named and not any(name.endswith(_HEADS) for name in named):
        raise _no_causal(model, " or ".join(named))
    return config


def load_base(model: Path | str, dtype: Dtype, device: str) -> Any:
    """The model with its own weights, in evaluation mode: nothing is dropped out.

    Raises:
        PolicyRefusedError: there is no such model, or it can't be had, or is no causal one, or its
            checkpoint lacks weights.
    """
    config = load_config(model)
    import torch
    from transformers import AutoModelForCausalLM

    with _refusals(model):
        loaded, info = AutoModelForCausalLM.from_pretrained(
            _source(model),
            config=config,
            dtype=getattr(torch, dtype),
            trust_remote_code=False,
            output_loading_info=True,
        )
    if missing := sorted(info["missing_keys"]):
        raise PolicyRefusedError(
            f"model_name={model}: its checkpoint lacks {len(missing)} of the model's weights"
            f" ({missing[0]}, ...); take a checkpoint of {type(loaded).__name__}"
        )
    loaded.config.use_cache = False
    try:
        return loaded.to(device).eval()
    except torch.OutOfMemoryError as error:
        raise PolicyRefusedError(
            f"model_name={model}: its weights don't fit the memory of {device}; take a smaller"
            " model, or train_device=cpu"
        ) from error


def with_lora(model: Any, rank: int, alpha: float, targets: Sequence[str], seed: int = 0) -> Any:
    """The model with a new adapter, as PEFT's `PeftModel`; its base is frozen.

    The adapter's numbers are fp32 whatever the base's are; it changes nothing until it is trained.

    Args:
        targets: ends of module names; empty: every linear layer but the output head.

    Raises:
        PolicyRefusedError: the model has no such module.
    """
    import torch
    from peft import LoraConfig, get_peft_model

    names = [name for name, _ in model.named_modules()]
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in names):
            linear = sorted(linear_layers(model))
            raise PolicyRefusedError(
                f"lora_targets={target}: the model has no such module; it has {', '.join(linear)}"
            )
    torch.manual_seed(seed)  # the first of an adapter's two matrices is drawn
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=list(targets) or "all-linear",
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(model, config).eval()
    except ValueError as error:  # a module of a kind that PEFT has no adapter for
        raise PolicyRefusedError(f"lora_targets: {_first_line(error)}") from error


def linear_layers(model: torch.nn.Module) -> set[str]:
    """Last parts of the names of the model's linear layers."""
    import torch

    return {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }


def context_of(config: Any, asked: int | None, model: Path | str) -> int:
    """Tokens of prompt and completion together.

    Raises:
        PolicyRefusedError: more is asked for than the model has, or its own context isn't known.
    """
    text = config.get_text_config(decoder=True)
    own: int | None = getattr(text, "max_position_embeddings", None)
    if own is None:
        own = getattr(text, "n_positions", None)
    if asked is not None and own is not None and asked > own:
        raise PolicyRefusedError(
            f"context_limit={asked}: {model} has a context of {own} tokens; give at most that"
        )
    limit = asked or own
    if limit is None:
        raise PolicyRefusedError(
            f"context_limit: {model} doesn't say how long a context it has; set it"
        )
    return limit


def quiet_libraries() -> None:
    """Keep the libraries' advice out of the run's log; errors stay."""
    from transformers.utils import logging as library_logging

    library: Any = library_logging  # it has no types
    library.disable_progress_bar()
    warnings.simplefilter("ignore", FutureWarning)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.getLogger("transformers").setLevel(logging.ERROR)


def _source(model: Path | str) -> str:
    text = str(model)
    return str(Path(text).expanduser()) if text.startswith("~") else text


@contextmanager
def _refusals(model: Path | str) -> Iterator[None]:
    """What the libraries raise for a model that can't be had, as one line."""
    from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        yield
    except (OSError, ValueError, KeyError, ImportError) as error:
        causes = list(_causes(error))
        if any(isinstance(cause, GatedRepoError) for cause in causes):
            reason = (
                "it is gated: accept its licence on its page on the hub, and put a key into"
                " HF_TOKEN"
            )
        elif any(isinstance(cause, RepositoryNotFoundError) for cause in causes):
            reason = (
                "the Hugging Face hub has no such model; check the name (a private one needs"
                " HF_TOKEN)"
            )
        elif any(isinstance(cause, OfflineModeIsEnabled) for cause in causes):
            reason = (
                "it is not in the cache, and HF_HUB_OFFLINE is set; download it with"
                f" `hf download {model}`, or name its directory"
            )
        elif "Unrecognized configuration class" in str(error):
            raise _no_causal(model, "another kind of model") from error
        elif Path(_source(model)).is_dir():
            reason = f"{_first_line(error)}; name a directory with config.json and the weights"
        else:
            reason = (
                f"{_first_line(error)}; it is not in the cache: the hub has to be reachable, or"
                " name a directory"
            )
        raise PolicyRefusedError(f"model_name={model}: {reason}") from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _no_causal(model: Path | str, what: str) -> PolicyRefusedError:
    return PolicyRefusedError(
        f"model_name={model}: it is no causal language model but {what}; name one that draws a"
        " next token (...ForCausalLM)"
    )


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".: ")
