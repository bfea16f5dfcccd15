"""The table of settings, and the documentation made of it."""

from __future__ import annotations

from pathlib import Path

from tbtui.config import (
    GROUPS,
    RunConfig,
    fixed_on_resume,
    live_effects,
    setting_rows,
    settings,
    settings_markdown,
)
from tbtui.config.values import OTHER_NAMES
from tbtui.policies.local.process import HONOURED

DOCUMENT = Path(__file__).parents[2] / "tbtui" / "guide" / "settings.md"


def test_every_setting_is_under_one_heading_and_explained() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted([*listed, "given"]) == sorted(RunConfig.__struct_fields__)
    for row in settings().values():
        assert row.about.meaning
        assert row.about.why
        if row.kind == "number" and row.name.endswith(
            ("_timeout_sec", "_wait_sec", "_deadline_sec")
        ):
            assert row.about.unit == "seconds"
    assert {name for _, rows in setting_rows() for name, _ in rows} == {
        f"{row.name}={row.default_text}" for row in settings().values()
    }


def test_every_default_is_allowed() -> None:
    for row in settings().values():
        if isinstance(row.default, int | float):
            assert row.allows(row.default), row.name


def test_what_a_policy_honours_are_settings_that_depend_on_it() -> None:
    depending = {name for name, row in settings().items() if row.about.depends_on_policy}
    assert depending > HONOURED


def test_what_may_change_in_a_live_run_may_change_on_resume() -> None:
    assert not live_effects().keys() & fixed_on_resume().keys()


def test_the_documentation_is_up_to_date() -> None:
    """`tbtui settings > tbtui/guide/settings.md`"""
    assert settings_markdown() == DOCUMENT.read_text()


def test_names_of_other_trainers_lead_to_settings() -> None:
    assert set(OTHER_NAMES.values()) <= settings().keys()
    assert not OTHER_NAMES.keys() & settings().keys()
