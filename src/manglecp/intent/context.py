"""What comes with a tool so that it can be used without having been there before (SKILL-12).

All of it is proven for this request: instructions in the order that rules give, skills, resources by priority. Nothing
is added that no rule asked for (SKILL-03). Instructions stay under 200 tokens whatever the budget (SKILL-16): what is
more is cut where a sentence ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote

from manglecp.intent.definition import Resource
from manglecp.intent.tokens import Counter

__all__ = ["MOST_INSTRUCTION_TOKENS", "instructions", "one_line", "resources", "summary", "uri"]

MOST_INSTRUCTION_TOKENS: Final = 199
MOST_SUMMARY_CHARACTERS: Final = 160

_SENTENCE: Final = re.compile(r".+?(?:[.!?…。！？]+[\"')\]]*(?=\s+[^a-z\s]|\s*$)|$|(?=\n))", re.DOTALL)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
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
    return _cut(sentences[0].split(" "), counter)


def _cut(words: Sequence[str], counter: Counter) -> str:
    """The first words of a sentence that is too long by itself."""
    kept = len(words)
    while kept and not _fits(" ".join(words[:kept]) + "…", counter):
        kept = kept * 3 // 4
    return " ".join(words[:kept]) + "…"


def _fits(text: str, counter: Counter) -> bool:
    return len(text) <= MOST_INSTRUCTION_TOKENS or counter.count(text.encode()) <= MOST_INSTRUCTION_TOKENS


def resources(rows: Iterable[tuple[str, str, int]]) -> tuple[Resource, ...]:
    """From address, relevance and priority: best first, each address once."""
    best: dict[str, Resource] = {}
    for address, relevance, priority in rows:
        one = Resource(uri(address), relevance.strip(), min(max(priority, 0), 100))
        known = best.get(one.uri)
        if known is None or (-one.priority, one.relevance) < (-known.priority, known.relevance):
            best[one.uri] = one
    return tuple(sorted(best.values(), key=lambda one: (-one.priority, one.uri)))


def uri(address: str) -> str:
    """An address without a scheme is the path of a file (SKILL-11); one letter and a colon is a drive."""
    if _SCHEME.match(address):
        return address
    path = address.replace("\\", "/") if "\\" in address and "/" not in address else address
    return "file://" + quote(path, safe="/:@!$&'()*+,;=~")


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
