"""Proofs as text, and as one self-contained HTML page without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
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
    """A fact of a proof, with the rule that derived the fact and the premises that the rule read."""

    fact: str
    origin: FactOrigin
    place: str = ""
    """The clause, as ``file:line``."""
    rule: str = ""
    note: str = ""
    """The values of the rule's variables, or the premise at which a silent rule stops."""
    premises: tuple[ProofNode, ...] = ()

    def lines(self, margin: str = "") -> Iterator[str]:
        """Yield the tree as indented text. ``premises`` must not be nested deeper than Python's recursion limit."""
        suffix = f"  by {self.place}" if self.place else "" if self.origin == "rule" else f"  [{self.origin}]"
        yield f"{margin}{self.fact}{suffix}"
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
    silent: Sequence[ProofNode] = ()  # rules that derived nothing
    rows: Sequence[tuple[str, str]] = ()
    """Names and values of the decision record."""


def render_page(title: str, sections: Sequence[PageSection]) -> str:
    """Return the HTML of a page. All texts are escaped."""
    legend = "".join(f'<li><i class="dot {name}"></i><b>{name}</b> {text}</li>' for name, text in ORIGINS.items())
    body = "".join(part for section in sections for part in _section(section))
    page = files(__package__).joinpath("proof_page.html").read_text("utf-8")
    return page.replace("@TITLE@", _text(title)).replace("@LEGEND@", legend).replace("@BODY@", body)


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
    rule_label = "more" if node.fact == CUT else "rule of manglecp"
    label = node.place or (rule_label if node.origin == "rule" else node.origin)
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
