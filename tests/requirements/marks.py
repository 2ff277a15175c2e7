"""Which tests name which requirement, as pytest itself collects them."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

__all__ = ["CollectionError", "Marks", "collect", "marks_of"]


class CollectionError(RuntimeError):
    """The suite could not be collected; the text is what pytest said."""


@dataclass(frozen=True)
class Marks:
    """Test ids under the requirement they name."""

    proving: Mapping[str, list[str]]
    """Tests that run and are expected to pass; deselected ones (soak) count."""
    idle: Mapping[str, list[str]]
    """Tests that are skipped or expected to fail: they name a requirement and prove nothing."""
    malformed: list[str]
    """Tests with a `req` mark that holds no id, or something that is not a string."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Marks":
        return cls(**json.loads(text))


def marks_of(items: Iterable[pytest.Item]) -> Marks:
    """Read the `req` marks of collected tests, wherever they stand: function, class, module or parameter."""
    proving: dict[str, list[str]] = {}
    idle: dict[str, list[str]] = {}
    malformed: list[str] = []
    for item in items:
        marks = list(item.iter_markers("req"))
        named = [name for mark in marks for name in mark.args]
        if any(not mark.args or mark.kwargs for mark in marks) or any(not isinstance(n, str) for n in named):
            malformed.append(item.nodeid)
            continue
        kind = idle if _is_idle(item) else proving
        for name in dict.fromkeys(named):
            kind.setdefault(name, []).append(item.nodeid)
    return Marks(proving, idle, malformed)


def _is_idle(item: pytest.Item) -> bool:
    if item.get_closest_marker("skip"):
        return True
    # A condition given as text is not evaluated and counts as true: whoever relies on it proves nothing.
    conditional = [*item.iter_markers("skipif"), *item.iter_markers("xfail")]
    return any(any(mark.args or (mark.kwargs.get("condition", True),)) for mark in conditional)


def collect(folder: Path, *paths: str) -> Marks:
    """Let a fresh pytest collect `paths` in `folder`, whatever this run itself selected."""
    # What the surrounding run was told (xdist worker, extra options, coverage) is not for this one.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COVERAGE_"))}
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch, "marks.json")
        options = ["--collect-only", "-qq", "-p", "no:cacheprovider", f"--requirements-json={answer}"]
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *paths],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        if run.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise CollectionError(run.stdout)
        return Marks.from_json(answer.read_text("utf-8"))
