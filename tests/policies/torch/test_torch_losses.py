"""The losses in PyTorch are those of `algorithm/losses.py`, value and derivative."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra `torch`")

import torch

from tbtui.algorithm.losses import AnyLoss, LossName, LossSettings
from tbtui.algorithm.losses import policy_loss as numpy_loss
from tbtui.policies.torch.logprobs import policy_loss as torch_loss

pytestmark = pytest.mark.extras


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("loss", [*get_args(LossName), "cross_entropy"])
def test_a_loss_is_the_numpy_one(loss: AnyLoss, seed: int) -> None:
    rng = np.random.default_rng(seed)
    old = -rng.exponential(2, 50)
    new = old + rng.normal(0, 0.3, 50)
    new[:5] = old[:5]  # on-policy tokens stand on no bound
    advantages, weights = rng.normal(size=50), rng.random(50)
    advantages[5:8] = 0
    settings = LossSettings(loss, clip_low=0.2, clip_high=0.28)
    expected, gradient = numpy_loss(new, old, advantages, weights, settings)
    asked = torch.tensor(new, requires_grad=True)
    others = [torch.tensor(each) for each in (old, advantages, weights)]
    value = torch_loss(asked, *others, settings)
    value.backward()
    assert float(value.detach()) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(asked.grad.numpy(), gradient, rtol=1e-6, atol=1e-9)
