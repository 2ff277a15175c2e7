"""The sources from which the operator supplies the secrets of packs, and the values that are read from them.

Without another source, the value of a secret is the environment variable of the same name. A variable or a file is read
for each call, so that a rotation needs no restart. The output of a command is used for a minute; after an error the
command runs again after five seconds at the earliest.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from manglecp.base.redaction import MIN_LENGTH, Redactor, SecretValue
from manglecp.base.suggestions import did_you_mean
from manglecp.pack.settings import SECRET_NAME
from manglecp.pack.toml_reader import TomlTable

if TYPE_CHECKING:
    from manglecp.pack.model import Pack

_COMMAND_SECONDS: Final = 10.0
_VALID_SECONDS: Final = 60.0  # how long the output of a command is used
_RETRY_SECONDS: Final = 5.0
_MAX_BYTES: Final = 8_192
_RECENT: Final = 8  # values of a secret that are redacted although no host holds them
_WORD: Final = re.compile(r"[^\0]{1,4096}", re.DOTALL)
_PATH: Final = re.compile(r"/[^\0]*")
_Kind: TypeAlias = Literal["env", "file", "command"]
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretUse(NamedTuple):
    """A secret that a function takes; without ``required``, the parameter of the function has a default."""

    name: str
    required: bool


class SecretError(Exception):
    """A secret without a valid value. The text names the secret and its source, and has no value."""


@dataclass(frozen=True, slots=True)
class SecretSource:
    """The source of a value: the name of an environment variable, the path of a file, or the words of a command."""

    kind: _Kind
    words: tuple[str, ...]

    def __str__(self) -> str:
        kind = {"env": "the environment variable", "file": "the file", "command": "the command"}[self.kind]
        return f"{kind} {self.words[0]}"  # further words of a command may be confidential

    @property
    def available(self) -> bool:
        """Whether the variable is set, the file can be read, or the program of the command exists."""
        word = self.words[0]
        if self.kind == "env":
            return bool(os.environ.get(word))
        return os.access(word, os.R_OK) if self.kind == "file" else shutil.which(word) is not None


def read_secret_sources(secrets: TomlTable) -> dict[str, SecretSource]:
    """Return the sources in ``[secrets.NAME]`` of ``server.toml``, by name; report invalid ones."""
    sources = {}
    for name in secrets:
        table = secrets.section(name)
        if not SECRET_NAME.fullmatch(name):
            secrets.report(name, "a secret is named in upper case, such as GITHUB_TOKEN")
        words_by_kind: tuple[tuple[_Kind, tuple[str, ...]], ...] = (
            ("env", (table.text("env", "", pattern=_VARIABLE, takes="the name of an environment variable"),)),
            ("file", (table.text("file", "", pattern=_PATH, takes="an absolute path"),)),
            ("command", table.texts("command", _WORD, "a word of a command", unique=False)),
        )
        table.finish()
        found = [SecretSource(kind, words) for kind, words in words_by_kind if any(words)]
        if len(found) == 1:
            sources[name] = found[0]
        else:
            table.report(None, "takes one source", 'write env = "…", file = "/…" or command = ["…"]')
    return sources


_CommandResult: TypeAlias = "tuple[float, SecretValue | SecretError]"  # valid until this time


class SecretProvider:
    """The values of secrets by name, and their redaction. Thread-safe.

    ``redactor`` redacts the current and a few earlier values, and values to which other objects refer.
    """

    def __init__(self, sources: Mapping[str, SecretSource] | None = None) -> None:
        self._sources = dict(sources or {})
        self._recent: dict[str, deque[SecretValue]] = {}  # by name, the current value last
        self._command_results: dict[str, _CommandResult] = {}
        self._command_lock = threading.Lock()
        self.redactor: Final = Redactor()

    def source(self, name: str) -> SecretSource:
        return self._sources.get(name) or SecretSource("env", (name,))

    def problems(self, pack: Pack) -> Iterator[str]:
        """Yield what the operator of a pack has to change: missing values, and sources of undeclared secrets."""
        declared = pack.settings.secrets
        for name in sorted(self._sources.keys() - declared):
            yield f"the pack declares no secret {name}; {did_you_mean(name, declared)}"
        for name in sorted({use.name for _, _, use in pack.secret_uses if use.required}):
            if not self.source(name).available:
                yield self._missing(name)

    def describe(self, pack: Pack) -> list[dict[str, Any]]:
        """Return name, source and availability of each secret that a pack declares, for operators."""
        names_and_sources = ((name, self.source(name)) for name in sorted(pack.settings.secrets))
        return [{"name": name, "source": str(each), "available": each.available} for name, each in names_and_sources]

    def may_block(self, uses: Iterable[SecretUse]) -> bool:
        """Return whether :meth:`values` has to run a command."""
        return any(self.source(use.name).kind == "command" and self._cached(use.name) is None for use in uses)

    def values(self, uses: Iterable[SecretUse]) -> list[SecretValue]:
        """Return the values of the secrets, without those of missing optional ones; raises :class:`SecretError`."""
        values = []
        for use in uses:
            value = self._read(use.name)
            if value is not None:
                values.append(value)
            elif use.required:
                raise SecretError(self._missing(use.name))
        return values

    def _missing(self, name: str) -> str:
        return f"the secret {name} has no value: {self.source(name)} is missing or empty"

    def _cached(self, name: str) -> SecretValue | SecretError | None:
        valid_until, result = self._command_results.get(name, (0.0, None))
        return result if time.monotonic() < valid_until else None

    def _read(self, name: str) -> SecretValue | None:
        """Return the current value, or None if the variable or the file is missing; raises :class:`SecretError`."""
        source = self.source(name)
        if source.kind != "command":
            data = os.environb.get(source.words[0].encode()) if source.kind == "env" else _read_file(name, source)
            return self._accept(name, data) if data else None
        with self._command_lock:
            result = self._cached(name)
            if result is None:
                try:
                    result = self._accept(name, _run_command(name, source))
                except SecretError as error:
                    result = error
                seconds = _RETRY_SECONDS if isinstance(result, SecretError) else _VALID_SECONDS
                self._command_results[name] = (time.monotonic() + seconds, result)
        if isinstance(result, SecretError):
            raise SecretError(str(result))
        return result

    def _accept(self, name: str, data: bytes) -> SecretValue:
        """Return the value of these bytes, without a final line break; raises :class:`SecretError`."""
        try:
            text = data.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            raise SecretError(f"the secret {name} is not UTF-8 text") from None
        if len(text) < MIN_LENGTH:
            raise SecretError(f"the secret {name} has less than {MIN_LENGTH} characters: it could not be redacted")
        if len(data) > _MAX_BYTES:
            raise SecretError(f"the secret {name} has more than {_MAX_BYTES:,} bytes")
        recent = self._recent.setdefault(name, deque(maxlen=_RECENT))
        value = next((each for each in recent if each.text == text), None)
        if value is None:
            value = SecretValue(name, text)
            self.redactor.add(value)
            recent.append(value)
        return value


def _read_file(name: str, source: SecretSource) -> bytes | None:
    """Return the content, or a prefix that is longer than a value may be; None if there is no such file."""
    try:
        descriptor = os.open(source.words[0], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not block
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SecretError(f"the secret {name} cannot be read: {source} is not a regular file")
            return os.read(descriptor, _MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SecretError(f"the secret {name} cannot be read: {source}: {error.strerror}") from None


def _run_command(name: str, source: SecretSource) -> bytes:
    from manglecp.base.child import capture  # loaded late: few sources are commands

    try:
        output = capture(source.words, os.environ, seconds=_COMMAND_SECONDS, limit=_MAX_BYTES)
    except OSError as error:
        raise SecretError(f"the secret {name} cannot be read: {source}: {error.strerror}") from None
    if output.code == 0 and output.stdout:
        return output.stdout
    problem = "printed nothing" if output.code == 0 else f"exited with status {output.code}"
    problem = f"did not exit within {_COMMAND_SECONDS:g} s, or printed too much" if output.code is None else problem
    raise SecretError(f"the secret {name} cannot be read: {source} {problem}")
