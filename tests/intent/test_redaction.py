"""Nothing that looks like a secret, is policy's, or lies on the server's disk leaves with a hint."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from manglecp.intent.domain import Domain
from manglecp.intent.identity import ANONYMOUS, Identity
from manglecp.intent.proof_hints import rule_coverage
from manglecp.intent.redaction import MAX_CHARACTERS, REDACTED, Visibility, scrub
from manglecp.mangle import Fact
from tests.intent.hinting import AUDITOR, SCHEMA, USER, domain, evaluated, hints, hints_of, text_of, tools
from tests.intent.packs import pack

JWT: Final = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PRIVATE: Final = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7\nqZ\n-----END RSA PRIVATE KEY-----"

SECRETS: Final = {
    "jwt": (JWT, "dozjgNryP4J3"),
    "private key": (PRIVATE, "MIIEowIBAAKCAQEA7"),
    "private key without end": (PRIVATE[:50], "MIIEowIBAAKCAQ"),
    "cloud key": ("AKIA" + "IOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
    "forge token": ("ghp_" + "a1B2" * 9, "a1B2a1B2"),
    "fine-grained token": ("github_pat_" + "11AAB2" * 6, "11AAB2"),
    "chat token": ("xoxb-" + "123456789012-abcdefghij", "123456789012"),
    "model key": ("sk-proj-" + "Ab3dEf6hIj9lMn2p", "Ab3dEf6h"),
    "payment key": ("sk_live_" + "4eC39HqLyjWDarjt", "4eC39HqL"),
    "connection string": ("postgres://app:hunter2@db.internal:5432/x", "hunter2"),
    "bearer": ("Authorization: Bearer abc123def456ghi", "abc123def456ghi"),
    "basic": ("basic dXNlcjpwYXNz" + "dzEyMw==", "dXNlcjpwYXNz"),
    "assignment": ("DB_PASSWORD=hunter2!x", "hunter2"),
    "json": ('{"password": "hunter2 x y"}', "hunter2"),
    "escaped json": ('{\\"api_key\\": \\"hunter2\\"}', "hunter2"),
    "yaml": ("client_secret: hunter2", "hunter2"),
    "storage": ("AccountName=x;AccountKey=hunter2/AAA==;EndpointSuffix=y", "hunter2"),
    "query": ("https://example.org/?token=hunter2&x=1", "hunter2"),
}


@pytest.mark.parametrize(("text", "secret"), SECRETS.values(), ids=list(SECRETS))
def test_what_looks_like_a_secret_is_removed(text: str, secret: str) -> None:
    assert secret in text
    scrubbed = scrub(f"before {text} after")
    assert secret not in scrubbed
    assert REDACTED in scrubbed
    assert scrubbed.startswith("before ")


@pytest.mark.parametrize(
    "text",
    [
        'final_selected("list_failures",45,"flesh")',
        "yields to full_stack_diagnosis",
        "the permission fix is missing",
        "needs basic authentication first",
        'console_event("s-1","error","Failed to fetch /api/users",2026-01-15T12:00:00Z)',
        "the token expired",
        "/error/timeout",
        "https://example.org/api/users?id=7",
        "risk-assessment-of-a-long-dependency-chain-2026",
        "sk-learn-pipelines-and-friends",
        "0123456789abcdef0123456789abcdef",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert scrub(text) == text


@pytest.mark.parametrize(
    "piece", ["eyJ-", "a.", "sk-", "a://", "x:", "-----BEGIN PRIVATE KEY", "password", "/etc/", "\\"]
)
def test_a_long_text_takes_no_long_time(piece: str) -> None:
    sight = Visibility(domain(tools("fetch")), ANONYMOUS)
    started = time.process_time()
    shown = sight.text(piece * 200_000)
    assert time.process_time() - started < 5
    assert len(shown) <= MAX_CHARACTERS


# --- planted ---------------------------------------------------------------------------------------------------------

PLANTED: Final = {
    "base fact": "base-" + "Zq81",
    "published fact": "ghp_" + "Zq82" * 9,
    "password by name": "Zq83-correct-horse",
    "rule text": "Zq84-in-a-rule",
    "rule text of a pattern": "AKIA" + "ZQ85ZQ85ZQ85ZQ85",
    "policy reason": "password: Zq86",
    "policy predicate": "zq87_moonlight",
    "policy value": "Zq88-open-sesame",
    "setting": "Zq89-plain-words",
    "file name": "Zq90-vault",
    "path in a reason": "/srv/zq91/rules.mg",
    "own fact": JWT,
}
MARKS: Final = [f"zq{number}" for number in range(81, 92)]

RULES: Final = (
    tools("fetch", "mend", "barred", "lost")
    + f"""
internal("{PLANTED["base fact"]}").
verdict("{PLANTED["published fact"]}").
account("kim", "{PLANTED["password by name"]}").
verdict(Key) :- setting("api_key", Key).
secretive(W) :- internal(W), W != "{PLANTED["rule text"]}", W != "{PLANTED["rule text of a pattern"]}".
relevant("fetch", 70) :- secretive(_), verdict("{PLANTED["published fact"]}"), verdict(K), setting("api_key", K),
  account(_, _), filed(_), seen(_).
