"""Rows that no test from outside can show, and why. They stand in the report, so that nobody takes them for tested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["UNSEEN"]

_INSIDE: Final = "it cannot be seen from outside"
_CLIENT: Final = "it is the client's duty"
_CONNECTIONS: Final = "this run uses one transport"
_STATE: Final = "the server was ready all the time"

UNSEEN: Final[Mapping[str, tuple[int, str]]] = {
    **dict.fromkeys(("WIRE-07", "TRANS-03", "TRANS-08", "TRANS-12", "TRANS-35", "DATA-46"), (1, _CLIENT)),
    **dict.fromkeys(("MANI-28", "MANI-34", "TOOL-21", "PROG-07", "COV-02", "ERR-49"), (1, _CLIENT)),
    **dict.fromkeys(("EVAL-40", "EVAL-37", "SEC-01", "ERR-22", "ERR-31"), (1, _INSIDE)),
    **dict.fromkeys(("OBS-05", "OBS-07"), (2, _INSIDE)),
    **dict.fromkeys(("EVAL-23", "ERR-21", "MANI-21"), (2, _INSIDE)),
    **dict.fromkeys(("MANI-29", "MANI-31", "ERR-29", "TRANS-20"), (1, _STATE)),
    "DATA-18": (1, "a float64 of the same value looks alike"),
    "DATA-23": (1, "no message of a server has variables"),
    "ERR-30": (1, "no limit of requests was met"),
    "ERR-11": (1, "nobody was refused for want of a permission"),
    "TRANS-09": (1, "it takes longer than a run"),
    "SEC-34": (1, "the address says whether there is TLS"),
    "WIRE-28": (1, "there is one version only"),
    "CONF-13": (3, _CONNECTIONS),
}
