"""Skills: Markdown with front matter. The id of a skill is the name of its file.

The front matter is a strict subset of YAML: one line per value, plain or in quotes, and a list ``resources`` of uri,
type and description. Plain text that YAML would not read as text must be quoted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from manglecp.base.suggestions import did_you_mean
from manglecp.base.text import find_invisible, replace_invisible
from manglecp.pack.diagnostics import Problems
from manglecp.pack.model import SkillText

MAX_SKILL_BYTES: Final = 262_144  # limit for a file
_MAX_VALUE: Final = 2_000  # characters
_MAX_RESOURCES: Final = 100
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ENTRY: Final = re.compile(r"([A-Za-z_][\w-]*):(?:[ \t]+(.*))?")
_MIME: Final = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?[\w.+-]+=[\w.+-]+)*")
_FENCE: Final = "---"
_KEYS: Final = ("name", "description", "content_type", "resources")
_RESOURCE_KEYS: Final = ("uri", "type", "description")
# Characters that cannot begin plain text in YAML, and patterns that end plain text before the end of the line.
_INDICATORS: Final = tuple("[]{}|>&*!%@`,#?-")
_PLAIN_TEXT_END: Final = re.compile(r":(?:\s|$)|\s#")
# By type: plain text that YAML 1.1 or 1.2 reads as that type unless it is quoted.
_OTHER_TYPES: Final = {
    "nothing": re.compile(r"~|null|Null|NULL"),
    "true or false": re.compile(r"yes|no|on|off|true|false", re.IGNORECASE),
    "a date": re.compile(r"\d{4}-\d{1,2}-\d{1,2}(?:(?:[Tt]|[ \t]+)\d{1,2}:\d\d:\d\d(?:\.\d*)?[\w:+ -]*)?"),
    "a number": re.compile(
        r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9A-Fa-f_]+|[0-9][0-9_]*(?::[0-5]?[0-9])*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?"
        r"|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
    ),
}


def read_skill(file: str, text: str, problems: Problems) -> SkillText | None:
    """Return the skill in a file; None, and report problems, if it is invalid."""
    return _SkillReader(file, text, problems).read()


class _SkillReader:
    def __init__(self, file: str, text: str, problems: Problems) -> None:
        self._file = file
        self._lines = text.replace("\r\n", "\n").split("\n")
        self._problems = problems
        self._is_valid = True

    def read(self) -> SkillText | None:
        skill_id = self._file.rpartition("/")[2].removesuffix(".md")
        if not _ID.fullmatch(skill_id):
            self._report(None, "the name of the file is not a skill id: letters, digits, '.', '_' and '-'")
        end = self._front_matter_end()
        if end is None:
            return None
        values, resources = self._front_matter(end)
        for key in ("name", "description"):
            if key not in values:
                self._report(1, f"{key} is missing", f"add the line {key}: …")
        content_type = values.get("content_type", "text/markdown")
        if not _MIME.fullmatch(content_type):
            self._report(None, "content_type is not a MIME type")
        body = "\n".join(self._lines[end + 1 :]).strip("\n")
        if not body.strip():
            self._report(end + 1, "there is no text after the front matter")
        if (hidden := find_invisible(body, running=True)) is not None:
            offset, character = hidden
            first_line = next(number for number, line in enumerate(self._lines[end + 1 :], end + 2) if line)  # body
            column = offset - body.rfind("\n", 0, offset)
            line_number = first_line + body.count("\n", 0, offset)
            self._report(line_number, f"the text holds the invisible character {character}", "remove it", column)
        if not self._is_valid:
            return None
        return SkillText(
            skill_id=skill_id,
            name=values["name"],
            description=values["description"],
            content=body + "\n",
            content_type=content_type,
            resources=tuple(resources),
        )

    def _front_matter_end(self) -> int | None:
        """Return the index of the line that ends the front matter; None, and report a problem, if no line does."""
        if self._lines[0].rstrip() != _FENCE:
            self._report(1, "a skill begins with front matter", "begin with ---, name: …, description: …, ---")
            return None
        for index in range(1, len(self._lines)):
            if self._lines[index].rstrip() == _FENCE:
                return index
        self._report(1, "the front matter does not end", "end it with a line ---")
        return None

    def _front_matter(self, end: int) -> tuple[dict[str, str], list[dict[str, str]]]:
        """Return the values by key, and the resources."""
        values: dict[str, str] = {}
        resources: list[dict[str, str]] = []
        in_resources = False
        for number, line in self._content_lines(end):
            if line[0] in " -" and in_resources:
                self._resource_line(number, line, resources)
                continue
            entry = self._entry(number, line, _KEYS)
            in_resources = entry is not None and entry[0] == "resources"
            if entry is None:
                continue
            key, value = entry
            if key in values:
                self._report(number, f"{key} is given twice", "remove one of them")
            values[key] = value
            if in_resources and value:
                self._report(number, "resources is a list", "write each in lines of its own: - uri: …")
        if "resources" in values and not resources:
            self._report(None, "resources is empty", "remove it")
        for resource in resources:
            if "uri" not in resource:
                self._report(None, "a resource has no uri")
        if len(resources) > _MAX_RESOURCES:
            self._report(None, f"more than {_MAX_RESOURCES} resources")
        return values, resources

    def _content_lines(self, end: int) -> Iterator[tuple[int, str]]:
        """Yield the lines of the front matter and their numbers, without empty lines and comments."""
        for index in range(1, end):
            line = self._lines[index].rstrip()
            if line and not line.lstrip().startswith("#"):
                yield index + 1, line

    def _resource_line(self, number: int, line: str, resources: list[dict[str, str]]) -> None:
        text = line.strip()
        if text.startswith("- "):
            resources.append({})
            text = text[2:].lstrip()
        entry = self._entry(number, text, _RESOURCE_KEYS)
        if entry is None:
            return
        key, value = entry
        if not resources:
            self._report(number, "an entry of resources begins with '- '")
        elif key in resources[-1]:
            self._report(number, f"{key} is given twice", "begin the next resource with '- '")
        elif not value:
            self._report(number, f"{key} is empty")
        else:
            resources[-1][key] = value

    def _entry(self, number: int, line: str, keys: Collection[str]) -> tuple[str, str] | None:
        """Return the key and value of a line; None, and report a problem, if it has none of the keys."""
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            self._report(number, "not a line of front matter", "write key: value, in one line")
            return None
        key, written = entry[1], (entry[2] or "").strip()
        if key not in keys:
            self._report(number, f"unknown key {replace_invisible(key[:80])}", did_you_mean(key, keys))
            return None
        if not written and key != "resources":
            self._report(number, f"{key} is empty")
        value = self._unquote(number, key, written)
        if len(value) > _MAX_VALUE:
            self._report(number, f"{key} has more than {_MAX_VALUE:,} characters")
        if (hidden := find_invisible(value, running=key == "description")) is not None:
            self._report(number, f"{key} holds the invisible character {hidden[1]}", "remove it")
        return key, value

    def _unquote(self, number: int, key: str, written: str) -> str:
        if written[:1] == '"':
            try:
                return msgspec.json.decode(written, type=str)
            except (ValueError, msgspec.DecodeError):
                self._report(number, f"{key} is not quoted properly", 'write "…" in one line, with \\" for a quote')
                return ""
        if written[:1] == "'":
            inner = written[1:-1]
            if len(written) < 2 or written[-1] != "'" or "'" in inner.replace("''", ""):
                self._report(number, f"{key} is not quoted properly", "write '…' in one line, with '' for a quote")
            return inner.replace("''", "'")
        if written.startswith(_INDICATORS) or _PLAIN_TEXT_END.search(written):
            self._report(number, f"{key} has another meaning in YAML", 'put it in quotes: "…"')
        elif types := [name for name, pattern in _OTHER_TYPES.items() if pattern.fullmatch(written)]:
            self._report(number, f"{key} is {types[0]} in YAML, not text", f'put it in quotes: "{written}"')
        return written

    def _report(self, line: int | None, message: str, fix: str | None = None, column: int | None = None) -> None:
        self._is_valid = False
        self._problems.add(self._file, message, line=line, column=column, fix=fix)
