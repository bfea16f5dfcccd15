"""How models write tool calls, by family, and how their completions are read.

A call that can't be read leaves the whole text to the agent, as vLLM's parsers do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tbtui.chat import Tool, ToolCall

ToolFormat = Literal["auto", "hermes", "qwen-coder", "glm", "llama3", "deepseek", "json"]


@dataclass(frozen=True, slots=True)
class Said:
    """A completion's text and its calls, whose ids are empty."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    malformed: str = ""
    """What looked like calls and can't be read; `text` has it too."""


class CallReader(Protocol):
    """Reads the tool calls of one format."""

    @property
    def marks(self) -> tuple[str, ...]:
        """Texts of the format; tokens of these names are part of a completion's text."""
        ...

    @property
    def end(self) -> str:
        """What ends a call; empty: nothing of its own."""
        ...

    def read(self, text: str, tools: Sequence[Tool]) -> Said: ...


@dataclass(frozen=True, slots=True)
class JsonCalls:
    """JSON objects with a name and arguments: between tags (Hermes, Qwen), or as the whole answer
    (Llama 3, there with `parameters`), one after the other."""

    tagged: bool
    bare: bool
    marks: tuple[str, ...] = ("<tool_call>", "</tool_call>")
    end: str = "</tool_call>"

    def read(self, text: str, tools: Sequence[Tool]) -> Said:
        if self.tagged and "<tool_call>" in text:
            pieces = re.split(r"<tool_call>(.*?)(?:</tool_call>|\Z)", text, flags=re.DOTALL)
            calls = [_json_call(body) for body in pieces[1::2]]
            if None in calls:
                return Said(text, malformed="".join(pieces[1::2]).strip())
            return Said("".join(pieces[::2]).rstrip(), tuple(filter(None, calls)))
        start = text.strip().removeprefix("<|python_tag|>").lstrip()
        if self.bare and start.startswith("{"):
            found = [_call(value) for value in _objects(start)]
            if found and None not in found:
                return Said("", tuple(filter(None, found)))
            return Said(text, malformed=start if re.match(r'\{\s*"name"', start) else "")
        return Said(text)


class TemplateCalls:
    """A format that is described as a response template of transformers, and read by its parser."""

    def __init__(
        self, template: Mapping[str, Any], marks: tuple[str, ...] = (), end: str = ""
    ) -> None:
        """Raises `ValueError` for what is no response template."""
        from transformers.utils.chat_parsing.response_templates import load_response_template

        self._template = load_response_template(dict(template))
        self.marks = marks
        self.end = end

    def read(self, text: str, tools: Sequence[Tool]) -> Said:
        from transformers.utils.chat_parsing import parse_response

        functions: Any = [tool_object(tool) for tool in tools]
        try:
            message = parse_response(text, self._template, prefix="", tools=functions)
            calls = [_call(each["function"]) for each in message.get("tool_calls") or ()]
        except (ValueError, LookupError, TypeError, RecursionError):
            return Said(text, malformed=text.strip())
        if None in calls:
            return Said(text, malformed=text.strip())
        if not calls:
            return Said(text, malformed=text.strip() if self.end and self.end in text else "")
        content = message.get("content") or ""
        for mark in self.marks:
            content = content.replace(mark, "")
        return Said(content.rstrip(), tuple(filter(None, calls)))


_HERMES = JsonCalls(tagged=True, bare=False)
PLAIN = JsonCalls(tagged=True, bare=True)
"""What a model is asked for whose chat format has no tools."""
_LLAMA3 = JsonCalls(tagged=False, bare=True, marks=("<|python_tag|>",), end="")
_CONTENT = {"repeats": True, "join": "", "content_args": {"strip": False}}
_FUNCTION = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}


