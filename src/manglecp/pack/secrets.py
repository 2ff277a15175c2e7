"""The sources from which the operator supplies the secrets of packs, and the values that are read from them.

Without another source, the value of a secret is the environment variable of the same name. A variable or a file is read
for each call, so that a rotation needs no restart. The output of a command is used for a minute; after an error the
command runs again after five seconds at the earliest.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import Meta

from manglecp.base.redaction import MIN_LENGTH, Redactor, SecretValue
from manglecp.pack.settings import SECRET_NAME
from manglecp.pack.toml_reader import TomlTable

if TYPE_CHECKING:
    from manglecp.pack.model import Pack

_COMMAND_SECONDS: Final = 10.0
_VALID_SECONDS: Final = 60.0  # how long the output of a command is used
_RETRY_SECONDS: Final = 5.0
_MAX_BYTES: Final = 8_192
_RECENT: Final = 8  # how many of the last values of a secret are redacted, although no host holds them
_WORD: Final = re.compile(r"[^\0]{1,4096}", re.DOTALL)
_PATH: Final = re.compile(r"/[^\0]*")
_Kind: TypeAlias = Literal["env", "file", "command"]
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretUse(NamedTuple):
    """A secret that a function takes; without ``required``, the parameter of the function has a default."""

    name: Annotated[str, Meta(pattern=rf"\A{SECRET_NAME.pattern}\Z")]
    required: bool
    at_start: bool = False
    """Whether the lifespan takes it: a host gets the value when it starts."""


class SecretError(Exception):
    """A secret has no valid value. The text names the secret and its source, and contains no value."""


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
        secret_sources = [SecretSource(kind, words) for kind, words in words_by_kind if any(words)]
        if len(secret_sources) == 1:
            sources[name] = secret_sources[0]
        else:
            table.report(None, "takes one source", 'write env = "…", file = "/…" or command = ["…"]')
    return sources


class SecretProvider:
    """The values of secrets by name.

    Values are read one after the other, in the thread of ``executor``: a command that hangs delays only calls that take
    secrets. ``redactor`` redacts the current value of a secret, a few earlier ones, and all values still in use.
    """

    def __init__(self, sources: Mapping[str, SecretSource] | None = None) -> None:
        self._sources = dict(sources or {})
        self._recent: dict[str, deque[SecretValue]] = {}
        self._outputs: dict[str, tuple[float, SecretValue | SecretError | None]] = {}  # commands: expiry and result
        self.executor: Final = ThreadPoolExecutor(1, "secrets")
        self.redactor: Final = Redactor()

    def describe(self, pack: Pack) -> list[dict[str, Any]]:
        """Return name, source and availability of each secret that a pack declares, for operators."""
        sources = ((name, self._source(name)) for name in sorted(pack.settings.secrets))
        return [{"name": name, "source": str(source), "available": source.available} for name, source in sources]

    def values(self, uses: Iterable[SecretUse]) -> list[SecretValue]:
        """Return the values of the secrets, without those of missing optional ones; raises :class:`SecretError`.

        Blocks while a file is read or a command runs; called in the executor.
        """
        values = []
        for use in uses:
            value = self._read(use.name)
            if value is not None:
                values.append(value)
            elif use.required:
                raise SecretError(f"the secret {use.name} has no value: {self._source(use.name)} is missing or empty")
        return values

    def _source(self, name: str) -> SecretSource:
        return self._sources.get(name) or SecretSource("env", (name,))

    def _read(self, name: str) -> SecretValue | None:
        """Return the current value, None if there is none; raises :class:`SecretError`."""
        source = self._source(name)
        if source.kind != "command":
            return self._accept(name, _load(name, source))
        expiry, result = self._outputs.get(name, (0.0, None))
        if time.monotonic() >= expiry:
            try:
                result = self._accept(name, _load(name, source))
            except SecretError as error:
                result = error
            seconds = _VALID_SECONDS if isinstance(result, SecretValue) else _RETRY_SECONDS
            self._outputs[name] = (time.monotonic() + seconds, result)
        if isinstance(result, SecretError):
            raise SecretError(*result.args)
        return result

    def _accept(self, name: str, data: bytes) -> SecretValue | None:
        """Return the value of these bytes, without a final line break; raises :class:`SecretError`."""
        try:
            text = data.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            raise SecretError(f"the secret {name} is not UTF-8 text") from None
        if not text:
            return None
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


def _open_without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # opening a pipe without a writer would block


def _load(name: str, source: SecretSource) -> bytes:
    """Return the data of a source, of a file at most one byte too many; empty if missing. Raises SecretError."""
    word = source.words[0]
    try:
        if source.kind == "env":
            return os.environb.get(word.encode(), b"")
        if source.kind == "file":
            with open(word, "rb", opener=_open_without_blocking) as file:
                return file.read(_MAX_BYTES + 1)
        from manglecp.base.child import capture  # loaded late: few sources are commands

        output = capture(source.words, os.environ, seconds=_COMMAND_SECONDS, limit=_MAX_BYTES)
    except OSError as error:
        if source.kind == "file" and isinstance(error, FileNotFoundError):
            return b""
        raise SecretError(f"the secret {name} cannot be read: {source}: {error.strerror}") from None
    if output.code is None:
        raise SecretError(f"the secret {name} cannot be read: {source} takes too long, or prints too much")
    if output.code:
        raise SecretError(f"the secret {name} cannot be read: {source} exited with status {output.code}")
    return output.stdout
