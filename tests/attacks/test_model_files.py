"""Files of models and checkpoints from elsewhere: what is none is refused, in one line."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbtui.dockerfile import json_form
from tbtui.policies.base import PolicyError
from tbtui.policies.local import checkpoint_file as local
from tbtui.policies.tinker import checkpoints as tinker
from tbtui.policies.torch.model_files import find_model

DEEP = '{"a":' + "[" * 100_000


def safetensors(header: Any) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text


def index(weight_map: object) -> bytes:
    return json.dumps({"weight_map": weight_map}).encode()


ONE, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", DEEP.encode()),
        ("config.json", b"[]"),
        (INDEX, b"{"),
        (INDEX, b"[]"),
        (INDEX, DEEP.encode()),
        (INDEX, index(5)),
        (INDEX, index({"a": "../elsewhere"})),
        (ONE, b""),
        (ONE, b"\xff" * 9),
        (ONE, safetensors(DEEP)),
        (ONE, safetensors([])),
        (ONE, safetensors({"a": 5})),
        (ONE, safetensors({"a": {"shape": ["x"]}})),
    ],
)
def test_a_models_directory(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / ONE).write_bytes(safetensors({"a": {"shape": [2, 3]}}))
    assert find_model(str(tmp_path)).shapes == {"a": (2, 3)}
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PolicyError) as refused:
        find_model(str(tmp_path))
    assert "\n" not in str(refused.value)


def arrays(**given: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **given)
    return file.getvalue()


def header(text: str) -> Any:
    return np.frombuffer(text.encode(), np.uint8)


def archive(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr(name, content)
    return file.getvalue()


HUGE = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % (
    1 << 60
)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04" + b"\xff" * 50,
        arrays(header=header(DEEP)),
        arrays(header=header("[]")),
        arrays(header=np.array([{"a": 1}], object)),
        arrays(weights=np.zeros(3)),
        archive("header.npy", HUGE.ljust(127) + b"\n"),
        archive("header.npy", b"\x93NUMPY\x09\x09" + b"\xff" * 90),
        None,
    ],
)
def test_an_embedded_policys_checkpoint(tmp_path: Path, content: bytes | None) -> None:
    """None: a FIFO, which is not waited for."""
    if content is None:
        os.mkfifo(tmp_path / local.FILE_NAME)
    else:
        (tmp_path / local.FILE_NAME).write_bytes(content)
    with pytest.raises(PolicyError) as refused:
        local.read_checkpoint(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [DEEP, "[]", '{"format": 5}', None])
def test_a_tinker_servers_checkpoint(tmp_path: Path, content: str | None) -> None:
    if content is None:
        os.mkfifo(tmp_path / tinker.FILE_NAME)
    else:
        (tmp_path / tinker.FILE_NAME).write_text(content)
    with pytest.raises(PolicyError):
        tinker.read_checkpoint(tmp_path)


def test_a_dockerfiles_command() -> None:
    assert json_form("[" * 100_000) is None
