"""A pack whose functions give away their secrets in every way that happens by accident."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path

__all__ = ["CANARIES", "clean", "leaking_pack"]

# By name of the secret: a plain token, one with characters that encoders escape, and one of several lines.
CANARIES = {
    "ENV_TOKEN": f"tok-{secrets.token_hex(24)}",
    "FILE_TOKEN": f"\"{secrets.token_hex(16)}\\n\\{secrets.token_hex(16)}' +/=é",
    "COMMAND_TOKEN": "\n".join(secrets.token_hex(30) for _ in range(12)),
}
_WINDOW = 8  # so many characters of a value are a leak

ACTIONS = '''
from __future__ import annotations

import base64, json, os, sys, traceback, urllib.parse
from typing import Annotated, Any

from manglecp import ActionError, Context, Secret, action

EnvToken = Annotated[str, Secret("ENV_TOKEN")]


def encodings(token: str) -> list[str]:
    data = token.encode()
    return [
        token,
        json.dumps({"Authorization": token}),
        json.dumps(json.dumps(token)),
        repr([token]),
        repr(data),
        urllib.parse.quote(token),
        urllib.parse.urlencode({"token": token}),
        *(base64.b64encode(prefix + data + b":x").decode() for prefix in (b"", b"u:", b"me:", b"user:")),
        base64.urlsafe_b64encode(data).decode(),
    ]


def leak(how: str, token: str, context: Context, pad: int) -> Any:
    context.slots.clear()
    if how == "result":
        return {"said": encodings(token), "nested": [{"deep": {token: [f"x{token}y", 1]}}], token: None}
    if how == "text":
        return token
    if how == "raise":
        raise ValueError("x" * pad + token)
    if how == "key":
        raise KeyError(token)
    if how == "chain":
        try:
            raise RuntimeError(token)
        except RuntimeError as error:
            raise OSError(5, "no", token) from error
    if how == "group":
        raise ExceptionGroup("x" * pad + token, [ValueError(token)])
    if how == "locals":
        try:
            {}[len(token)]
        except KeyError as error:
            text = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
            raise RuntimeError(text) from error
    if how == "error":
        raise ActionError("x" * pad + token, code="x-leak", data={token: encodings(token)})
    if how == "report":
        for each in encodings(token):
            context.log("x" * pad + each, level=token[:40])
            context.progress(1, 2, "x" * pad + each)
        return None
    if how == "print":
        print(token, *encodings(token), flush=True)
        sys.stderr.write(token)
        return None
    if how == "exit":
        sys.exit(token)
    if how == "die":
        sys.stderr.write(token + "x" * pad)
        sys.stderr.flush()
        os._exit(3)
    if how == "slots":
        from manglecp.toolhost import Artifact

        context.slots[3] = Artifact(token, token, json.dumps({token: token}), 5)
        return None
    if how == "process":
        with open("/proc/self/cmdline") as file:
            return [dict(os.environ), sys.argv, file.read()]
    raise AssertionError(how)


@action(effects=["none"])
def leak_env(how: str, context: Context, token: EnvToken, pad: int = 0) -> Any:
    """Leak."""
    return leak(how, token, context, pad)


@action(effects=["filesystem"])
def leak_file(how: str, context: Context, token: Annotated[str, Secret("FILE_TOKEN")], pad: int = 0) -> Any:
    """Leak."""
    return leak(how, token, context, pad)


@action(effects=["none"])
def leak_command(how: str, context: Context, *, token: Annotated[str, Secret("COMMAND_TOKEN")], pad: int = 0) -> Any:
    """Leak."""
    return leak(how, token, context, pad)


@action(effects=["none"])
def whose(first: EnvToken, second: Annotated[str, Secret("COMMAND_TOKEN")]) -> int:
    """The process that holds two secrets."""
    return os.getpid()
'''
EXTERNALS = """
from typing import Annotated
from manglecp import Secret, external


@external("described(Name, Text)", mode="+-", seconds=60)
def described(name: str, token: Annotated[str, Secret("ENV_TOKEN")]):
    yield (f"{name} of {token}",)
"""
FACTS = """
from typing import Annotated
from manglecp import Part, Progress, Secret, facts


@facts("found", every=3600, seconds=60)
def found(*, token: Annotated[str, Secret("FILE_TOKEN")]):
    yield Progress(1, 2, token)
    yield ("found", token)
"""
RULES = """
Decl found(X) bound [/string].
Decl described(Name, Text) descr [external(), mode("+", "-")] bound [/string, /string].
relevant(T, 90) :- tool(T).
tool("leak_env"). tool("leak_file"). tool("leak_command"). tool("whose").
macro(T, D) :- tool(T), found(X), described(T, E), D = fn:string:concat(X, " ", E).
macro_step(T, 1, T) :- tool(T).
"""


def leaking_pack(folder: Path) -> Path:
    pack = folder / "pack"
    (pack / "rules").mkdir(parents=True)
    (pack / "pack.toml").write_text('[pack]\nname = "leaky"\n' + "".join(f"[secrets.{name}]\n" for name in CANARIES))
    (pack / "actions.py").write_text(ACTIONS)
    (pack / "externals.py").write_text(EXTERNALS)
    (pack / "facts.py").write_text(FACTS)
    (pack / "rules" / "a.mg").write_text(RULES)
    return pack


def clean(texts: Iterable[str | bytes], values: Iterable[str] = tuple(CANARIES.values())) -> None:
    """No text has a part of a value, as long as :data:`_WINDOW`. Escapes are told apart from values by that."""
    parts = {
        line[start : start + _WINDOW]
        for value in values
        for line in value.splitlines()
        for start in range(len(line) - _WINDOW + 1)
        if line[start : start + _WINDOW].isalnum()
    }
    assert parts
    for text in texts:
        read = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        leaked = [part for part in parts if part in read]
        assert not leaked, read[max(read.find(leaked[0]) - 300, 0) :][:700]
