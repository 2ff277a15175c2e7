"""Render a definition at one disclosure level (TOOL-05 to TOOL-07).

* full: macro_id, name, description, input_schema, safety, metadata; output_schema, context_injection and validity
where present
* condensed: macro_id, name, one line of description
* minimal: macro_id, name

Default values are omitted. Schemas are complete: they accept exactly the arguments that the server accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from manglecp.base.text import escape_invisible
from manglecp.intent.definition import Definition, Resource
from manglecp.intent.tokens import Counter
from manglecp.mangle import instant_text
from manglecp.pack import SkillText
from manglecp.wire import messages

# The context of a tool (SKILL-12: instructions, skills, resources) comes from derived facts only (SKILL-03). Its
# instructions stay under 200 tokens (SKILL-16).
MAX_INSTRUCTION_TOKENS: Final = 199
MAX_SUMMARY_CHARACTERS: Final = 160

_SENTENCE: Final = re.compile(
    r".+?(?:[.!?…]+[\"')\]]*(?=\s+[^a-z\s]|\s*$)|[。！？｡]+[\"')\]」』）】”’]*|$|(?=\n))",  # the last are full width
    re.DOTALL,
)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")  # the start of a Windows path
_USERINFO: Final = re.compile(r"(?!file:)([a-z][a-z0-9+.-]+://)[^/?#]*@", re.IGNORECASE)
_CODE_SCHEMES: Final = frozenset({"javascript", "vbscript"})
_DATA_URI: Final = re.compile(r"data:\s*([^;,\s]*)\s*[;,]", re.IGNORECASE)
_INERT_MEDIA_TYPES: Final = frozenset(
    {
        *("", "text/plain", "text/markdown", "text/csv", "application/json"),
        *("image/png", "image/jpeg", "image/gif", "image/webp"),
    }
)
"""Media types allowed in data URIs. Others, such as HTML and SVG, can hold code."""
_IGNORED_CHARACTERS: Final = re.compile(r"[\t\r\n]")  # URL parsers drop these characters, which could hide a scheme
_SPACES: Final = re.compile(r"\s+")
# A heading, a horizontal rule, a fence of code, or a blank line.
_NOT_PROSE: Final = re.compile(r"^(?:#{1,6}\s.*|[-=*_`~]{3,}.*|\s*)$")


def instructions(texts: Iterable[str], counter: Counter) -> str:
    """Join the texts by line breaks, and keep as many sentences as stay under the limit."""
    joined_text = "\n".join(text.strip() for text in texts if text.strip())
    if _fits(joined_text, counter):
        return joined_text
    sentences = [match.group() for match in _SENTENCE.finditer(joined_text)]
    count = _largest(len(sentences), lambda number: _fits("".join(sentences[:number]).strip(), counter))
    return "".join(sentences[:count]).strip() if count else _cut(sentences[0], counter)


def _cut(sentence: str, counter: Counter) -> str:
    """Cut a sentence that is too long by itself, between words if possible."""
    length = _largest(len(sentence), lambda number: _fits(sentence[:number] + "…", counter))
    start = sentence[:length]
    space = -1 if sentence[length].isspace() else start.rfind(" ")
    return (start[:space] if space > length // 2 else start).rstrip() + "…"


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number below ``limit`` that fits. If a number fits, all smaller numbers fit; 0 always fits."""
    low, high = 0, limit
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _fits(text: str, counter: Counter) -> bool:
    return len(text) <= MAX_INSTRUCTION_TOKENS or counter.count(text.encode()) <= MAX_INSTRUCTION_TOKENS


def resources(rows: Iterable[tuple[str, str, int]]) -> tuple[Resource, ...]:
    """Make resources from address, relevance and priority: best first, unique addresses."""
    best: dict[str, Resource] = {}
    for address, relevance, priority in rows:
        address_uri = uri(address)
        if address_uri is None:
            continue
        resource = Resource(address_uri, relevance.strip(), min(max(priority, 0), 100))
        rival = best.get(address_uri)
        if rival is None or (-resource.priority, resource.relevance) < (-rival.priority, rival.relevance):
            best[address_uri] = resource
    return tuple(sorted(best.values(), key=lambda resource: (-resource.priority, resource.uri)))


