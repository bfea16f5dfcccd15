"""The table of settings, and the documentation made of it."""

from __future__ import annotations

from pathlib import Path

from tbtui.config import (
    GROUPS,
    POLICY_SETTINGS,
    RunConfig,
    setting_rows,
    settings,
    settings_markdown,
)

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


def test_policy_settings_are_settings() -> None:
    assert set(settings()) >= POLICY_SETTINGS


def test_the_documentation_is_up_to_date() -> None:
    """`tbtui settings > tbtui/guide/settings.md`"""
    assert settings_markdown() == DOCUMENT.read_text()
