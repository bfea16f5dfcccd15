"""A model that a vLLM server serves: it can be sampled from, token for token, and not trained."""

from tbtui.policies.vllm.policy import VllmPolicy as VllmPolicy
from tbtui.policies.vllm.settings import VllmSettings as VllmSettings
