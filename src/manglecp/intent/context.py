"""What comes with a tool so that it can be used without having been there before (SKILL-12).

All of it is proven for this request: instructions in the order that rules give, skills, resources by priority. Nothing
is added that no rule asked for (SKILL-03). Instructions stay under 200 tokens whatever the budget (SKILL-16): what is
more is cut where a sentence ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from manglecp.intent.definition import Resource
from manglecp.intent.tokens import Counter

__all__ = ["instructions", "one_line", "resources", "summary", "uri"]

MOST_INSTRUCTION_TOKENS: Final = 199
MOST_SUMMARY_CHARACTERS: Final = 160

_SENTENCE: Final = re.compile(
    r".+?(?:[.!?…]+[\"')\]]*(?=\s+[^a-z\s]|\s*$)|[。！？｡]+[\"')\]」』）】”’]*|$|(?=\n))",  # full width is meant
    re.DOTALL,
)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")
_USER: Final = re.compile(r"(?!file:)([a-z][a-z0-9+.-]+://)[^/?#]*@", re.IGNORECASE)
_CODE: Final = frozenset({"javascript", "vbscript"})
_DATA: Final = re.compile(r"data:\s*([^;,\s]*)\s*[;,]", re.IGNORECASE)
_INERT: Final = frozenset(
    {
        *("", "text/plain", "text/markdown", "text/csv", "application/json"),
        *("image/png", "image/jpeg", "image/gif", "image/webp"),
    }
)
"""What an address may hold instead of leading to it: any other kind, HTML and SVG above all, can hold code."""
_BREAKS: Final = re.compile(r"[\t\r\n]")
"""Whoever opens an address skips these."""
_SPACES: Final = re.compile(r"\s+")
_MARKDOWN: Final = re.compile(r"^(?:#{1,6}\s.*|[-=*_`~]{3,}.*|\s*)$")


def instructions(texts: Iterable[str], counter: Counter) -> str:
    """Joined by line breaks, as many sentences as stay under the limit."""
    whole = "\n".join(text.strip() for text in texts if text.strip())
    if _fits(whole, counter):
        return whole
    sentences = [found.group() for found in _SENTENCE.finditer(whole)]
    least, most = 0, len(sentences)
    while least + 1 < most:  # the number of tokens grows with the text
        middle = (least + most) // 2
        if _fits("".join(sentences[:middle]).strip(), counter):
            least = middle
        else:
            most = middle
    if least:
        return "".join(sentences[:least]).strip()
    return _cut(sentences[0], counter)


def _cut(sentence: str, counter: Counter) -> str:
    """The beginning of a sentence that is too long by itself, between words where it has any."""
    least, most = 0, len(sentence)
    while least + 1 < most:
        middle = (least + most) // 2
        if _fits(sentence[:middle] + "…", counter):
            least = middle
        else:
            most = middle
    kept = sentence[:least]
    space = -1 if sentence[least].isspace() else kept.rfind(" ")
    return (kept[:space] if space > least // 2 else kept).rstrip() + "…"


def _fits(text: str, counter: Counter) -> bool:
    return len(text) <= MOST_INSTRUCTION_TOKENS or counter.count(text.encode()) <= MOST_INSTRUCTION_TOKENS


def resources(rows: Iterable[tuple[str, str, int]]) -> tuple[Resource, ...]:
    """From address, relevance and priority: best first, each address once."""
    best: dict[str, Resource] = {}
    for address, relevance, priority in rows:
        found = uri(address)
        if found is None:
            continue
        one = Resource(found, relevance.strip(), min(max(priority, 0), 100))
        known = best.get(one.uri)
        if known is None or (-one.priority, one.relevance) < (-known.priority, known.relevance):
            best[one.uri] = one
    return tuple(sorted(best.values(), key=lambda one: (-one.priority, one.uri)))


def uri(address: str) -> str | None:
    """An address without a scheme is the path of a file (SKILL-11); one letter and a colon is a drive.

    Every scheme is allowed (SKILL-10). None for what is no address, or code to be run, as it stands or as the content
    of a document. Whoever is named in one, with or without a password, is left out.
    """
    address = _BREAKS.sub("", address).strip()
    if scheme := _SCHEME.match(address):
        return None if _is_code(scheme[0][:-1].lower(), address) else _USER.sub(r"\1", address, count=1)
    if not address:
        return None
    drive = _DRIVE.match(address)
    path = address.replace("\\", "/") if drive or ("\\" in address and "/" not in address) else address
    return ("file:///" if drive else "file://") + quote(path, safe="/:@!$&'()*+,;=~")


def _is_code(scheme: str, address: str) -> bool:
    if scheme != "data":
        return scheme in _CODE
    content = _DATA.match(address)
    return content is None or content[1].lower() not in _INERT


def one_line(text: str) -> str:
    """The first sentence, without line breaks (OPEN-24)."""
    text = text.strip()
    found = _SENTENCE.match(text.split("\n\n", 1)[0].replace("\n", " "))
    return _SPACES.sub(" ", found.group() if found else text).strip()


def summary(content: str) -> str:
    """What a skill that is only referred to says first: its first paragraph, cut where a sentence ends."""
    lines = content.strip().splitlines()
    start = next((i for i, line in enumerate(lines) if not _MARKDOWN.match(line)), None)
    if start is None:
        return ""
    paragraph = []
    for line in lines[start:]:
        if not line.strip():
            break
        paragraph.append(line.strip())
    text = " ".join(paragraph)
    if len(text) <= MOST_SUMMARY_CHARACTERS:
        return text
    kept = ""
    for found in _SENTENCE.finditer(text):
        if len(kept) + len(found.group()) > MOST_SUMMARY_CHARACTERS:
            break
        kept += found.group()
    return kept.strip() or text[: MOST_SUMMARY_CHARACTERS - 1].rstrip() + "…"
