"""AdamW on fp32 weights, whatever numbers the model computes in.

An adapter's weights are fp32 themselves. All weights of a model in bf16 have an fp32 copy each, on
which the optimiser steps and from which the model's are rounded; their gradients are added up in
fp32, too: of many small ones in bf16 most would be lost. That takes 18 bytes a parameter: 2 for the
model's, 4 for the copy, 4 for the gradient and 8 for the moments. A model in fp32 takes 16.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tbtui.policies.base import OptimSettings

_BETAS = (0.9, 0.95)
_EPSILON = 1e-8


class MasterAdamW:
    """The trained parameters by name, their fp32 weights, accumulated gradients and moments."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        self._parameters = dict(parameters)
        self._masters = {
            name: parameter
            if parameter.dtype in (torch.float32, torch.float64)
            else parameter.detach().float()
            for name, parameter in self._parameters.items()
        }
        self._gradients: dict[str, torch.Tensor] = {}
        for name, parameter in self._parameters.items():
            parameter.register_post_accumulate_grad_hook(_collector(self._gradients, name))
        self.steps = 0
        # Gains and biases, which have one dimension, don't decay.
        matrices = [master for master in self._masters.values() if master.ndim > 1]
        others = [master for master in self._masters.values() if master.ndim <= 1]
        self._adamw = torch.optim.AdamW(
            [group for group in ({"params": matrices}, {"params": others}) if group["params"]],
            lr=0.0,
            betas=_BETAS,
            eps=_EPSILON,
            # No copies of everything beside the moments, unlike the default on a GPU.
            foreach=False,
        )
        # From the start on: what doesn't fit is known before the first trial.
        self._set_moments({})

    def gradients(self) -> dict[str, torch.Tensor]:
        """What has been added up since the last step, in fp32, by name."""
        return dict(self._gradients)

    def forget_gradient(self) -> None:
        self._gradients.clear()
        for parameter in self._parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, settings: OptimSettings) -> float:
        """One step along the accumulated gradient, which is zero afterwards; returns its norm
        before clipping.

        Raises:
            FloatingPointError: the gradient is not finite; nothing but it has changed.
        """
        gradients = list(self._gradients.values())
        for gradient in gradients:
            gradient.div_(settings.divide_by)
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if norm != norm or norm == float("inf"):
            self.forget_gradient()
            raise FloatingPointError("the gradient is not finite")
        if settings.grad_clip and norm > settings.grad_clip:
            for gradient in gradients:
                gradient.mul_(settings.grad_clip / norm)
        for group in self._adamw.param_groups:
            group["lr"] = settings.learning_rate
            decays = group["params"][0].ndim > 1
            group["weight_decay"] = settings.weight_decay if decays else 0.0
        for name, master in self._masters.items():
            gradient = self._gradients.get(name)
            # A parameter without one has its moments decay all the same, as in one long vector.
            master.grad = torch.zeros_like(master) if gradient is None else gradient
        self._adamw.step()
        for name, master in self._masters.items():
            master.grad = None
            if master is not self._parameters[name]:
                self._parameters[name].copy_(master)
        self.forget_gradient()
        self.steps += 1
        return norm

    def state(self) -> dict[str, torch.Tensor]:
        """Weights and moments in fp32: `weight/NAME`, `first/NAME`, `second/NAME`."""
        tensors: dict[str, torch.Tensor] = {}
        for name, master in self._masters.items():
            moments = self._adamw.state[master]
            tensors[f"weight/{name}"] = master.detach()
            tensors[f"first/{name}"] = moments["exp_avg"]
            tensors[f"second/{name}"] = moments["exp_avg_sq"]
        return tensors

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, torch.Tensor], steps: int) -> None:
        """Go on from what `state` gave; without moments, from the weights alone."""
        for name, master in self._masters.items():
            master.copy_(tensors[f"weight/{name}"])
            if master is not self._parameters[name]:
                self._parameters[name].copy_(master)
        self.forget_gradient()
        self.steps = steps
        self._set_moments(tensors)

    def _set_moments(self, tensors: Mapping[str, torch.Tensor]) -> None:
        for name, master in self._masters.items():
            moments = {"step": torch.tensor(float(self.steps))}
            for ours, theirs in (("first", "exp_avg"), ("second", "exp_avg_sq")):
                given = tensors.get(f"{ours}/{name}")
                fresh = torch.zeros_like(master, requires_grad=False)
                moments[theirs] = fresh if given is None else fresh.copy_(given)
            self._adamw.state[master] = moments


def _collector(gradients: dict[str, torch.Tensor], name: str) -> object:
    """A hook that moves a parameter's gradient into `gradients`, in fp32."""

    def collect(parameter: torch.nn.Parameter) -> None:
        gradient, parameter.grad = parameter.grad, None
        if name in gradients:
            gradients[name].add_(gradient)
        else:
            finer = gradient.dtype == torch.float64
            gradients[name] = gradient if finer else gradient.float()

    return collect