relevant("mend", 60) :- seen(W), internal(W).
relevant("mend", 50) :- {PLANTED["policy predicate"]}(), seen("x").
relevant("barred", 90). relevant("lost", 40). relevant("lost", 41) :- seen("{PLANTED["rule text of a pattern"]}").
requires("lost", "barred").
"""
)
POLICY: Final = f"""
prohibited("barred", "{PLANTED["policy reason"]} in {PLANTED["path in a reason"]}").
{PLANTED["policy predicate"]}() :- seen("{PLANTED["policy value"]}").
"""
MORE: Final = """
Decl account(User, Password) descr [direction("both")] bound [/string, /string].
Decl filed(Name) descr [direction("both")] bound [/string].
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Domain:
    folder = tmp_path_factory.mktemp(PLANTED["file name"])
    facts = Path(folder, "facts.mg")
    facts.write_text(f'filed("{facts}").\n', "utf-8")
    made = pack(
        RULES, policy=POLICY, schema=SCHEMA + MORE, params={"api_key": PLANTED["setting"]}, fact_files=[str(facts)]
    )
    return Domain.load(replace(made, folder=str(folder)))


def everything(source: Domain, identity: Identity, facts: list[Any]) -> str:
    names = ["fetch", "mend", "barred", "lost", "nothing"]
    evaluation = evaluated(source, facts=facts, identity=identity, why_not=names)
    return text_of(hints_of(evaluation), rule_coverage(evaluation))


@pytest.mark.req("PROOF-09", "COV-04")
@pytest.mark.parametrize("identity", [ANONYMOUS, USER], ids=["anonymous", "user"])
@pytest.mark.parametrize("facts", [[], [("seen", "y")], [("seen", JWT)]], ids=["none", "some", "own secret"])
def test_nothing_that_was_planted_leaves(planted: Domain, identity: Identity, facts: list[Any]) -> None:
    told = everything(planted, identity, facts)
    assert "final_selected" in told or not facts  # there is something to read
    for secret in PLANTED.values():
        assert secret not in told
    assert [mark for mark in MARKS if mark in told.lower()] == []
    assert "dozjgNryP4J3" not in told


def test_whoever_may_know_of_policy_still_sees_no_credential(planted: Domain) -> None:
    told = everything(planted, AUDITOR, [("seen", "y")])
    assert "barred" in told
    assert PLANTED["policy predicate"] in told
    for what in ("base fact", "published fact", "password by name", "setting", "file name", "path in a reason"):
        assert PLANTED[what] not in told
    assert "Zq86" not in told


def test_no_rule_text_and_no_file_leaves(planted: Domain) -> None:
    told = everything(planted, AUDITOR, [("seen", "y")])
    for part in (":-", ".mg", "rules/", "kernel/", "fn:", "!=", "|>"):
        assert part not in told


# --- one by one ------------------------------------------------------------------------------------------------------


def test_an_argument_that_is_a_password_by_its_name_is_not_shown(planted: Domain) -> None:
    sight = Visibility(planted, AUDITOR)
    assert sight.fact(Fact("account", ("kim", "plain"))) == f'account("kim","{REDACTED}")'
    assert sight.wire(Fact("account", ("kim", "plain")))["args"] == ["kim", REDACTED]


def test_arguments_are_shown_only_of_what_is_published(planted: Domain) -> None:
    sight = Visibility(planted, ANONYMOUS)
    assert sight.fact(Fact("seen", ("x",))) == 'seen("x")'
    assert sight.fact(Fact("internal", ("x",))) == "internal"
    assert sight.fact(Fact("setting", ("x", "y"))) == "setting"


def test_a_clients_own_path_is_its_own_and_a_servers_is_not(planted: Domain) -> None:
    sight = Visibility(planted, ANONYMOUS)
    fact = Fact("seen", ("/home/kim/x.py",))
    assert sight.fact(fact, own=True) == 'seen("/home/kim/x.py")'
    assert sight.fact(fact) == f'seen("{REDACTED}")'
    assert sight.text("see C:\\Users\\kim\\x.mg now") == f"see {REDACTED} now"


def test_a_clients_own_value_is_not_compared_with_settings(planted: Domain) -> None:
    """Otherwise whoever guesses a secret would be told so."""
    guess = Fact("seen", (PLANTED["setting"],))
    assert PLANTED["setting"] in Visibility(planted, ANONYMOUS).fact(guess, own=True)
    assert PLANTED["setting"] not in Visibility(planted, ANONYMOUS).fact(guess)


def test_secrets_deep_inside_a_value_are_found() -> None:
    schema = 'Decl said(Value) descr [direction("input")] bound [/any].\n'
    source = domain(tools("fetch") + 'relevant("fetch", 50) :- said(_).', schema=schema)
    value = {"list": [{"note": f"use {JWT}", "password": "abc"}], "n": 1}
    (one,) = hints(source, facts=[{"pred": "said", "args": [value]}]).derivations
    assert one.supporting_facts[0]["args"] == [
        {"list": [{"note": f"use {REDACTED}", "password": REDACTED}], "n": 1},
    ]
    assert "dozjgNryP4J3" not in text_of(one)


def test_long_texts_are_cut() -> None:
    source = domain(tools("fetch") + 'relevant("fetch", 50) :- seen(_).')
    told = text_of(hints(source, facts=[("seen", "x" * 100_000)]))
    assert len(told) < 10_000
    assert "…" in told
