"""Tools through the model that verifiers serves, played here by the endpoint's own server."""

from __future__ import annotations

import aiohttp

from tbtui.chat import Message, Tool, ToolCall
from tbtui.endpoint.calls import ModelAnswer
from tbtui.engines.prime_rl.plugin.endpoint import ChatEndpoint
from tbtui.engines.prime_rl.plugin.files import turn_sampled
from tbtui.rollout.messages import Completion, CompletionFailed, SampleWanted
from tests.endpoint.served import SECRET, Scripted, served

TOOL = Tool("bash", "Runs a command.", '{"type":"object","properties":{}}')
CALL = ToolCall("call00001", "bash", '{"command": "ls"}')
TALK = (
    Message("system", "Be brief."),
    Message("user", "What is here?"),
    Message("assistant", "Let me see.", "hm", (CALL,)),
    Message("tool", "a.txt", tool_call_id="call00001"),
)


async def test_tools_calls_and_results_pass_both_ways() -> None:
    handler = Scripted([ModelAnswer("Once more.", "hm", (CALL,), "tool_calls")])
    wanted = SampleWanted(
        1, "t", 2, TALK, tools=(TOOL,), one_tool_call=True, stop=("END",), max_tokens=50
    )
    async with served(handler) as here, aiohttp.ClientSession() as client:
        endpoint = ChatEndpoint(client, f"{here.url}/v1", SECRET, "m", 100)
        answer = await endpoint.answer(wanted)
        counted = await endpoint.answer(SampleWanted(2, "t", 2, TALK, count_only=True))
    assert isinstance(answer, Completion)
    assert (answer.text, answer.thinking, answer.tool_calls) == ("Once more.", "hm", (CALL,))
    (call,) = handler.calls
    assert (call.messages, call.tools) == (TALK, (TOOL,))
    assert (call.stop, call.max_tokens, call.one_tool_call) == (("END",), 50, True)
    assert isinstance(counted, CompletionFailed)
    (use,) = turn_sampled(wanted, answer, 0.1).tool_calls
    assert (use.id, use.name, use.arguments) == ("call00001", "bash", CALL.arguments)
