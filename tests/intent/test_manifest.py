"""The manifest says what the pack says, in the words of the protocol, and names no tool."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import jsonschema_rs
import msgspec
import pytest

from manglecp.intent.domain import Domain
from manglecp.intent.manifest_builder import manifest
from manglecp.pack import ExternalDescription, IntentSettings, Pack
from manglecp.pack.settings import AuthSettings, DomainSettings, PackLimits
from manglecp.wire import encode, schema
from manglecp.wire.messages import Auth, Endpoints, Manifest, Status
from tests.intent.packs import action, pack

SCHEMA = """\
Decl build_result(Service, Number, Outcome)
  temporal descr [doc("How a build ended."), direction("input")] bound [/string, /number, /string].
Decl incident_open(Id, Severity, Loud)
  descr [direction("both")] bound [/string, /any, fn:Union(fn:Singleton(/true), fn:Singleton(/false))].
Decl shipped(Release) descr [direction("output")] bound [/string].
Decl internal_note(Text) bound [/string].
"""
RULES = """\
macro("inspect_build", "Inspect a build.").
macro_step("inspect_build", 1, "secret_action").
relevant("inspect_build", 70) :- intent("investigate_build"), build_result(_, _, _)@[_, _].
similar_seen(Id) :- intent(Name), similar_failure(Name, 3, Id).
"""
SIMILAR = ExternalDescription(
    predicate="similar_failure",
    mode="++-",
    arguments=("Text", "Count", "Id"),
    description="Nearest past failures: text, count, result",
    deterministic=False,
)


def release_desk() -> Pack:
    plain = pack(
        RULES,
        schema=SCHEMA,
        actions=[action("secret_action")],
        intents=[
            IntentSettings(
                name="investigate_build",
                description="Find out why a build failed",
                required_facts=("build_result",),
                optional_facts=("incident_open",),
            ),
            IntentSettings(name="ship_release", description="Bring a release to an environment"),
        ],
        limits=PackLimits(max_facts_per_request=5_000, max_derived_facts=50_000, max_intervals_per_atom=500),
        externals=[SIMILAR],
    )
    settings = replace(
        plain.settings,
        name="Release Desk",
        version="0.3.1",
        domain=DomainSettings(
            id="release_desk",
            description="Investigates builds and ships releases",
            categories=("infrastructure", "testing", "x-release"),
            affinities={"deployment": 90, "coding": 30},
        ),
        auth=AuthSettings(required=True, schemes=("bearer", "api_key")),
    )
    return replace(plain, settings=settings)


def sent(given: Pack | None = None, **changes: Any) -> dict[str, Any]:
    """As it goes over the wire."""
    message = json.loads(encode(manifest(Domain.load(given or release_desk()), **changes)))
    assert isinstance(message, dict)
    return message


@pytest.mark.req("MANI-01", "MANI-03", "MANI-04", "MANI-05", "MANI-06", "MANI-07", "CONF-01")
def test_the_whole_of_it() -> None:
    domain = Domain.load(release_desk())
    message = sent()
    payload = message.pop("payload")
    assert message == {"type": "manifest", "id": None, "manglecp": "2026-02-draft"}
    assert payload.pop("extensions")["x-pack_digest"] == domain.digest
    profile = payload.pop("facts_profile")
    assert payload == {
        "server_name": "Release Desk",
        "server_version": "0.3.1",
        "protocol": {
            "manglecp": "2026-02-draft",
            "conformance_level": 3,
            "supported_versions": ["2026-02-draft"],
        },
        "status": "ready",
        "domain": {
            "id": "release_desk",
            "description": "Investigates builds and ships releases",
            "categories": ["infrastructure", "testing", "x-release"],
            "affinities": {"deployment": 90, "coding": 30},
        },
        "intents": [
            {
                "name": "investigate_build",
                "description": "Find out why a build failed",
                "required_facts": ["build_result"],
                "optional_facts": ["incident_open"],
            },
            {"name": "ship_release", "description": "Bring a release to an environment"},
        ],
        "capabilities": {
            "temporal": True,
            "aggregation": True,
            "named_args": True,
            "external_predicates": [
                {
                    "predicate": "similar_failure",
                    "arity": 3,
                    "description": "Nearest past failures: text, count, result",
                    "deterministic": False,
                    "x-mangle-mode": "++-",
                }
            ],
            "rule_submission": False,
            "subscriptions": False,
        },
        "limits": {
            "max_message_bytes": 16_777_216,
            "max_facts_per_request": 5_000,
            "max_derived_facts": 50_000,
            "max_intervals_per_atom": 500,
            "max_compute_ms": 10_000,
        },
        "auth": {"required": True, "schemes": ["bearer", "api_key"]},
    }
    assert profile["time_formats"] == ["rfc3339", "epoch_ms"]


@pytest.mark.req("MANI-15", "MANI-16", "MANI-17", "CONF-12")
def test_published_predicates() -> None:
    profile = sent()["payload"]["facts_profile"]
    assert profile["schema_uri"] is None
    own = [entry for entry in profile["predicates"] if not entry["predicate"].startswith("bulk_")]
    assert own == [
        {
            "predicate": "build_result",
            "arity": 3,
            "arg_types": ["string", "number", "string"],
            "arg_names": ["service", "number", "outcome"],
            "temporal": True,
            "description": "How a build ended.",
            "direction": "input",
            "x-integers": [1],
        },
        {
            "predicate": "incident_open",
            "arity": 3,
            "arg_types": ["string", "any", "boolean"],
            "arg_names": ["id", "severity", "loud"],
            "temporal": False,
            "direction": "both",
        },
        {
            "predicate": "shipped",
            "arity": 1,
            "arg_types": ["string"],
            "arg_names": ["release"],
            "temporal": False,
            "direction": "output",
        },
    ]


@pytest.mark.req("MANI-02")
def test_no_tool_action_skill_or_internal_predicate_is_named() -> None:
    text = json.dumps(sent())
    for word in ("inspect_build", "secret_action", "internal_note", "similar_seen", "final_selected", "prohibited"):
        assert word not in text


@pytest.mark.req("MANI-06")
@pytest.mark.parametrize("status", get_args(Status))
def test_every_status(status: Status) -> None:
    assert sent(status=status)["payload"]["status"] == status


@pytest.mark.req("MANI-08", "MANI-10", "MANI-12")
def test_what_a_pack_does_not_say_is_left_out() -> None:
    payload = sent(pack("p(1)."))["payload"]
    assert payload["domain"] == {"id": "sample", "description": "The domain sample."}
    assert payload["intents"] == []
    assert payload["auth"] == {"required": False}
    assert "endpoints" not in payload


@pytest.mark.req("MANI-11")
def test_endpoints_are_for_http() -> None:
    given = Endpoints(intent_eval="https://desk.example/mcp/evaluate", macro_invoke="https://desk.example/mcp/invoke")
    assert sent(endpoints=given)["payload"]["endpoints"] == msgspec.to_builtins(given)


@pytest.mark.req("MANI-18", "MANI-19", "CONF-19")
def test_capabilities() -> None:
    found = sent()["payload"]["capabilities"]
    assert found["temporal"] is True
    assert (found["rule_submission"], found["subscriptions"]) == (False, False)


@pytest.mark.req("MANI-20", "MANI-21", "MANI-22", "CONF-12")
def test_every_external_predicate_is_there() -> None:
    other = replace(SIMILAR, predicate="about", mode="+-", description="", deterministic=True, arguments=())
    given = replace(release_desk(), externals={"similar_failure": SIMILAR, "about": other})
    found = sent(given)["payload"]["capabilities"]["external_predicates"]
    assert [(entry["predicate"], entry["deterministic"]) for entry in found] == [
        ("about", True),
        ("similar_failure", False),
    ]
    assert all(entry["description"] for entry in found)
    used = {predicate.name for predicate in Domain.load(given).program.predicates.values() if predicate.external}
    assert used == {entry["predicate"] for entry in found}


@pytest.mark.req("MANI-23")
def test_limits_are_those_that_are_enforced() -> None:
    given = PackLimits(
        max_message_bytes=1, max_facts_per_request=2, max_derived_facts=3, max_intervals_per_atom=4, max_compute_ms=5
    )
    assert sent(pack(limits=given))["payload"]["limits"] == {
        "max_message_bytes": 1,
        "max_facts_per_request": 2,
        "max_derived_facts": 3,
        "max_intervals_per_atom": 4,
        "max_compute_ms": 5,
    }


@pytest.mark.req("MANI-25", "MANI-26")
def test_auth_is_the_packs_or_the_servers() -> None:
    assert sent(auth=Auth(required=True, schemes=("oauth2",), token_url="https://desk.example/token"))["payload"][
        "auth"
    ] == {"required": True, "schemes": ["oauth2"], "token_url": "https://desk.example/token"}


@pytest.mark.req("MANI-27", "CONF-12")
def test_extensions() -> None:
    found = sent(status="degraded", extensions={"x-degraded": "the index is being rebuilt"})["payload"]["extensions"]
    assert set(found) == {
        "x-approvals",
        "x-decide",
        "x-why_not",
        "x-rule_coverage",
        "x-request_key",
        "x-skills",
        "x-structured_facts",
        "x-pack_digest",
        "x-degraded",
    }
    assert found["x-structured_facts"] == {"enabled": False, "rules": False}
    plain = pack()
    on = Domain.load(replace(plain, settings=replace(plain.settings, structured_facts=True)))
    told = manifest(on).payload.extensions
    assert isinstance(told, dict)
    assert told["x-structured_facts"] == {"enabled": True, "rules": False}
    with pytest.raises(ValueError, match="begins with x-"):
        sent(extensions={"degraded": "x"})


def test_it_fits_the_published_schema_and_comes_back() -> None:
    message = sent()
    jsonschema_rs.validator_for(schema("manifest")).validate(message)
    assert msgspec.convert(message, Manifest) == manifest(Domain.load(release_desk()))
