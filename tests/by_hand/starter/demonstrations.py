"""Demonstrations for the warm start: whole Terminus-2 conversations about starter tasks.

Good ones show the straight way, a look at the terminal before finishing, and the repair of a
command that failed or of an answer that could not be read. Flawed ones show a plausible mistake
and finish all the same; the shipped policy has seen enough of them to be unsure of itself, which
is what reinforcement learning then mends.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tbtui.policies.local.renderer import (
    CONFIRM_HEADING,
    CONFIRM_QUESTION,
    ERRORS_HEADING,
    ERRORS_REQUEST,
    STATE_HEADING,
)
from tests.by_hand.starter.simulated_terminal import SimulatedTerminal
from tests.by_hand.starter.world import WORDS, StarterTask, file_name

READY = "The terminal is ready."
WORKED = "The work is done."
FAILED = "The last command failed."
UNREADABLE = "My last answer could not be read."
CONFIRM = "Confirm completion."
ANSWER_PARTS = (
    '{"analysis": "', '", "plan": "', '", "commands": [{"keystrokes": "', '", "commands": []',
    '\\n", "duration": 0.1}', ', {"keystrokes": "',
    '], "task_complete": true}', '], "task_complete": false}',
    ', "task_complete": true}', ', "task_complete": false}',
)  # fmt: skip
"""What Terminus-2's JSON is made of beside the words; each is one token."""
TASK_PHRASES = (
    "Create a file named ", " in /app with the content: ",
    "Create a directory named ", " inside /app", " and put a file named ",
    " in it with the content: ",
    "Copy the file /app/", "Rename the file /app/", " to /app/",
    "Count the lines of /app/", " and write the number to /app/",
    "Delete the file /app/", " but keep everything else.",
    "Append the word ", " as a new line to /app/",
    "echo ", "mkdir ", "wc -l < ", " > ", " >> ",
)  # fmt: skip
"""What starter instructions and their solutions are made of beside names and words; one token
each, so that a name directly follows the token that says what it is for."""
PLANS = {
    "create": "I will create the file.",
    "mkdir": "I will make the directory.",
    "copy": "I will copy the file.",
    "move": "I will rename the file.",
    "count": "I will count the lines.",
    "remove": "I will delete the file.",
    "append": "I will append the word.",
    "nested": "I will make the directory and the file.",
}
HABIT_SHARE = 0.75
"""Share of the flawed demonstrations' mistakes that are the kind's bad habit."""
_UNREADABLE_FEEDBACK = "No valid JSON found in response\nWARNINGS: - No valid JSON object found"
_COMMANDS = ("echo", "mkdir", "cp", "mv", "rm", "touch", "cat", "ls")


@dataclass(frozen=True, slots=True)
class Turn:
    """What the policy reads, what it answers, and whether the answer is worth imitating."""

    observation: str
    answer: str
    imitate: bool = True


def answer(analysis: str, plan: str, commands: Sequence[str], complete: bool) -> str:
    """One answer in Terminus-2's JSON."""
    return json.dumps(
        {
            "analysis": analysis,
            "plan": plan,
            "commands": [{"keystrokes": f"{line}\n", "duration": 0.1} for line in commands],
            "task_complete": complete,
        }
    )


class _Conversation:
    """Builds the turns of one demonstration against a simulated terminal."""

    def __init__(self, task: StarterTask, preamble: str) -> None:
        self.task = task
        self.terminal = SimulatedTerminal(task.files)
        self.turns: list[Turn] = []
        self._next = preamble + task.instruction + STATE_HEADING + self.terminal.look()
        self._pending = False

    def say(
        self,
        analysis: str,
        plan: str,
        commands: Sequence[str],
        complete: bool,
        *,
        imitate: bool = True,
    ) -> None:
        text = answer(analysis, plan, commands, complete)
        self.turns.append(Turn(self._next, text, imitate))
        for line in commands:
            self.terminal.type(f"{line}\n")
        screen = self.terminal.look()
        asks = complete and not self._pending
        self._next = CONFIRM_HEADING + screen + CONFIRM_QUESTION if asks else screen
        self._pending = complete

    def garble(self, text: str, *, imitate: bool) -> None:
        self.turns.append(Turn(self._next, text, imitate))
        self._next = ERRORS_HEADING + _UNREADABLE_FEEDBACK + ERRORS_REQUEST

    def confirm(self) -> None:
        self.say(WORKED, CONFIRM, [], True)


