"""Log-probabilities and entropies of tokens, computed in chunks over positions; and the losses of
`algorithm/losses.py` in PyTorch, with the same values and derivatives.

The logits of N positions have N x vocabulary numbers: 32k tokens with a vocabulary of 152k are 19
GB in fp32, and as much again for the gradient. Here those of one chunk exist at a time, forward and
backward: the backward pass computes each chunk's logits again. The idea is that of Liger Kernel's
fused linear cross-entropy (Hsu et al. 2024, arXiv 2410.10989).
"""

from __future__ import annotations

from typing import Any

import torch

from tbtui.algorithm.losses import LossSettings
from tbtui.policies.base import PolicyRefusedError

_TOLERANCE = 2e-2
"""Largest difference of a probe's logits, relative to the largest of them: bf16 has three digits,
and a factor that is overlooked is far larger."""


class OutputHead:
    """From hidden states to logits, as the model itself does it."""

    def __init__(self, causal: Any) -> None:
        """`causal`: the causal language model, without PEFT's wrapper."""
        config = causal.config.get_text_config(decoder=True)
        self._linear = causal.get_output_embeddings()
        self._softcap: float | None = getattr(config, "final_logit_softcapping", None)
        # Cohere multiplies by the one, Granite divides by the other.
        self._scale = float(getattr(config, "logit_scale", None) or 1.0) / float(
            getattr(config, "logits_scaling", None) or 1.0
        )
        self.vocab_size = int(self._linear.weight.shape[0])

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[N, width] -> [N, vocabulary], in fp32 or finer."""
        logits = self._linear(hidden)
        if self._scale != 1:
            logits = logits * self._scale
        if self._softcap is not None:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits if logits.dtype == torch.float64 else logits.float()

    @torch.no_grad()
    def check(self, causal: Any, model_name: str) -> None:
        """Compare with the model's own logits of a few tokens.

        Raises:
            PolicyRefusedError: they differ, so that something in this architecture is not known
                here; or the model draws at random in training mode.
        """
        device = causal.get_input_embeddings().weight.device
        tokens = torch.arange(1, 9, device=device)[None] % self.vocab_size
        training = causal.training
        try:
            own = causal.eval()(input_ids=tokens, use_cache=False).logits[0].float()
            hidden = causal.train().get_decoder()(input_ids=tokens, use_cache=False)
            ours = self.logits(hidden.last_hidden_state[0]).float()
        finally:
            causal.train(training)
        if (own - ours).abs().max() > _TOLERANCE * own.abs().max():
            raise PolicyRefusedError(
                f"model_name={model_name}: {type(causal).__name__} computes its logits in a way"
                " that policy=torch doesn't know; take another model, or engine=prime-rl"
            )


def token_logprobs(
    head: OutputHead, hidden: torch.Tensor, targets: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each target and entropy of each distribution, in nats: [N] both.

    Args:
        hidden: [N, width]: the states that the targets are predicted from.
        targets: [N] token ids.
        chunk: positions whose logits exist at one time.

    The log-probabilities can be differentiated by `hidden` and by the head's weights, the entropies
    not.
    """
    if torch.is_grad_enabled() and not hidden.requires_grad:
        hidden = hidden.detach().requires_grad_()  # the head alone may be trained
    logprobs, entropies = _ChunkedLogprobs.apply(hidden, targets, head, chunk)
    return logprobs, entropies


class _ChunkedLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, targets: torch.Tensor, head: OutputHead, chunk: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(hidden, targets)
        ctx.head, ctx.chunk = head, chunk
        pairs = [
            _forward(head, part, aim)
            for part, aim in zip(hidden.split(chunk), targets.split(chunk), strict=True)
        ]
        logprobs = torch.cat([logprob for logprob, _ in pairs])
        entropies = torch.cat([entropy for _, entropy in pairs])
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(
        ctx: Any, gradient: torch.Tensor, _: torch.Tensor
    ) -> tuple[torch.Tensor, None, None, None]:
        hidden, targets = ctx.saved_tensors
        by_hidden = torch.empty_like(hidden)
        for start in range(0, len(hidden), ctx.chunk):
            rows = slice(start, start + ctx.chunk)
            part = hidden[rows].detach().requires_grad_()
            with torch.enable_grad():
                logits = ctx.head.logits(part)
            # d log p(target) / d logits = onehot(target) - p
            by_logits = torch.softmax(logits.detach(), dim=-1).mul_(-gradient[rows, None])
            by_logits.scatter_add_(1, targets[rows, None], gradient[rows, None])
            # The head's own weights, where they are trained, get theirs here.
            torch.autograd.backward(logits, by_logits)
            by_hidden[rows] = part.grad
        return by_hidden, None, None, None


def _forward(
    head: OutputHead, hidden: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = head.logits(hidden)
    normaliser = torch.logsumexp(logits, dim=-1)
    logprobs = logits.gather(1, targets[:, None])[:, 0] - normaliser
    # The entropy is log Z - E[logit], of logits that may be overwritten by now.
    shifted = logits.sub_(normaliser[:, None])
    probabilities = shifted.exp()
    entropies = -probabilities.mul_(shifted.clamp_min_(torch.finfo(shifted.dtype).min)).sum(-1)
    return logprobs, entropies


def policy_loss(
    new: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    settings: LossSettings,
) -> torch.Tensor:
    """The loss of one sequence, a scalar that can be differentiated by `new`.

    All tensors have one entry per trained token: log-probabilities in nats under the weights that
    learn and under those that are compared with, advantages, and weights.
    """
    if settings.loss == "dro":
        gap = new - old
        value = weights * (advantages * new - settings.dro_beta / 2 * gap * gap)
        return -value.sum()
    if settings.loss == "cross_entropy":
        return -(weights * advantages * new).sum()
    ratio = _ratio(new, old, settings)
    clipped = ratio.detach().clamp(1 - settings.clip_low, 1 + settings.clip_high)
    match settings.loss:
        case "importance_sampling":
            value = weights * advantages * ratio
        case "ppo" | "gspo":
            lower = clipped * advantages < ratio.detach() * advantages
            value = weights * torch.where(lower, clipped * advantages, ratio * advantages)
        case "cispo":
            value = weights * advantages * clipped * new
    return -value.sum()


def _ratio(new: torch.Tensor, old: torch.Tensor, settings: LossSettings) -> torch.Tensor:
    if settings.loss != "gspo" or not len(new):
        return torch.exp(new - old)
    sequence = torch.exp(torch.mean((new - old).detach(), dtype=torch.float64)).to(new.dtype)
    return sequence * torch.exp(new - new.detach())
