"""Settings that are credentials by their name: clients never see them, whatever rules make of them.

An action may need one, so it may be the value of an argument. Everywhere else, in descriptions, instructions, resources
and schemas, it is replaced. Replacing is the last line; whoever checks a pack is told which rule lets one get so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from manglecp.base.diagnostic import Diagnostic
from manglecp.intent.redaction import REDACTED, is_secret_setting, secret_values
from manglecp.mangle import Key
from manglecp.mangle.syntax import Clause, Literal, Variable, term_variables
from manglecp.pack import Pack

__all__ = ["hiding", "told_secrets"]

_TOLD: Final = frozenset(
    {
        *("macro", "macro_summary", "macro_param", "macro_output", "instruction", "needs_resource"),
        *("prohibited", "intent_denied", "fact_denied", "effect_denied"),
    }
)
"""What clients read."""


def hiding(pack: Pack) -> Callable[[Any], Any]:
    """Texts, and JSON with texts in it, without the values of secret settings."""
    secrets = secret_values(pack)

    def hide(value: Any) -> Any:
        if isinstance(value, str):
            for secret in secrets:
                value = value.replace(secret, REDACTED)
            return value
        if isinstance(value, dict):
            return {hide(key): hide(part) for key, part in value.items()}
        return [hide(part) for part in value] if isinstance(value, list | tuple) else value

    return hide if secrets else lambda value: value


def told_secrets(clauses: Iterable[Clause]) -> list[Diagnostic]:
    """A warning for each rule that makes a text for clients of a secret setting, on whatever way it came there."""
    clauses = list(clauses)
    held: dict[tuple[Key, int], str] = {}
    before = -1
    while before < len(held):
        before = len(held)
        for clause in clauses:
            for column, setting in _columns(clause, held):
                held.setdefault((clause.head.key, column), setting)
    return [
        Diagnostic(
            "analysis",
            f"clients read {clause.head.predicate}, and the setting {setting!r} is a secret by its name",
            clause.head.span,
            None,
            "use it in arg_value only; anywhere else it is replaced",
            "warning",
        )
        for clause in clauses
        if clause.head.predicate in _TOLD
        for _, setting in _columns(clause, held)[:1]
    ]


def _columns(clause: Clause, held: dict[tuple[Key, int], str]) -> list[tuple[int, str]]:
    """The arguments of the head that hold a secret, and which."""
    secret: dict[str, str] = {}
    for premise in clause.premises:
        if isinstance(premise, Literal):
            atom = premise.atom
            if atom.key == ("setting", 2) and isinstance(atom.args[0], str) and is_secret_setting(atom.args[0]):
                secret |= {found.name: atom.args[0] for found in term_variables(atom.args[1])}
            for column, arg in enumerate(atom.args):
                if (setting := held.get((atom.key, column))) is not None and isinstance(arg, Variable):
                    secret.setdefault(arg.name, setting)
    equalities = [premise for premise in clause.premises if not isinstance(premise, Literal) and not premise.negated]
    for _ in equalities:  # each may need the one behind it
        for equality in equalities:
            for side, other in ((equality.left, equality.right), (equality.right, equality.left)):
                if isinstance(side, Variable):
                    for found in term_variables(other):
                        if found.name in secret:
                            secret.setdefault(side.name, secret[found.name])
    for transform in clause.transforms:
        for let in transform.lets:
            for found in term_variables(let.expression):
                if found.name in secret:
                    secret.setdefault(let.variable.name, secret[found.name])
    return [
        (column, secret[found.name])
        for column, arg in enumerate(clause.head.args)
        for found in term_variables(arg)
        if found.name in secret
    ]
