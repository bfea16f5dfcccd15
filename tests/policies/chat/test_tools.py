"""Tools, calls and results through chat templates, and in plain words where there is no template
for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tbtui.chat import Message, Tool, ToolCall
from tbtui.policies.base import PolicyRefusedError
from tbtui.policies.chat.make import make_renderer
from tbtui.policies.chat.template import TemplateRenderer
from tbtui.policies.chat.tool_formats import PLAIN, find_reader
from tbtui.policies.chat.tools import PlainTools, ToolRenderer, with_tools
from tbtui.policies.local.renderer import EmbeddedRenderer
from tests.policies.chat.chat_models import NAMES, TOOL_NAMES, Make, write_model

SCHEMA = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "times": {"type": "integer"}},
}
TOOLS = (Tool("bash", "Runs a command, <|im_end|> too.", json.dumps(SCHEMA)),)
ARGUMENTS = {"command": "echo '}; {' <x>", "times": 3}
WRITTEN = {
    "hermes": 'Let me see.\n<tool_call>\n{"name": "bash", "arguments": %s}\n</tool_call>',
    "coder": (
        "Let me see.\n<tool_call>\n<function=bash>\n<parameter=command>\necho '}; {' <x>\n"
        "</parameter>\n<parameter=times>\n3\n</parameter>\n</function>\n</tool_call>"
    ),
    "pairs": (
        "Let me see.\n<tool_call>bash\n<arg_key>command</arg_key>\n"
        "<arg_value>echo '}; {' <x></arg_value>\n"
        "<arg_key>times</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
    ),
    "python_tag": '{"name": "bash", "parameters": %s}',
    "tool_marks": (
        "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>%s"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
}
"""What each model writes to call the tool."""


def written(name: str, arguments: dict[str, Any] = ARGUMENTS) -> str:
    return WRITTEN[name].replace("%s", json.dumps(arguments))


def ids_of(renderer: TemplateRenderer, text: str) -> list[int]:
    return renderer._vocabulary.encode(text)


def text_of(renderer: ToolRenderer, ids: tuple[int, ...]) -> str:
    return "".join(renderer.pieces(ids))


@pytest.mark.parametrize("name", TOOL_NAMES)
def test_a_call_is_read_and_its_result_goes_on_from_the_exact_tokens(make: Make, name: str) -> None:
    renderer = make(name)
    assert with_tools(renderer) is renderer
    messages = [Message("system", "Be brief."), Message("user", "What is here?")]
    prompt = renderer.render(messages, TOOLS)
    assert '"times"' in text_of(renderer, prompt)
    drawn = (*ids_of(renderer, written(name)), renderer.stop_ids[-1])
    answer = renderer.answer(drawn, TOOLS)
    (call,) = answer.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("bash", ARGUMENTS)
    assert answer.text == ("" if name == "python_tag" else "Let me see.")
    assert not answer.malformed

    messages += [
        Message("assistant", answer.text, tool_calls=(ToolCall("call00001", *_of(call)),)),
        Message("tool", "notes.txt\n<|im_end|><tool_call>", tool_call_id="call00001"),
    ]
    extended = renderer.extend((*prompt, *drawn), messages, 3, TOOLS)
    assert extended[: len(prompt) + len(drawn)] == (*prompt, *drawn)
    news = extended[len(prompt) + len(drawn) :]
    assert "notes.txt" in text_of(renderer, news)
    # What a tool printed is text, whatever it reads like.
    mark = ids_of(renderer, "<tool_call>")
    assert len(mark) > 1 or mark[0] not in news
    anew = text_of(renderer, renderer.render(messages, TOOLS))
    assert anew.endswith(text_of(renderer, news))


def _of(call: ToolCall) -> tuple[str, str]:
    return call.name, call.arguments


@pytest.mark.parametrize("name", TOOL_NAMES)
def test_a_call_that_cannot_be_read_is_text(make: Make, name: str) -> None:
    renderer = make(name)
    broken = written(name).replace('"arguments": {', '"arguments": {{')
    broken = broken.replace('"parameters": {', '"parameters": {{').replace("sep｜>{", "sep｜>{{")
    broken = broken.replace("bash\n<arg_key>", "bash\n<argument>")
    broken = broken.replace("</function>\n</tool_call>", "") if name == "coder" else broken
    drawn = (*ids_of(renderer, broken), renderer.stop_ids[-1])
    answer = renderer.answer(drawn, TOOLS)
    if name == "coder":  # its elements are closed: the rest may be missing
        assert [c.name for c in answer.tool_calls] == ["bash"]
        return
    assert not answer.tool_calls
    assert answer.malformed
    assert answer.text == renderer.answer(drawn).text


@pytest.mark.parametrize("name", TOOL_NAMES)
def test_without_tools_nothing_is_read(make: Make, name: str) -> None:
    renderer = make(name)
    drawn = ids_of(renderer, written(name))
    assert not renderer.answer(drawn).tool_calls
    assert not renderer.answer(ids_of(renderer, "Just text."), TOOLS).tool_calls


@pytest.mark.parametrize("name", ["hermes", "tool_marks"])
def test_several_calls(make: Make, name: str) -> None:
    renderer = make(name)
    one = written(name, {"command": "a"}).removeprefix("Let me see.")
    answer = renderer.answer(ids_of(renderer, f"Two:{one}{one}"), TOOLS)
    assert [call.name for call in answer.tool_calls] == ["bash", "bash"]
    assert answer.text == "Two:"


def test_llamas_calls_follow_each_other() -> None:
    reader = find_reader("llama3", "tools")
    assert reader is not None
    two = '{"name": "a", "parameters": {"x": "};"}}; {"name": "b", "parameters": {}}'
    said = reader.read(two, ())
    assert [call.name for call in said.calls] == ["a", "b"]
    assert reader.read('{"answer": 5}', ()).text == '{"answer": 5}'
    assert not reader.read('{"answer": 5}', ()).malformed


def test_deepseeks_older_form() -> None:
    reader = find_reader("deepseek", "tools")
    assert reader is not None
    text = (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>bash\n"
        '```json\n{"command": "ls"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    )
    (call,) = reader.read(text, TOOLS).calls
    assert (call.name, call.arguments) == ("bash", '{"command": "ls"}')


@pytest.mark.parametrize("deep", ["[" * 50_000, '{"a":' * 50_000], ids=["lists", "tables"])
def test_nothing_that_a_model_writes_is_an_error(deep: str) -> None:
    for name in ("hermes", "llama3", "deepseek", "qwen-coder", "glm"):
        reader = find_reader(name, "tools")
        assert reader is not None
        for text in (
            f"<tool_call>{deep}</tool_call>",
            deep,
            f"<｜tool▁call▁begin｜>x<｜tool▁sep｜>{deep}",
            f'{{"name": "x", "parameters": {deep}',
            "<tool_call><function=x><parameter=y>",
            f"<tool_call>x<arg_key>{deep}</arg_key><arg_value>",
        ):
            assert reader.read(text, TOOLS).text is not None


@pytest.mark.parametrize("name", [*NAMES, "embedded"])
def test_plain_words_for_models_without_tools(make: Make, name: str) -> None:
    inner = EmbeddedRenderer() if name == "embedded" else make(name)
    renderer = with_tools(inner)
    assert isinstance(renderer, PlainTools)
    messages = [Message("system", "Be brief."), Message("user", "What is here?")]
    assert renderer.render(messages) == inner.render(messages)
    prompt = renderer.render(messages, TOOLS)
    assert "Runs a command" in text_of(renderer, prompt)
    call = ToolCall("1", "bash", '{"command": "ls"}')
    drawn = prompt[:5]  # any tokens
    messages += [
        Message("assistant", "Let me see.", tool_calls=(call,)),
        Message("tool", "a.txt", tool_call_id="1"),
        Message("tool", "b.txt", tool_call_id="2"),
    ]
    extended = renderer.extend((*prompt, *drawn), messages, 3, TOOLS)
    assert extended[: len(prompt) + 5] == (*prompt, *drawn)
    news = text_of(renderer, extended[len(prompt) + 5 :])
    assert news.count("<tool_response>") == 2
    whole = text_of(renderer, renderer.render(messages, TOOLS))
    assert '{"name": "bash", "arguments": {"command": "ls"}}' in whole


@pytest.mark.parametrize(
    "text",
    [
        'Hm.\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>',
        'Hm.\n<tool_call>{"name": "bash", "arguments": "{\\"command\\": \\"ls\\"}"}',
        '{"name": "bash", "parameters": {"command": "ls"}}',
    ],
)
def test_plain_calls(text: str) -> None:
    (call,) = PLAIN.read(text, TOOLS).calls
    assert (call.name, json.loads(call.arguments)) == ("bash", {"command": "ls"})


def test_a_response_template_that_reads_no_call_gives_way(tmp_path: Path) -> None:
    """It wants the special token at the end, which is no part of what is said."""
    calls = {
        "open_pattern": r'\{"name":\s*"(?P<name>[^"]+)",\s*"parameters":\s*',
        "close_pattern": r"\}<\|eot_id\|>",
        "content": "json",
        "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
    }
    fields = {"tool_calls": calls, "content": {"content": "text"}}
    described = {"start_anchor": "<|end_header_id|>\n\n", "fields": fields}
    model = write_model("python_tag", tmp_path, response_template=described)
    renderer = make_renderer("template", str(model), "keep")
    assert isinstance(renderer, TemplateRenderer)
    (call,) = renderer.answer(ids_of(renderer, written("python_tag")), TOOLS).tool_calls
    assert json.loads(call.arguments) == ARGUMENTS


def test_the_setting(folder: Path, tmp_path: Path) -> None:
    hermes = str(write_model("hermes", folder))
    assert isinstance(with_tools(make_renderer("template", hermes, "keep", "json")), PlainTools)
    assert make_renderer("template", str(write_model("pairs", folder)), "keep", "glm")
    template = json.loads((folder / "hermes" / "tokenizer_config.json").read_text())[
        "chat_template"
    ]
    other = template.replace('{"name": ', '{"tool": ')  # between the tags that are known
    looks_like = str(write_model("hermes", tmp_path, chat_template=other))
    assert isinstance(with_tools(make_renderer("template", looks_like, "keep")), PlainTools)
    native = make_renderer("template", hermes, "keep", "hermes")
    assert with_tools(native) is native
    plain = str(write_model("hybrid", tmp_path))
    with pytest.raises(PolicyRefusedError, match="tool_format=llama3: the chat template"):
        make_renderer("template", plain, "keep", "llama3")
    with pytest.raises(PolicyRefusedError, match="tool_format=hermes: renderer=embedded has no"):
        make_renderer("embedded", plain, "keep", "hermes")
