"""The keys of ``pack.toml``. Which there are, what they take and their defaults is what the reader asks a file for.

What a key means is written here; a key without a meaning, and a meaning without a key, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, Final
from unittest import mock

from manglecp.pack import Problems, TomlTable, read_toml, settings
from manglecp.wire import CATEGORIES
from tools.reference.tables import cell, table

__all__ = ["blocks"]

_EXAMPLE: Final = """
[[intents]]
name = "intent"
description = "one"
[params.name]
[domain.affinities]
key = 1
"""
_MEANINGS: Final = {
    "pack.name": "letters, digits, `.`, `_`, `-`",
    "pack.version": "a version such as `1.4.0`",
    "pack.description": "what it is for, in a sentence",
    "domain.id": "what the manifest calls the domain",
    "domain.description": "the same for the domain",
    "domain.categories": f"of {', '.join(f'`{name}`' for name in CATEGORIES)}, or with `x-` before it",
    "domain.affinities.KEY": "a weight",
    "intents[].name": "is needed",
    "intents[].description": "is needed",
    "intents[].required_facts": "names of predicates; a request without them is refused",
    "intents[].optional_facts": "names of predicates that a client may bring",
    "limits.max_message_bytes": "the longest message",
    "limits.max_facts_per_request": "facts that a client may send at once",
    "limits.max_derived_facts": "facts that the rules derive for a request",
    "limits.max_intervals_per_atom": "times at which one fact may hold",
    "limits.max_compute_ms": "of one evaluation",
    "limits.max_base_facts": "facts that the rules derive when the pack is loaded",
    "limits.max_load_ms": "how long that may take",
    "disclosure.full": "the least score of a tool that is told in full",
    "disclosure.condensed": "the least score of one that is told in short",
    "disclosure.minimal": "the least score of one that is named; the three have to fall",
    "disclosure.tokens": "who counts tokens",
    "disclosure.inline_skill_tokens": "longer skills are referenced",
    "invocation.max_execution_ms": (
        "of a whole run, actions included; see [Invocations](invocation.md#settings-of-a-pack)"
    ),
    "invocation.max_events": "how many events a client is told of a run",
    "invocation.max_delta_facts": "how many facts a client is told of a run; more are rolled up",
    "invocation.retention_ms": "how long a tool without a validity window can be invoked after it was announced",
    "auth.required": "does the server have to ask for a credential?",
    "auth.schemes": "of `bearer`, `oauth2`, `api_key`; `oauth2` needs the `token_url`",
    "auth.token_url": "an `http` or `https` address that names no user",
    "params.NAME.description": (
        "of a setting of whoever runs the pack, `--set NAME=VALUE`; rules see it as `setting(Name, Value)`"
    ),
    "params.NAME.default": "without one it is required",
    "params.NAME.required": "says the same, for readers",
    "params.NAME.kind": "a folder is open to the hosts of the pack, so only whoever runs it can name one",
    "params.NAME.writable": "may actions write in the folder?",
    "sandbox.profile": (
        "how it wishes its hosts to be [locked in](../explanation/sandbox.md). Less than `strict` is a warning, and "
        "holds only where whoever runs it allows it: `--allow-weaker`, or `Server(…, allow_weaker=True)`"
    ),
    "extensions.structured_facts": (
        "may clients write facts as [clauses without a body](messages.md#structured-clauses)? "
        "The manifest says so under `x-structured_facts`"
    ),
    "governance.digest": (
        "the [policy package](policy-packages.md) that its invocations are bound to: a pin; see [Policies](#policies)"
    ),
}
_ENDLESS: Final = 1 << 40
_SPECIAL: Final = {
    "pack.name": "the folder's name",
    "domain.id": "the pack's name",
    "domain.description": "the pack's",
}


def blocks() -> dict[str, Callable[[], str]]:
    return {"keys of pack.toml": _keys}


def _keys() -> str:
    asked: dict[str, tuple[str, str]] = {}
    with mock.patch.object(settings, "read_toml", lambda *given: _Noting.over(read_toml(*given), asked)):
        settings.read_settings(_EXAMPLE, "folder", Problems())
    if asked.keys() != _MEANINGS.keys():
        raise ValueError(f"keys without a meaning, or the other way round: {asked.keys() ^ _MEANINGS.keys()}")
    rows = [(f"`{key}`", takes, _SPECIAL.get(key, default), _MEANINGS[key]) for key, (takes, default) in asked.items()]
    return table(("key", "takes", "default", "meaning"), rows)


class _Noting(TomlTable):
    """A section that notes what it is asked for."""

    asked: dict[str, tuple[str, str]]

    @classmethod
    def over(cls, section: TomlTable, asked: dict[str, tuple[str, str]]) -> _Noting:
        noting = cls.__new__(cls)
        noting.__dict__.update(section.__dict__)
        noting.asked = asked
        return noting

    def _at(self, path: tuple[str | int, ...], table: dict[str, Any]) -> TomlTable:
        return self.over(super()._at(path, table), self.asked)

    def _note(self, key: str, takes: str, default: object) -> None:
        path = ".".join("[]" if isinstance(step, int) else step for step in (*self._path, key)).replace(".[]", "[]")
        path = re.sub(r"^params\.name\.", "params.NAME.", path)
        path = re.sub(r"^domain\.affinities\..*", "domain.affinities.KEY", path)
        self.asked[path] = (takes, _default(default))

    def text(self, key: str, default: Any, **more: Any) -> Any:
        self._note(key, "text", default)
        return super().text(key, default, **more)

    def choice(self, key: str, default: Any, known: Collection[str]) -> Any:
        self._note(key, ", ".join(f"`{one}`" for one in known), default)
        return super().choice(key, default, known)

    def flag(self, key: str, default: Any) -> Any:
        self._note(key, "true or false", default)
        return super().flag(key, default)

    def number(self, key: str, default: int, least: int, most: int) -> int:
        self._note(key, f"{least:,} to {most:,}" if most < _ENDLESS else f"at least {least:,}", default)
        return super().number(key, default, least, most)

    def texts(self, key: str, pattern: re.Pattern[str], takes: str) -> tuple[str, ...]:
        self._note(key, "a list of texts", None)
        return super().texts(key, pattern, takes)


def _default(value: object) -> str:
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:,}" if isinstance(value, int) else f"`{cell(str(value))}`"