def uri(address: str) -> str | None:
    """Normalise an address. Without a scheme it is a file path (SKILL-11); any scheme but code is kept (SKILL-10).

    Returns None for an empty address and for code, such as ``javascript:`` or HTML in ``data:``. User names and
    passwords are removed.
    """
    address = _IGNORED_CHARACTERS.sub("", address).strip()
    if scheme := _SCHEME.match(address):
        return None if _is_code(scheme[0][:-1].lower(), address) else _USERINFO.sub(r"\1", address, count=1)
    if not address:
        return None
    drive = _DRIVE.match(address)
    path = address.replace("\\", "/") if drive or ("\\" in address and "/" not in address) else address
    return ("file:///" if drive else "file://") + quote(path, safe="/:@!$&'()*+,;=~")


def _is_code(scheme: str, address: str) -> bool:
    if scheme != "data":
        return scheme in _CODE_SCHEMES
    content = _DATA_URI.match(address)
    return content is None or content[1].lower() not in _INERT_MEDIA_TYPES


def one_line(text: str) -> str:
    """Return the first sentence, without line breaks (OPEN-24)."""
    text = text.strip()
    sentence = _SENTENCE.match(text.split("\n\n", 1)[0].replace("\n", " "))
    return _SPACES.sub(" ", sentence.group() if sentence else text).strip()


def summary(content: str) -> str:
    """Return the first paragraph of a Markdown text, cut at the end of a sentence."""
    lines = content.strip().splitlines()
    start = next((i for i, line in enumerate(lines) if not _NOT_PROSE.match(line)), None)
    if start is None:
        return ""
    paragraph = []
    for line in lines[start:]:
        if not line.strip():
            break
        paragraph.append(line.strip())
    text = " ".join(paragraph)
    if len(text) <= MAX_SUMMARY_CHARACTERS:
        return text
    sentences = ""
    for sentence in _SENTENCE.finditer(text):
        if len(sentences) + len(sentence.group()) > MAX_SUMMARY_CHARACTERS:
            break
        sentences += sentence.group()
    return sentences.strip() or text[: MAX_SUMMARY_CHARACTERS - 1].rstrip() + "…"


Skills = Mapping[str, SkillText]


@dataclass(frozen=True, slots=True)
class ToolView:
    """How much of a tool a response shows."""

    definition: Definition
    level: messages.Level
    inline: frozenset[str] = frozenset()  # skills with their text in the tool; others are referenced
    resource_count: int = 0  # how many of its resources are shown, best first
    waived: bool = False  # whether the client needs no approval, although other clients do

    def changed(self, **changes: object) -> ToolView:
        return replace(self, **changes)  # type: ignore[arg-type]  # fields of this class

    @property
    def referenced(self) -> tuple[str, ...]:
        """The ids of the skills that the tool references instead of holding their text."""
        if self.level != "full":
            return ()
        return tuple(skill for skill in self.definition.skills if skill not in self.inline)


def render(tool: ToolView, skills: Skills) -> messages.MacroTool:
    """Return the tool for a client; ``skills`` are the skills of the pack by id."""
    definition = tool.definition
    macro_id, name = definition.macro_id, definition.tool
    if tool.level != "full":
        description = definition.summary if tool.level == "condensed" else messages.UNSET
        return messages.MacroTool(macro_id=macro_id, name=name, description=description, disclosure_level=tool.level)
    return messages.MacroTool(
        macro_id=macro_id,
        name=name,
        description=definition.description,
        disclosure_level="full",
        input_schema=dict(definition.input_schema),
        output_schema=messages.UNSET if definition.output_schema is None else dict(definition.output_schema),
        context_injection=_context(tool, skills),
        safety=_safety(definition, waived=tool.waived),
        validity=_validity(definition),
        metadata=messages.Metadata(
            selection_phase=definition.phase,
            score=definition.score,
            source_rules=definition.source_rules or messages.UNSET,
        ),
    )


