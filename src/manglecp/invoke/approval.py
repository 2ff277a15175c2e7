"""Approval requests and the verification of confirmation tokens.

The server sends a *challenge*: tool, arguments, effects and expiry of one call. The approver's client returns a token:
an HMAC over these values, with a secret that belongs to the credential and is never sent in this protocol. The agent
forwards both and can create neither. A token is valid for one identity, one tool, one set of arguments, one use and
five minutes; the server stores only the used nonces. :mod:`manglecp.wire.confirmation` defines its format.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import Any, Final

import msgspec

from manglecp.base.digest import digest
from manglecp.base.text import escape_invisible
from manglecp.intent import Argument, ChainStep, Definition
from manglecp.mangle import instant_text
from manglecp.wire import CONFIRMATION_PURPOSE, WireError, confirmation_mac, sign_confirmation
from manglecp.wire.messages import InvokeResult

LIFETIME_MS: Final = 300_000
SKEW_MS: Final = 30_000
"""Tolerated difference between the clocks, for tokens from the future."""
REMEMBERED_MS: Final = 86_400_000
"""How long used nonces are stored: longer than tokens are valid, because a clock may be set back."""
_TOKEN: Final = re.compile(r"v1\.([A-Za-z0-9_-]{16,128})\.(0|[1-9][0-9]{0,15})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class Consent:
    """A verified token: its nonce, and until when the nonce has to be stored."""

    nonce: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Secrets:
    """The confirmation secrets of identities. An identity without a secret cannot confirm."""

    own: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    local: bytes | None = field(default=None, repr=False)
    """The secret of this machine's user, from which other secrets are derived."""

    def of(self, identity: str) -> bytes | None:
        """Return the identity's own secret, or one derived from the local secret; None if it has neither."""
        if identity in self.own:
            return self.own[identity]
        if self.local is None:
            return None
        return hmac.digest(self.local, f"{CONFIRMATION_PURPOSE}\n{identity}".encode(), "sha256")


@dataclass(frozen=True, slots=True)
class AutoConfirm:
    """The effects that need no approver, by identity: an explicit setting of the operator (SEC-24)."""

    effects: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def approval(self, identity: str, side_effects: tuple[str, ...]) -> str | None:
        """Return the reference to the setting, if it covers every effect (OPEN-39)."""
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
        request = (error.details or {}).get("challenge")
        if error.code != "confirmation_required" or request is None or not approve(request):
            raise
    secret = secrets.of(identity)
    assert secret is not None  # derived for each identity
    signed = (request["macro_id"], request["args_digest"], request["nonce"], request["issued_ms"])
    return await send({**payload, "confirmation_token": sign_confirmation(secret, identity, *signed)})


def challenge(definition: Definition, args_digest: str, text: str, now_ms: int) -> dict[str, Any]:
    """Return the approval request for an approver; ``text`` describes the call."""
    return {
        "nonce": token_urlsafe(24),
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
    """Return the consent of a token; None if it is invalid, without a reason, so that a client cannot probe for one."""
    found = _TOKEN.fullmatch(token)
    if found is None or secret is None:
        return None
    nonce, issued_ms = found[1], int(found[2])
    mac = confirmation_mac(secret, identity, macro_id, args_digest, nonce, issued_ms)
    if not hmac.compare_digest(mac, found[3]) or not -SKEW_MS <= now_ms - issued_ms < LIFETIME_MS:
        return None
    return Consent(nonce, issued_ms + REMEMBERED_MS)


# --- text of an approval request -----------------------------------------------------------------------------------

HIDDEN_VALUE: Final = "(not shown)"
_LONGEST: Final = 4_096
"""Characters of the arguments, and of the steps."""
_LONGEST_VALUE: Final = 300
"""Characters of one value of a step."""


def consent_text(
    definition: Definition,
    args: Mapping[str, Any],
    *,
    secret_args: frozenset[str] = frozenset(),
    hide: Callable[[Any], Any] = lambda value: value,
) -> str:
    """Return the text that an approver reads. ``args`` include defaults; ``hide`` redacts secret settings in JSON."""
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
    """Yield as many lines as fit, and the number of those left out."""
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
    inputs = (f"{_line(one.param)} = {_value(one, hide, of)}" for one in arguments)
    return f"{_line(action)}({', '.join(inputs)})"


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
