"""Dockerfile steps that make sense in a box, and clear errors for the others."""

from __future__ import annotations

import asyncio
import gzip
import io
import logging
import os
import tarfile
from pathlib import Path
from typing import Literal

import pytest
from harbor.environments.base import SandboxBuildFailedError

from tbtui.dockerfile import DockerfileError, IgnoreRules, expand, parse_dockerfile, words
from tbtui.rollout.environments.box import CommandResult
from tbtui.rollout.environments.build import Image, build_image, check_definition
from tbtui.rollout.environments.userland import BASE_ENVIRONMENT, missing_packages, split_apt
from tests.rollout.environments.boxes import running_box, sh

pytestmark = pytest.mark.uid

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
ONBUILD RUN false
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
        ("COPY kept.txt left-out.txt /x/", "'left-out.txt' is left out by .dockerignore"),
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
    for name in ("kept.txt", "left-out.txt"):
        (context / name).write_text("")
    (context / ".dockerignore").write_text("left-out.txt\n")
    lines = f"FROM x\n\n{step}\n"
    with pytest.raises(SandboxBuildFailedError, match=f"(?s){says}") as caught:
        await _build(context, lines)
    line = 4 if step.startswith("USER") else 3
    assert str(caught.value).startswith(f"environment/Dockerfile:{line}: ")


# As https://docs.docker.com/build/concepts/context/#dockerignore-files has it.
@pytest.mark.parametrize(
    ("rules", "left_out", "kept"),
    [
        ("# *\n\n", [], ["a", "# *"]),
        ("answer.txt\n/key\n", ["answer.txt", "key"], ["sub/answer.txt", "sub/key"]),
        ("*/temp*\n", ["a/temporary.txt", "a/temp/x"], ["temp", "a/b/temp"]),
        ("temp?\n", ["tempa", "tempb/x"], ["temp", "tempab"]),
        ("**/*.go\n", ["x.go", "a/b/x.go"], ["x.gone"]),
        ("*.md\n!README*.md\nREADME-secret.md\n", ["a.md", "README-secret.md"], ["README.md"]),
        ("*.md\nREADME-secret.md\n!README*.md\n", ["a.md"], ["README.md", "README-secret.md"]),
        ("solution/\n", ["solution", "solution/a/b"], ["solutions"]),
        ("**\n!src\n", ["a", "b/c"], ["src", "src/a"]),
        ("./a/../b\n", ["b", "b/x"], ["a"]),
        ("dir\n!dir/inner.txt\n", ["dir", "dir/x"], ["dir/inner.txt"]),
        ("[ab].txt\n", ["a.txt", "b.txt"], ["c.txt"]),
    ],
)
def test_what_a_dockerignore_leaves_out(
    tmp_path: Path, rules: str, left_out: list[str], kept: list[str]
) -> None:
    (tmp_path / ".dockerignore").write_text(rules)
    found = IgnoreRules.read(tmp_path)
    assert [path for path in left_out if not found.leaves_out(path)] == []
    assert [path for path in kept if found.leaves_out(path)] == []
    (tmp_path / "Dockerfile.dockerignore").write_text("other\n")
    assert not any(IgnoreRules.read(tmp_path).leaves_out(path) for path in left_out)


async def test_what_a_dockerignore_leaves_out_is_not_in_the_box(tmp_path: Path) -> None:
    context = tmp_path / "environment"
    context.mkdir()
    for name in ("answer.txt", "data.txt", "dir/answer.txt", "dir/kept", "out/a", "out/back"):
        (context / name).parent.mkdir(exist_ok=True)
        (context / name).write_text("")
    (context / ".dockerignore").write_text("**/answer.txt\nout\n!out/back\n.dockerignore\n")
    _, [everything, globbed, inner] = await _build(
        context,
        "FROM debian\nCOPY . /all/\nCOPY *.txt /texts/\nADD dir /inner/\n",
        "cd /all && find . -type f | sort",
        "ls /texts",
        "ls /inner",
    )
    assert everything.split() == ["./Dockerfile", "./data.txt", "./dir/kept", "./out/back"]
    assert (globbed, inner) == ("data.txt\n", "kept\n")


def archive(path: Path, mode: Literal["w", "w:gz", "w:bz2", "w:xz"]) -> None:
    with tarfile.open(path, mode) as tar:
        for name, kind in (("sub", tarfile.DIRTYPE), ("sub/run", tarfile.REGTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.mode = kind, 0o750
            member.size = 2 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"hi") if member.size else None)
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "sub/run"
        tar.addfile(link)


async def test_add_unpacks_archives_whatever_their_name(tmp_path: Path) -> None:
    archive(tmp_path / "plain.dat", "w")
    archive(tmp_path / "a b.zip", "w:gz")
    archive(tmp_path / "xz", "w:xz")
    (tmp_path / "text.tar.gz").write_bytes(gzip.compress(b"no archive"))
    # Without privileges a box has root alone.
    owner = "www-data" if os.geteuid() == 0 else "root"
    steps = f"""\
FROM debian
WORKDIR /app
ADD plain.dat here
ADD ["a b.zip", "/zipped/"]
ADD --chown={owner} --chmod=755 xz /owned
ADD text.tar.gz /
ADD --unpack=false xz /packed/
COPY plain.dat /copied/
"""
    _, outputs = await _build(
        tmp_path,
        steps,
        "cat /app/here/link /zipped/link",
        "stat -c '%a %U' /app/here/sub/run /owned/sub/run",
        "ls -d /text.tar.gz /packed/xz /copied/plain.dat; ls /tmp -A",
    )
    assert outputs == [
        "hihi",
        f"750 root\n755 {owner}\n",
        "/copied/plain.dat\n/packed/xz\n/text.tar.gz\n",
    ]


async def test_a_step_that_takes_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tbtui.rollout.environments.build._SLOW_SEC", 0.05)
    (tmp_path / "Dockerfile").write_text("FROM debian\nENV A=1\nRUN until [ -e /go ]; do :; done\n")
    told: list[str] = []
    async with running_box() as box:

        def tell(step: str) -> None:
            told.append(step)
            touched.append(asyncio.ensure_future(sh(box, "touch /go")))

        touched: list[asyncio.Future[CommandResult]] = []
        await build_image(
            box, tmp_path / "Dockerfile", base=BASE_ENVIRONMENT, timeout_sec=20, log=LOG, tell=tell
        )
        await asyncio.gather(*touched)
    assert told == ["step 3 of 3, RUN until [ -e /go ]; do :; done"]


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
            tmp_path, "FROM x\nRUN echo no such wheel; false pip install x\n", network=network
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