def describe_fully(definition: Definition) -> messages.MacroTool:
    """Return the tool with all its details, without the texts of skills."""
    return render(ToolView(definition, "full", resource_count=len(definition.resources)), {})


def _context(tool: ToolView, skills: Skills) -> messages.ContextInjection | messages.UnsetType:
    definition = tool.definition
    resources = definition.resources[: tool.resource_count]
    if not (definition.instructions or definition.skills or resources):
        return messages.UNSET
    return messages.ContextInjection(
        instructions=definition.instructions or messages.UNSET,
        skills=tuple(_reference(skill_id, tool, skills) for skill_id in definition.skills) or messages.UNSET,
        context_resources=tuple(map(_context_resource, resources)) or messages.UNSET,
    )


def _context_resource(resource: Resource) -> messages.ContextResource:
    return messages.ContextResource(
        uri=resource.uri, relevance=resource.relevance or messages.UNSET, priority=resource.priority
    )


def _reference(skill_id: str, tool: ToolView, skills: Skills) -> messages.SkillReference:
    if skill_id in tool.inline:
        return messages.SkillReference(skill_id=skill_id, inline=True, content=_escaped(skills[skill_id].content))
    return messages.SkillReference(skill_id=skill_id, inline=False)


def _safety(definition: Definition, *, waived: bool) -> messages.Safety:
    data = definition.safety
    is_shown = data.reversible or data.idempotent  # clients read both as false where they are absent (TOOL-12)
    return messages.Safety(
        requires_user_confirmation=data.requires_user_confirmation and not waived,
        side_effects=data.side_effects,
        reversible=data.reversible if is_shown else messages.UNSET,
        idempotent=data.idempotent if is_shown else messages.UNSET,
    )


def _validity(definition: Definition) -> messages.Validity | messages.UnsetType:
    if definition.not_before is None and definition.expires_at is None:
        return messages.UNSET
    return messages.Validity(
        not_before=messages.UNSET if definition.not_before is None else instant_text(definition.not_before),
        expires_at=messages.UNSET if definition.expires_at is None else instant_text(definition.expires_at),
    )


def required_skills(tools: Sequence[ToolView], skills: Skills) -> tuple[messages.Skill, ...]:
    """Return every referenced skill once (SKILL-07)."""
    return tuple(skill(skills[skill_id]) for skill_id in sorted({id_ for tool in tools for id_ in tool.referenced}))


def skill(text: SkillText, *, complete: bool = False) -> messages.Skill:
    """Render a skill: its description and, unless ``complete``, a summary instead of its text (SKILL-08)."""
    return messages.Skill(
        skill_id=text.skill_id,
        name=escape_invisible(text.name),
        description=escape_invisible(text.description),
        content=_escaped(text.content) if complete else _summary(text.content),
        content_type=messages.UNSET if text.content_type == "text/markdown" else text.content_type,
        resources=tuple(filter(None, map(_skill_resource, text.resources))) or messages.UNSET,
    )


@lru_cache(maxsize=1024)
def _escaped(content: str) -> str:
    return escape_invisible(content.strip())


@lru_cache(maxsize=1024)
def _summary(content: str) -> str:
    return escape_invisible(summary(content))


def _skill_resource(resource: Mapping[str, str]) -> messages.SkillResource | None:
    address = uri(escape_invisible(resource["uri"]))
    if address is None:
        return None
    return messages.SkillResource(
        uri=address,
        type=resource.get("type", messages.UNSET),
        description=escape_invisible(resource["description"]) if "description" in resource else messages.UNSET,
    )
