"""A person's consent, as something that can be checked.

The server asks with a *challenge*: what would be done, to what, with which effects, until when. Whoever speaks for the
person answers with a token: an HMAC over exactly that, under a secret that came with the credential and never travels
in this protocol. The agent only carries the two, and can make neither. A token is good for one identity, one tool, one
set of arguments, one use and five minutes; the server keeps nothing but the nonces that were used.
The token is that of :mod:`manglecp.wire.confirmation`.
"""

from __future__ import annotations

import hmac
import re
import secrets as chance
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from manglecp.base.digest import digest
from manglecp.base.text import escape_invisible
from manglecp.intent import Argument, ChainStep, Definition
from manglecp.mangle import instant_text
from manglecp.wire import CONFIRMATION_PURPOSE, WireError, confirmation_mac, sign_confirmation
from manglecp.wire.messages import InvokeResult

# --- confirmation --------------------------------------------------------------------------------------------------

LIFETIME_MS: Final = 300_000
SKEW_MS: Final = 30_000
"""A token from the future is refused, unless clocks merely differ."""
REMEMBERED_MS: Final = 86_400_000
"""For how long a token that was used is known. Longer than it holds: a clock may run ahead and be put back."""
_TOKEN: Final = re.compile(r"v1\.([A-Za-z0-9_-]{16,128})\.(0|[1-9][0-9]{0,15})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class Consent:
    """A token that held: the nonce to use up, and until when it has to be remembered."""

    nonce: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Secrets:
    """The confirmation secrets of identities. Those without one cannot confirm anything."""

    own: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    local: bytes | None = field(default=None, repr=False)
    """The secret of this machine's user; each identity without its own has one derived from it."""

    def of(self, identity: str) -> bytes | None:
        """Their own one, or one that is derived where everybody is local; None if they cannot confirm."""
        if identity in self.own:
            return self.own[identity]
        if self.local is None:
            return None
        return hmac.digest(self.local, f"{CONFIRMATION_PURPOSE}\n{identity}".encode(), "sha256")


@dataclass(frozen=True, slots=True)
class AutoConfirm:
    """Which effects need no person, by identity: an explicit setting of whoever runs the server (SEC-24)."""

    effects: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def approval(self, identity: str, side_effects: tuple[str, ...]) -> str | None:
        """The reference to the setting that waives consent; only if it covers every effect (OPEN-39)."""
        covered = self.effects.get(identity)
        if not covered or not covered.issuperset(side_effects):
            return None
        return "auto:" + digest({"identity": identity, "effects": sorted(covered)})


async def with_approval(
    send: Callable[[dict[str, Any]], Awaitable[InvokeResult]],
    payload: dict[str, Any],
    identity: str,
    secrets: Secrets,
    approve: Callable[[Mapping[str, Any]], bool | None],
) -> InvokeResult:
    """Invoke for a caller in this process; once more with a signed approval if one is required and given."""
    try:
        return await send(payload)
    except WireError as error:
        asked = (error.details or {}).get("challenge")
        if error.code != "confirmation_required" or asked is None or not approve(asked):
            raise
    secret = secrets.of(identity)
    assert secret is not None  # derived for each identity
    about = (asked["macro_id"], asked["args_digest"], asked["nonce"], asked["issued_ms"])
    return await send({**payload, "confirmation_token": sign_confirmation(secret, identity, *about)})


def challenge(definition: Definition, args_digest: str, text: str, now_ms: int) -> dict[str, Any]:
    """What whoever is asked should see; ``text`` says what will be done."""
    return {
        "nonce": chance.token_urlsafe(24),
        "issued_ms": now_ms,
        "expires_at": instant_text((now_ms + LIFETIME_MS) * 1_000_000),
        "macro_id": definition.macro_id,
        "args_digest": args_digest,
        "effects": list(definition.safety.side_effects),
        "reversible": definition.safety.reversible,
        "text": text,
    }


def verify(
    token: str, secret: bytes | None, identity: str, macro_id: str, args_digest: str, now_ms: int
) -> Consent | None:
    """None for every token that does not hold: whoever tries learns nothing about why."""
    found = _TOKEN.fullmatch(token)
    if found is None or secret is None:
        return None
    nonce, issued_ms = found[1], int(found[2])
    mac = confirmation_mac(secret, identity, macro_id, args_digest, nonce, issued_ms)
    if not hmac.compare_digest(mac, found[3]) or not -SKEW_MS <= now_ms - issued_ms < LIFETIME_MS:
        return None
    return Consent(nonce, issued_ms + REMEMBERED_MS)


# --- asking --------------------------------------------------------------------------------------------------------

HIDDEN_VALUE: Final = "(not shown)"
_LONGEST: Final = 4_096
"""Of the arguments, and of the steps."""
_LONGEST_VALUE: Final = 300
"""Of one value of a step."""


def consent_text(
    definition: Definition,
    args: Mapping[str, Any],
    *,
    secret_args: frozenset[str] = frozenset(),
    hide: Callable[[Any], Any] = lambda value: value,
) -> str:
    """``args`` have their defaults. ``hide`` takes the values of secret settings out of JSON."""
    visible = {name: HIDDEN_VALUE if name in secret_args else hide(value) for name, value in args.items()}
    undoing = "It can be undone." if definition.safety.reversible else "It cannot be undone."
    return "\n".join(
        (
            f"{_line(definition.tool)}: {_line(definition.description)}",
            f"Arguments: {_cut(_json(visible), _LONGEST)}",
            "Steps:",
            *_bounded(_steps(definition, hide)),
            f"Effects: {', '.join(definition.safety.side_effects)}. {undoing}",
        )
    )


def _bounded(lines: Iterator[str]) -> Iterator[str]:
    """As many as there is room for, and how many there are besides."""
    room, left = _LONGEST, 0
    for line in lines:
        room -= len(line)
        if room >= 0:
            yield line
        else:
            left += 1
    if left:
        yield f"… and {left} more that are not shown"


def _steps(definition: Definition, hide: Callable[[Any], Any]) -> Iterator[str]:
    for step in definition.steps:
        yield f"{step.number}. {_called(step.action, step.arguments, hide)}"
        if (undo := step.undo) is not None:
            yield f"   undone by {_called(undo.action, undo.arguments, hide, of=step)}"


def _called(
    action: str, arguments: tuple[Argument, ...], hide: Callable[[Any], Any], *, of: ChainStep | None = None
) -> str:
    given = (f"{_line(one.param)} = {_value(one, hide, of)}" for one in arguments)
    return f"{_line(action)}({', '.join(given)})"


def _value(one: Argument, hide: Callable[[Any], Any], of: ChainStep | None) -> str:
    if one.source == "value":
        return _cut(_json(hide(one.value)), _LONGEST_VALUE)
    if one.source == "call":
        return f"argument {_line(one.value)}" if of is None else f"{_line(one.value)} of step {of.number}"
    if one.source == "kept":
        name, run = (_cut(_line(one.value[key]), _LONGEST_VALUE) for key in ("name", "run"))
        return f"{name} kept by run {run}"
    number = one.step if of is None else of.number
    return f"from step {number}" + (f" at {_cut(_line(one.value), _LONGEST_VALUE)}" if one.value else "")


def _json(value: Any) -> str:
    return escape_invisible(msgspec.json.encode(value, order="sorted").decode())


def _line(text: str) -> str:
    return escape_invisible(" ".join(text.split()))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters in all)"
