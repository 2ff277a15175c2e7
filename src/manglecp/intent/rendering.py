"""Render a definition at one disclosure level (TOOL-05 to TOOL-07).

* full: macro_id, name, description, input_schema, safety, metadata; output_schema, context_injection and validity
where present
* condensed: macro_id, name, one line of description
* minimal: macro_id, name

Default values are omitted. Unknown arguments are refused for every tool, so schemas omit that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from manglecp.base.text import escape_invisible
from manglecp.intent.definition import Definition, Resource
from manglecp.intent.tokens import Counter
from manglecp.mangle import instant_text
from manglecp.pack import SkillText
from manglecp.wire.messages import (
    UNSET,
    ContextInjection,
    ContextResource,
    Level,
    MacroTool,
    Metadata,
    Safety,
    Skill,
    SkillReference,
    SkillResource,
    UnsetType,
    Validity,
)

# Context of a tool (SKILL-12) is derived by rules only (SKILL-03). Instructions stay under 200 tokens (SKILL-16).
MAX_INSTRUCTION_TOKENS: Final = 199
MAX_SUMMARY_CHARACTERS: Final = 160

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
"""Media types allowed in data URIs. Others, such as HTML and SVG, can hold code."""
_BREAKS: Final = re.compile(r"[\t\r\n]")  # ignored by readers of addresses
_SPACES: Final = re.compile(r"\s+")
_MARKDOWN: Final = re.compile(r"^(?:#{1,6}\s.*|[-=*_`~]{3,}.*|\s*)$")


def instructions(texts: Iterable[str], counter: Counter) -> str:
    """Join by line breaks, and keep as many sentences as stay under the limit."""
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
    """Cut a sentence that is too long by itself, between words if possible."""
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
    return len(text) <= MAX_INSTRUCTION_TOKENS or counter.count(text.encode()) <= MAX_INSTRUCTION_TOKENS


def resources(rows: Iterable[tuple[str, str, int]]) -> tuple[Resource, ...]:
    """Make resources from address, relevance and priority: best first, unique addresses."""
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
    """Normalise an address. One without a scheme is a file path (SKILL-11); other schemes are kept (SKILL-10).

    Returns None for an empty address and for code, such as ``javascript:`` or HTML in ``data:``. User names and
    passwords are removed.
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
    """Return the first sentence, without line breaks (OPEN-24)."""
    text = text.strip()
    found = _SENTENCE.match(text.split("\n\n", 1)[0].replace("\n", " "))
    return _SPACES.sub(" ", found.group() if found else text).strip()


def summary(content: str) -> str:
    """Return the first paragraph, cut at the end of a sentence."""
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
    if len(text) <= MAX_SUMMARY_CHARACTERS:
        return text
    kept = ""
    for found in _SENTENCE.finditer(text):
        if len(kept) + len(found.group()) > MAX_SUMMARY_CHARACTERS:
            break
        kept += found.group()
    return kept.strip() or text[: MAX_SUMMARY_CHARACTERS - 1].rstrip() + "…"


Skills = Mapping[str, SkillText]


@dataclass(frozen=True, slots=True)
class ToolView:
    definition: Definition
    level: Level
    inline: frozenset[str] = frozenset()  # skills with their text in the tool; others are referenced
    resources: int = 0  # number of resources, best first

    def changed(self, **changes: object) -> ToolView:
        return replace(self, **changes)  # type: ignore[arg-type]  # members of this class

    @property
    def referenced(self) -> tuple[str, ...]:
        if self.level != "full":
            return ()
        return tuple(skill for skill in self.definition.skills if skill not in self.inline)


def render(tool: ToolView, skills: Skills) -> MacroTool:
    definition = tool.definition
    if tool.level == "minimal":
        return MacroTool(macro_id=definition.macro_id, name=definition.tool, disclosure_level="minimal")
    if tool.level == "condensed":
        return MacroTool(
            macro_id=definition.macro_id,
            name=definition.tool,
            description=definition.summary,
            disclosure_level="condensed",
        )
    return MacroTool(
        macro_id=definition.macro_id,
        name=definition.tool,
        description=definition.description,
        disclosure_level="full",
        input_schema={key: part for key, part in definition.input_schema.items() if key != "additionalProperties"},
        output_schema=UNSET if definition.output_schema is None else dict(definition.output_schema),
        context_injection=_context(tool, skills),
        safety=_safety(definition),
        validity=_validity(definition),
        metadata=Metadata(
            selection_phase=definition.phase,
            score=definition.score,
            source_rules=definition.source_rules or UNSET,
        ),
    )


def describe_fully(definition: Definition) -> MacroTool:
    """Return the tool with all its details, without the texts of skills."""
    return render(ToolView(definition, "full", resources=len(definition.resources)), {})


def _context(tool: ToolView, skills: Skills) -> ContextInjection | UnsetType:
    definition = tool.definition
    resources = definition.resources[: tool.resources]
    if not (definition.instructions or definition.skills or resources):
        return UNSET
    return ContextInjection(
        instructions=definition.instructions or UNSET,
        skills=tuple(_reference(one, tool, skills) for one in definition.skills) or UNSET,
        context_resources=tuple(
            ContextResource(uri=one.uri, relevance=one.relevance or UNSET, priority=one.priority) for one in resources
        )
        or UNSET,
    )


def _reference(skill_id: str, tool: ToolView, skills: Skills) -> SkillReference:
    if skill_id in tool.inline:
        return SkillReference(skill_id=skill_id, inline=True, content=_escaped(skills[skill_id].content))
    return SkillReference(skill_id=skill_id, inline=False)


def _safety(definition: Definition) -> Safety:
    data = definition.safety
    is_shown = data.reversible or data.idempotent  # both are false when absent (TOOL-12)
    return Safety(
        requires_user_confirmation=data.requires_user_confirmation,
        side_effects=data.side_effects,
        reversible=data.reversible if is_shown else UNSET,
        idempotent=data.idempotent if is_shown else UNSET,
    )


def _validity(definition: Definition) -> Validity | UnsetType:
    if definition.not_before is None and definition.expires_at is None:
        return UNSET
    return Validity(
        not_before=UNSET if definition.not_before is None else instant_text(definition.not_before),
        expires_at=UNSET if definition.expires_at is None else instant_text(definition.expires_at),
    )


def required_skills(tools: Sequence[ToolView], skills: Skills) -> tuple[Skill, ...]:
    """Return every referenced skill once (SKILL-07)."""
    wanted: Iterable[str] = sorted({one for tool in tools for one in tool.referenced})
    return tuple(skill(skills[one]) for one in wanted)


def skill(text: SkillText) -> Skill:
    """Render a referenced skill: its description, and a summary instead of its text (SKILL-08)."""
    return Skill(
        skill_id=text.skill_id,
        name=escape_invisible(text.name),
        description=escape_invisible(text.description),
        content=_outline(text.content),
        content_type=UNSET if text.content_type == "text/markdown" else text.content_type,
        resources=tuple(found for one in text.resources if (found := _resource(one)) is not None) or UNSET,
    )


@lru_cache(maxsize=1024)
def _escaped(content: str) -> str:
    return escape_invisible(content.strip())


@lru_cache(maxsize=1024)
def _outline(content: str) -> str:
    return escape_invisible(summary(content))


def _resource(resource: Mapping[str, str]) -> SkillResource | None:
    address = uri(escape_invisible(resource["uri"]))
    if address is None:
        return None
    return SkillResource(
        uri=address,
        type=resource.get("type", UNSET),
        description=escape_invisible(resource["description"]) if "description" in resource else UNSET,
    )
