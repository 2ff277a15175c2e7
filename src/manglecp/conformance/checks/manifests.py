"""What the manifest says as a whole; its members are looked at whenever one comes."""

from __future__ import annotations

from manglecp.conformance.bench import Bench, Untested
from manglecp.conformance.registry import check


@check("CONF-01", "MANI-05", access=False)
async def level_is_declared(b: Bench) -> None:
    """The manifest declares the level that is tested, or a higher one"""
    protocol = b.manifest.get("protocol")
    declared = protocol.get("conformance_level") if isinstance(protocol, dict) else None
    b.that("MANI-05", type(declared) is int and declared in (1, 2, 3), "conformance_level 1, 2 or 3", declared)
    enough = isinstance(declared, int) and declared >= b.report.level
    b.that("CONF-01", enough, f"conformance_level {b.report.level} or more", declared)


@check("MANI-02", "SEC-26", access=False)
async def tools_are_not_listed(b: Bench) -> None:
    """The manifest lists no tools"""
    text = str(b.manifest)
    hidden = "macro_tools" not in text and "input_schema" not in text and "macro_id" not in text
    b.that(("MANI-02", "SEC-26"), hidden, "no tools in the manifest", "members of tools")


@check("MANI-13", "MANI-12", access=False)
async def intents_are_listed(b: Bench) -> None:
    """The manifest lists intents, and facts that it describes"""
    intents = b.manifest.get("intents")
    b.that("MANI-13", isinstance(intents, list) and bool(intents), "the primary intents", intents)
    named = [one.get("name") for one in intents if isinstance(one, dict)] if isinstance(intents, list) else []
    b.that("MANI-12", len(set(map(str, named))) == len(named), "each intent once", named)


@check("CONF-12", "MANI-16", "DATA-50", level=2, access=False)
async def predicates_are_described(b: Bench) -> None:
    """The manifest describes the predicates that intents need"""
    found = b.predicates
    if b.report.level == 3:
        b.that("CONF-12", bool(found), "predicate schemas in the manifest", found)
    known = {one.get("predicate") for one in found}
    needed = {
        name
        for one in b.manifest.get("intents") or ()
        if isinstance(one, dict)
        for name in one.get("required_facts") or ()
    }
    b.that("MANI-16", needed <= known, "a schema of each predicate that an intent requires", sorted(needed - known))
    for one in found:
        arity, fits = one.get("arity"), True
        for member in ("arg_types", "arg_names"):
            if one.get(member):
                fits = fits and len(one[member]) == arity
        b.that("DATA-50", fits, "as many arg_types and arg_names as arguments", one)


@check("CONF-12", level=3, access=False)
async def extensions_are_announced(b: Bench) -> None:
    """Rule coverage and structured facts are announced as extensions"""
    extensions = b.manifest.get("extensions")
    keys = [str(key) for key in extensions] if isinstance(extensions, dict) else []
    text = " ".join(keys) + " " + str(extensions)
    b.that("CONF-12", "coverage" in text, "an extension that announces rule coverage", keys)
    b.that("CONF-12", "structured" in text or "clause" in text, "one that announces structured facts", keys)


@check("MANI-20", "MANI-22", level=3, access=False)
async def external_predicates(b: Bench) -> None:
    """External predicates say what they are"""
    capabilities = b.manifest.get("capabilities")
    listed = capabilities.get("external_predicates") if isinstance(capabilities, dict) else None
    if not listed:
        raise Untested("the server declares no external predicates")
    for one in listed:
        fits = isinstance(one, dict) and {"predicate", "arity", "description"} <= set(one)
        b.that("MANI-20", fits, "predicate, arity and description", one)
        flag = one.get("deterministic", True) if isinstance(one, dict) else None
        b.that("MANI-22", isinstance(flag, bool), "deterministic as true or false", flag)
