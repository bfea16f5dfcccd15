"""A model behind a server that speaks the Tinker API: the hosted service, or one's own."""

from tbtui.policies.tinker.policy import TinkerPolicy as TinkerPolicy
from tbtui.policies.tinker.settings import TinkerSettings as TinkerSettings
