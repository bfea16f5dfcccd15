"""Every key of the app, once: bindings, key bar, help and command palette are made from this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding, BindingType

Scope = Literal[
    "everywhere",
    "panes",
    "words",
    "steering",
    "cockpit",
    "trials",
    "tasks",
    "rewards",
    "trial",
    "typing",
    "turns",
    "tokens",
    "prompt",
    "prompt-text",
    "group",
    "siblings",
    "commands",
    "review",
    "review-groups",
    "review-trials",
    "deciding",
    "replay",
    "runs",
    "runs-list",
    "compare",
    "search",
    "hits",
    "library",
    "library-tree",
    "library-preview",
]

Need = Literal["steer", "clock", "return", "tasks", "runs", "files"]
"""What a key is for: to command the run, to move a recorded run's clock, to go back from another
run, to browse tasks, to open other runs, to write files and start programs."""

SCOPE_TITLES: dict[Scope, str] = {
    "everywhere": "everywhere",
    "panes": "a pane that scrolls",
    "words": "typing the words of a filter or a search",
    "steering": "the selected or opened trial",
    "cockpit": "cockpit",
    "trials": "trials",
    "tasks": "tasks",
    "rewards": "rewards",
    "trial": "trial",
    "typing": "typing in a trial: all other keys go to its terminal",
    "turns": "turns",
    "tokens": "tokens",
    "prompt": "prompt",
    "prompt-text": "prompt: its text",
    "group": "group",
    "siblings": "siblings",
    "commands": "commands given",
    "review": "review of a step",
    "review-groups": "review: the groups",
    "review-trials": "review: a group's trials",
    "deciding": "review: what is decided",
    "replay": "a replayed run: its clock",
    "runs": "runs",
    "runs-list": "runs: the list",
    "compare": "two runs compared",
    "search": "search",
    "hits": "search: what was found",
    "library": "choosing tasks",
    "library-tree": "choosing tasks: the tree",
    "library-preview": "choosing tasks: the preview",
}

SCOPE_NEEDS: dict[Scope, Need] = {"steering": "steer", "deciding": "steer", "replay": "clock"}

CLOCKED: frozenset[Scope] = frozenset({"steering", "deciding"})
"""A screen with one of these shows a moment of the run: a recorded one's clock has its keys there.
"""


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that a key does."""

    id: str
    scope: Scope
    keys: str
    """As Textual names them, separated by commas."""
    shown: str
    """As people name them."""
    action: str
    label: str
    """One or two words, for the key bar."""
    help: str
    bar: int = 0
    """Its rank in the key bar: 1 stays longest when room is short; 0 is never there."""
    palette: bool = True
    """In the command palette."""
    priority: bool = False
    bound: bool = True
    """False: Textual binds it itself."""
    own_need: Need | None = None
    """Beside what its scope needs."""

    @property
    def need(self) -> Need | None:
        """Where it isn't met there is no such key: see `tbtui.ui.abilities`."""
        return self.own_need or SCOPE_NEEDS.get(self.scope)


