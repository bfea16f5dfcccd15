"""Sends alerts about alarms, a budget, the end and a crash to people elsewhere.

A thread follows the journal and nothing waits for it: not the run while it is live, and only so
long at its end. A run that is killed can't say so: a small process beside it does
(`alert_process.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Protocol

from tbtui.config import ConfigError, RunConfig
from tbtui.config.values import public_receiver
from tbtui.journal.events import AlarmRaised, AlertSent, AnyEvent, BudgetReached, RunFinished
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.view.sentences import alarm_words, budget_words, undelivered_words

About = Literal["alarm", "budget", "end", "crash"]

_KINDS = tuple(kind.kind for kind in (AlarmRaised, BudgetReached, RunFinished))
_POLL_SEC = 1.0
_PATIENCE_SEC = 30.0
"""How long the end of a run waits for its last alerts."""
_TRIES = 5
_TIMEOUT_SEC = 20.0
_MODULE = "tbtui.engines.alert_process"
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_PASSING = frozenset({408, 425, 429, *range(500, 600)})
"""HTTP statuses after which another try may succeed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Alert:
    """A message to a person elsewhere: a webhook's JSON, and a command's input."""

    about: About
    text: str
    run: str
    directory: str
    host: str
    time: float
    """Seconds since the epoch."""


class AlertError(Exception):
    """It could not be delivered; one line without secrets."""


class PassingError(AlertError):
    """It could not be delivered now, and may be later."""


class Receiver(Protocol):
    name: str
    """Without secrets."""

    def send(self, alert: Alert) -> None:
        """Deliver it. Raises `AlertError`."""


class Webhook:
    """Gets each alert as a POST: JSON with a `text`, as Slack, Mattermost and others show it."""

    def __init__(self, address: str) -> None:
        self.name = public_receiver(address)
        self._address = _VARIABLE.sub(_environment, address)

    def send(self, alert: Alert) -> None:
        import httpx  # few runs have a receiver

        # It writes the whole address into the log at every request.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        try:
            # What it says beside its status is not read.
            with httpx.stream(
                "POST", self._address, json=asdict(alert), timeout=_TIMEOUT_SEC
            ) as answer:
                pass
        except httpx.InvalidURL:
            raise AlertError("that is no address") from None
        except httpx.HTTPError as error:
            raise PassingError(str(error) or type(error).__name__) from None
        if answer.is_success:
            return
        kind = PassingError if answer.status_code in _PASSING else AlertError
        raise kind(f"HTTP status {answer.status_code}")


