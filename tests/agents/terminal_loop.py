"""Terminus-2's loop as a program in the sandbox: standard library and tmux, over the chat API.

`python3 terminal_loop.py TEMPLATE INSTRUCTION`, beside Harbor's `terminus_json_plain_parser.py`.
Its prompts are Terminus-2's to the letter, so that what was made for one understands the other.
"""

# ruff: noqa: T201
import json
import os
import subprocess
import sys
import time
import urllib.request

from terminus_json_plain_parser import TerminusJSONPlainParser  # type: ignore[import-not-found]

TMUX = ["tmux", "-L", "loop"]
SURE = (
    "\n\nAre you sure you want to mark the task as complete? This will trigger your solution to be"
    " graded and you won't be able to make any further corrections. If so, include"
    ' "task_complete": true in your JSON response again.'
)


def tmux(*arguments: str) -> str:
    return subprocess.run([*TMUX, *arguments], capture_output=True, text=True, check=True).stdout


class Terminal:
    def __init__(self) -> None:
        tmux("new-session", "-d", "-x", "160", "-y", "40", "-s", "t", "bash --login")
        while not self.screen().strip():
            time.sleep(0.01)
        self.before: str | None = None

    def screen(self) -> str:
        return tmux("capture-pane", "-p", "-t", "t")

    def news(self) -> str:
        now, before = tmux("capture-pane", "-p", "-S", "-", "-t", "t"), self.before
        self.before = now
        if before is not None and (old := before.strip()) in now:
            at = old.rfind("\n") if "\n" in old else now.index(old)
            if now[at:].strip():
                return f"New Terminal Output:\n{now[at:]}"
        return f"Current Terminal Screen:\n{self.screen()}"

    def type(self, keys: str, seconds: float) -> None:
        tmux("send-keys", "-t", "t", "--", keys)
        time.sleep(max(0.01, min(seconds, 60)))


def ask(messages: list[dict[str, str]]) -> str:
    body = json.dumps({"model": "policy", "messages": messages}).encode()
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    headers["Content-Type"] = "application/json"
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body, headers
    )
    with urllib.request.urlopen(request) as response:
        answer: str = json.load(response)["choices"][0]["message"]["content"]
    return answer


def main(template: str, instruction: str) -> None:
    terminal, parser, sure = Terminal(), TerminusJSONPlainParser(), False
    with open(template) as file:  # noqa: PTH123
        prompt = file.read().format(instruction=instruction, terminal_state=terminal.news())
    messages: list[dict[str, str]] = []
    while True:
        messages.append({"role": "user", "content": prompt})
        answer = ask(messages)
        messages.append({"role": "assistant", "content": answer})
        print(answer, flush=True)
        read = parser.parse_response(answer)
        warnings = f"WARNINGS: {read.warning}" if read.warning else ""
        if read.error:
            problem = f"ERROR: {read.error}" + (f"\n{warnings}" if warnings else "")
            prompt = (
                f"Previous response had parsing errors:\n{problem}\n\nPlease fix these issues and"
                " provide a proper JSON response."
            )
            continue
        for command in read.commands:
            terminal.type(command.keystrokes, command.duration)
        seen = terminal.news()
        print(seen.rstrip(), flush=True)
        if read.is_task_complete and sure:
            return
        sure = read.is_task_complete
        if sure:
            prompt = f"Current terminal state:\n{seen}{SURE}"
        elif warnings:
            prompt = f"Previous response had warnings:\n{warnings}\n\n{seen}"
        else:
            prompt = seen


if __name__ == "__main__":
    main(*sys.argv[1:])
