"""A trial as one HTML page: no scripts, nothing loaded, every text escaped."""

from __future__ import annotations

import html
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

from tbtui.export.record import CallRecord, TrialRecord
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.drawing.text import clock_time, number, visible, visible_lines
from tbtui.ui.terminal.recordings import ReadLimit, RecordingReader
from tbtui.view.prompt import asks
from tbtui.view.transcript import PERSON

_HEAT = (0.05, 0.2, 0.5, 1.2, 2.5, 5.0)
"""Upper ends of the buckets, of -log p in nats."""

_STYLE = """
:root { color-scheme: light dark; --quiet: #667; --line: #8884; --good: #17803d; --bad: #c02626;
  --heat: 230 120 20; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 78rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 0; }
p { margin: .4rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
pre { font: 13px/1.35 ui-monospace, "DejaVu Sans Mono", monospace; margin: .5rem 0; padding: .6rem;
  overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
pre.wrap { white-space: pre-wrap; overflow-wrap: anywhere; }
pre.terminal { background: #14161c; color: #d8dae2; }
section { border-top: 1px solid var(--line); padding: 1rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 1rem 0; }
dt, .quiet, summary { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
.keys { font-family: ui-monospace, monospace; } .bad { color: var(--bad); }
.good { color: var(--good); } summary { cursor: pointer; }
.h1 { background: rgb(var(--heat) / .08); } .h2 { background: rgb(var(--heat) / .16); }
.h3 { background: rgb(var(--heat) / .28); } .h4 { background: rgb(var(--heat) / .42); }
.h5 { background: rgb(var(--heat) / .6); } .h6 { background: rgb(var(--heat) / .85); }
"""


def page(record: TrialRecord) -> str:
    """The trial as HTML: turns with thinking, commands and terminal; tokens; verdict."""
    title = _line(f"{record.queued.label} · {record.run.name}")
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta http-equiv="Content-Security-Policy" ',
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n",
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n",
            *_head(record),
            *_turns(record),
            *_verdict(record),
            "</body>\n</html>\n",
        ]
    )


def _head(record: TrialRecord) -> Iterator[str]:
    queued, finished = record.queued, record.transcript.finished
    yield f"<h1>{_line(queued.label)}</h1>\n"
    if record.instruction:
        yield f"<details><summary>{_line(asks(record.instruction))}</summary>"
        yield f"<pre class=wrap>{_block(record.instruction)}</pre></details>\n"
    if line := record.story.line:
        yield f"<p>{_line(line)}</p>\n"
    yield "<dl>\n"
    facts = {
        "run": record.run.name,
        "trial": queued.trial,
        "task": queued.task,
        "group": f"{queued.group}, step {queued.step}, attempt {queued.attempt}",
        "split": {"eval": "held out", "probe": "probe"}.get(queued.purpose, "training"),
        "model": record.model_name,
        "queued": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record.queued_at)),
    }
    if finished is not None:
        facts["outcome"] = f"{finished.outcome.replace('_', ' ')}: {finished.reason}"
        facts["reward"] = "none" if record.reward is None else number(record.reward)
        if record.relabelled is not None and not record.relabelled.taken_back:
            facts["reward"] += f", changed: {record.relabelled.reason}"
        facts["time at work"] = clock_time(finished.seconds.active)
    if record.advantage is not None:
        facts["advantage"] = f"{record.advantage:+.2f}"
    for name, value in facts.items():
        yield f"<dt>{name}</dt><dd>{_line(value)}</dd>\n"
    yield "</dl>\n"


def _turns(record: TrialRecord) -> Iterator[str]:
    if not record.calls:
        yield "<section><p class=quiet>The policy was never asked.</p></section>\n"
        return
    times = [call.turn.ended_at or call.turn.started_at for call in record.calls]
    shown = _frames(record.run, record.trial, times)
    began = record.calls[0].turn.started_at
    for index, call in enumerate(record.calls):
        yield from _turn(call, shown[index], call.turn.started_at - began)


