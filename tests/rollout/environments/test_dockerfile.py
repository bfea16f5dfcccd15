"""Dockerfile steps that make sense in a box, and clear errors for the others."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from harbor.environments.base import SandboxBuildFailedError

from tbtui.dockerfile import (
    DockerfileError,
    expand,
    parse_dockerfile,
    words,
)
from tbtui.rollout.environments.build import Image, build_image, check_definition
from tbtui.rollout.environments.userland import BASE_ENVIRONMENT, missing_packages, split_apt
from tests.rollout.environments.boxes import running_box, sh

LOG = logging.getLogger(__name__)


async def _build(
    directory: Path, text: str, *commands: str, network: bool = False
) -> tuple[Image, list[str]]:
    dockerfile = directory / "Dockerfile"
    dockerfile.write_text(text)
    async with running_box(network=network) as box:
        image = await build_image(box, dockerfile, base=BASE_ENVIRONMENT, timeout_sec=20, log=LOG)
        return image, [(await sh(box, command)).stdout for command in commands]


async def test_every_honoured_step(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("A")
    (tmp_path / "b.txt").write_text("B")
    (tmp_path / "c.txt").write_text("C")
    image, outputs = await _build(
        tmp_path,
        """\
# syntax=docker/dockerfile:1
ARG VERSION=1.2
FROM python:3.12-slim AS base
LABEL a=b
ARG NAME="two words"
ENV ONE=1 TWO="${NAME} here" OLD=$VERSION
ENV LEGACY the rest of it
WORKDIR /srv/work
WORKDIR sub
COPY b.txt c.txt ./
COPY --chmod=0600 b.txt /etc/conf/renamed
COPY data /data/
COPY ["b.txt", "with space.txt"]
ADD *.txt /globbed/
RUN echo "$TWO" > two && \\
    # a comment in between

    pwd >> two
