"""Whether the locked packages have wheels for machines that nobody here has: read from uv.lock."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

LOCK = tomllib.loads((Path(__file__).parents[1] / "uv.lock").read_text())
# Since glibc 2.17, which has a name of its own too.
LINUX_ARM = ["manylinux2014_aarch64", *(f"manylinux_2_{n}_aarch64" for n in range(17, 37))]
MACHINES = {
    "Linux on Arm": ("linux", "aarch64", LINUX_ARM),
    "Apple silicon": ("darwin", "arm64", list(mac_platforms((14, 0), "arm64"))),
    "Intel Mac": ("darwin", "x86_64", list(mac_platforms((14, 0), "x86_64"))),
}


def needed(platform: str, machine: str, extra: str) -> Iterator[dict[str, Any]]:
    """What `uv sync --extra` would install there, for development."""
    system = {"linux": "Linux", "darwin": "Darwin"}[platform]
    environment = {"sys_platform": platform, "platform_machine": machine, "os_name": "posix"}
    environment |= {"platform_system": system, "python_full_version": "3.12.9"}
    environment |= {"python_version": "3.12", "platform_python_implementation": "CPython"}
    environment |= {"implementation_name": "cpython", "extra": ""}
    (root,) = (each for each in LOCK["package"] if each["name"] == "tbtui")
    wanted = [*root["dependencies"], *root["dev-dependencies"]["dev"]]
    wanted += root["optional-dependencies"].get(extra, [])
    seen = set()
    while wanted:
        one = wanted.pop()
        if "marker" in one and not Marker(one["marker"]).evaluate(environment):
            continue
        found = [
            each
            for each in LOCK["package"]
            if each["name"] == one["name"] and one.get("version") in (None, each["version"])
        ]
        for package in found:
            lists = {"": package.get("dependencies", [])}
            lists |= {name: package["optional-dependencies"][name] for name in one.get("extra", [])}
            for name, more in lists.items():
                key = (package["name"], package["version"], name)
                if key not in seen:
                    seen.add(key)
                    wanted += more
            yield package


def has_wheel(package: dict[str, Any], tags: set[Tag]) -> bool:
    names = [wheel["url"].rpartition("/")[2] for wheel in package.get("wheels", [])]
    return any(tags & parse_wheel_filename(name)[3] for name in names)


@pytest.mark.parametrize(
    ("machine", "extra", "without"),
    [
        ("Linux on Arm", "", set()),
        ("Linux on Arm", "torch", set()),
        ("Linux on Arm", "modal", set()),
        ("Apple silicon", "", set()),
        ("Apple silicon", "torch", set()),
        ("Apple silicon", "modal", set()),
        ("Intel Mac", "", {"cryptography", "libcst"}),  # to be compiled; libcst is for tests alone
    ],
)
def test_what_is_needed_has_wheels(machine: str, extra: str, without: set[str]) -> None:
    platform, processor, platforms = MACHINES[machine]
    tags = set(cpython_tags((3, 12), platforms=platforms))
    tags |= set(compatible_tags((3, 12), "cp312", platforms))
    packages = list(needed(platform, processor, extra))
    assert len(packages) > 100
    assert {each["name"] for each in packages if not has_wheel(each, tags)} == without
