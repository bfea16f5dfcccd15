"""The text of tokens of which Prime-RL recorded the ids, where the tokenizer is at hand."""

from __future__ import annotations

import asyncio
import shutil
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from tbtui.engines.prime_rl.watch.run import WatchOptions, prepare_watch, watch
from tbtui.engines.prime_rl.watch.turns import (
    NoTokenizerError,
    TokenText,
    token_text,
    tokenizer_name,
)
from tbtui.journal.events import Noted, TrialTraced, TurnSampled
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.samples import ids_as_text, only_ids
from tbtui.policies.local.tokenizer import TOKENIZER
from tbtui.view.prompt import prompt_parts

ARCHIVE = Path(__file__).parents[1] / "prime_rl_recorded" / "run.tar.xz"
"""A run of the exported embedded model, which names its directory as of another machine."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    shutil.copyfile(TOKENIZER, directory / "tokenizer.json")
    return directory


def watched(directory: Path, model: Path | None) -> JournalReader:
    """The journal of the recorded run; with `model` in the place that its configuration names."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    source = directory / "run" / "prime_rl" / "cpu"
    if model is not None:
        for path in source.rglob("configs/*.json"):
            path.write_text(path.read_text().replace("/home/user/cpu/model", str(model)))
    options = WatchOptions(once=True, trials_dir=directory / "run")
    asyncio.run(watch(prepare_watch(source, directory / "journal", options)))
    return JournalReader(RunDirectory(directory / "journal"))


def test_a_rollouts_tokens_read_as_what_the_model_said(tmp_path: Path, model: Path) -> None:
    with closing(watched(tmp_path, model)) as reader:
        said = {
            (entry.event.trial, entry.event.turn): entry.event.text
            for entry in reader.read_kinds(["turn_sampled"], 0, 1000)
            if isinstance(entry.event, TurnSampled)
        }
        calls = traced(reader)
        assert len(calls) > 20
        for trial, turn, sample in calls:
            pieces = [text for text, _ in reader.sample_tokens(sample)]
            assert said[trial, turn].strip() in "".join(pieces)
            assert not only_ids(pieces)
        assert not [note for note in notes(reader) if "ids" in note]


def test_without_it_they_are_ids_and_a_note_says_what_would_help(tmp_path: Path) -> None:
    with closing(watched(tmp_path, None)) as reader:
        _, _, sample = traced(reader)[0]
        assert only_ids([text for text, _ in reader.sample_tokens(sample)])
        # Not taken for what the model said.
        parts = prompt_parts([*reader.calls_until(sample), *reader.calls_until(sample)])
        assert all(part.pieces is None for part in parts)
        assert "tokens stay ids: /home/user/cpu/model: there is no such directory" in "\n".join(
            notes(reader)
        )


def traced(reader: JournalReader) -> list[tuple[str, int, int]]:
    """Trial, turn and sample of each call of which the tokens are there."""
    events = [entry.event for entry in reader.read_kinds(["trial_traced"], 0, 1000)]
    return [
        (event.trial, call.turn, call.sample)
        for event in events
        if isinstance(event, TrialTraced)
        for call in event.calls
    ]


def notes(reader: JournalReader) -> list[str]:
    entries = reader.read_kinds(["noted"], 0, 1000)
    return [entry.event.text for entry in entries if isinstance(entry.event, Noted)]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"tokenizer": {"name": "a"}, "model": {"name": "b"}}, "a"),
        ({"tokenizer": {"name": None}, "model": {"name": "b"}}, "b"),
        ({"orchestrator": {"model": {"name": "b"}, "tokenizer": {"name": "c"}}}, "c"),
        ({"model": "b", "orchestrator": []}, ""),
    ],
)
def test_the_configuration_names_it(config: dict[str, object], name: str) -> None:
    assert tokenizer_name(config) == name


def test_it_is_found_in_the_cache_and_never_fetched(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    with pytest.raises(NoTokenizerError, match=r"hf download org/model tokenizer\.json"):
        token_text("org/model")
    kept = hub / "models--org--model"
    (kept / "snapshots").mkdir(parents=True)
    model.rename(kept / "snapshots" / "abc")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("abc")
    assert "".join(token_text("org/model")([5, 6, 7])).isprintable()


def test_what_is_no_tokenizer_is_named(model: Path) -> None:
    (model / "tokenizer.json").write_text("{}")
    with pytest.raises(NoTokenizerError, match=r"tokenizer\.json: can't be read as a tokenizer"):
        token_text(str(model))
    (model / "tokenizer.json").unlink()
    text = TokenText({"model": {"name": str(model)}})
    assert text.pieces([3, 4]) == ids_as_text([3, 4])
    assert text.problem() == f"{model} has no tokenizer.json; put the model's there"
    assert text.problem() == ""


def test_an_id_of_another_vocabulary_stays_one(model: Path) -> None:
    assert token_text(str(model))([1, 10**6]) == ids_as_text([1, 10**6])