RUN ["/bin/sh", "-c", "echo json > json"]
RUN <<EOF
echo "first $ONE" > doc
echo second >> doc
EOF
COPY <<"EOF" /lit
$ONE
EOF
USER www-data
EXPOSE 80
CMD ["sh"]
""",
        "cat /srv/work/sub/two",
        "cat /srv/work/sub/b.txt /srv/work/sub/c.txt '/srv/work/sub/with space.txt' /data/a.txt",
        "ls /globbed",
        "stat -c %a /etc/conf/renamed",
        "cat /srv/work/sub/json /srv/work/sub/doc /lit",
    )
    assert outputs == [
        "two words here\n/srv/work/sub\n",
        "BCBA",
        "b.txt\nc.txt\n",
        "600\n",
        "json\nfirst 1\nsecond\n$ONE\n",
    ]
    assert image.workdir == "/srv/work/sub"
    assert image.user == "www-data"
    assert image.environment == {
        "ONE": "1",
        "TWO": "two words here",
        "OLD": "1.2",
        "LEGACY": "the rest of it",
    }


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("RUN echo to-stdout; echo oops >&2; exit 3", "exit code 3 of RUN echo.*oops"),
        ("RUN apt-get install -y no-such-package-xyz", "this host lacks no-such-package-xyz"),
        ("ADD https://example.com/x /x", "URL"),
        ("COPY --from=builder /x /x", "--from"),
        ("COPY missing.txt /x", "'missing.txt' is not in environment/"),
        ("COPY ../secret /x", "'../secret' lies outside|is not in"),
        ("COPY link /x", "'link' lies outside"),
        ("FROM other", "second build stage"),
        ("ONBUILD RUN true", "ONBUILD"),
        ("FROBNICATE x", "unknown instruction FROBNICATE"),
        ("RUN <<EOF\necho", "here-document EOF has no end"),
        ("USER nosuch\nRUN true", "no user 'nosuch'"),
    ],
)
async def test_a_step_that_fails_names_file_and_line(tmp_path: Path, step: str, says: str) -> None:
    context = tmp_path / "environment"
    context.mkdir()
    (tmp_path / "secret").write_text("s")
    (context / "link").symlink_to(tmp_path / "secret")
    lines = f"FROM x\n\n{step}\n"
    with pytest.raises(SandboxBuildFailedError, match=f"(?s){says}") as caught:
        await _build(context, lines)
    line = 4 if step.startswith("USER") else 3
    assert str(caught.value).startswith(f"{context / 'Dockerfile'}:{line}: ")


async def test_build_timeout(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM x\nRUN sleep 100\n")
    async with running_box() as box:
        with pytest.raises(SandboxBuildFailedError, match=r"not done within 0\.2 s: RUN sleep"):
            await build_image(
                box, tmp_path / "Dockerfile", base=BASE_ENVIRONMENT, timeout_sec=0.2, log=LOG
            )


@pytest.mark.parametrize("network", [False, True])
async def test_only_without_a_network_is_a_failed_download_put_down_to_it(
    tmp_path: Path, network: bool
) -> None:
    with pytest.raises(SandboxBuildFailedError, match="no such wheel") as caught:
        await _build(
            tmp_path, "FROM x\nRUN echo no such wheel; pip install x y | false\n", network=network
        )
    assert ("without a network only what" in str(caught.value)) is not network


async def test_installed_packages_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tbtui.rollout.environments.build.missing_packages", lambda packages: [])
    step = "RUN apt-get update && apt-get install -y --no-install-recommends tmux && echo x > /y"
    _, outputs = await _build(tmp_path, f"FROM x\n{step}\n", "cat /y")
    assert outputs == ["x\n"]


def test_split_apt() -> None:
    step = split_apt(
        "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y a b=1.2 "
        "&& rm -rf /var/lib/apt/lists/* && useradd x"
    )
    assert step is not None
    assert step.packages == ("a", "b=1.2")
    assert step.rest == "useradd x"
    assert missing_packages(step.packages, frozenset({"a"})) == ["b"]
    for other in ("echo hi", "apt-get install $(cat list)", "apt-get purge x", "(apt-get update)"):
        assert split_apt(other) is None


def test_definitions_only_a_container_engine_can_run(tmp_path: Path) -> None:
    with pytest.raises(SandboxBuildFailedError, match="no such file"):
        check_definition(tmp_path, None)
    with pytest.raises(SandboxBuildFailedError, match=r"image x:1.*environment_type=docker"):
        check_definition(tmp_path, "x:1")
    (tmp_path / "Dockerfile").write_text("FROM x")
    check_definition(tmp_path, "x:1")
    (tmp_path / "docker-compose.yaml").write_text("")
    with pytest.raises(SandboxBuildFailedError, match=r"Compose.*environment_type=docker"):
        check_definition(tmp_path, None)


def test_parsing() -> None:
    steps = parse_dockerfile("from x\nRUN a \\\n  b\n\n# c\nRUN d\n")
    assert [(s.line, s.keyword, s.arguments) for s in steps] == [
        (1, "FROM", "x"),
        (2, "RUN", "a   b"),
        (6, "RUN", "d"),
    ]
    assert parse_dockerfile("# escape=`\nRUN a `\nb")[0].arguments == "a b"
    directives = "# syntax=docker/dockerfile:1\n# escape=`\n"
    assert parse_dockerfile(f"{directives}RUN a `\nb")[0].arguments == "a b"
    assert len(parse_dockerfile("# a comment ends them\n# escape=`\nRUN a `\nRUN b")) == 2
    (here,) = parse_dockerfile("RUN cat <<<hello && cat <<EOF\nbody\nEOF\n")
    assert [each.name for each in here.heredocs] == ["EOF"]
    (base,) = parse_dockerfile("FROM\tubuntu:24.04")
    assert (base.keyword, base.arguments) == ("FROM", "ubuntu:24.04")
    with pytest.raises(DockerfileError, match="here-document EOF has no end"):
        parse_dockerfile("RUN cat <<EOF")


def test_words() -> None:
    known = {"A": "1", "E": ""}
    assert words('x$A ${A}y \'$A\' "$A b" \\$A "\\""', known) == [
        *("x1", "1y", "$A", "1 b", "$A", '"')
    ]
    assert expand("${N:-d}${A:+p}${E:-q}$N", known) == "dpq"