KEYS: tuple[Key, ...] = (
    Key(
        *("keep-words", "words", "enter", "enter", "app.simulate_key('enter')", "keep"),
        "Keep the words, and go on to what they have left",
        bar=1,
        palette=False,
        bound=False,
    ),
    Key("open", "cockpit", "enter", "enter", "open", "open", "Open the selected trial", bar=1),
    Key("back", "trial", "escape", "esc", "back", "back", "Back to the cockpit", bar=1),
    Key("leave-group", "group", "escape", "esc", "back", "back", "Back", bar=1),
    Key(
        *("open-sibling", "group", "enter", "enter", "open", "open"),
        "Open the chosen sibling at the chosen turn",
        bar=1,
    ),
    Key(
        *("group", "cockpit", "g", "g", "app.open_group", "group"),
        "The selected trial's group: siblings side by side, where they part, what each teaches",
        bar=4,
    ),
    Key(
        *("trial-group", "trial", "g", "g", "open_group", "group"),
        "The trial's group: siblings side by side, where they part, what each teaches",
        bar=3,
    ),
    Key("close", "commands", "escape", "esc", "back", "back", "Back", bar=1),
    Key(
        *("review", "everywhere", "V", "V", "app.review", "review"),
        "The step that waits for a review before it is trained: what is odd, what would be trained",
        bar=3,
    ),
    Key("review-back", "review", "escape", "esc", "back", "back", "Back", bar=1),
    Key(
        *("accept", "deciding", "a", "a", "accept", "accept"),
        "Train the step as it stands; asks first while something odd is undecided",
        bar=1,
    ),
    Key(
        *("reviewed-exclude", "deciding", "e", "e", "steer('exclude')", "exclude"),
        "Leave the trial out of training and of its group's baseline, or take that back",
        bar=1,
    ),
    Key(
        *("reviewed-relabel", "deciding", "L", "L", "relabel", "relabel"),
        "Give the trial another reward than the verifier's, and say why; or take that back",
        bar=1,
    ),
    Key(
        *("refill", "deciding", "f", "f", "refill", "refill"),
        "Fresh trials in place of the group's that have no part in training",
        bar=2,
    ),
    Key(
        *("accept-trial", "deciding", "space", "space", "accept_trial", "ok"),
        "The trial is fine as it is: the step no longer waits for its sake",
        bar=1,
    ),
    Key(
        *("always", "deciding", "A", "A", "always", "always"),
        "Always accept trials like this one: writes a rule, and shows it first",
        bar=2,
    ),
    Key(
        *("reviewed-retry", "deciding", "r", "r", "steer('retry')", "retry"),
        "Give the trial up and start a fresh one in its place",
        bar=4,
    ),
    Key(
        *("next-suspect", "review", "n", "n", "suspect", "next odd"),
        "The next trial that is undecided; when all are decided, the next with something odd",
        bar=2,
    ),
    Key(
        *("open-reviewed", "review", "enter", "enter", "open", "open", "Open the chosen trial"),
        bar=3,
    ),
    Key(
        *("reviewed-group", "review", "g", "g", "open_group", "group"),
        "The group's trials side by side, where they part, what each teaches",
        bar=4,
    ),
    Key(
        *("next-review", "review", "o", "o", "next_review", "other step"),
        "Another step that waits for a review too",
    ),
    Key(
        *("group-down", "review-groups", "down,j", "↓ j", "group(1)", "down", "The group below"),
        palette=False,
    ),
    Key(
        *("group-up", "review-groups", "up,k", "↑ k", "group(-1)", "up", "The group above"),
        palette=False,
    ),
    Key(
        *("member-right", "review-groups", "right,l", "→ l", "sibling(1)", "right"),
        "The group's next trial",
        palette=False,
    ),
    Key(
        *("member-left", "review-groups", "left,h", "← h", "sibling(-1)", "left"),
        "The group's trial before",
        palette=False,
    ),
    Key(
        *("member-down", "review-trials", "down,j", "↓ j", "trial(1)", "down", "The trial below"),
        palette=False,
    ),
    Key(
        *("member-up", "review-trials", "up,k", "↑ k", "trial(-1)", "up", "The trial above"),
        palette=False,
    ),
    Key(
        *("pause", "steering", "space", "space", "app.steer('pause')", "pause"),
        "Pause the trial at the end of its turn, or resume it; its time stands still",
        bar=1,
    ),
    Key(
        *("freeze", "steering", "z", "z", "app.steer('freeze')", "freeze"),
        "Freeze the trial now, its sandbox's processes too, or resume it",
        bar=5,
    ),
    Key(
        *("stop", "steering", "s", "s", "app.steer('stop')", "stop"),
        "End the trial at the end of its turn and verify what it has done",
        bar=1,
    ),
    Key(
        *("cancel", "steering", "x", "x", "app.steer('cancel')", "cancel"),
        "End the trial now, without verdict; asks first",
        bar=3,
    ),
    Key(
        *("retry", "steering", "r", "r", "app.steer('retry')", "retry"),
        "Give this attempt up and start a fresh one in its place; asks first if it runs",
        bar=4,
    ),
    Key(
        *("exclude", "steering", "e", "e", "app.steer('exclude')", "exclude"),
        "Leave the trial out of training and of its group's baseline, or take that back",
        bar=5,
    ),
    Key(
        *("relabel", "steering", "L", "L", "app.relabel", "relabel"),
        "Give the trial another reward than the verifier's, and say why; or take that back",
    ),
    Key(
        *("take-over", "steering", "i", "i", "app.take_over", "take over"),
        "Type in the trial's terminal yourself, from the end of its turn on; it is not trained on",
        bar=3,
    ),
    Key(
        *("give-back", "typing", "ctrl+backslash", "ctrl+\\", "give_back", "give back"),
        "Give the trial back to the agent, which goes on",
        palette=False,
        priority=True,
    ),
    Key(
        *("call-off", "typing", "escape", "esc", "call_off", "back"),
        "Back without the trial, as long as it is not yours yet",
        palette=False,
    ),
    Key(
        *("follow", "cockpit", "f", "f", "app.follow", "follow"),
        "Let the selection follow what happens; any choice of yours ends that",
    ),
    Key(
        *("pause-run", "everywhere", "P", "P", "app.pause_run", "pause run"),
        "Pause every trial at the end of its turn and start none, or resume the run",
        bar=5,
        own_need="steer",
    ),
    Key("pane-1", "cockpit", "1", "1", "full(1)", "tasks", "Tasks in full", bar=2),
    Key(
        "pane-2",
        "cockpit",
        "2",
        "2",
        "full(2)",
        "terminal",
        "The selected terminal in full",
        bar=2,
    ),
    Key("pane-3", "cockpit", "3", "3", "full(3)", "tokens", "Tokens in full", bar=2),
    Key(
        "pane-4",
        "cockpit",
        "4",
        "4",
        "full(4)",
        "curves",
        "Pass rates, surprise, KL and staleness in full",
        bar=2,
    ),
    Key("pane-5", "cockpit", "5", "5", "full(5)", "queue", "Queue and processes in full", bar=2),
    Key("pane-6", "cockpit", "6", "6", "full(6)", "step", "Rewards, times, notes in full", bar=2),
    Key(
        *("overview", "cockpit", "escape", "esc", "back", "overview"),
        "Back to the overview; there, from the trials of a filter to all",
    ),
    Key(
        *("all-panes", "cockpit", "0", "0", "full(0)", "overview", "Back to the overview"),
        palette=False,
    ),
    Key(
        *("filter", "cockpit", "slash", "/", "filter", "filter"),
        "Show only trials with these words: of their task, state or outcome",
        bar=4,
    ),
    Key(
        *("order", "cockpit", "o", "o", "order", "order"),
        "Order of the trials: as queued, by state, by task, longest first, by reward",
        bar=5,
    ),
    Key(
        *(
            "move-left",
            "trials",
            "left,h",
            "← h",
            "move(-1, 0)",
            "left",
            "Select the trial to the left",
        ),
        palette=False,
    ),
    Key(
        *("move-down", "trials", "down,j", "↓ j", "move(0, 1)", "down", "Select the trial below"),
        palette=False,
    ),
    Key(
        *("move-up", "trials", "up,k", "↑ k", "move(0, -1)", "up", "Select the trial above"),
        palette=False,
    ),
    Key(
        *("move-right", "trials", "right,l", "→ l", "move(1, 0)", "right"),
        "Select the trial to the right",
        palette=False,
    ),
    Key("tree-down", "tasks", "down,j", "↓ j", "move(1)", "down", "Next row", palette=False),
    Key("tree-up", "tasks", "up,k", "↑ k", "move(-1)", "up", "Previous row", palette=False),
    Key(
        *("tree-choose", "tasks", "enter", "enter", "choose", "only"),
        "Show only the trials of this data set, kind or task; the same again shows all",
        palette=False,
    ),
    Key(
        *("tree-toggle", "tasks", "space,right,left", "→ ←", "unfold", "open"),
        "Open or close a kind of task, or one of several data sets",
        palette=False,
    ),
    Key(
        *("tree-order", "tasks", "S", "S", "order", "order"),
        "Order of the tasks: by name, lowest pass rate, most lost to infrastructure, slowest",
        palette=False,
    ),
    Key(
        *("bar-down", "rewards", "down,j", "↓ j", "choose(1)", "bar"),
        "Show only the trials rewarded so; beyond the last bar all again",
        palette=False,
    ),
    Key(
        *("bar-up", "rewards", "up,k", "↑ k", "choose(-1)", "bar"),
        "The bar above",
        palette=False,
    ),
    Key(
        *("attempt", "trial", "a", "a", "attempt", "attempt"),
        "The next attempt at this trial's place in its group; after the last the first",
        bar=3,
    ),
    Key(
        *("previous-turn", "trial", "left_square_bracket", "[", "turn(-1)", "turn"),
        "The turn before",
    ),
    Key(
        "next-turn",
        "trial",
        "right_square_bracket",
        "]",
        "turn(1)",
        "turn",
        "The turn after",
        bar=4,
    ),
    Key(
        *("thinking", "trial", "o", "o", "thinking", "thinking"),
        "Open or fold what the model thought before it answered",
    ),
    Key(
        *("next-surprise", "trial", "n", "n", "surprise(1)", "surprise"),
        "Jump to the next surprising token",
        bar=4,
    ),
    Key(
        *("previous-surprise", "trial", "N", "N", "surprise(-1)", "surprise"),
        "Jump to the surprising token before",
    ),
    Key("trial-1", "trial", "1", "1", "full(1)", "terminal", "Terminal in full", bar=2),
    Key("trial-2", "trial", "2", "2", "full(2)", "turns", "Turns in full", bar=2),
    Key("trial-3", "trial", "3", "3", "full(3)", "tokens", "Tokens in full", bar=2),
    Key("trial-4", "trial", "4", "4", "full(4)", "facts", "Time, group, attempts in full", bar=2),
    Key("trial-5", "trial", "5", "5", "full(5)", "verdict", "What the verifier wrote", bar=2),
    Key(
        *("command", "trial", "J,shift+down", "J", "command(1)", "command"),
        "The next command, of this turn or the next; the terminal shows what it did",
    ),
    Key(
        *("previous-command", "trial", "K,shift+up", "K", "command(-1)", "command"),
        "The command before",
    ),
    Key(
        *("scrub-back", "trial", "comma", ",", "scrub('change', -1)", "earlier"),
        "The terminal before its last change; the turns go along, the trial goes on",
    ),
    Key(
        *("scrub", "trial", "full_stop", ".", "scrub('change', 1)", "later"),
        "The terminal after its next change",
    ),
    Key(
        *("scrub-back-10", "trial", "shift+left,left_curly_bracket", "{", "scrub('seconds', -10)"),
        *("back", "The terminal ten seconds earlier"),
    ),
    Key(
        *("scrub-10", "trial", "shift+right,right_curly_bracket", "}", "scrub('seconds', 10)"),
        *("on", "The terminal ten seconds later"),
    ),
    Key(
        *("scrub-now", "trial", "dollar_sign", "$", "scrub('now', 0)", "now"),
        "Back to the terminal and the turn as they are now",
    ),
    Key(
        *("prompt", "trial", "p", "p", "prompt", "prompt"),
        "The exact prompt of the chosen turn, token by token",
        bar=3,
    ),
    Key(
        *("copy", "trial", "y", "y", "copy", "copy"),
        "Copy what the focused pane shows: the terminal, the turn, the tokens, the verdict",
        bar=5,
    ),
    Key(
        *("pager", "trial", "v", "v", "pager", "pager"),
        "Read what the focused pane shows in $PAGER",
        bar=5,
        own_need="files",
    ),
    Key(
        *("export", "trial", "E", "E", "export", "export"),
        "Write the trial to a file: cast, ATIF, JSON lines, HTML",
        bar=4,
        own_need="files",
    ),
    Key(
        *("token-left", "tokens", "left,h", "← h", "move(-1)", "left", "The token before"),
        palette=False,
    ),
    Key(
        *("token-right", "tokens", "right,l", "→ l", "move(1)", "right", "The token after"),
        palette=False,
    ),
    Key("prompt-back", "prompt", "escape", "esc", "back", "back", "Back", bar=1),
    Key(
        *("prompt-search", "prompt", "slash", "/", "search", "search", "Find a text in it"),
        bar=1,
    ),
    Key("prompt-next", "prompt", "n", "n", "hit(1)", "next", "The next place", bar=2),
    Key("prompt-previous", "prompt", "N", "N", "hit(-1)", "previous", "The place before"),
    Key(
        *("prompt-part", "prompt", "right_square_bracket", "]", "part(1)", "part"),
        "The next part: of another turn, or of the policy instead of the agent",
        bar=2,
    ),
    Key(
        *("prompt-previous-part", "prompt", "left_square_bracket", "[", "part(-1)", "part"),
        "The part before",
    ),
    Key("prompt-copy", "prompt", "y", "y", "copy", "copy", "Copy the prompt", bar=3),
    Key(
        "prompt-pager",
        "prompt",
        "v",
        "v",
        "pager",
        "pager",
        "Read it in $PAGER",
        bar=3,
        own_need="files",
    ),
    Key("prompt-down", "prompt-text", "j", "j", "scroll(1)", "down", "Down", palette=False),
    Key("prompt-up", "prompt-text", "k", "k", "scroll(-1)", "up", "Up", palette=False),
    Key(
        *("divergence", "siblings", "n", "n", "divergence", "parting"),
        "The next turn in which a sibling parts from the others",
        bar=2,
    ),
    Key(
        *("sibling-left", "siblings", "left,h", "← h", "choose(-1, 0)", "left"),
        "The sibling to the left",
        palette=False,
    ),
    Key(
        *("sibling-right", "siblings", "right,l", "→ l", "choose(1, 0)", "right"),
        "The sibling to the right",
        palette=False,
    ),
    Key(
        *("sibling-up", "siblings", "up,k", "↑ k", "choose(0, -1)", "up"),
        "The turn before",
        palette=False,
    ),
    Key(
        *("sibling-down", "siblings", "down,j", "↓ j", "choose(0, 1)", "down"),
        "The turn after",
        palette=False,
    ),
    Key("turn-up", "turns", "up,k", "↑ k", "step(-1)", "up", "The turn before", palette=False),
    Key("turn-down", "turns", "down,j", "↓ j", "step(1)", "down", "The turn after", palette=False),
    Key(
        *("commands", "everywhere", "c", "c", "app.commands_given", "asked"),
        "Who asked for what, when and why, and what came of it",
        bar=5,
    ),
    Key(
        *("play", "replay", "space", "space", "app.play", "play"),
        "Play the recorded run, or let it stand still; at the end it begins again",
        bar=1,
    ),
    Key(
        *("replay-turn-back", "replay", "left_square_bracket", "[", "app.go('turn', -1)", "turn"),
        "To the end of the turn before, of the selected or opened trial",
    ),
    Key(
        *("replay-turn", "replay", "right_square_bracket", "]", "app.go('turn', 1)", "turn"),
        "To the end of the next turn of the selected or opened trial",
        bar=2,
    ),
    Key(
        *("replay-back", "replay", "shift+left,left_curly_bracket", "{"),
        *("app.go('seconds', -10)", "back", "Ten seconds back"),
    ),
    Key(
        *("replay-on", "replay", "shift+right,right_curly_bracket", "}"),
        *("app.go('seconds', 10)", "10 s", "Ten seconds on"),
        bar=5,
    ),
    Key(
        *("replay-event-back", "replay", "comma", ",", "app.go('event', -1)", "event"),
        "To the event before, of the opened trial or of the run",
    ),
    Key(
        *("replay-event", "replay", "full_stop", ".", "app.go('event', 1)", "event"),
        "To the next event of the opened trial or of the run",
        bar=4,
    ),
    Key(
        *("replay-milestone-back", "replay", "less_than_sign", "<", "app.go('milestone', -1)"),
        *("milestone", "To the milestone before"),
    ),
    Key(
        *("replay-milestone", "replay", "greater_than_sign", ">", "app.go('milestone', 1)"),
        "milestone",
        "To the next end of a step or evaluation, review, alarm, warning, broken trial",
        bar=2,
    ),
    Key(
        *("replay-failure-back", "replay", "left_parenthesis", "(", "app.go('failure', -1)"),
        *("failure", "To the failed trial before"),
    ),
    Key(
        *("replay-failure", "replay", "right_parenthesis", ")", "app.go('failure', 1)"),
        *("failure", "To the next trial that fails"),
        bar=4,
    ),
    Key(
        *("slower", "replay", "minus", "-", "app.replay_speed(-1)", "slower", "Half the speed"),
    ),
    Key(
        *("faster", "replay", "plus,equals_sign", "+", "app.replay_speed(1)", "faster"),
        "Double the speed, up to 64 seconds in one",
        bar=3,
    ),
    Key(
        *("replay-start", "replay", "circumflex_accent", "^", "app.go('edge', -1)", "start"),
        "To the start of the run or the opened trial",
        bar=5,
    ),
    Key(
        *("replay-end", "replay", "dollar_sign", "$", "app.go('edge', 1)", "end"),
        "To the end of the run or the opened trial",
        bar=5,
    ),
    Key(
        *("replay-where", "replay", "G", "G", "app.ask_where", "go to"),
        "To a place: 50%, 1:02:03, step 12",
        bar=3,
    ),
    Key(
        *("runs", "everywhere", "R", "R", "app.runs", "runs"),
        "Live and past runs: open one, compare two, look through them",
        bar=5,
        own_need="runs",
    ),
    Key(
        *("own-run", "everywhere", "O", "O", "app.own_run", "own run"),
        "Back from another run to the one that this app was started for",
        own_need="return",
    ),
    Key(
        *("find", "everywhere", "ctrl+f", "^f", "app.search", "find"),
        "Find a text in the run's transcripts",
    ),
    Key(
        *("open-run", "runs-list", "enter", "enter", "open", "open"),
        "Open the run: a past one as it ended, to be replayed; a live one to be seen and steered",
        bar=1,
    ),
    Key("run-down", "runs-list", "down,j", "↓ j", "move(1)", "down", "Next run", palette=False),
    Key("run-up", "runs-list", "up,k", "↑ k", "move(-1)", "up", "Previous run", palette=False),
    Key(
        *("run-page-down", "runs-list", "pagedown", "pgdn", "move(20)", "page down"),
        "Twenty runs down",
        palette=False,
    ),
    Key(
        *("run-page-up", "runs-list", "pageup", "pgup", "move(-20)", "page up"),
        "Twenty runs up",
        palette=False,
    ),
    Key(
        *("runs-filter", "runs", "slash", "/", "filter", "filter"),
        "Show only runs with these words: of their name, model, engine, policy or state",
        bar=2,
    ),
    Key(
        *("runs-order", "runs", "o", "o", "order", "order"),
        "Order of the runs: newest, by name, best, most steps, by state",
        bar=3,
    ),
    Key(
        *("runs-compare", "runs", "m", "m", "mark", "compare"),
        "Mark a run; with another one marked, compare the two",
        bar=2,
    ),
    Key(
        *("runs-search", "runs", "F", "F", "search", "find"),
        "Find a text in the transcripts of all runs that are listed",
        bar=3,
    ),
    Key("runs-back", "runs", "escape", "esc", "back", "back", "Back", bar=1),
    Key(
        *("compared-1", "compare", "1", "1", "full(1)", "curves", "The curves of both in full"),
        bar=2,
    ),
    Key("compared-2", "compare", "2", "2", "full(2)", "tasks", "The tasks in full", bar=2),
    Key(
        *("compared-3", "compare", "3", "3", "full(3)", "settings"),
        "The settings that differ in full",
        bar=2,
    ),
    Key("compare-back", "compare", "escape", "esc", "back", "back", "Back", bar=1),
    Key("search-back", "search", "escape", "esc", "back", "back", "Back", bar=1),
    Key(
        *("search-edit", "search", "slash", "/", "edit", "other words"),
        "Look for something else",
        bar=2,
    ),
    Key(
        *("open-hit", "hits", "enter", "enter", "open", "open"),
        "Open the trial at the turn that has the text",
        bar=1,
    ),
    Key("hit-down", "hits", "down,j", "↓ j", "move(1)", "down", "Next place", palette=False),
    Key("hit-up", "hits", "up,k", "↑ k", "move(-1)", "up", "Previous place", palette=False),
    Key(
        *("library", "everywhere", "T", "T", "app.browse_tasks", "choose tasks"),
        "Browse the tasks: what they ask, how they have gone; save a set of them to train on",
        own_need="tasks",
    ),
    Key(
        *("library-search", "library", "slash", "/", "search", "search"),
        "Search: words, and terms like kind:copy pass:<.5 size:<1M tries:none is:selected;"
        " a - before one turns it round",
        bar=1,
    ),
    Key(
        *("library-all", "library", "a", "a", "select('all')", "all"),
        "Select all tasks that are shown",
        bar=2,
    ),
    Key(
        *("library-none", "library", "n", "n", "select('none')", "none"),
        "Select no task",
        bar=2,
    ),
    Key(
        *("library-invert", "library", "i", "i", "select('invert')", "invert"),
        "Turn the selection of the shown tasks round",
        bar=4,
    ),
    Key(
        *("library-save", "library", "s", "s", "save", "save"),
        "Save the selection as a named set, for tasks=@NAME",
        bar=1,
    ),
    Key(
        *("library-sets", "library", "o", "o", "sets", "sets"),
        "Select the tasks of a saved set, or delete one",
        bar=2,
    ),
    Key(
        *("library-run", "library", "r", "r", "start", "run"),
        "Train on the selection: saves it as a set and starts the run",
        bar=1,
    ),
    Key(
        *("library-difficulty", "library", "d", "d", "cycle('difficulty')", "difficulty"),
        "Show tasks of one difficulty, then of the next",
        bar=3,
    ),
    Key(
        *("library-kind", "library", "g", "g", "cycle('kind')", "kind"),
        "Show tasks of one kind or category, then of the next",
        bar=4,
    ),
    Key(
        *("library-pass", "library", "p", "p", "cycle('pass')", "pass rate"),
        "Show tasks that were never solved, sometimes, nearly always, or never tried",
        bar=3,
    ),
    Key(
        *("library-size", "library", "z", "z", "cycle('size')", "size"),
        "Show small tasks, then larger ones",
        bar=5,
    ),
    Key(
        *("library-selected", "library", "v", "v", "cycle('is')", "selected"),
        "Show only what is selected, what trains, or what is held out",
        bar=3,
    ),
    Key(
        *("library-next-tab", "library", "right_square_bracket", "]", "tab(1)", "tab"),
        "The next tab of the preview",
    ),
    Key(
        *("library-previous-tab", "library", "left_square_bracket", "[", "tab(-1)", "tab"),
        "The tab before",
    ),
    Key(
        *("newest", "panes", "end", "end", "newest", "newest"),
        "To the end of the pane, which then follows what comes; scrolled away from there it stays",
    ),
    Key(
        *("oldest", "panes", "home", "home", "oldest", "oldest", "To the beginning of the pane"),
        palette=False,
    ),
    *(
        Key(
            *(f"library-{number}", "library", f"{number}", f"{number}", f"show_tab({number})"),
            *(name, f"The task's {name}"),
            palette=False,
        )
        for number, name in enumerate(
            ("instruction", "Dockerfile", "tests", "solution", "history over runs"), start=1
        )
    ),
    Key(
        *("library-back", "library", "escape", "esc", "back", "back"),
        "Out of the preview or the search, then out of the browser",
        bar=1,
    ),
    Key(
        *("library-toggle", "library-tree", "space", "space", "tick", "select"),
        "Select the task or all tasks of the row, or take that back",
        bar=1,
    ),
    Key(
        *("library-read", "library-tree", "enter", "enter", "screen.read", "read"),
        "Read the task in full",
        bar=1,
    ),
    Key(
        *("library-down", "library-tree", "down,j", "↓ j", "move(1)", "down", "Next row"),
        palette=False,
    ),
    Key(
        *("library-up", "library-tree", "up,k", "↑ k", "move(-1)", "up", "Previous row"),
        palette=False,
    ),
    Key(
        *("library-page-down", "library-tree", "pagedown", "pgdn", "page(1)", "page down"),
        "A page down",
        palette=False,
    ),
    Key(
        *("library-page-up", "library-tree", "pageup", "pgup", "page(-1)", "page up"),
        "A page up",
        palette=False,
    ),
    Key(
        *("library-unfold", "library-tree", "right,l", "→ l", "unfold(True)", "open"),
        "Open a data set or kind, or go into it",
        palette=False,
    ),
    Key(
        *("library-fold", "library-tree", "left,h", "← h", "unfold(False)", "close"),
        "Close it, or go to the one around",
        palette=False,
    ),
    Key(
        *("library-scroll-down", "library-preview", "down,j", "↓ j", "scroll(1)", "down"),
        "Scroll down",
        palette=False,
    ),
    Key(
        *("library-scroll-up", "library-preview", "up,k", "↑ k", "scroll(-1)", "up"),
        "Scroll up",
        palette=False,
    ),
    Key(
        *("take-controls", "everywhere", "C", "C", "app.take_controls", "controls"),
        "Take the controls of the run from whoever has them; one at a time may steer it",
        own_need="steer",
    ),
    Key(
        *("next-pane", "everywhere", "tab", "tab", "app.focus_next", "pane", "Next pane"),
        palette=False,
        bound=False,
    ),
    Key("theme", "everywhere", "t", "t", "app.next_theme", "theme", "Next theme"),
    Key(
        *("tour", "everywhere", "f2", "f2", "app.tour", "tour"),
        "The five lines that greet newcomers",
    ),
    Key(
        *("palette", "everywhere", "ctrl+p", "^p", "app.command_palette", "commands"),
        "Find and run any command",
        palette=False,
        bound=False,
    ),
    Key(
        *("help", "everywhere", "question_mark,f1", "?", "app.help", "help", "Keys and glyphs"),
        bar=1,
    ),
    Key(
        *("quit", "everywhere", "q", "q", "app.leave", "quit"),
        "Leave; the run that this app runs is stopped and cleaned up first, if you say so",
        bar=1,
    ),
    Key(
        *("interrupt", "everywhere", "ctrl+c,ctrl+q", "^c", "app.interrupt", "leave now"),
        "Leave without a question; the app's own run is stopped and cleaned up first, a second time"
        " leaves at once",
        priority=True,
    ),
)


def bindings(*scopes: Scope) -> list[BindingType]:
    """Textual's bindings of the scopes."""
    return [
        Binding(key.keys, key.action, key.label, show=False, priority=key.priority, id=key.id)
        for key in KEYS
        if key.scope in scopes and key.bound
    ]


def bindings_of(*ids: str) -> list[BindingType]:
    """Textual's bindings of single keys, for an app that has only some of a scope."""
    return [
        Binding(key.keys, key.action, key.label, show=False, priority=key.priority, id=key.id)
        for key in KEYS
        if key.id in ids
    ]
