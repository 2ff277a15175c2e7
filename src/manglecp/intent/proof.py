"""The proof of one macro-tool at the moment of its use.

Admission and the gate before the first effect run the rules again: for the principal as it is now, with the current
rules and server facts, at the server's clock. No earlier verdict and no validity window replaces this proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.base.digest import digest, digest_bytes
from manglecp.intent.composition import Composer
from manglecp.intent.definition import Definition
from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import CLOCK_TOLERANCE_NS, IntentEvaluation, evaluate_at
from manglecp.intent.identity import Identity
from manglecp.mangle import Fact
from manglecp.wire import UPGRADE, WireError
from manglecp.wire.messages import Intent, IntentPayload, IntentRequest

_INVALID_FACTS: Final = frozenset(  # codes of errors: another pack revision does not accept the stored facts
    {"invalid_facts", "unknown_predicate", "arity_mismatch", "type_mismatch", "reserved_predicate", "too_many_facts"}
)


class ProofInputs(msgspec.Struct, frozen=True, omit_defaults=True):
    """The client's part of an evaluation: the intent with its parameters, and the session facts."""

    intent: Intent
    facts: tuple[Any, ...] = ()
    """Fact objects with absolute times: ``now`` became the evaluation time, and must not become a later one."""

    @classmethod
    def of(cls, evaluation: IntentEvaluation, now_ns: int) -> ProofInputs:
        """Return the inputs of an evaluation at the server's time ``now_ns``.

        If the client's clock is ahead, ``now`` in its facts is the server's time: proofs are made by that clock.
        """
        payload, profile, session = evaluation.request.payload, evaluation.domain.profile, evaluation.session
        if 0 < evaluation.now - now_ns <= CLOCK_TOLERANCE_NS:
            with suppress(WireError):  # an interval may have become empty
                session = [fact for fact in profile.read(payload.facts, now_ns) if fact.predicate != UPGRADE]
        return cls(payload.intent, tuple([profile.write(fact) for fact in session]))

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @staticmethod
    def decode(data: bytes) -> ProofInputs:
        return _decoder.decode(data)

    def session_facts(self, domain: Domain) -> list[Fact]:
        """Return the session facts. Raises :class:`WireError` if they do not fit the domain."""
        return domain.profile.read(list(self.facts), 0)  # no fact refers to ``now``, so the evaluation time is unused


_decoder: Final = msgspec.json.Decoder(ProofInputs)


class Proof(NamedTuple):
    """A macro-tool that was proven at ``at_ns`` (since 1970). ``digest`` is that of all inputs of the evaluation."""

    definition: Definition
    at_ns: int
    digest: str


def prove(
    domain: Domain,
    inputs: ProofInputs,
    identity: Identity,
    offered: Definition,
    now_ns: int,
    run_facts: Sequence[Fact] = (),
) -> Proof:
    """Prove an offered tool again, with the same chain. ``run_facts`` are facts about its run.

    Raises :class:`WireError`: ``auth_insufficient`` if policy denies the intent or an action of the tool,
    ``macro_expired`` if the tool is not proven or its chain is another one.
    """
    request = IntentRequest(id="", payload=IntentPayload(intent=inputs.intent, facts=list(inputs.facts)))
    try:
        evaluation = evaluate_at(now_ns, domain, request, identity, run_facts)
    except WireError as error:
        raise (_not_proven() if error.code in _INVALID_FACTS else error) from error
    tool, lookup = offered.tool, evaluation.lookup
    if any(selected.tool == tool for selected in evaluation.selected):
        definitions, _ = Composer(evaluation).compose_all([tool])  # of the tool and its dependencies
        for definition in definitions:
            if definition.tool == tool and definition.chain_digest == offered.chain_digest:
                return Proof(definition, now_ns, _digest(domain, inputs, identity, now_ns))
    elif any(lookup.rows("effect_denied", 2, action) for _, action in lookup.rows("kernel.may_run", 2, tool)):
        raise WireError("auth_insufficient", "Policy does not permit an effect of this macro-tool")
    raise _not_proven()


def _not_proven() -> WireError:
    return WireError("macro_expired", "The rules do not prove this macro-tool any more; evaluate the intent again")


def _digest(domain: Domain, inputs: ProofInputs, identity: Identity, now_ns: int) -> str:
    return digest(
        {
            "pack": domain.digest,
            "facts": domain.facts_version,
            "identity": {"name": identity.name, "permissions": sorted(identity.permissions), "trust": identity.trust},
            "inputs": digest_bytes(inputs.encode()),
            "now": str(now_ns),
        }
    )
