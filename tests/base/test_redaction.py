"""Redaction by value."""

from __future__ import annotations

import base64
import gc
import json
import string
import urllib.parse

import pytest
from hypothesis import given, strategies as st

from manglecp.base.redaction import MIN_LENGTH, Redactor, SecretValue

TOKEN = "ghp_0123456789AbcdEfghij"
AWKWARD = "a\"b\\c\n/é?+ '=END"


def redactor(*values: SecretValue) -> Redactor:
    made = Redactor()
    for value in values:
        made.add(value)
    return made


@pytest.mark.parametrize("secret", [TOKEN, AWKWARD, "line one of it\nline two of it"])
@pytest.mark.parametrize(
    "encode",
    [
        str,
        str.lower,
        repr,
        ascii,
        json.dumps,
        lambda text: json.dumps(text, ensure_ascii=False),
        lambda text: json.dumps(json.dumps({"token": text})),
        lambda text: repr(text.encode()),
        urllib.parse.quote,
        urllib.parse.quote_plus,
        lambda text: urllib.parse.quote(text, safe=""),
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
        lambda text: base64.b64encode(f"user:{text}:".encode()).decode(),
        lambda text: base64.b64encode(f"me:{text}".encode()).decode(),
    ],
)
def test_the_forms_of_usual_encoders_are_found(secret: str, encode: object) -> None:
    assert callable(encode)
    value = SecretValue("TOKEN", secret)
    encoded = encode(secret)
    redacted = redactor(value).text(f"before {encoded} after")
    assert "[secret TOKEN]" in redacted
    parts = {encoded[start : start + 6] for start in range(4, len(encoded) - 9)}
    assert not any(part in redacted for part in parts if part.isalnum()), redacted


def test_a_text_without_a_value_is_the_same_object() -> None:
    value = SecretValue("TOKEN", TOKEN)
    text = '{ "a" : 1.50 }'
    assert redactor(value).json_text(text) is text
    assert redactor(value).text(text) is text


def test_a_value_is_no_part_of_an_escape() -> None:
    value = SecretValue("TOKEN", "nabcdefgh")
    text = json.dumps({"a": "\nabcdefgh"})
    assert redactor(value).json_text(text) == text, "the text holds it, the string does not"
    assert redactor(value).json_text(json.dumps(["x nabcdefgh"])) == '["x [secret TOKEN]"]'


def test_names_and_numbers_of_json_are_redacted() -> None:
    value = SecretValue("PIN", "1234567890")
    text = json.dumps({"1234567890": [1234567890, 12345678901, 1.5, None, True, {"a": "1234567890"}]})
    assert json.loads(redactor(value).json_text(text)) == {
        "[secret PIN]": ["[secret PIN]", 12345678901, 1.5, None, True, {"a": "[secret PIN]"}]
    }


def test_text_that_is_no_json_is_redacted_as_text() -> None:
    value = SecretValue("TOKEN", TOKEN)
    assert redactor(value).json_text(f"[{TOKEN}") == "[[secret TOKEN]"
    deep = "[" * 100_000 + json.dumps(TOKEN)
    assert TOKEN not in redactor(value).json_text(deep)


@pytest.mark.parametrize("cut", range(5, len(TOKEN)))
def test_a_part_at_the_edge_of_a_truncated_text_is_redacted(cut: int) -> None:
    made = redactor(value := SecretValue("TOKEN", TOKEN))
    filler = "x" * 300
    assert made.text(filler + TOKEN[:cut], truncated=True) == filler + "[secret TOKEN]"
    assert made.text(TOKEN[-cut:] + filler, truncated=True) == "[secret TOKEN]" + filler
    assert made.text(filler + TOKEN[:cut]).endswith(TOKEN[:cut]), "a text that is whole"
    assert value.text == TOKEN


def test_a_longer_value_goes_first() -> None:
    values = SecretValue("SHORT", TOKEN[:12]), SecretValue("LONG", TOKEN)
    assert redactor(*values).text(f"{TOKEN} {TOKEN[:12]}") == "[secret LONG] [secret SHORT]"


def test_a_value_is_redacted_as_long_as_an_object_refers_to_it() -> None:
    made = redactor(old := SecretValue("TOKEN", TOKEN), current := SecretValue("TOKEN", "another-value"))
    assert made.text(f"{TOKEN} another-value") == "[secret TOKEN] [secret TOKEN]"
    del old
    gc.collect()
    made.add(current)
    assert made.text(f"{TOKEN} another-value") == f"{TOKEN} [secret TOKEN]"


def test_its_representation_has_no_value() -> None:
    assert TOKEN not in repr([SecretValue("TOKEN", TOKEN)])


@given(
    st.text(min_size=MIN_LENGTH, max_size=40).filter(lambda text: text.isprintable()),
    st.recursive(
        st.sampled_from(["VALUE", "xVALUEx", "x", 1, None, 1.5, True]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["VALUE", "b"]), inner, max_size=2),
    ),
    st.booleans(),
)
def test_json_stays_json_and_loses_every_value(secret: str, document: object, is_ascii: bool) -> None:
    alphabet = set(string.printable)
    made = redactor(value := SecretValue("S", secret))
    text = json.dumps(document, ensure_ascii=is_ascii).replace("VALUE", json.dumps(secret, ensure_ascii=is_ascii)[1:-1])
    redacted = json.loads(made.json_text(text))
    assert secret in "[secret S]" or value.text not in json.dumps(redacted, ensure_ascii=not set(secret) <= alphabet)
