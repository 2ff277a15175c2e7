"""Facts and tools that have a time."""

from __future__ import annotations

from manglecp.conformance.bench import Bench, Untested
from manglecp.conformance.registry import check


@check("DATA-31", "DATA-32", "DATA-34", "CONF-07", level=2)
async def windows(b: Bench) -> None:
    """A tool is there while its facts are recent, and not afterwards"""
    if not b.plan.windows:
        raise Untested("the plan has no windows")
    for window in b.plan.windows:
        for moment, there in ((window.inside, True), (window.outside, False)):
            names = [tool.get("name") for tool in await b.tools(window.intent, eval_time=moment)]
            text = f"{window.tool} {'at' if there else 'not at'} {moment}"
            b.that(("DATA-31", "DATA-32", "DATA-34", "CONF-07"), (window.tool in names) == there, text, names)


@check("MANI-18", "CONF-07", level=2, access=False)
async def temporal_reasoning(b: Bench) -> None:
    """From level 2 on a server reasons about time"""
    capabilities = b.manifest.get("capabilities")
    flag = capabilities.get("temporal") if isinstance(capabilities, dict) else None
    b.that(("MANI-18", "CONF-07"), flag is True, "capabilities.temporal true", flag)


@check("TOOL-17", "TOOL-18", "TOOL-19", "CONF-11", level=3)
async def validity(b: Bench) -> None:
    """A tool that rests on recent facts says until when, and is gone then"""
    if not b.plan.windows:
        raise Untested("the plan has no windows")
    options = {"disclosure_preference": "full"}
    for window in b.plan.windows:
        tools = await b.tools(window.intent, eval_time=window.inside, options=options)
        tool = next((one for one in tools if one.get("name") == window.tool), None)
        if tool is None:
            continue
        valid = tool.get("validity")
        expires = valid.get("expires_at") if isinstance(valid, dict) else None
        if not b.that(("TOOL-18", "CONF-11"), isinstance(expires, str), "validity.expires_at", valid):
            continue
        in_order = window.inside <= str(expires) <= window.outside
        b.that("TOOL-19", in_order, f"an end between {window.inside} and {window.outside}", expires)
        begins = valid.get("not_before") if isinstance(valid, dict) else None
        b.that("TOOL-17", begins is None or str(begins) <= str(expires), "not_before before expires_at", valid)
