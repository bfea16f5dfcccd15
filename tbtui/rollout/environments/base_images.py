"""What a Dockerfile's base image holds that a sandbox, whose userland is the host's, may lack."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_REGISTRIES = re.compile(
    r"^(?:(?:index\.|registry-1\.)?docker\.io/|mirror\.gcr\.io/|public\.ecr\.aws/docker/)?"
    r"(?:library/|(?:amd64|arm64v8|i386)/)?"
)
"""Names of Docker's official images begin so, or with nothing."""
_SYSTEMS = frozenset(
    [
        *("almalinux", "alpine", "amazonlinux", "archlinux", "bash", "buildpack-deps", "busybox"),
        *("centos", "debian", "fedora", "oraclelinux", "photon", "rockylinux", "scratch"),
        *("ubuntu",),
    ]
)
"""Official images that hold a distribution and no more."""
_TOOLS: Mapping[str, str] = {
    "amazoncorretto": "java",
    "clojure": "clojure",
    "composer": "composer",
    "dart": "dart",
    "docker": "docker",
    "eclipse-temurin": "java",
    "elixir": "elixir",
    "erlang": "erl",
    "gcc": "gcc",
    "golang": "go",
    "gradle": "gradle",
    "groovy": "groovy",
    "haskell": "ghc",
    "httpd": "httpd",
    "ibm-semeru-runtimes": "java",
    "julia": "julia",
    "mariadb": "mariadbd",
    "maven": "mvn",
    "memcached": "memcached",
    "mongo": "mongod",
    "mysql": "mysqld",
    "nginx": "nginx",
    "node": "node",
    "openjdk": "java",
    "perl": "perl",
    "php": "php",
    "postgres": "postgres",
    "pypy": "pypy3",
    "python": "python3",
    "r-base": "R",
    "rabbitmq": "rabbitmq-server",
    "redis": "redis-server",
    "ruby": "ruby",
    "rust": "cargo",
    "swift": "swift",
    "tomcat": "java",
    "continuumio/miniconda3": "conda",
    "continuumio/anaconda3": "conda",
    "condaforge/miniforge3": "conda",
    "condaforge/mambaforge": "conda",
    "mambaorg/micromamba": "micromamba",
    "nikolaik/python-nodejs": "node",
    "rocker/r-ver": "R",
}
"""Images that are known for a program -> that program."""
_PLAIN = re.compile(
    # A distribution, with what every box has: tmux, Python, uv.
    r"(?:^|/)t-bench/(?:ubuntu|python)-[\d-]+$|(?:^|/)astral-sh/uv$"
    r"|^mcr\.microsoft\.com/devcontainers/base$|^nvidia/cuda$|(?:^|/)ubi\d*/ubi(?:-minimal)?$"
    r"|(?:^|/)kali-rolling$|(?:^|/)centos/centos$"
)


def image_lacks(image: str, has: Callable[[str], bool]) -> str | None:
    """What of a base image a sandbox does not have; None: nothing is known to be missing.

    Args:
        image: Its name as in FROM, variables filled in.
        has: Whether the sandbox has a program.
    """
    if not image or "$" in image:
        return None
    name = re.sub(r"(?::[\w.-]+)?(?:@sha256:\w+)?$", "", image)
    official = _REGISTRIES.sub("", name)
    if official in _SYSTEMS or _PLAIN.search(name):
        return None
    if (tool := _TOOLS.get(official)) is not None:
        return None if has(tool) else f"{image} brings {tool}, which this host lacks"
    return f"{image} holds files of its own, which only a container engine can bring"
