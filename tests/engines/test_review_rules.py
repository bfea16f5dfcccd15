"""Rules that decide in a person's place: what a file may say, what matches, and how it grows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.config import ConfigError
from tbtui.engines.grpo.review_rules import RuleDecision, RuleFacts, append_rule, load_rules
from tbtui.findings import SUSPECTS, Rule
from tbtui.journal.events import Outcome
from tbtui.journal.review_rule import Between, ReviewRule, When, rule_line, rule_toml

FACTS = RuleFacts(
    task="copy-01",
    kind="copy",
    outcome=Outcome.SOLVED,
    reward=1.0,
    turns=2,
    suspects=frozenset({Rule.FEW_TURNS}),
)
FILE = """\
# Shortcuts that we have seen.
[[rule]]
name = "shortcuts"
when = { suspect = "few_turns", task = "copy-*", turns = { max = 2 } }
do = "exclude"
reason = "seen too often"

[[rule]]
when = { suspect = ["infrastructure_zero", "tests_skipped"], reward = 0 }
do = "refill"  # once

[[rule]]
when = { outcome = "agent_timeout", kind = ["copy", "move"], reward = { min = 0, max = 0.5 } }
do = "relabel"
reward = 0.25
reason = "half way"

[[rule]]
when = { suspect = "any" }
do = "hold"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(FILE)
    return path


def test_the_first_rule_that_matches_decides(file: Path) -> None:
    rules = load_rules(file)
    assert [rule.name for rule in rules.rules] == ["shortcuts", "2", "3", "4"]
    decided = RuleDecision("shortcuts", "exclude", None, "seen too often")
    assert rules.decide(FACTS) == decided
    assert decided.actor == "rule:shortcuts"


@pytest.mark.parametrize(
    ("facts", "verb"),
    [
        (replace(FACTS, turns=3), "hold"),
        (replace(FACTS, task="move-01"), "hold"),
        (replace(FACTS, suspects=frozenset()), None),
        (replace(FACTS, suspects=frozenset({Rule.TESTS_SKIPPED}), reward=0.0), "refill"),
        (replace(FACTS, suspects=frozenset({Rule.TESTS_SKIPPED}), reward=None), "hold"),
        (
            replace(FACTS, suspects=frozenset(), outcome=Outcome.AGENT_TIMEOUT, reward=0.5),
            "relabel",
        ),
        (replace(FACTS, suspects=frozenset(), outcome=Outcome.AGENT_TIMEOUT, reward=0.6), None),
        (replace(FACTS, suspects=frozenset(), outcome=Outcome.AGENT_TIMEOUT, kind=None), None),
    ],
)
def test_all_that_a_rule_names_has_to_hold(file: Path, facts: RuleFacts, verb: str | None) -> None:
    decision = load_rules(file).decide(facts)
    assert (decision.verb if decision else None) == verb
    if verb == "relabel":
        assert decision == RuleDecision("3", "relabel", 0.25, "half way")


