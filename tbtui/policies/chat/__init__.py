"""Chat formats of real models: messages to exact tokens, and completions back to text."""

from tbtui.policies.chat.base import ChatRenderer as ChatRenderer
from tbtui.policies.chat.base import Thinking as Thinking
from tbtui.policies.chat.make import make_renderer as make_renderer
