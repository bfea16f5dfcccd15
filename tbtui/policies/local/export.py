"""Export to a Hugging Face Llama checkpoint: `python -m tbtui.policies.local.export CKPT OUT`.

The model is a Llama to the letter, so nothing is converted but the layout: Hugging Face keeps
matrices as [out, in] and query, key and value apart.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

import numpy as np

from tbtui.policies.base import PolicyError
from tbtui.policies.local.checkpoint_file import read_checkpoint
from tbtui.policies.local.model import Array, ModelConfig, Parameters
from tbtui.policies.local.tokenizer import ASSISTANT, END, TOKENIZER, USER, LocalTokenizer

_CHAT_TEMPLATE = (
    "{% for m in messages %}"
    f"{{% if m['role'] == 'assistant' %}}{ASSISTANT}{{% else %}}{USER}{{% endif %}}"
    f"{{{{ m['content'] }}}}{END}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{ASSISTANT}{{% endif %}}"
)


def as_tensors(parameters: Parameters) -> dict[str, Array]:
    tensors = {
        "model.embed_tokens.weight": parameters.embedding,
        "model.norm.weight": parameters.final_norm,
    }
    for index, layer in enumerate(parameters.layers):
        query, key, value = np.split(layer.qkv, 3, axis=1)
        gate, up = np.split(layer.gate_up, 2, axis=1)
        prefix = f"model.layers.{index}"
        matrices = {
            "self_attn.q_proj": query,
            "self_attn.k_proj": key,
            "self_attn.v_proj": value,
            "self_attn.o_proj": layer.attention_out,
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": layer.down,
        }
        tensors |= {f"{prefix}.{name}.weight": matrix.T for name, matrix in matrices.items()}
        tensors[f"{prefix}.input_layernorm.weight"] = layer.attention_norm
        tensors[f"{prefix}.post_attention_layernorm.weight"] = layer.mlp_norm
    return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def _config(config: ModelConfig, end_id: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "intermediate_size": config.feed_forward,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.heads,
        "head_dim": config.head_size,
        "hidden_act": "silu",
        "max_position_embeddings": config.context_limit,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": end_id,
        "pad_token_id": end_id,
    }


def export(checkpoint: Path, directory: Path) -> None:
    """Write `directory` from the checkpoint directory `checkpoint`.

    Raises `PolicyError` when the checkpoint can't be used.
    """
    # A dependency of tinker's (through transformers); nothing else here needs it.
    from safetensors.numpy import save

    source = read_checkpoint(checkpoint)
    tokenizer = LocalTokenizer(TOKENIZER)
    if source.tokenizer_digest != tokenizer.digest:
        raise PolicyError(f"{checkpoint} was made for another tokenizer; it can't be exported")
    directory.mkdir(parents=True, exist_ok=True)
    tensors = as_tensors(Parameters(source.config, source.weights))
    (directory / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    shutil.copyfile(TOKENIZER, directory / "tokenizer.json")
    texts: dict[str, object] = {
        "config.json": _config(source.config, tokenizer.end_id),
        "generation_config.json": {
            "eos_token_id": tokenizer.end_id,
            "pad_token_id": tokenizer.end_id,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "pad_token": END,
            "model_max_length": source.config.context_limit,
            "clean_up_tokenization_spaces": False,
            "chat_template": _CHAT_TEMPLATE,
        },
    }
    for name, content in texts.items():
        (directory / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tbtui.policies.local.export")
    parser.add_argument("checkpoint", type=Path, help="directory with policy.npz")
    parser.add_argument("directory", type=Path, help="where the Hugging Face checkpoint goes")
    arguments = parser.parse_args()
    try:
        export(arguments.checkpoint, arguments.directory)
    except PolicyError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