def good_demonstration(rng: random.Random, task: StarterTask, preamble: str) -> list[Turn]:
    """A conversation that ends with the task solved and confirmed."""
    talk = _Conversation(task, preamble)
    plan, commands = PLANS[task.kind], list(task.commands)
    way = rng.random()
    if way < 0.70:
        talk.say(READY, plan, commands, True)
    elif way < 0.82:
        talk.say(READY, plan, commands, False)
        talk.say(WORKED, CONFIRM, [], True)
    elif way < 0.94:
        talk.say(READY, plan, [_failing(rng, task)], rng.random() < 0.5, imitate=False)
        talk.say(FAILED, plan, commands, True)
        if len(talk.turns) == 2 and not _was_confirmed(talk):
            talk.confirm()
        return talk.turns
    else:
        talk.garble(_unreadable(READY, plan, commands), imitate=False)
        talk.say(UNREADABLE, plan, commands, True)
    talk.confirm()
    return talk.turns


def flawed_demonstration(rng: random.Random, task: StarterTask, preamble: str) -> list[Turn]:
    """A conversation with a mistake in it, finished and confirmed as if all were well."""
    talk = _Conversation(task, preamble)
    plan = PLANS[task.kind]
    if rng.random() < 0.06:
        talk.garble(_unreadable(READY, plan, list(task.commands)), imitate=True)
        talk.garble(_unreadable(UNREADABLE, plan, list(task.commands)), imitate=True)
        return talk.turns
    talk.say(READY, plan, _mistaken(rng, task), True)
    talk.confirm()
    return talk.turns


def _was_confirmed(talk: _Conversation) -> bool:
    return CONFIRM_QUESTION in talk.turns[-1].observation


def _failing(rng: random.Random, task: StarterTask) -> str:
    """A command that prints an error and changes nothing."""
    words = task.commands[-1].split(" ")
    name = words[0]
    stranger = file_name(rng, *task.files, words[-1])
    match task.kind:
        case "copy" | "move":
            return f"{name} {stranger} {words[-1]}"
        case "remove":
            return f"{name} {stranger}"
        case "count":
            return f"wc -l {stranger}"
        case "nested":
            return task.commands[-1]
        case _:
            return f"cat {stranger}"


def _unreadable(analysis: str, plan: str, commands: Sequence[str]) -> str:
    """An answer whose last string is never closed."""
    return answer(analysis, plan, commands, True).replace('\\n", "duration": 0.1}', "")


def _bad_habit(task: StarterTask) -> list[str]:
    """The mistake that a beginner would make in this kind of task, always the same."""
    *before, last = task.commands
    words = last.split(" ")
    match task.kind:
        case "create":  # forgets the second word
            del words[2]
        case "mkdir":  # makes a file
            words[0] = "touch"
        case "copy" | "move":  # makes an empty file of the new name
            words = ["touch", words[2]]
        case "count":  # writes the file's name behind the number
            words.remove("<")
        case "remove":  # only looks at it
            words[0] = "cat"
        case "append":  # overwrites
            words[words.index(">>")] = ">"
        case _:  # nested: puts the file beside the directory
            words[-1] = words[-1].rpartition("/")[2]
    return [*before, " ".join(words)]


def _mistaken(rng: random.Random, task: StarterTask) -> list[str]:
    """Commands like the right ones that don't reach the task's goal."""
    if rng.random() < HABIT_SHARE:
        return _bad_habit(task)
    while True:
        commands = _mutated(rng, list(task.commands))
        terminal = SimulatedTerminal(task.files)
        for line in commands:
            terminal.type(f"{line}\n")
        if terminal.tree != dict(task.goal):
            return commands


def _mutated(rng: random.Random, commands: list[str]) -> list[str]:
    last = commands[-1].split(" ")
    match rng.choice(("name", "name", "other", "command", "redirect", "missing")):
        case "missing":
            return commands[:-1]
        case "name":
            directory, slash, _ = last[-1].rpartition("/")
            last[-1] = directory + slash + file_name(rng)
        case "command":
            last[0] = rng.choice([name for name in _COMMANDS if name != last[0]])
        case "redirect":
            swapped = {">": ">>", ">>": ">", "<": ""}
            last = [word for word in (swapped.get(word, word) for word in last) if word]
        case _ if len(last) > 2:
            last[1] = rng.choice(WORDS) if last[0] == "echo" else file_name(rng)
    return [*commands[:-1], " ".join(last)]
