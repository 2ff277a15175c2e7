"""Proofs as text, and as one HTML page that needs no script and no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from manglecp.base.text import escape_invisible

FactOrigin: TypeAlias = Literal["client", "session", "server", "rule", "absent", "silent"]
ORIGINS: Final[dict[FactOrigin, str]] = {
    "client": "stated by the client",
    "session": "about the caller, the intent and the call",
    "server": "of the pack, or generated",
    "rule": "derived by a rule",
    "absent": "does not hold",
    "silent": "a rule that derived nothing",
}
CUT: Final = "…"


class ProofNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fact of a proof, with the rule that derived it and what that rule read."""

    fact: str
    origin: FactOrigin
    place: str = ""
    """The clause, as ``file:line``."""
    rule: str = ""
    note: str = ""
    """The values of the rule's variables, or where a silent rule stops."""
    premises: tuple[ProofNode, ...] = ()

    def lines(self, margin: str = "") -> Iterator[str]:
        """Yield the tree as indented text. ``premises`` must not be nested deeper than Python's recursion limit."""
        by = f"  by {self.place}" if self.place else "" if self.origin == "rule" else f"  [{self.origin}]"
        yield f"{margin}{self.fact}{by}"
        if self.note:
            yield f"{margin}    {self.note}"
        for premise in self.premises:
            yield from premise.lines(f"{margin}  ")


class PageSection(NamedTuple):
    """A decision on the page."""

    title: str
    verdict: str
    lead: str
    """The reasons of the verdict."""
    notes: Sequence[str]
    proofs: Sequence[ProofNode]
    silent: Sequence[ProofNode] = ()
    rows: Sequence[tuple[str, str]] = ()
    """Names and values of the record."""


def render_page(title: str, sections: Sequence[PageSection]) -> str:
    """Return the HTML of a page. All texts are escaped."""
    legend = "".join(f'<li><i class="dot {name}"></i><b>{name}</b> {text}</li>' for name, text in ORIGINS.items())
    body = "".join(part for section in sections for part in _section(section))
    return _PAGE.replace("@TITLE@", _text(title)).replace("@LEGEND@", legend).replace("@BODY@", body)


def _section(section: PageSection) -> Iterator[str]:
    verdict = _text(section.verdict)
    yield f'<section><h2><span class="verdict {verdict}">{verdict}</span>{_text(section.title)}</h2>'
    yield f'<p class="lead">{_text(section.lead)}</p>' if section.lead else ""
    yield from (f'<p class="note">{_text(note)}</p>' for note in section.notes)
    for proof in section.proofs:
        yield '<div class="proof">'
        yield from _node(proof)
        yield "</div>"
    if section.silent:
        yield f"<details><summary>Rules that derived nothing for this call: {len(section.silent)}</summary>"
        for silent in section.silent:
            yield from _node(silent)
        yield "</details>"
    yield "<dl>"
    yield from (f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in section.rows)
    yield "</dl></section>"


def _node(node: ProofNode) -> Iterator[str]:
    of_kernel = "more" if node.fact == CUT else "rule of manglecp"
    label = node.place or (of_kernel if node.origin == "rule" else node.origin)
    yield f'<div class="node"><div class="card {node.origin}"><small>{_text(label)}</small>'
    yield f"<code>{_text(node.fact)}</code>"
    if node.note:
        yield f"<em>{_text(node.note)}</em>"
    if node.rule:
        yield f"<details><summary>rule</summary><pre>{_text(node.rule)}</pre></details>"
    yield "</div>"
    if node.premises:
        yield '<div class="premises">'
        for premise in node.premises:
            yield from _node(premise)
        yield "</div>"
    yield "</div>"


def _text(text: str) -> str:
    return escape(escape_invisible(text))


