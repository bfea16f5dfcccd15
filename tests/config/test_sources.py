"""Where settings come from: files, the command line, `.env`; what wins, and what is refused."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from tbtui.config import (
    ConfigError,
    RunConfig,
    absolute,
    names_of,
    parse_settings,
    read_config,
    to_json,
    to_toml,
)
from tbtui.config.sources import load_secrets


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_the_command_line_wins_over_files_and_a_later_file_over_an_earlier(tmp_path: Path) -> None:
    first = written(tmp_path / "a.toml", "seed = 1\nmax_steps = 1\nbatch_size = 1\n")
    second = written(tmp_path / "b.toml", "max_steps = 2\nbatch_size = 2\n")
    config = parse_settings(["batch_size=3", first, second])
    assert (config.seed, config.max_steps, config.batch_size, config.group_size) == (1, 2, 3, 8)
    assert config.given == {"seed", "max_steps", "batch_size"}


def test_tables_are_merged_entry_by_entry(tmp_path: Path) -> None:
    file = written(tmp_path / "a.toml", '[on_outcome]\nfailed = "mask"\nagent_error = "halt"\n')
    config = parse_settings([file, "on_outcome.failed=train"])
    assert config.on_outcome == {"failed": "train", "agent_error": "halt"}


def test_default_takes_back_what_a_file_says(tmp_path: Path) -> None:
    config = parse_settings([written(tmp_path / "a.toml", "max_steps = 7\n"), "max_steps=default"])
    assert config == RunConfig()


@pytest.mark.parametrize(
    ("text", "advantage"),
    [
        (
            'group_from = "task"\nfork_groups_per_step = 2\n',
            "centred",
        ),
        ('group_from = "fork"\nadvantage = "std"\n', "std"),
        ('advantage = "turn_value"\nvalue_rollouts_per_turn = 1\n', "leave_one_out"),
        ("normalize_advantages_by_std = true\n", "std"),
        ("normalize_advantages_by_std = false\n", "centred"),
    ],
)
def test_the_file_of_a_run_of_an_earlier_version_is_read(
    tmp_path: Path, text: str, advantage: str
) -> None:
    file = Path(written(tmp_path / "config.toml", text))
    assert parse_settings([], files=[file]).advantage == advantage


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("max_step = 3\n", "unknown setting 'max_step'; did you mean 'max_steps'?"),
        ('group_from = "fork"\n', "group_from=fork: training on forks did not pay and is gone"),
        ('advantage = "turn_value"\n', "advantage=turn_value: training on forks did not pay"),
        ('max_steps = "3"\n', "max_steps=3: should be a whole number of at least 0 (steps)"),
        ("max_steps = 1.5\n", "max_steps=1.5: should be a whole number"),
        ("stream = 1\n", "stream=1: should be true or false"),
        ('logs_dir = ["a"]\n', 'logs_dir=["a"]: should be a path'),
        ('eval_tasks = "a"\n', "eval_tasks=a: should be a list of texts"),
        ("prices = 3\n", "prices=3: should be a table"),
        ("[prices]\nprompt = -1\n", "prices.prompt=-1: should be a number of at least 0"),
        ('[on_alarm]\nno_signal = "stop"\n', "on_alarm.no_signal=stop: should be off, warn"),
        ("learning_rate = inf\n", "should be a number above 0"),
        ("max_steps = \n", "Invalid value"),
        ("seed = " + "1" * 400, "seed: can't be used: it has more than 63 bits"),
        ("seed = " + "1" * 5000, "a number in it has too many digits"),
        ("[environment_kwargs]\na = " + "[" * 3000, "it is nested too deeply"),
        ('run_name = "a\\u0000b"\n', "run_name: can't be used: it has a NUL character in it"),
        ('logs_dir = "~nobody-of-that-name/x"\n', "no such user (~nobody-of-that-name)"),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path: Path, text: str, complaint: str) -> None:
    file = written(tmp_path / "my.toml", text)
    with pytest.raises(ConfigError) as error:
        parse_settings([file])
    assert str(error.value).startswith(f"{file}: ")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("run_name=\udcff", "run_name: can't be used: it is not UTF-8 text"),
        ("environment_kwargs.\udcff=1", "can't be used: it is not UTF-8 text"),
        ("environment_kwargs.a=" + "[" * 100_000, "it is nested too deeply"),
        ("max_steps=" + "1" * 5000, "1...: should be a whole number of at least 0 (steps)"),
        ("prices.prompt=" + "1" * 400, "1...: should be a number of at least 0"),
    ],
)
def test_what_no_file_could_keep_is_refused(argument: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_settings([argument])
    assert complaint in str(error.value)
    assert len(str(error.value)) < 300


def test_a_file_may_have_an_equals_sign_in_its_path(tmp_path: Path) -> None:
    (tmp_path / "lr=1e-4").mkdir()
    file = written(tmp_path / "lr=1e-4" / "config.toml", "max_steps = 7\n")
    assert parse_settings([file]).max_steps == 7
    assert parse_settings(["seed=3"], files=[Path(file)]).max_steps == 7
    assert parse_settings(["review_rules=mine.toml"]).review_rules == Path("mine.toml")
    assert names_of([file, "seed.toml", "prices.prompt=1"]) == {"prices"}


def test_a_home_directory_is_resolved_wherever_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = written(tmp_path / "a.toml", 'logs_dir = "~/x"\n')
    assert parse_settings([file, "tasks_dir=~/t"]).logs_dir == tmp_path / "x"
    assert parse_settings([file, "tasks_dir=~/t"]).tasks_dir == tmp_path / "t"


def test_places_are_kept_as_they_are_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "ck"):
        (tmp_path / name).mkdir()
    given = ["tasks_dir=mine", "checkpoint=~/ck", "review_rules=r.toml", "tokenizer=Qwen/Qwen3-8B"]
    config = absolute(parse_settings(given))
    assert config.tasks_dir == tmp_path / "mine"
    assert config.checkpoint == str(tmp_path / "ck")
    assert config.review_rules == tmp_path / "r.toml"
    assert config.logs_dir == tmp_path / "runs"
    assert config.tokenizer == "Qwen/Qwen3-8B"
    # The name of a data set stays one.
    assert absolute(parse_settings(["tasks_dir=workshop"])).tasks_dir == Path("workshop")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^nowhere\.toml: No such file"):
        parse_settings(["nowhere.toml"])


@pytest.mark.parametrize(
    ("argument", "name", "value"),
    [
        ("stream=TRUE", "stream", True),
        ("stream=0", "stream", False),
        ("learning_rate=1e-3", "learning_rate", 1e-3),
        ("temperature=1", "temperature", 1.0),
        ("eval_tasks=a, b", "eval_tasks", ("a", "b")),
        ("checkpoint=none", "checkpoint", None),
        ("tasks_dir=x/y", "tasks_dir", Path("x/y")),
        ("run_name=7", "run_name", "7"),
        ("environment_kwargs.gpus=2", "environment_kwargs", {"gpus": 2}),
        ("environment_kwargs.region=eu", "environment_kwargs", {"region": "eu"}),
    ],
)
def test_texts_become_values(argument: str, name: str, value: object) -> None:
    read = vars_of(parse_settings([argument]))[name]
    assert read == value
    assert type(read) is type(value) or isinstance(value, Path)


def vars_of(config: RunConfig) -> dict[str, object]:
    return {name: getattr(config, name) for name in config.__struct_fields__}


SOME = [
    "eval_tasks=a,b",
    "max_steps=3",
    "run_name=x",
    "prices.prompt=1.5",
    "checkpoint=c\x7f\u00e9",
]


def test_what_is_printed_reads_back_as_the_same(tmp_path: Path) -> None:
    config = parse_settings(SOME)
    file = written(tmp_path / "printed.toml", to_toml(config))
    assert parse_settings([file]) == config
    assert read_config(to_json(config)) == config


def test_every_setting_is_printed() -> None:
    text = to_toml(RunConfig())
    for name in to_json(RunConfig()):
        assert f"\n{name} = " in f"\n{text}" or f"\n# {name} =  # " in text


def test_a_recorded_setting_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^run 7: max_steps=x: should be"):
        read_config({"max_steps": "x"}, "run 7: ")


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [([], 40), (["n_epochs=2"], None), (["n_epochs=2", "max_steps=40"], 40), (["max_steps=3"], 3)],
)
def test_epochs_alone_decide_the_length(
    tmp_path: Path, arguments: list[str], limit: int | None
) -> None:
    config = parse_settings(arguments)
    assert config.step_limit == limit
    file = written(tmp_path / "printed.toml", to_toml(config))
    assert parse_settings([file]).step_limit == limit
    assert to_json(config)["max_steps"] == limit
    assert read_config(to_json(config)).step_limit == limit


def test_secrets_come_from_dotenv_but_never_replace_what_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {"HF_TOKEN": "mine"})
    written(tmp_path / ".env", "HF_TOKEN=other\nexport WANDB_API_KEY='k 1'\n# note\n")
    load_secrets(tmp_path)
    assert os.environ == {"HF_TOKEN": "mine", "WANDB_API_KEY": "k 1"}
    load_secrets(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"LEARNING_RATE=1\n", "learning_rate is a setting"),
        (b"A=\xff\n", "not UTF-8"),
        (b"A=b\0c\n", "NUL character"),
    ],
)
def test_a_dotenv_that_is_none_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(ConfigError, match=complaint):
        load_secrets(tmp_path)


def test_no_secret_is_written_or_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    written(tmp_path / ".env", "WANDB_API_KEY=hush-hush\n")
    load_secrets(tmp_path)
    config = parse_settings([])
    assert "hush-hush" not in to_toml(config) + str(to_json(config))
    assert tomllib.loads(to_toml(config))["logs_dir"] == "runs"
