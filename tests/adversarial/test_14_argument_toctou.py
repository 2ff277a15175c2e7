"""Case 14: arguments that change between the check and the call. One byte string is checked, leased and run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from manglecp.toolhost import HostCall
from manglecp.toolhost.dispatch.catalogue import Catalogue
from manglecp.toolhost.dispatch.dispatcher import prepare_call
from manglecp.toolhost.dispatch.messages import encode
from manglecp.toolhost.leases import LeaseBook, input_digest, mint
from manglecp.wire import validator_of
from tests.adversarial._hosted import Hosted, aid, effects, hosting, listed, plugin_in, value
from tests.adversarial._pipe import KEY, lease, line, said
from tests.toolhost.dispatch.hosts import error
from tests.toolhost.rights import authorised

OBJECTS = st.dictionaries(
    st.text(max_size=5), st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5), max_size=4
)
SPELLINGS: list[dict[str, Any]] = [
    {"indent": 1},
    {"separators": (",", ":")},
    {"ensure_ascii": False},
    {"sort_keys": True},
]


@given(OBJECTS, st.sampled_from(SPELLINGS), st.sampled_from(SPELLINGS))
def test_a_lease_is_for_the_bytes_and_not_for_what_they_might_mean(
    inputs: dict[str, Any], one: dict[str, Any], other: dict[str, Any]
) -> None:
    checked, sent = json.dumps(inputs, **one), json.dumps(inputs, **other)
    token = mint(KEY, aid="A", input_digest=input_digest(checked), call_id="c", tier=1, ttl=60)
    reason = LeaseBook(KEY).check(token, "A", input_digest(sent), "c", 1)
    assert reason == (None if checked == sent else "input_mismatch")


def test_arguments_changed_on_the_pipe_are_not_run(tmp_path: Path) -> None:
    plugin, file = plugin_in(tmp_path), tmp_path / "notes"
    good = json.dumps({"path": str(file), "text": "good"})
    token = lease("note", good)
    changed = [
        good.replace("good", "evil"),
        good + " ",
        good.replace('"text"', '"te\\u0078t"'),
        json.dumps({"text": "good", "path": str(file)}),
        json.dumps({"path": str(file), "text": "good", "times": 1}),
    ]
    answers = said(plugin, *[line("note", text, call_id="c1", _lease_token=token) for text in changed])
    assert [answer["reason"] for answer in answers] == ["input_mismatch"] * len(changed)
    assert effects(file) == []
    *_, last = said(
        plugin, line("note", changed[0], _lease_token=token), line("note", good, call_id="c1", _lease_token=token)
    )
    assert last["status"] == "OK", "who guesses wrong does not spoil the right call"
    assert effects(file) == ["good"]


def test_a_second_input_beside_the_leased_one_is_refused(tmp_path: Path) -> None:
    plugin, file = plugin_in(tmp_path), tmp_path / "notes"
    good = json.dumps({"path": str(file), "text": "good"})
    evil = {"path": str(file), "text": "evil"}
    both = line("note", good, inputs=evil, call_id="c1", _lease_token=lease("note", good))
    (answer,) = said(plugin, both)
    assert (answer["ok"], answer["status"]) == (False, "INVALID_PICK")
    assert effects(file) == []


def test_an_object_that_is_changed_after_the_check_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    inputs = {"path": str(file), "text": "checked"}

    async def work(hosted: Hosted) -> None:
        call = prepare_call(hosted.catalogue, aid("note"), inputs=inputs)
        assert isinstance(call, HostCall)
        inputs["text"] = "swapped"
        assert value(await hosted.pool.call(authorised(call))) == "checked"

    hosting(work, tmp_path)
    assert effects(file) == ["checked"]


def test_the_bytes_that_were_authorised_are_the_bytes_that_are_sent(tmp_path: Path) -> None:
    file = tmp_path / "notes"

    async def work(hosted: Hosted) -> None:
        call = hosted.prepare("note", path=str(file), text="good")
        for swapped in (call.input_json.replace("good", "evil"), call.input_json + " ", call.input_json.upper()):
            refused = await hosted.pool.call(replace(call, input_json=swapped))
            assert error(refused) == ("tool_error", "lease_refused")
        assert value(await hosted.pool.call(call)) == "good"

    hosting(work, tmp_path)
    assert effects(file) == ["good"]


# What one parser takes and another might read differently: the check and the action have to agree on all of them.
AMBIGUOUS = [
    '{"path":"P","text":"a","times":1,"times":"2"}',
    '{"path":"P","text":"a","times":"2","times":1}',
    '{"path":"P","text":"a","times":1.0}',
    '{"path":"P","text":"a","times":1e0}',
    '{"path":"P","text":"a","times":true}',
    '{"path":"P","text":"a","times":1}{"path":"P","text":"b"}',
    '{"path":"P","text":"a",}',
    '{"path":"P","text":"a"/**/}',
    '{"path":"P","text":"a","Times":2}',
    '{"path":"P","text":"a","times ":2}',
    '{"path":"P","text":"a","times":NaN}',
    '\ufeff{"path":"P","text":"a"}',
    '{"path":"P","text":null}',
    '[{"path":"P","text":"a"}]',
    '{"path":"P","text":"a","times":2}',
]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plugin_in(tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="module")
def catalogue(plugin: Path) -> Catalogue:
    return listed(plugin)


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_the_check_and_the_action_read_the_same(text: str, plugin: Path, catalogue: Catalogue, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    text = text.replace("P", str(file))
    prepared = prepare_call(catalogue, aid("note"), input_json=text)
    # The schema is checked once by the caller, with the validator of the harness, and once by the host's conversion.
    fits = validator_of(dict(catalogue[aid("note")].inputs_schema or {}))
    (answer,) = said(plugin, line("note", text, call_id="c1", _lease_token=lease("note", text)))
    accepted = isinstance(prepared, HostCall) and fits(json.loads(text))
    assert accepted == (answer["ok"] is True)
    if accepted and isinstance(prepared, HostCall):
        assert json.loads(encode(prepared))["input_json"] == text, "what was checked is what is sent, byte for byte"
        document = json.loads(text)
        assert effects(file) == [document["text"] * int(document.get("times", 1))]
    else:
        assert effects(file) == []
