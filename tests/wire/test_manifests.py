"""What a client takes for a manifest, member by member, and what it is told about what is not one."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from manglecp.wire.errors import WireError
from manglecp.wire.message_reader import receive_from_server
from manglecp.wire.messages import Manifest
from tests.wire.test_nulls import EXAMPLES

ABSENT: Final = object()


def manifest(part: str, **changes: Any) -> bytes:
    """The example of the specification with members of one part changed."""
    document = json.loads(json.dumps(EXAMPLES["manifest"]))
    payload = document["payload"]
    members = payload if part == "" else payload[part]
    for name, value in changes.items():
        members[name] = value
        if value is ABSENT:
            del members[name]
    return json.dumps(document).encode()


def taken(part: str, **changes: Any) -> Manifest:
    message = receive_from_server(manifest(part, **changes), 1 << 24)
    assert isinstance(message, Manifest)
    return message


def refused(part: str, **changes: Any) -> WireError:
    with pytest.raises(WireError) as error:
        taken(part, **changes)
    assert error.value.code == "malformed_message"
    return error.value


def where(error: WireError) -> str:
    assert error.details is not None
    return str(error.details["path"])


@pytest.mark.req("MANI-26")
@pytest.mark.parametrize("schemes", [ABSENT, None, []], ids=["absent", "null", "empty"])
def test_where_authentication_is_required_its_schemes_are_too(schemes: Any) -> None:
    error = refused("auth", required=True, schemes=schemes)
    assert where(error) == "$.payload.auth.schemes"
    assert taken("auth", required=False, schemes=schemes).payload.auth.required is False


@pytest.mark.req("MANI-26")
@pytest.mark.parametrize("required", [True, False])
def test_schemes_are_three(required: bool) -> None:
    known = ["bearer", "oauth2", "api_key"]
    assert taken("auth", required=required, schemes=known).payload.auth.schemes == tuple(known)
    error = refused("auth", required=required, schemes=["bearer", "baerer"])
    assert where(error) == "$.payload.auth.schemes[1]"
    assert error.message == "payload.auth.schemes[1] has an unknown value 'baerer'"
    assert error.details is not None
    assert error.details["suggestion"] == "Did you mean 'bearer'?"
    assert where(refused("auth", schemes=["x-own"])) == "$.payload.auth.schemes[0]"


@pytest.mark.req("MANI-26")
def test_a_token_url_is_optional() -> None:
    assert taken("auth", token_url="https://desk.example/token").payload.auth.token_url == "https://desk.example/token"
    assert taken("auth", token_url=None).payload.auth.token_url is None
    taken("auth", token_url=ABSENT)
    assert where(refused("auth", token_url=5)) == "$.payload.auth.token_url"


@pytest.mark.req("MANI-25")
@pytest.mark.parametrize("required", [ABSENT, None, "yes", 1])
def test_whether_authentication_is_required_is_said(required: Any) -> None:
    assert where(refused("auth", required=required)) == "$.payload.auth.required"


@pytest.mark.req("MANI-11")
@pytest.mark.parametrize("member", ["intent_eval", "macro_invoke"])
@pytest.mark.parametrize("address", [ABSENT, None, "", 5])
def test_there_are_two_endpoints_or_none(member: str, address: Any) -> None:
    assert where(refused("endpoints", **{member: address})) == f"$.payload.endpoints.{member}"
    taken("", endpoints=ABSENT)
    taken("endpoints", **{member: "/mcp/relative"})


@pytest.mark.req("MANI-08", "MANI-09")
def test_categories_are_known_or_ones_own() -> None:
    assert taken("domain", categories=["testing", "x-cooking"]).payload.domain.categories == ("testing", "x-cooking")
    error = refused("domain", categories=["testing", "tasting"])
    assert error.details == {"path": "$.payload.domain.categories[1]", "suggestion": "Did you mean 'testing'?"}
    assert where(refused("domain", categories=["x-"])) == "$.payload.domain.categories[0]"
    assert where(refused("domain", categories=["testing\n"])) == "$.payload.domain.categories[0]"


@pytest.mark.req("MANI-10")
@pytest.mark.parametrize(("weight", "fits"), [(0, True), (100, True), (-1, False), (101, False), (1.5, False)])
def test_affinities_are_percentages(weight: Any, fits: bool) -> None:
    if fits:
        assert taken("domain", affinities={"a": weight}).payload.domain.affinities == {"a": weight}
    else:
        assert where(refused("domain", affinities={"b": 1, "a": weight})) == "$.payload.domain.affinities.a"


@pytest.mark.req("MANI-15", "DATA-30")
def test_every_server_takes_rfc3339() -> None:
    taken("facts_profile", time_formats=["epoch_ns", "rfc3339"])
    assert where(refused("facts_profile", time_formats=["epoch_ms"])) == "$.payload.facts_profile.time_formats"
    assert where(refused("facts_profile", time_formats=["rfc3339", "iso"])) == "$.payload.facts_profile.time_formats[1]"


@pytest.mark.req("MANI-27")
def test_extensions_begin_with_x() -> None:
    assert taken("", extensions={"x-a": None}).payload.extensions == {"x-a": None}
    assert where(refused("", extensions={"x-a": 1, "degraded": 1})) == "$.payload.extensions.degraded"


@pytest.mark.req("MANI-05", "MANI-06", "MANI-23", "WIRE-23")
@pytest.mark.parametrize(
    ("part", "member", "value"),
    [
        ("protocol", "conformance_level", 4),
        ("", "status", "asleep"),
        ("limits", "max_message_bytes", 16777215),
        ("limits", "max_facts_per_request", -1),
        ("limits", "max_derived_facts", 1.5),
        ("limits", "max_compute_ms", -1),
    ],
)
def test_what_is_out_of_range(part: str, member: str, value: Any) -> None:
    assert where(refused(part, **{member: value})) == ".".join(filter(None, ["$.payload", part, member]))


def test_everything_that_does_not_hold_is_told() -> None:
    document = json.loads(manifest("auth", required=True, schemes=ABSENT))
    document["payload"]["facts_profile"]["time_formats"] = []
    with pytest.raises(WireError) as error:
        receive_from_server(json.dumps(document).encode(), 1 << 24)
    assert error.value.details is not None
    assert len(error.value.details["x-violations"]) == 2
