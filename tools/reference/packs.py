"""The keys of ``pack.toml``. Names, types and defaults are recorded while the settings reader parses an example.

The meanings are written here; a key without a meaning, or the reverse, is an error.
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
[secrets.NAME]
[facts.name]
[domain.affinities]
key = 1
"""
_MEANINGS: Final = {
    "pack.name": "letters, digits, `.`, `_`, `-`",
    "pack.version": "a version such as `1.4.0`",
    "pack.description": "the purpose, in a sentence",
    "pack.permissions": "the permissions that rules read, apart from those of the server itself; see [Names](#names)",
    "domain.id": "the id of the domain in the manifest",
    "domain.description": "the purpose of the domain",
    "domain.categories": f"of {', '.join(f'`{name}`' for name in CATEGORIES)}, or with `x-` before it",
    "domain.affinities.KEY": "a weight",
    "intents[].name": "required",
    "intents[].description": "required",
    "intents[].required_facts": "names of predicates; a request without them is refused",
    "intents[].optional_facts": "names of predicates that a client may assert",
    "limits.max_message_bytes": "the longest message",
    "limits.max_facts_per_request": "the most facts of a request",
    "limits.max_derived_facts": "the most facts that the rules derive for a request",
    "limits.max_intervals_per_atom": "the most intervals in which one fact holds",
    "limits.max_compute_ms": "the time limit of one evaluation",
    "limits.max_base_facts": "the most facts that the rules derive when the pack is loaded",
    "limits.max_load_ms": "the time limit of that derivation",
    "disclosure.full": "the lowest score of a tool with detail level `full`",
    "disclosure.condensed": "the lowest score of a tool with detail level `condensed`",
    "disclosure.minimal": "the lowest score of a tool with detail level `minimal`; the three must decrease",
    "disclosure.tokens": "the tokenizer that counts tokens",
    "disclosure.inline_skill_tokens": "the most tokens of an inline skill; longer skills are referenced",
    "invocation.max_execution_ms": (
        "the time limit of a run, actions included; see [Invocations](invocation.md#settings-of-a-pack)"
    ),
    "invocation.max_events": "the most events of a run that a client receives",
    "invocation.max_delta_facts": "the most facts of a run that a client receives; more are rolled up",
    "invocation.retention_ms": "how long an offer without a validity window can be invoked",
    "auth.required": "whether the server requires a credential",
    "auth.schemes": "of `bearer`, `oauth2`, `api_key`; `oauth2` needs the `token_url`",
    "auth.token_url": "an `http` or `https` address without a user name",
    "pack.trust_levels": (
        "the trust levels that rules read, apart from those of the server itself; see [Names](#names)"
    ),
    "intents[].params": "the parameters that rules read; see [Names](#names)",
    "params.NAME.description": (
        "the description of a setting that the operator passes, `--set NAME=VALUE`; a fact for rules: "
        "`setting(Name, Value)`"
    ),
    "params.NAME.default": "a setting without a default is required",
    "params.NAME.required": "the same for readers of the file",
    "params.NAME.kind": "the hosts of the pack can access a folder, so only the operator can name it",
    "params.NAME.writable": "whether actions may write in the folder",
    "facts.NAME.push": "whether clients push the facts; without it, NAME is a generator. See [Facts](facts.md)",
    "facts.NAME.predicates": "the predicates of pushed facts",
    "facts.NAME.every": "the pause between two polls, such as `30s`; without it, that of `@facts`",
    "facts.NAME.stale_after": "the age from which on the facts are stale, such as `5m`",
    "facts.NAME.on_stale": "whether stale facts deny the tools whose rules read them",
    "facts.NAME.max_facts": "a push or poll with more facts is refused",
    "secrets.NAME.description": (
        "the description of a [secret](#secrets) that functions of the pack take and the operator supplies"
    ),
    "sandbox.profile": (
        "the [sandbox](../explanation/sandbox.md) profile of the hosts. A profile weaker than `strict` is a warning, "
        "and needs permission of the operator: `--allow-weaker`, or `Server(…, allow_weaker=True)`"
    ),
    "python.interpreter": (
        "the Python of a virtual environment, such as `.venv/bin/python`, relative to the pack: the hosts import "
        "[packages of the pack](#packages-of-its-own)"
    ),
    "extensions.rule_coverage": (
        "whether every client may request the rule coverage, not only those with the permission `explain_policy`; "
        "in the manifest: `x-rule_coverage`"
    ),
    "extensions.structured_facts": (
        "whether clients may write facts as [clauses without a body](messages.md#structured-clauses); "
        "in the manifest: `x-structured_facts`"
    ),
    "governance.digest": (
        "the digest of the [policy package](policy-packages.md) to which invocations are bound; see "
        "[Policies](#policies)"
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
    keys: dict[str, tuple[str, str]] = {}
    with mock.patch.object(settings, "read_toml", lambda *given: _RecordingTable.over(read_toml(*given), keys)):
        settings.read_settings(_EXAMPLE, "folder", Problems())
    if keys.keys() != _MEANINGS.keys():
        raise ValueError(f"keys without a meaning, or the reverse: {keys.keys() ^ _MEANINGS.keys()}")
    rows = [(f"`{key}`", takes, _SPECIAL.get(key, default), _MEANINGS[key]) for key, (takes, default) in keys.items()]
    return table(("key", "takes", "default", "meaning"), rows)


class _RecordingTable(TomlTable):
    """A TOML table that records the keys that are read."""

    keys: dict[str, tuple[str, str]]

    @classmethod
    def over(cls, section: TomlTable, keys: dict[str, tuple[str, str]]) -> _RecordingTable:
        recording = cls.__new__(cls)
        recording.__dict__.update(section.__dict__)
        recording.keys = keys
        return recording

    def _subtable(self, path: tuple[str | int, ...], table: dict[str, Any]) -> TomlTable:
        return self.over(super()._subtable(path, table), self.keys)

    def _note(self, key: str, takes: str, default: object) -> None:
        path = ".".join("[]" if isinstance(step, int) else step for step in (*self._path, key)).replace(".[]", "[]")
        path = re.sub(r"^(params|facts|secrets)\.name\.", r"\1.NAME.", path, flags=re.IGNORECASE)
        path = re.sub(r"^domain\.affinities\..*", "domain.affinities.KEY", path)
        self.keys[path] = (takes, _default(default))

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

    def texts(self, key: str, pattern: re.Pattern[str], takes: str, *, unique: bool = True) -> tuple[str, ...]:
        self._note(key, "a list of texts", None)
        return super().texts(key, pattern, takes, unique=unique)


def _default(value: object) -> str:
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:,}" if isinstance(value, int) else f"`{cell(str(value))}`"
