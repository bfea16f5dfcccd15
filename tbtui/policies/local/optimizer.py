"""AdamW (Loshchilov & Hutter 2019) on the flat parameter vector."""

from __future__ import annotations

import numpy as np

from tbtui.policies.local.model import Array, ModelConfig, Parameters


class AdamW:
    """First and second moments and the number of steps taken."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        beta1: float = 0.9,
        beta2: float = 0.95,
        epsilon: float = 1e-8,
    ) -> None:
        self.first: Array = np.zeros(config.size(), np.float32)
        self.second: Array = np.zeros(config.size(), np.float32)
        self.steps = 0
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon

    def step(
        self,
        parameters: Parameters,
        gradient: Array,
        learning_rate: float,
        *,
        grad_clip: float = 0.0,
        weight_decay: float = 0.0,
    ) -> float:
        """Update `parameters` in place; returns the gradient's norm before clipping.

        A gradient longer than `grad_clip` is shortened to it (0: never). Weight decay is
        decoupled and leaves the norms' gains alone. Raises `FloatingPointError` when the gradient
        isn't finite, and then changes nothing.
        """
        norm = float(np.sqrt(np.dot(gradient, gradient)))
        if not np.isfinite(norm):
            raise FloatingPointError("the gradient is not finite")
        if grad_clip and norm > grad_clip:
            gradient = gradient * np.float32(grad_clip / norm)
        beta1, beta2 = np.float32(self._beta1), np.float32(self._beta2)
        self.steps += 1
        self.first *= beta1
        self.first += (1 - beta1) * gradient
        self.second *= beta2
        self.second += (1 - beta2) * np.square(gradient)
        step_size = np.float32(learning_rate / (1 - self._beta1**self.steps))
        correction = np.float32(1 / (1 - self._beta2**self.steps))
        update = self.first / (np.sqrt(self.second * correction) + np.float32(self._epsilon))
        if weight_decay:
            keep = np.float32(1 - learning_rate * weight_decay)
            for name, view in parameters.views.items():
                if not name.endswith("norm"):
                    view *= keep
        parameters.flat -= step_size * update
        return norm
