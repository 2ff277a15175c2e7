"""Settings that are credentials by their name reach actions, and no client."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from manglecp.intent.redaction import find_disclosed_secrets
from manglecp.mangle import Program, Source
from tests.intent.answering import tools
from tests.intent.packs import pack

SECRET = "correct-horse-battery"
RULES = """
mandatory("t"). macro_step("t", 1, "look").
macro("t", D) :- setting("api_key", K), D = fn:string:concat("Calls with ", K, ".").
macro_summary("t", K) :- setting("api_key", K).
macro_param("t", "path", ["type": "string", "default": K]) :- setting("api_key", K).
instruction("t", 1, K) :- setting("api_key", K).
instruction("t", 2, R) :- setting("region", R).
needs_resource("t", U, K, 5) :- setting("api_key", K), U = fn:string:concat("https://example.invalid/?k=", K).
"""


def test_no_client_sees_a_secret_setting() -> None:
    given = replace(pack(RULES), params={"api_key": SECRET, "region": "north-of-the-river"})
    found = json.dumps(tools(given)["t"])
    assert SECRET not in found
    assert found.count("[redacted]") == 5
    assert "north-of-the-river" in found
    assert "Calls with [redacted]." in found


@pytest.mark.parametrize(
    ("rules", "lines"),
    [
        ('instruction("t", 1, K) :- setting("api_key", K).', [1]),
        ('key(K) :- setting("token", K).\nheld(K, 1) :- key(K).\nneeds_resource("t", K, "w", N) :- held(K, N).', [3]),
        ('macro("t", D) :- setting("password", K), E = K, D = fn:string:concat(E, "!").', [1]),
        ('arg_value("t", 1, "key", K) :- setting("api_key", K).', []),
        ('key(K) :- setting("token", K).\narg_value("t", 1, "key", K) :- key(K).', []),
        ('instruction("t", 1, R) :- setting("region", R).', []),
        ('instruction("t", 1, "There is a key.") :- setting("api_key", _).', []),
    ],
)
def test_rules_that_tell_a_secret(rules: str, lines: list[int]) -> None:
    program = Program.load([Source("a.mg", rules + "\nDecl setting(Name, Value) bound [/string, /string].\n")])
    found = find_disclosed_secrets(rule.clause for rule in program.rules)
    assert [problem.line for problem in found] == lines
    assert all(problem.severity == "warning" for problem in found)