def _spelt_out(anchor: str, opening: str, closing: str, argument: str) -> dict[str, Any]:
    """The response template of a format with an element for each argument.

    Args:
        anchor: what comes before an answer.
        opening: pattern of a call's beginning, with a group `name`.
        closing: pattern of its end.
        argument: pattern of an argument, with groups `key` and `value`.
    """
    calls = {
        "open_pattern": opening,
        "close_pattern": closing,
        "repeats": True,
        "content": "xml-inline",
        "content_args": {"tag_pattern": argument},
        "transform": _FUNCTION,
    }
    return {"start_anchor": anchor, "fields": {"content": _CONTENT, "tool_calls": calls}}


_QWEN_CODER = _spelt_out(
    "<|im_start|>assistant\n",
    r"<tool_call>\s*<function=(?P<name>[^>\n]+)>",
    r"</function>\s*(?:</tool_call>)?",
    r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>",
)
_GLM = _spelt_out(
    "<|assistant|>",
    r"<tool_call>\s*(?P<name>[^<\s]+)\s*(?=<arg_key>|</tool_call>)",
    r"</tool_call>",
    r"<arg_key>(?P<key>[^<]+)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>",
)
_GLM_MARKS = tuple(f"<{end}{name}>" for name in ("arg_key", "arg_value") for end in ("", "/"))
_DEEPSEEK_MARKS = tuple(
    f"<｜tool▁{name}｜>" for name in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")
)
_DEEPSEEK = {
    "start_anchor": "<｜Assistant｜>",
    "fields": {
        "content": _CONTENT,
        "tool_calls": {
            # V3 and R1: the kind, the name and a fenced block. V3.1: the name and its arguments.
            "open_pattern": (
                r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?"
                r"(?P<name>[^\n<]+?)(?:\n```json\n|<｜tool▁sep｜>)"
            ),
            "close_pattern": r"(?:\n```)?<｜tool▁call▁end｜>",
            "repeats": True,
            "content": "json",
            "transform": _FUNCTION,
        },
    },
}


def find_reader(
    name: ToolFormat, template: str, response_template: Mapping[str, Any] | None = None
) -> CallReader | None:
    """The reader of the format that is named, or that a chat template writes; None: it has no
    tools, or in a form that isn't known here.

    `response_template`: the one that comes with the tokenizer.
    """
    if not re.search(r"\btools\b", template):
        return None
    if name == "auto":
        if response_template is not None:
            return TemplateCalls(response_template)
        name = _recognised(template)
    match name:
        case "hermes":
            return _HERMES
        case "llama3":
            return _LLAMA3
        case "qwen-coder":
            return TemplateCalls(_QWEN_CODER, _HERMES.marks, _HERMES.end)
        case "glm":
            return TemplateCalls(_GLM, (*_HERMES.marks, *_GLM_MARKS), _HERMES.end)
        case "deepseek":
            return TemplateCalls(_DEEPSEEK, _DEEPSEEK_MARKS, "<｜tool▁call▁end｜>")
        case _:
            return None


def _recognised(template: str) -> ToolFormat:
    if "<tool_call>" in template:
        if "<arg_key>" in template:
            return "glm"
        return "qwen-coder" if "<function=" in template else "hermes"
    if "<｜tool▁call▁begin｜>" in template:
        return "deepseek"
    if "<|start_header_id|>" in template and "parameters" in template:
        return "llama3"
    return "json"


def tool_object(tool: Tool) -> dict[str, Any]:
    """A tool as chat templates take it."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": json.loads(tool.parameters),
    }
    return {"type": "function", "function": function}


def call_object(call: ToolCall) -> dict[str, Any]:
    """A call as chat templates take it: with its arguments as an object where they are one."""
    try:
        arguments: Any = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _objects(text: str) -> Iterator[object]:
    """The JSON values that follow each other in `text`, with white space or semicolons between;
    None for what is none."""
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield None
            return
        yield value
        while at < len(text) and text[at] in " \t\r\n;":
            at += 1


def _json_call(body: str) -> ToolCall | None:
    try:
        return _call(json.loads(body))
    except (ValueError, RecursionError):
        return None


def _call(value: object) -> ToolCall | None:
    if not isinstance(value, dict):
        return None
    name = value.get("name")
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):  # some models write the object as a text
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    return ToolCall("", name, json.dumps(arguments, ensure_ascii=False))