_PAGE: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark"><title>@TITLE@</title><style>
:root{--bg:#f6f7f9;--paper:#fff;--ink:#1c2330;--soft:#5d6778;--line:#c3cad6;--client:#0b6bcb;--session:#7a3fc4;
--server:#1a7f4b;--rule:#8a5a00;--absent:#7b8494;--silent:#7b8494;--allow:#1a7f4b;--ask:#a15c00;--deny:#c02637}
@media(prefers-color-scheme:dark){:root{--bg:#12151b;--paper:#1b2028;--ink:#e6e9ef;--soft:#9aa4b5;--line:#3c4656;
--client:#63abff;--session:#bf93ff;--server:#5bcf90;--rule:#e5b454;--absent:#8d97a8;--silent:#8d97a8;
--allow:#5bcf90;--ask:#f0b35a;--deny:#ff7b86}}
*{box-sizing:border-box}
body{margin:0;padding:2rem clamp(1rem,4vw,3rem);background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.35rem;margin:0 0 .75rem}h2{font-size:1.1rem;margin:0 0 .75rem}h1,h2{overflow-wrap:anywhere}
code,pre,dd{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:13px;overflow-wrap:anywhere}
ul{list-style:none;padding:0;margin:0 0 1.5rem;display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;color:var(--soft);
font-size:13px}ul b{color:var(--ink)}.dot{display:inline-block;width:.7em;height:.7em;border-radius:50%;
background:currentColor;margin-right:.4em}
section{background:var(--paper);border:1px solid var(--line);border-radius:12px;padding:1.5rem;margin:0 0 1.5rem}
.verdict{display:inline-block;color:var(--paper);background:var(--soft);border-radius:6px;padding:.05rem .6rem;
margin-right:.75rem;font-size:.95rem}
.allow{background:var(--allow)}.ask{background:var(--ask)}.deny{background:var(--deny)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:1rem 0 0;padding:1rem 0 0;
border-top:1px solid var(--line)}.lead{font-size:1.05rem;margin:0 0 1rem}dt{color:var(--soft)}
dd{margin:0;white-space:pre-wrap}.note{border-left:3px solid var(--ask);padding-left:.75rem;margin:.5rem 0}
.proof{overflow-x:auto;padding:.75rem 0;border-top:1px solid var(--line)}
.node{display:flex;align-items:center;position:relative;padding:.25rem 0}
.card{flex:none;width:max-content;max-width:min(24rem,80vw);background:var(--bg);border:1px solid var(--line);
border-left:5px solid currentColor;border-radius:8px;padding:.4rem .7rem}
.card small{display:block;font-weight:600;overflow-wrap:anywhere}.card code,.card em,.card pre{color:var(--ink)}
.card em{display:block;font-size:12px;color:var(--soft);overflow-wrap:anywhere}.card pre{white-space:pre-wrap;margin:0}
.client{color:var(--client)}.session{color:var(--session)}.server{color:var(--server)}.rule{color:var(--rule)}
.absent{color:var(--absent)}.silent{color:var(--silent)}.card.absent,.card.silent{border-style:dashed;
border-left-style:solid}
.premises{position:relative;padding-left:3rem}
.premises::before,.premises>.node::before,.premises>.node::after{content:"";position:absolute;
border:0 solid var(--line)}
.premises::before{left:0;width:1.5rem;top:50%;border-top-width:2px}
.premises>.node::before{left:-1.5rem;width:1.5rem;top:50%;border-top-width:2px}
.premises>.node::after{left:-1.5rem;top:0;bottom:0;border-left-width:2px}
.premises>.node:first-child::after{top:50%}.premises>.node:last-child::after{bottom:calc(50% - 2px)}
summary{cursor:pointer;color:var(--soft);font-size:12px}
@media(max-width:640px){.node{display:block}.premises{padding-left:1.25rem}.premises::before{display:none}
.premises>.node::before,.premises>.node::after{left:-.75rem}.premises>.node::before{width:.75rem;top:1.5rem}
.premises>.node:first-child::after{top:0}.premises>.node:last-child::after{bottom:auto;height:1.5rem}}
@media print{body{background:none}section{break-inside:avoid}}
</style></head><body><h1>@TITLE@</h1><ul>@LEGEND@</ul>@BODY@</body></html>
"""