def _turn(call: CallRecord, frame: str, since: float) -> Iterator[str]:
    turn = call.turn
    if turn.purpose == PERSON:
        yield f"<section>\n<h2>✎ {_line(turn.plan)} typed</h2>\n"
        yield f"<p class=keys>{_block(turn.text)}</p>\n</section>\n"
        return
    name = f"turn {turn.turn}" + ("" if turn.purpose == "turn" else f" ({turn.purpose})")
    costs = f"at {clock_time(since)} · model {number(turn.model_seconds)} s"
    if turn.command_seconds:
        costs += f" · terminal {number(turn.command_seconds)} s"
    yield f'<section id="t{turn.turn}">\n<h2>{_line(name)} '
    yield f"<span class=quiet>{_line(costs)}</span></h2>\n"
    if turn.thinking.strip():
        yield f"<details><summary>thinking</summary><p>{_block(turn.thinking)}</p></details>\n"
    if turn.analysis:
        yield f"<p>{_block(turn.analysis)}</p>\n"
    if turn.plan:
        yield f"<p class=quiet>{_block(turn.plan)}</p>\n"
    if turn.error:
        yield f"<p class=bad>✗ can't be read: {_block(turn.error)}</p>\n"
    if turn.warning:
        yield f"<p class=bad>! {_block(turn.warning)}</p>\n"
    if turn.error or turn.purpose != "turn":
        yield f"<pre class=wrap>{_block(turn.text)}</pre>\n"
    for command in turn.commands:
        keys = command.keystrokes.removesuffix("\n").replace("\n", "⏎")
        yield f"<p class=keys>$ {_line(keys)}</p>\n"
    if turn.task_complete:
        yield "<p class=good>✓ says that the task is complete</p>\n"
    if frame:
        yield f"<pre class=terminal>{_block(frame)}</pre>\n"
    if turn.observation:
        yield "<details><summary>what the agent saw</summary>"
        yield f"<pre class=wrap>{_block(turn.observation)}</pre></details>\n"
    if call.sample is not None:
        yield from _tokens(call)
    yield "</section>\n"


def _tokens(call: CallRecord) -> Iterator[str]:
    assert call.sample is not None
    count = len(call.sample.pieces)
    if not call.sample.has_logprobs:
        yield f"<details><summary>{count} tokens, without log-probabilities</summary>"
        yield f"<pre class=wrap>{_block(''.join(call.sample.pieces))}</pre></details>\n"
        return
    yield f"<details><summary>{count} tokens by -log p</summary><pre class=wrap>"
    for piece, logprob in zip(call.sample.pieces, call.sample.logprobs.tolist(), strict=True):
        level = sum(1 for bound in _HEAT if -logprob > bound)
        yield f'<span class=h{level} title="{number(-logprob)} nats">{_block(piece)}</span>'
    yield "</pre></details>\n"


def _verdict(record: TrialRecord) -> Iterator[str]:
    finished = record.transcript.finished
    if finished is None:
        yield "<section><p class=quiet>Not finished when this was written.</p></section>\n"
        return
    passed = finished.reward is not None and finished.reward >= 1
    style = "good" if passed else "bad" if finished.reward is not None else "quiet"
    yield f"<section>\n<h2 class={style}>{_line(finished.outcome.replace('_', ' '))}</h2>\n"
    yield f"<p>{_block(finished.reason)}</p>\n"
    verdict = "none" if finished.verdict is None else number(finished.verdict)
    yield f"<p class=quiet>The verifier's verdict: {verdict}</p>\n"
    if finished.verifier_output.strip():
        yield f"<pre class=wrap>{_block(finished.verifier_output)}</pre>\n"
    yield "</section>\n"


def _line(text: str) -> str:
    return html.escape(visible(text))


def _block(text: str) -> str:
    """Escape a text, with its line breaks; other control characters are made visible."""
    return html.escape("\n".join(visible_lines(text)))


def _frames(run: RunDirectory, trial: str, times: Sequence[float]) -> list[str]:
    """The used rows of the screen at each of the times (seconds since the epoch, ascending).

    Empty where nothing was recorded by then.
    """
    with closing(RecordingReader(run.recording(trial))) as recording:
        return [_frame(recording, ReadLimit(time, times[0])) for time in times]


def _frame(recording: RecordingReader, moment: ReadLimit) -> str:
    while recording.advance(moment):
        pass
    screen = recording.screen
    if screen is None:
        return ""
    return "\n".join(screen.plain(y) for y in range(screen.used_rows())).rstrip()