class Program:
    """Is run for each alert, with its JSON on the input, and TBTUI_ALERT and TBTUI_ALERT_TEXT."""

    def __init__(self, receiver: str) -> None:
        self.name = receiver
        self._argv = shlex.split(receiver.removeprefix("command:"))
        if not self._argv:
            raise ValueError("no command")

    def send(self, alert: Alert) -> None:
        variables = {"TBTUI_ALERT": alert.about, "TBTUI_ALERT_TEXT": alert.text}
        try:
            done = subprocess.run(
                self._argv,
                input=json.dumps(asdict(alert)),
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SEC,
                env=os.environ | variables,
                start_new_session=True,  # ctrl-c is for the run
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PassingError(f"it took more than {_TIMEOUT_SEC:g} s") from None
        except OSError as error:
            raise AlertError(str(error.strerror or error)) from None
        if done.returncode:
            words = done.stderr.strip().splitlines()
            raise PassingError(f"exit status {done.returncode}: {words[-1] if words else ''}")


class Wandb:
    """Raises wandb's own alert, which that sends by e-mail or Slack."""

    name = "wandb"

    def __init__(self, project: str, run_name: str) -> None:
        self._project, self._run_name = project, run_name

    def send(self, alert: Alert) -> None:
        # In a process of its own: the tracker has the one run that wandb allows in ours.
        script = (
            "import json, sys, wandb\n"
            "project, name, title, text = json.load(sys.stdin)\n"
            "with wandb.init(project=project, name=name, job_type='alerts',"
            " settings=wandb.Settings(console='off', silent=True)) as run:\n"
            "    run.alert(title=title, text=text)\n"
        )
        title = f"{alert.run}: {alert.about}"
        document = json.dumps([self._project, f"{self._run_name}-alerts", title, alert.text])
        command = [sys.executable, "-P", "-c", script]
        try:
            done = subprocess.run(
                command, input=document, capture_output=True, text=True, timeout=120, check=False
            )
        except subprocess.TimeoutExpired:
            raise PassingError("wandb took more than 120 s") from None
        if done.returncode:
            words = done.stderr.strip().splitlines()
            raise PassingError(words[-1] if words else f"exit status {done.returncode}")


def receivers_of(alerts: Sequence[str], wandb_project: str | None, run: str) -> list[Receiver]:
    """The receivers that a setting names.

    Raises:
        ConfigError: one can't be; one line with what to give.
    """
    return [_receiver(each, wandb_project, run) for each in alerts]


def _receiver(text: str, wandb_project: str | None, run: str) -> Receiver:
    shown = public_receiver(text)
    if "***" in text:
        raise ConfigError(
            f"alerts={shown}: it was written down without its secret; give alerts=... again, or"
            " name the secret as $NAME of the environment"
        )
    if text.startswith(("https://", "http://")):
        return Webhook(text)
    if text.startswith("command:"):
        try:
            return Program(text)
        except ValueError as error:
            raise ConfigError(f"alerts={shown}: {error}; write command:PROGRAM ARGUMENT") from error
    if text == "wandb":
        if wandb_project is None:
            raise ConfigError("alerts=wandb: give wandb_project too")
        return Wandb(wandb_project, run)
    raise ConfigError(f"alerts={shown}: should be https://..., command:... or wandb")


def _environment(found: re.Match[str]) -> str:
    name = found[1] or found[2]
    if (value := os.environ.get(name)) is None:
        raise ConfigError(f"alerts: ${name} is not in the environment")
    return value


def deliver(alert: Alert, receiver: Receiver, stop: threading.Event) -> AlertSent:
    """Send an alert, again after growing pauses while that may help; returns what came of it.

    With `stop` set the pauses are over at once.
    """
    from tenacity import (
        RetryError,
        Retrying,
        retry_if_exception_type,
        sleep_using_event,
        stop_after_attempt,
        wait_exponential_jitter,
    )

    tries = 0

    def send() -> None:
        nonlocal tries
        tries += 1
        receiver.send(alert)

    error = ""
    try:
        Retrying(
            stop=stop_after_attempt(_TRIES),
            wait=wait_exponential_jitter(initial=1, max=60),
            retry=retry_if_exception_type(PassingError),
            sleep=sleep_using_event(stop),
        )(send)
    except RetryError as failed:
        error = str(failed.last_attempt.exception())
    except AlertError as failed:
        error = str(failed)
    return AlertSent(about=alert.about, to=receiver.name, ok=not error, tries=tries, error=error)


class Alerts:
    """Follows a run's journal, from its last event on, and sends alerts."""

    def __init__(
        self,
        receivers: Sequence[Receiver],
        directory: RunDirectory,
        journal: Callable[[AlertSent], None],
    ) -> None:
        """`journal` is called on the thread."""
        self._receivers = receivers
        self._directory = directory
        self._journal = journal
        self._complete = threading.Event()
        self._thread = threading.Thread(target=self._main, name="alerts", daemon=True)

    def start(self) -> None:
        self._after = self._last_seq()
        self._thread.start()

    def close(self, patience: float = _PATIENCE_SEC) -> None:
        """Send what the end of the journal has, and wait for that at most so many seconds."""
        self._complete.set()
        self._thread.join(patience)
        if self._thread.is_alive():
            log.error("the last alerts were not delivered within %.0f s", patience)

    def _last_seq(self) -> int:
        with contextlib.closing(JournalReader(self._directory)) as reader:
            return reader.last_seq()

    def _main(self) -> None:
        try:
            with contextlib.closing(JournalReader(self._directory)) as reader:
                ending = False
                while not ending:
                    ending = self._complete.wait(_POLL_SEC)
                    for entry in reader.each(_KINDS, self._after):
                        self._after = entry.seq
                        self._tell(alert_of(entry.event, self._directory, entry.time))
        except Exception:
            log.exception("alerts failed; the run goes on without them")

    def _tell(self, alert: Alert | None) -> None:
        for receiver in self._receivers if alert is not None else ():
            assert alert is not None
            sent = deliver(alert, receiver, self._complete)
            if sent.error:
                log.warning("%s", undelivered_words(sent))
            self._journal(sent)


def alert_of(event: AnyEvent, directory: RunDirectory, when: float) -> Alert | None:
    """What an event means to people elsewhere; None: nothing."""
    match event:
        case AlarmRaised():
            about: About = "alarm"
            text = alarm_words(event)
        case BudgetReached():
            about = "budget"
            text = budget_words(event)
        case RunFinished(status=status):
            about = "crash" if status == "failed" else "end"
            text = f"{status}: {event.reason}"
        case _:
            return None
    return make_alert(about, text, directory, when)


def make_alert(about: About, text: str, directory: RunDirectory, when: float) -> Alert:
    """An alert of this machine's run."""
    name, path = directory.name, str(directory.path)
    return Alert(about, f"{name}: {text}", name, path, socket.gethostname(), when)


@contextlib.contextmanager
def alerting(
    alerts: Sequence[str],
    wandb_project: str | None,
    directory: RunDirectory,
    journal: Callable[[AlertSent], None],
) -> Iterator[Callable[[], None]]:
    """Send alerts while the context lasts; yields what sends those of the journal's end.

    Raises `ConfigError`.
    """
    if not alerts:
        yield lambda: None
        return
    following = Alerts(receivers_of(alerts, wandb_project, directory.name), directory, journal)
    following.start()
    watcher = subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE],
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,  # it is to outlive a run that is killed with its group
    )
    assert watcher.stdin is not None
    with contextlib.suppress(OSError):
        watched = [list(alerts), wandb_project, str(directory.path)]
        watcher.stdin.write(json.dumps(watched) + "\n")
        watcher.stdin.flush()
    try:
        yield following.close
    finally:
        with contextlib.suppress(OSError):
            watcher.communicate("done\n", timeout=_POLL_SEC)


@contextlib.asynccontextmanager
async def alerting_of(
    config: RunConfig, directory: RunDirectory, append: Callable[[AnyEvent], object]
) -> AsyncIterator[None]:
    """Send a run's alerts, and journal what became of them, while the context lasts.

    The last of them wait for the end of the context, for some seconds at most: by then the run's
    last event has to be written. Raises `ConfigError`.
    """
    loop, over = asyncio.get_running_loop(), False

    def journal(event: AlertSent) -> None:
        if not over:
            append(event)

    def sent(event: AlertSent) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may have ended
            loop.call_soon_threadsafe(journal, event)

    with alerting(config.alerts, config.wandb_project, directory, sent) as deliver:
        yield
        over = True  # nothing comes after the run's last event
        await asyncio.to_thread(deliver)
