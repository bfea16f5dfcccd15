"""A stand-in for Prime-RL's trainer, which needs GPUs; runs in Prime-RL's environment.

Its own: the loop on one CPU, with Hugging Face's model and PyTorch's AdamW, and checkpoints of
the weights alone. Prime-RL's: the batches and how they arrive, the loss, the metrics and the
log, and the weights that it broadcasts. What the loop logs has the names of its
`prime_rl/trainer/rl/train.py`.
"""

import asyncio
import math
import sys
import time
from typing import Any

import torch
import torch.distributed.checkpoint as distributed_checkpoint
from prime_rl import monitors
from prime_rl.configs.trainer import TrainerConfig
from prime_rl.trainer.rl.data import DataLoader
from prime_rl.trainer.rl.loss import (
    compute_importance_ratio_and_mismatch_kl,
    compute_loss,
    setup_rl_loss_fn,
    shift_tensor_left,
    shift_tensor_right,
)
from prime_rl.utils.config import cli
from prime_rl.utils.logger import format_time, setup_logger
from prime_rl.utils.pathing import get_broadcast_dir, get_ckpt_dir, get_step_path
from prime_rl.utils.weights import save_state_dict
from transformers import AutoModelForCausalLM


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def broadcast(model: Any, config: Any, step: int) -> None:
    directory = get_step_path(get_broadcast_dir(config.output_dir), step)
    save_state_dict(weights_of(model), directory, save_sharded=False)
    (directory / "STABLE").touch()


def checkpoint(model: Any, config: Any, step: int) -> None:
    """The weights alone, in the format of Prime-RL's checkpoints."""
    directory = get_step_path(get_ckpt_dir(config.output_dir), step) / "trainer"
    state = {"model": weights_of(model), "progress": {"step": step}}
    distributed_checkpoint.save(state, checkpoint_id=directory, no_dist=True)


def log_probabilities(model: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Each token's log-probability under the model, and the entropy where it was drawn."""
    pieces, entropies, at = [], [], 0
    for length in batch["sequence_lengths"]:
        ids = batch["input_ids"][:, at : at + length]
        temperatures = batch["temperatures"][:, at : at + length]
        at += length
        logits = model(input_ids=ids).logits.float() / temperatures.unsqueeze(-1)
        every = logits.log_softmax(-1)
        labels = shift_tensor_left(ids)
        drawn = every.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        vocabulary = float(logits.shape[-1])
        pieces.append(shift_tensor_right(drawn, pad_value=-math.log(vocabulary)))
        entropy = -(every.exp() * every).sum(-1).detach()
        entropies.append(shift_tensor_right(entropy, pad_value=math.log(vocabulary)))
    return torch.cat(pieces, 1), torch.cat(entropies, 1)


def train_step(model: Any, optimizer: Any, config: Any, batches: Any) -> dict[str, float]:
    """One optimiser step on a batch; the metrics of Prime-RL's trainer that hold here."""
    loss_of = setup_rl_loss_fn(config.loss)
    scale = max(1, sum(int(batch["loss_mask"].sum()) for batch in batches))
    losses, entropies, mismatches = [], [], []
    for batch in batches:
        if batch["rl_weights"] is not None or batch["ce_weights"] is not None:
            raise NotImplementedError("the stand-in trains on plain GRPO only")
        lengths = batch["sequence_lengths"]
        ours, entropy = log_probabilities(model, batch)
        mask, theirs = batch["loss_mask"], batch["inference_logprobs"]
        loss, _ = compute_loss(
            trainer_logprobs=ours.squeeze(0).split(lengths),
            inference_logprobs=theirs.squeeze(0).split(lengths),
            ref_logprobs=None,
            advantages=batch["advantages"].squeeze(0).split(lengths),
            loss_mask=mask.squeeze(0).split(lengths),
            rl_weights=None,
            ce_weights=None,
            ref_kl_weights=None,
            rl_loss_fn=loss_of,
            rl_scale=scale,
            ce_scale=1,
            ref_kl_scale=1,
        )
        loss.backward()
        losses.append(float(loss.detach()))
        entropies.append(entropy[mask])
        _, _, mismatch = compute_importance_ratio_and_mismatch_kl(ours.detach(), theirs)
        mismatches.append(mismatch[mask])
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.optim.max_norm or math.inf)
    optimizer.step()
    optimizer.zero_grad()
    every = torch.cat(mismatches)
    return {
        "loss/mean": sum(losses) / len(losses),
        "entropy/all/mean": float(torch.cat(entropies).mean()),
        "mismatch_kl/all/mean": float(every.mean()),
        "mismatch_kl/all/max": float(every.max()),
        "optim/grad_norm": float(norm),
    }


def train(config: Any) -> None:
    logger = setup_logger(config.log.level, json_logging=config.log.json_logging)
    logger.info(f"Starting RL trainer (a stand-in on the CPU) in {config.output_dir}")
    asyncio.run(
        monitors.setup(file=config.monitors.file, output_dir=config.output_dir, run_config=config)
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(config.model.name, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.optim.lr)
    loader = DataLoader(config.output_dir, 1, 1, config.rollout_transport)
    logger.info(f"Starting training loop (max_steps={config.max_steps})")
    logger.info("Broadcasting startup policy weights (v0) to inference engines")
    broadcast(model, config, 0)
    for step in range(1, config.max_steps + 1):
        start = time.perf_counter()
        loader.wait_for_batch()
        waited = time.perf_counter() - start
        batches = loader.get_batch()
        begin = time.perf_counter()
        metrics = train_step(model, optimizer, config, batches)
        computed = time.perf_counter() - begin
        begin = time.perf_counter()
        broadcast(model, config, step)
        broadcast_time = time.perf_counter() - begin
        interval = config.ckpt.interval if config.ckpt else None
        if config.ckpt and (step == config.max_steps or (interval and step % interval == 0)):
            logger.info(f"Saving checkpoint at step {step}")
            checkpoint(model, config, step)
        total = time.perf_counter() - start
        tokens = sum(batch["input_ids"].shape[1] for batch in batches)
        logger.success(
            f"Step {step} | {format_time(total):>7} | Loss {metrics['loss/mean']:.4f} | "
            f"Entropy {metrics['entropy/all/mean']:.4f} | "
            f"Mismatch KL {metrics['mismatch_kl/all/mean']:.4f} | "
            f"Grad. Norm {metrics['optim/grad_norm']:.4f} | LR {config.optim.lr:.2e} | "
            f"Throughput {tokens / computed:.0f} tokens/s"
        )
        norm = metrics.pop("optim/grad_norm")
        rows: list[dict[str, float]] = [
            {"perf/throughput": tokens / computed},
            {"optim/lr": config.optim.lr, "optim/grad_norm": norm},
            metrics,
            {
                "time/step": total,
                "time/wait_for_batch": waited,
                "time/broadcast_weights": broadcast_time,
                "time/forward_backward": computed,
            },
        ]
        for row in rows:
            asyncio.run(monitors.log({**row, "step": step}, step=step))
    logger.success("RL trainer finished!")


if __name__ == "__main__":
    train(cli(TrainerConfig))
    sys.exit()
