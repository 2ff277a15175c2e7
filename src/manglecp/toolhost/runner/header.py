"""Whose run it is: the four members that every record of a run carries (contract, section 1)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from manglecp.toolhost.runner.errors import BadHeader

__all__ = ["RunHeader"]

SPEC_VERSION: Final = "1.4.2"
PROFILE_ID: Final = "A"

# Upstream writes two 64-bit numbers in hexadecimal without padding them: mostly 32 digits, at times fewer.
_RUN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{2,32}")
_TRACING: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")


@dataclass(frozen=True, slots=True)
class RunHeader:
    """``request_id`` is what the caller traces the run by."""

    run_id: str
    request_id: str | None = None
    spec_version: str = SPEC_VERSION
    profile_id: str = PROFILE_ID

    def __post_init__(self) -> None:
        if not _is(self.run_id, _RUN_ID):
            raise BadHeader("run_id is a UUID, or up to 32 hexadecimal digits")
        for name in ("request_id", "spec_version", "profile_id"):
            text = getattr(self, name)
            if not _is(text, _TRACING) and (name != "request_id" or text is not None):
                raise BadHeader(f"{name} is a text of 1 to 256 characters without control characters")

    @classmethod
    def new(cls, request_id: str | None = None) -> RunHeader:
        """The header of a run that begins now."""
        return cls(str(uuid.uuid4()), request_id)

    @classmethod
    def read(cls, members: Mapping[str, Any]) -> RunHeader:
        """The header among the members of a record, which has others too."""
        return cls(
            members.get("run_id", ""),
            members.get("request_id"),
            members.get("spec_version", SPEC_VERSION),
            members.get("profile_id", PROFILE_ID),
        )

    def members(self) -> dict[str, str]:
        """As written; a missing ``request_id`` is absent, not null."""
        found = {"spec_version": self.spec_version, "profile_id": self.profile_id, "run_id": self.run_id}
        return found if self.request_id is None else {**found, "request_id": self.request_id}


def _is(text: object, shape: re.Pattern[str]) -> bool:
    return isinstance(text, str) and shape.fullmatch(text) is not None
