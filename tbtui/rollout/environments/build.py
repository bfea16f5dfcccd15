"""Follows a Dockerfile inside a running box.

FROM is accepted as it is: the box's userland is the host's. Steps run anew in every box; there is
no cache. A step that can't be honoured fails the trial's environment, with file, line and step.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harbor.environments.base import SandboxBuildFailedError
from harbor.environments.definition import COMPOSE_FILE_NAME, DOCKERFILE_NAME

from tbtui.dockerfile import (
    KNOWN,
    DockerfileError,
    IgnoreRules,
    Instruction,
    expand,
    json_form,
    parse_dockerfile,
    without_heredoc_marks,
    words,
)
from tbtui.invocation import to_type
from tbtui.rollout.environments.archives import archive_format
from tbtui.rollout.environments.base import ExecTimeoutError
from tbtui.rollout.environments.box import Box
from tbtui.rollout.environments.upload import Ownership, upload_file, upload_tree
from tbtui.rollout.environments.userland import (
    OWN_UV,
    UV_IMAGE,
    BasePython,
    missing_packages,
    split_apt,
)
from tbtui.terminal import both_ends, one_line
from tbtui.wheels.requests import image_python

_OTHER = "use environment_type=docker for this task"


class UnbuildableError(SandboxBuildFailedError):
    """This environment can't be built here, however often it is tried."""


