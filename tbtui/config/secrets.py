"""`.env` in the current directory: keys of services, into the process's environment.

Nothing but keys: the directory may be a cloned repository, whose `.env` could otherwise make
Python import something else (`PYTHONPATH`), the linker load something else (`LD_PRELOAD`), or keys
go somewhere else (`OPENAI_BASE_URL`, `HTTPS_PROXY`).
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from tbtui.config.problems import ConfigError
from tbtui.config.table import settings
from tbtui.paths import read_plain
from tbtui.terminal import visible

KEYS = frozenset(
    {
        # Models, and where they come from
        "TINKER_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "PRIME_API_KEY",
        "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN",
        # Where metrics go, and who may look
        "WANDB_API_KEY", "TBTUI_SERVE_TOKEN",
        # Where trials run: Harbor's environments
        "BEAM_TOKEN", "BL_API_KEY", "CUA_CLIENT_ID", "CUA_CLIENT_SECRET", "CWSANDBOX_API_KEY",
        "DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN", "E2B_API_KEY", "HYPERBROWSER_API_KEY",
        "ISLO_API_KEY", "LANGCHAIN_API_KEY", "LANGSMITH_API_KEY", "MODAL_TOKEN_ID",
        "MODAL_TOKEN_SECRET", "MOSAIC_API_TOKEN",
        "MOSAIC_REGISTRY_PASSWORD", "MOSAIC_REGISTRY_USERNAME", "NOVITA_API_KEY",
        "OPENSANDBOX_API_KEY", "RUNLOOP_API_KEY", "RUNTA_TOKEN", "TENSORLAKE_API_KEY",
        "USE_COMPUTER_API_KEY", "VERCEL_OIDC_TOKEN", "VERCEL_TOKEN",
        # With whose account: an identifier goes with its key
        "DAYTONA_ORGANIZATION_ID", "VERCEL_PROJECT_ID", "VERCEL_TEAM_ID",
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    }
)  # fmt: skip
"""What `.env` may set."""
_MOST_NAMED = 8


def load_secrets(directory: Path) -> str:
    """Load the keys of `directory`'s `.env`, if there is one; what is set already stays.

    No value is written or printed anywhere. Returns a line that names what was left out, empty if
    nothing was.

    Raises:
        ConfigError: it can't be read, or holds a setting of the run.
    """
    path = directory / ".env"
    if not path.exists():
        return ""
    from dotenv import dotenv_values  # takes 50 ms, and most runs have no such file

    try:
        text = read_plain(path.resolve()).decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text") from error
    # Values are taken as they stand: nothing of the environment is put into them.
    secrets = dotenv_values(stream=io.StringIO(text), interpolate=False)
    if any("\0" in f"{name}{value}" for name, value in secrets.items()):
        raise ConfigError(f"{path}: it has a NUL character in it, which no secret can have")
    for name in secrets:
        if name.lower() in settings():
            raise ConfigError(
                f"{path}: {name.lower()} is a setting, and .env is for secrets; give it on the"
                " command line or in a TOML file"
            )
    for name in KEYS & secrets.keys():
        if (value := secrets[name]) is not None:
            os.environ.setdefault(name, value)
    others = [visible(name) for name in secrets if name not in KEYS]
    if not others:
        return ""
    named = ", ".join(others[:_MOST_NAMED]) + ", ..." * (len(others) > _MOST_NAMED)
    return f"{path}: {named} left out: .env is for keys only; set it in the environment"
