"""A folder to work in, and `manglecp` in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from manglecp.cli import cli

Run = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:  # noqa: ARG001
    """`run("eval", "a.mg")` in this process. An exception that nobody expected is raised, not swallowed."""

    def run(*args: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(cli, args, input=stdin, catch_exceptions=False)

    return run


@pytest.fixture
def write(folder: Path) -> Callable[[str, str | bytes], Path]:
    def write(name: str, content: str | bytes) -> Path:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