# ONBUILD is for images that are built upon this one; Harbor puts its own command in CMD's place.
_NO_EFFECT = frozenset(
    ["LABEL", "EXPOSE", "CMD", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK", "ONBUILD"]
)
_SHELLS = frozenset(["sh", "bash", "dash", "ash", "zsh"])
_STAGED = "/tmp/.add"
# A box of an ordinary user has one account only.
_UNPACK = (
    'mkdir -p "$2" && { tar -x --numeric-owner -f "$1" -C "$2"'
    ' || tar -x --no-same-owner -f "$1" -C "$2"; } && rm -f "$1"'
)
_QUOTED_OUTPUT = 2000
_SLOW_SEC = 3.0
_SHOWN = 80
"""Characters of a step that is shown while it runs."""
_URL = re.compile(r"(https?|ftp|git|ssh)://|git@")


@dataclass(frozen=True, slots=True)
class Image:
    """What a Dockerfile leaves behind besides files."""

    workdir: str = "/app"
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    shell: tuple[str, ...] = ("/bin/bash", "-c")
    entrypoint: tuple[str, ...] = ()
    """The program that a container starts with; empty: none but the shell of its command."""

    def at(self, workdir: str) -> Image:
        """The same with another working directory."""
        return replace(self, workdir=workdir)


def check_definition(environment_dir: Path, docker_image: str | None) -> None:
    """Whether the sandbox can build this environment at all.

    Raises:
        SandboxBuildFailedError: what it needs instead.
    """
    compose = environment_dir / COMPOSE_FILE_NAME
    if compose.exists():
        raise UnbuildableError(
            f"{compose}: the sandbox runs one box, not Docker Compose services: {_OTHER}"
        )
    if (environment_dir / DOCKERFILE_NAME).exists():
        return
    if docker_image:
        raise UnbuildableError(
            f"{environment_dir.parent.name}: its environment is the image {docker_image}, "
            f"which only a container engine can run: {_OTHER}"
        )
    raise UnbuildableError(
        f"{environment_dir / DOCKERFILE_NAME}: no such file; "
        "a task needs one, if only with FROM and WORKDIR"
    )


async def build_image(
    box: Box,
    dockerfile: Path,
    *,
    base: Mapping[str, str],
    timeout_sec: float,
    log: logging.Logger,
    tell: Callable[[str], None] = lambda text: None,
) -> Image:
    """Follows every step of `dockerfile` in `box`; its directory is the build context.

    Args:
        box: A fresh box.
        dockerfile: What to follow.
        base: The environment variables that the base image's programs start with.
        timeout_sec: For all steps together.
        log: Gets a line for what is passed over.
        tell: Called with the step under way where it takes longer than a few seconds.

    Raises:
        UnbuildableError: a step can't be honoured, or fails without a network.
        SandboxBuildFailedError: a step fails that another attempt may pass.
    """
    line, text = 0, ""
    where = _within_task(dockerfile)
    try:
        instructions = _read(dockerfile)
        builder = _Builder(box, dockerfile.parent, base, log)
        async with asyncio.timeout(timeout_sec):
            for number, instruction in enumerate(instructions, start=1):
                line, text = instruction.line, instruction.text
                under_way = f"step {number} of {len(instructions)}, {_short(text)}"
                slow = asyncio.get_running_loop().call_later(_SLOW_SEC, tell, under_way)
                try:
                    await builder.follow(instruction)
                finally:
                    slow.cancel()
    except DockerfileError as error:
        kind = SandboxBuildFailedError if error.may_pass else UnbuildableError
        raise kind(f"{where}:{error.line}: {error}") from error
    except (TimeoutError, ExecTimeoutError) as error:
        message = f"{where}:{line}: not done within {timeout_sec} s: {text}"
        raise SandboxBuildFailedError(message) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise SandboxBuildFailedError(f"{where}:{line}: {text}: {reason}") from error
    except UnicodeDecodeError as error:
        raise UnbuildableError(f"{where}: not UTF-8 text") from error
    return builder.image


def base_python(dockerfile: Path) -> BasePython:
    """The Python of the image that a Dockerfile starts from, as far as its name says.

    Raises:
        SandboxBuildFailedError: it can't be read.
    """
    where = _within_task(dockerfile)
    try:
        return BasePython(*image_python(_read(dockerfile)))
    except DockerfileError as error:
        raise SandboxBuildFailedError(f"{where}:{error.line}: {error}") from error
    except OSError as error:
        raise SandboxBuildFailedError(f"{where}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SandboxBuildFailedError(f"{where}: not UTF-8 text") from error


def _within_task(dockerfile: Path) -> str:
    """Its name in a message about its task: a long path would leave no room for the reason."""
    return f"{dockerfile.parent.name}/{dockerfile.name}"


def _read(dockerfile: Path) -> list[Instruction]:
    return parse_dockerfile(dockerfile.read_text(encoding="utf-8"))


class _Builder:
    def __init__(
        self, box: Box, context: Path, base: Mapping[str, str], log: logging.Logger
    ) -> None:
        self.image = Image(workdir="/")
        self._box = box
        self._base = base
        self._context = context.resolve()
        self._ignored = IgnoreRules.read(self._context)
        self._log = log
        self._arguments: dict[str, str] = {}
        self._based = False

    async def follow(self, step: Instruction) -> None:
        """Raises DockerfileError, OSError, or ExecTimeoutError."""
        if step.keyword not in KNOWN:
            raise DockerfileError(step.line, f"unknown instruction {step.keyword}")
        if not self._based and step.keyword not in {"FROM", "ARG"}:
            raise DockerfileError(step.line, f"{step.keyword} before FROM")
        if step.keyword in _NO_EFFECT:
            return
        # PATH is the only variable of a base image that is ever built upon: ENV PATH=...:$PATH.
        inherited = {"PATH": self._base["PATH"]}
        variables = {**inherited, **self._arguments, **self.image.environment}
        match step.keyword:
            case "FROM":
                self._from(step)
            case "ARG":
                for word in words(step.arguments, variables):
                    name, _, default = word.partition("=")
                    self._arguments.setdefault(name, default)
            case "ENV":
                self._env(step, variables)
            case "WORKDIR":
                path = self._path(expand(step.arguments.strip("\"'"), variables))
                await self._box.make_directories([path])
                self.image = self.image.at(path)
            case "USER":
                self.image = replace(self.image, user=expand(step.arguments, variables))
            case "ENTRYPOINT":
                self._entrypoint(step)
            case "SHELL":
                shell = json_form(step.arguments)
                if not shell:
                    raise DockerfileError(step.line, "SHELL needs its JSON form")
                self.image = replace(self.image, shell=tuple(shell))
            case "VOLUME":
                paths = json_form(step.arguments) or words(step.arguments, variables)
                await self._box.make_directories([self._path(path) for path in paths])
            case "COPY" | "ADD":
                await self._copy(step, variables)
            case "RUN":
                await self._run(step, variables)
            case _:
                raise DockerfileError(step.line, f"{step.keyword} has no meaning here: {_OTHER}")

    def _from(self, step: Instruction) -> None:
        if self._based:
            message = f"a second build stage ({step.text}) can't be built in the sandbox: {_OTHER}"
            raise DockerfileError(step.line, message)
        self._based = True
        self._log.debug("%s: the sandbox uses this host's own userland", step.text)

    def _env(self, step: Instruction, variables: dict[str, str]) -> None:
        pairs = words(step.arguments, variables)
        if pairs and "=" not in pairs[0]:  # the old form: ENV name the whole rest
            name, _, rest = step.arguments.partition(" ")
            pairs = [f"{name}={expand(rest.strip(), variables)}"]
        added = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        self.image = replace(self.image, environment={**self.image.environment, **added})

    def _entrypoint(self, step: Instruction) -> None:
        argv = json_form(step.arguments)
        if argv is None:
            argv = [*self.image.shell, step.arguments]
        # A shell alone has nothing to do before the command.
        elif argv and posixpath.basename(argv[0]) in _SHELLS and len(argv) == 1:
            argv = []
        self.image = replace(self.image, entrypoint=tuple(argv))

    def _path(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.image.workdir, path))

    async def _copy(self, step: Instruction, variables: dict[str, str]) -> None:
        flags, rest = step.flags()
        if UV_IMAGE.search(flags.get("from", "")):
            await self._require_uv(step)
            return
        for flag in ("from", "checksum", "exclude", "parents"):
            if flag in flags:
                message = f"{step.keyword} --{flag} can't be done in the sandbox: {_OTHER}"
                raise DockerfileError(step.line, message)
        ownership = Ownership(
            owner=expand(flags["chown"], variables) if "chown" in flags else None,
            mode=_octal(step, flags["chmod"]) if "chmod" in flags else None,
        )
        named = json_form(rest) or words(without_heredoc_marks(rest), variables)
        if len(named) + len(step.heredocs) < 2 or not named:
            raise DockerfileError(step.line, f"{step.keyword} needs a source and a destination")
        *sources, destination = named
        target = self._path(destination)
        into = destination.endswith("/") or destination in {".", ".."}
        for heredoc in step.heredocs:
            body = heredoc.body if heredoc.literal else expand(heredoc.body, variables)
            await self._put_text(body, f"{target}/{heredoc.name}" if into else target)
        found = [path for source in sources for path in self._sources(step, source)]
        into = into or len(found) > 1 or await self._is_directory(target)
        unpacks = step.keyword == "ADD" and flags.get("unpack") != "false"
        for path in found:
            if path.is_dir():
                await upload_tree(self._box, path, target, ownership, self._left_out)
            elif unpacks and archive_format(path) is not None:
                await self._unpack(step, path, target, ownership)
            else:
                name = f"{target.rstrip('/')}/{path.name}" if into else target
                await upload_file(self._box, path, name, ownership)

    async def _unpack(
        self, step: Instruction, archive: Path, target: str, ownership: Ownership
    ) -> None:
        """Unpacks a tar archive, compressed or not, below the directory `target`."""
        await upload_file(self._box, archive, f"{_STAGED}.tar")
        if ownership == Ownership():
            script, arguments = _UNPACK, [f"{_STAGED}.tar", target]
        else:
            script = (
                f'{_UNPACK} && chown -R "$3" "$2" && chmod -R "$4" "$2" && mkdir -p "$5"'
                ' && cp -a "$2/." "$5" && rm -rf "$2"'
            )
            mode = f"{ownership.mode:o}" if ownership.mode is not None else "+r"
            owner = ownership.owner or "0:0"
            arguments = [f"{_STAGED}.tar", _STAGED, owner, mode, target]
        result = await self._box.run(
            ["/bin/sh", "-c", script, "sh", *arguments], environment=self._base, cwd="/"
        )
        if result.exit_code:
            said = result.stderr.strip()[-_QUOTED_OUTPUT:]
            raise DockerfileError(step.line, f"{archive.name} can't be unpacked: {said}")

    def _left_out(self, path: Path) -> bool:
        return self._ignored.leaves_out(path.relative_to(self._context).as_posix())

    async def _require_uv(self, step: Instruction) -> None:
        """`COPY --from` of uv's own image, which holds nothing but uv and uvx."""
        if await self._box.mode_of(OWN_UV) is None:
            remedy = to_type("tasks", "prefetch", self._context.parent)
            message = f"{step.text}: uv is not in this box: `{remedy}` brings it"
            raise DockerfileError(step.line, f"{message}, or {_OTHER}")
        self._log.info("%s: the box has its own uv", step.text)

    def _sources(self, step: Instruction, source: str) -> list[Path]:
        if _URL.match(source):
            message = f"{step.keyword} of a URL needs the network: put {source} into environment/"
            raise DockerfileError(step.line, message)
        relative = posixpath.normpath(source.lstrip("/") or ".")
        if re.search(r"[*?\[]", relative):
            found = [
                path for path in sorted(self._context.glob(relative)) if not self._left_out(path)
            ]
        else:
            found = [self._context / relative]
        for path in found:
            # Docker never follows a link out of the build context, nor a "..".
            if not path.resolve().is_relative_to(self._context):
                raise DockerfileError(step.line, f"{source!r} lies outside environment/")
        if not found or not all(path.exists() for path in found):
            raise DockerfileError(step.line, f"{source!r} is not in environment/")
        # A directory that is left out may hold what is taken back.
        if any(path.is_file() and self._left_out(path) for path in found):
            raise DockerfileError(step.line, f"{source!r} is left out by .dockerignore")
        return [path.resolve() if path.is_dir() else path for path in found]

    async def _is_directory(self, path: str) -> bool:
        mode = await self._box.mode_of(path)
        return mode is not None and mode & 0o170000 == 0o040000

    async def _put_text(self, text: str, target: str) -> None:
        with tempfile.TemporaryFile() as file:
            file.write(text.encode())
            file.seek(0)
            await self._box.put_file(file.fileno(), target, mode=0o644)

    async def _run(self, step: Instruction, variables: dict[str, str]) -> None:
        _, command = step.flags()
        argv = json_form(command)
        if argv is None:
            command = self._without_packages(step, command)
            if not command:
                return
            argv = [*self.image.shell, self._script(step, command)]
        result = await self._box.run(
            argv,
            environment={**self._base, **variables},
            cwd=self.image.workdir,
            user=None if self.image.user in {"root", "0"} else self.image.user,
        )
        if result.exit_code:
            said = (result.stderr or result.stdout).strip()[-_QUOTED_OUTPUT:]
            message = f"exit code {result.exit_code} of {step.text}\n{said}"
            if self._box.network:
                pass  # what is missing is not the network
            elif "pip install" in command or re.search(r"\buvx?\b", command):
                fetch = to_type("tasks", "prefetch", self._context.parent)
                message += (
                    f"\n(without a network only what `{fetch}` has fetched"
                    f" can be installed; or {_OTHER})"
                )
            elif "apt" in command or "curl" in command:
                message += f"\n(nothing can be installed in the sandbox: {_OTHER})"
            killed = result.exit_code > 128
            raise DockerfileError(step.line, message, may_pass=killed or self._box.network)

    def _without_packages(self, step: Instruction, command: str) -> str:
        apt = None if step.heredocs else split_apt(command)
        if apt is None:
            return command
        missing = missing_packages(apt.packages)
        if missing:
            names = " ".join(missing)
            raise DockerfileError(
                step.line,
                f"nothing can be installed in the sandbox, and this host lacks {names}: "
                f"`apt-get install {names}` on the host, or {_OTHER}",
            )
        self._log.info("%s: this host has these packages already", step.text)
        return apt.rest

    def _script(self, step: Instruction, command: str) -> str:
        if not step.heredocs:
            return command
        bare = without_heredoc_marks(command)
        if not bare:
            return step.heredocs[0].body
        # `RUN python3 <<EOF`: the shell reads the document itself.
        bodies = "".join(f"{doc.body}{doc.name}\n" for doc in step.heredocs)
        return f"{command}\n{bodies}"


def _short(text: str) -> str:
    return both_ends(one_line(text), _SHOWN)


def _octal(step: Instruction, text: str) -> int:
    try:
        return int(text, 8)
    except ValueError:
        raise DockerfileError(step.line, f"--chmod={text} is not an octal mode") from None
