from __future__ import annotations

from typing import Any

import pytest

from manglecp.base.digest import digest_text
from manglecp.harness.evidence import ErrorEnvelope, read_envelope

CODE, RETRY, MESSAGE = "errorCode", "retryable", "errorMessage"
UNKNOWN, NOTHING = "unknown_error", digest_text("")


@pytest.mark.req("HARN-06", "HARN-53")
@pytest.mark.parametrize(
    ("row", "code", "retryable", "message", "gaps"),
    [
        ({}, UNKNOWN, False, NOTHING, (CODE, RETRY, MESSAGE)),
        ({CODE: " E ", RETRY: True, MESSAGE: " m "}, "E", True, digest_text("m"), ()),
        ({CODE: "E", RETRY: False, "errorMessageDigest": "sha256:m"}, "E", False, "sha256:m", ()),
        ({MESSAGE: "m", "errorMessageDigest": "sha256:n"}, "unknown_error", False, digest_text("m"), (CODE, RETRY)),
        ({"rawError": {CODE: "E", MESSAGE: "m", RETRY: True}}, "E", True, digest_text("m"), ()),
        ({"rawError": {"code": "E", "message": "m", RETRY: False}}, "E", False, digest_text("m"), ()),
        ({CODE: "E", MESSAGE: "m", RETRY: False, "rawError": {CODE: "F", MESSAGE: "n", RETRY: True}},
         "E", False, digest_text("m"), ()),
        # a blank first name hides the second one from what is hashed, not from what is judged
        ({"rawError": {CODE: " ", "code": "E", MESSAGE: "", "message": "m"}}, UNKNOWN, False, NOTHING, (RETRY,)),
        ({"rawError": {CODE: None, "code": "E", "message": "m"}}, "E", False, digest_text("m"), (RETRY,)),
        ({"rawError": {CODE: "E", "code": " "}}, "E", False, NOTHING, (RETRY, MESSAGE)),
        ({"rawError": "it broke"}, UNKNOWN, False, NOTHING, (CODE, RETRY, MESSAGE)),
    ],
)  # fmt: skip
def test_an_envelope(row: dict[str, Any], code: str, retryable: bool, message: str, gaps: tuple[str, ...]) -> None:
    assert read_envelope(row) == ErrorEnvelope(code, retryable, message, gaps)


def test_a_summary_is_kept_as_a_digest() -> None:
    assert read_envelope({"errorSummary": " s "}).error_summary_digest == digest_text("s")