def test_without_conditions_a_rule_is_about_every_trial(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\ndo = "accept"\n')
    decision = load_rules(path).decide(replace(FACTS, suspects=frozenset(), reward=None))
    assert decision == RuleDecision("1", "accept", None, "")


@pytest.mark.parametrize(
    ("verb", "suspects", "matches"),
    [
        ("exclude", {Rule.FEW_TURNS}, True),
        ("exclude", {Rule.FEW_TURNS, Rule.UNVERIFIED}, True),
        ("exclude", {Rule.UNVERIFIED}, False),
        ("accept", {Rule.FEW_TURNS}, True),
        ("accept", {Rule.FEW_TURNS, Rule.NO_COMMANDS}, True),
        ("accept", {Rule.FEW_TURNS, Rule.UNVERIFIED}, False),
        ("accept", set(), False),
    ],
)
def test_nothing_is_accepted_that_has_another_suspicion_against_it(
    tmp_path: Path, verb: str, suspects: set[Rule], matches: bool
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(f'[[rule]]\nwhen = {{ suspect = ["few_turns", "no_commands"] }}\ndo = "{verb}"')
    decision = load_rules(path).decide(replace(FACTS, suspects=frozenset(suspects)))
    assert (decision is not None) == matches


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[rule]]\n", "rule 1: do is missing"),
        ('[[rule]]\ndo = "exlude"\n', "rule 1: do = 'exlude': unknown; did you mean 'exclude'?"),
        (
            '[[rule]]\ndo = "hold"\n[[rule]]\ndo = "hold"\nwhen = { suspect = "few_turn" }\n',
            "rule 2: suspect = 'few_turn': unknown; did you mean 'few_turns'?",
        ),
        ('[[rule]]\ndo = "hold"\nwhen = { outcome = "sloved" }\n', "did you mean 'solved'?"),
        ('[[rule]]\ndo = "hold"\nwhen = { rewards = 1 }\n', "unknown condition 'rewards'"),
        ('[[rule]]\ndo = "hold"\nwhy = "x"\n', "rule 1: unknown key 'why'"),
        ('[[rule]]\ndo = "hold"\nwhen = "always"\n', "rule 1: when should be a table"),
        ('[[rule]]\ndo = "hold"\nwhen = { task = [] }\n', "task = []: nothing would match"),
        ('[[rule]]\ndo = "hold"\nwhen = { task = 3 }\n', "task should be a text, and is 3"),
        ('[[rule]]\ndo = "hold"\nwhen = { turns = {} }\n', "turns = {}: give min, max or both"),
        (
            '[[rule]]\ndo = "hold"\nwhen = { turns = { min = 3, max = 1 } }\n',
            "turns: min 3 is above max 1",
        ),
        (
            '[[rule]]\ndo = "hold"\nwhen = { reward = { most = 1 } }\n',
            "unknown bound of reward 'most'",
        ),
        ('[[rule]]\ndo = "hold"\nwhen = { reward = true }\n', "reward should be a number"),
        ('[[rule]]\ndo = "relabel"\nreward = 1\n', "rule 1: relabel needs a reason"),
        ('[[rule]]\ndo = "relabel"\nreason = "x"\n', "rule 1: reward is missing"),
        (
            '[[rule]]\ndo = "relabel"\nreason = "x"\nreward = nan\n',
            "reward should be a finite number, and is nan",
        ),
        ('[[rule]]\ndo = "hold"\nreward = 1\n', 'reward is for do = "relabel", not for hold'),
        ('[[rule]]\ndo = "hold"\nname = "a b"\n', "name should be letters, digits"),
        (
            '[[rule]]\ndo = "hold"\nname = "a"\n[[rule]]\ndo = "hold"\nname = "a"\n',
            "rule 2: another rule is called 'a' too",
        ),
        ('[rule]\ndo = "hold"\n', "rule should be [[rule]] tables"),
        ('[[rules]]\ndo = "hold"\n', "unknown key 'rules'; did you mean 'rule'?"),
        ("rule = \n", "not TOML (Invalid value"),
    ],
)
def test_a_bad_file_is_named_with_the_rule(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_rules(path)
    line = str(refused.value)
    assert line.startswith(f"{path}: ")
    assert complaint in line
    assert "\n" not in line


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    with pytest.raises(ConfigError, match=r"rules.toml: can't be read \(No such file"):
        load_rules(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load_rules(path)


NEW = ReviewRule(
    "accept-few-turns",
    "accept",
    When(suspect=(Rule.FEW_TURNS,), outcome=(Outcome.SOLVED,), task=("copy-01",)),
    reason='he said "fine"',
)


@pytest.mark.parametrize("before", [FILE, FILE.rstrip(), FILE.replace("\n", "\r\n"), ""])
def test_a_rule_is_added_and_what_stands_there_stays(file: Path, before: str) -> None:
    file.write_bytes(before.encode())
    rules = load_rules(file).rules
    append_rule(file, NEW)
    assert file.read_bytes().decode().startswith(before)
    assert file.read_bytes().decode().endswith(rule_toml(NEW))
    assert load_rules(file).rules == (*rules, NEW)
    assert not list(file.parent.glob("*.new"))


def test_a_link_to_the_file_stays_one(file: Path) -> None:
    link = file.with_name("link.toml")
    link.symlink_to(file)
    append_rule(link, NEW)
    assert link.is_symlink()
    assert load_rules(file).rules[-1] == NEW


def test_the_first_rule_makes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run" / "review_rules.toml"
    append_rule(path, NEW)
    assert path.read_text() == (
        "[[rule]]\n"
        'name = "accept-few-turns"\n'
        'when = { suspect = "few_turns", outcome = "solved", task = "copy-01" }\n'
        'do = "accept"\n'
        'reason = "he said \\"fine\\""\n'
    )


def test_a_taken_name_or_a_broken_file_leaves_it_as_it_was(file: Path) -> None:
    with pytest.raises(ConfigError, match="rule 5: another rule is called 'shortcuts' too"):
        append_rule(file, replace(NEW, name="shortcuts"))
    assert file.read_text() == FILE
    file.write_text("rule = []\n")
    with pytest.raises(ConfigError, match="not TOML"):
        append_rule(file, NEW)
    assert file.read_text() == "rule = []\n"


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
texts = st.lists(st.text(max_size=5), max_size=2).map(tuple)
numbers = st.floats(allow_nan=False, allow_infinity=False)
bounds = st.one_of(
    st.none(),
    numbers.map(lambda least: Between(least=least)),
    st.tuples(numbers, numbers).map(lambda pair: Between(min(pair), max(pair))),
)
whens = st.builds(
    When,
    suspect=st.lists(st.sampled_from(["any", *SUSPECTS]), max_size=2).map(tuple),
    outcome=st.lists(st.sampled_from(list(Outcome)), max_size=2).map(tuple),
    task=texts,
    kind=texts,
    reward=bounds,
    turns=bounds,
)
rules = st.one_of(
    st.builds(
        ReviewRule,
        names,
        st.sampled_from(["exclude", "accept", "refill", "hold"]),
        whens,
        reason=st.text(max_size=9).map(str.strip),
    ),
    st.builds(
        ReviewRule,
        names,
        st.just("relabel"),
        whens,
        numbers,
        st.text(max_size=9).map(str.strip).filter(bool),
    ),
)


@given(rules)
def test_what_is_written_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, rule: ReviewRule
) -> None:
    path = tmp_path_factory.mktemp("rules") / "rules.toml"
    append_rule(path, rule)
    assert load_rules(path).rules == (rule,)
    assert "\n" not in rule_line(replace(rule, name="x"))
