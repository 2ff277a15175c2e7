"""The canonical layout of a file, with comments: ``manglecp fmt``.

A statement that fits is one line. Otherwise it is *broken*: the head, then each premise, transform or part of a
declaration, have a line each. Facts that shared a line still share it if they fit.

A statement consists of *leaves*, which no layout breaks. A comment belongs to the leaf that ends on the line of the
comment, or else to the next leaf. A comment between two leaves breaks the statement; a comment inside a leaf moves
before the leaf. The order of comments is kept, and the layout is idempotent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from manglecp.base.source import Source, Span
from manglecp.mangle import printer
from manglecp.mangle.lexer import Lexer, find_comments
from manglecp.mangle.parser import parse
from manglecp.mangle.syntax import Atom, Clause, Decl, Transform, Unit

WIDTH: Final = 100


def layout(source: Source) -> str:
    """Return ``source`` in canonical layout. Raises :class:`~manglecp.mangle.errors.ParseError`."""
    statements = list(_statements(parse(source)))
    final_comments = _attach(find_comments(source), statements)
    page = _Page(source)
    for statement in statements:
        page.add(statement)
    for comment in final_comments:
        page.add_comment(comment)
    return page.text()


@dataclass(slots=True)
class _Leaf:
    text: str
    start: int  # offset in the source
    end: int
    indent: int = 0  # spaces, if the statement is broken
    leading: list[Span] = field(default_factory=list)  # comments on lines before the leaf
    trailing: list[Span] = field(default_factory=list)  # the trailing comment, line by line


@dataclass(slots=True)
class _Block:
    """Leaves that share a line if they fit and have no comment between them."""

    text: str  # the whole block on one line
    leaves: list[_Leaf]

    def add_full_stop(self) -> None:
        self.text = printer.end_clause(self.text)
        self.leaves[-1].text = printer.end_clause(self.leaves[-1].text)

    def lines(self) -> Iterator[str]:
        first, last = self.leaves[0], self.leaves[-1]
        if first.indent + len(self.text) > WIDTH or _commented_inside(self.leaves):
            for leaf in self.leaves:
                yield from _leaf_lines(leaf.leading, leaf.indent, leaf.text, leaf.trailing)
        else:
            yield from _leaf_lines(first.leading, first.indent, self.text, last.trailing)


@dataclass(slots=True)
class _Statement:
    text: str  # the whole statement on one line
    blocks: list[_Block]
    end: int  # offset after the full stop of the statement
    is_fact: bool = False

    @property
    def leaves(self) -> list[_Leaf]:
        return [leaf for block in self.blocks for leaf in block.leaves]


def _commented_inside(leaves: list[_Leaf]) -> bool:
    return any(left.trailing or right.leading for left, right in pairwise(leaves))


def _leaf_lines(before: Iterable[Span], indent: int, text: str, after: Iterable[Span]) -> Iterator[str]:
    margin = " " * indent
    for comment in before:
        yield margin + _comment_text(comment)
    yield from _with_comments(margin + text, after)


def _with_comments(line: str, after: Iterable[Span]) -> Iterator[str]:
    """Yield ``line`` with the first comment of ``after``; then each other comment on a line below the first."""
    column = len(line) + 2
    for comment in after:
        yield line.ljust(column) + _comment_text(comment)
        line = ""
    if line:
        yield line


def _comment_text(comment: Span) -> str:
    return comment.text.rstrip()


def _statements(unit: Unit) -> Iterator[_Statement]:
    packages = [] if unit.package is None else [("Package", unit.package)]
    for keyword, package in packages + [("Use", use) for use in unit.uses]:
        text = printer.package(keyword, package)
        yield _Statement(text, [_block(_leaf(text, package.span, 0))], _span(package.span).end)
    for item in unit.items:
        blocks = _decl_blocks(item) if isinstance(item, Decl) else _clause_blocks(item)
        is_fact = isinstance(item, Clause) and item.is_fact
        yield _Statement(printer.item(item), blocks, _span(item.span).end, is_fact)


def _clause_blocks(clause: Clause) -> list[_Block]:
    head = printer.atom(clause.head) + printer.annotation(clause.annotation) + (" :-" if clause.premises else "")
    end = _span(clause.head.span if clause.annotation is None else clause.annotation.span).end
    blocks = [_block(_Leaf(head, _span(clause.span).start, end))]
    for number, premise in enumerate(clause.premises, 1):
        comma = "," if number < len(clause.premises) else ""
        blocks.append(_block(_leaf(printer.premise(premise) + comma, premise.span, 2)))
    blocks += map(_transform_block, clause.transforms)
    blocks[-1].add_full_stop()
    return blocks


def _transform_block(step: Transform) -> _Block:
    if step.do is not None:
        first, first_span, further_lets = Transform(step.do, ()), step.do.span, step.lets
    else:
        first, first_span, further_lets = Transform(None, step.lets[:1]), step.lets[0].span, step.lets[1:]
    leaves = [_Leaf(printer.transform(first), _span(step.span).start, _span(first_span).end, 2)]
    for let in further_lets:
        leaves[-1].text += ","
        leaves.append(_leaf(printer.let(let), let.span, 5))  # aligned after "  |> "
    return _Block(printer.transform(step), leaves)


def _decl_blocks(decl: Decl) -> list[_Block]:
    head, *parts = _decl_parts(decl)
    text = f"Decl {printer.atom(decl.atom)}" + (" temporal" if decl.temporal else "")
    blocks = [_block(_Leaf(text, head.start, head.end))]
    bound_rows = iter(decl.bounds)
    for part in parts:
        if part.keyword == "bound":
            blocks.append(_block(_Leaf(f"bound {printer.row(next(bound_rows))}", part.start, part.end, 2)))
        else:
            atoms = decl.descr if part.keyword == "descr" else decl.inclusion
            blocks += [_atoms_block(part, atoms)] if atoms else []  # an empty list means the same as none
    blocks[-1].add_full_stop()
    return blocks


@dataclass(slots=True)
class _DeclPart:
    keyword: str
    start: int
    bracket_end: int  # offset after the keyword and its opening bracket
    end: int = 0


def _decl_parts(decl: Decl) -> list[_DeclPart]:
    """Locate the parts of a declaration: the text from ``Decl`` to ``temporal``, then one part per keyword."""
    span = _span(decl.span)
    lex = Lexer(span.source)
    lex.depth = 1  # as inside brackets, where no dot after a name is a full stop
    lex.read_at(span.start)
    parts = [_DeclPart("Decl", span.start, lex.end)]
    while lex.end < span.end:
        if lex.kind not in ("descr", "bound", "inclusion"):
            parts[-1].end = lex.end
        else:
            parts.append(_DeclPart(lex.kind, lex.start, lex.end))
            lex.advance()
            parts[-1].bracket_end = lex.end
        lex.advance()
    return parts


def _atoms_block(part: _DeclPart, atoms: tuple[Atom, ...]) -> _Block:
    leaves = [_Leaf(f"{part.keyword} [", part.start, part.bracket_end, 2)]
    leaves += [_leaf(f"{printer.atom(atom)},", atom.span, 4) for atom in atoms]
    leaves.append(_Leaf("]", part.end - 1, part.end, 2))
    return _Block(f"{part.keyword} {printer.atoms(atoms)}", leaves)


def _span(span: Span | None) -> Span:
    assert span is not None  # the parser sets every span
    return span


def _leaf(text: str, span: Span | None, indent: int) -> _Leaf:
    return _Leaf(text, _span(span).start, _span(span).end, indent)


def _block(leaf: _Leaf) -> _Block:
    return _Block(leaf.text, [leaf])


def _attach(comments: list[Span], statements: list[_Statement]) -> list[Span]:
    """Assign every comment to a leaf; return the comments after the last leaf."""
    leaves: list[_Leaf] = []
    trailing_from: list[int] = []  # by leaf: the offset from which a comment on the same line trails the leaf
    for statement in statements:
        leaves += statement.leaves
        trailing_from += [leaf.end for leaf in statement.leaves[:-1]] + [statement.end]
    starts = [leaf.start for leaf in leaves]
    final_comments: list[Span] = []
    for comment in comments:
        index = bisect_right(starts, comment.start) - 1
        next_comments = leaves[index + 1].leading if index + 1 < len(leaves) else final_comments
        leaf = leaves[index] if index >= 0 else None
        if leaf is None or next_comments:  # after a comment of the next leaf, every comment belongs to the next leaf
            next_comments.append(comment)
        elif comment.start < leaf.end:
            leaf.leading.append(comment)
        else:
            ends = leaf.end, trailing_from[index]
            is_after = _continues(comment, leaf.trailing[-1]) if leaf.trailing else _is_trailing(comment, *ends)
            (leaf.trailing if is_after else next_comments).append(comment)
    return final_comments


def _is_trailing(comment: Span, *ends: int) -> bool:
    """Return whether the comment follows one of these offsets on the same line."""
    text = comment.source.text
    return any(end <= comment.start and "\n" not in text[end : comment.start] for end in ends)


def _continues(comment: Span, previous: Span) -> bool:
    """Return whether the comment is aligned directly below the previous one."""
    return (comment.line, comment.column) == (previous.line + 1, previous.column)


class _Page:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.lines: list[str] = []
        self.source_line = 0  # the last line of the source that has been written
        self.fact_end: int | None = None  # offset after the last fact, if another fact may follow on the same line

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    def add_comment(self, comment: Span, start: int | None = None) -> None:
        """Write a comment as if it were at the offset ``start``; the default is its own offset."""
        self._keep_blank_line(comment.start if start is None else start)
        self.lines.append(_comment_text(comment))
        self._mark_written(comment.end)

    def add(self, statement: _Statement) -> None:
        leaves = statement.leaves
        first, last = leaves[0], leaves[-1]
        for comment in first.leading:
            self.add_comment(comment, min(comment.start, first.start))  # a comment inside the leaf moves before it
        if self._joins(statement):
            line = f"{self.lines.pop()} {statement.text}"
        else:
            self._keep_blank_line(first.start)
            line = statement.text
        if len(line) > WIDTH or _commented_inside(leaves):
            first.leading = []  # written above
            for block in statement.blocks:
                self.lines += block.lines()
        else:
            self.lines += _with_comments(line, last.trailing)
        self._mark_written(statement.end, *(comment.end for comment in last.trailing))
        if statement.is_fact and not last.trailing:
            self.fact_end = statement.end

    def _joins(self, fact: _Statement) -> bool:
        """Return whether the fact shared a line with the previous fact, and still fits into that line."""
        if self.fact_end is None or not fact.is_fact:
            return False
        start = fact.blocks[0].leaves[0].start
        on_same_line = "\n" not in self.source.text[self.fact_end : start]
        return on_same_line and len(self.lines[-1]) + 1 + len(fact.text) <= WIDTH

    def _keep_blank_line(self, start: int) -> None:
        """Add a blank line if the source has one before the offset ``start``."""
        if self.lines and self.source.position(start)[0] > self.source_line + 1:
            self.lines.append("")

    def _mark_written(self, *ends: int) -> None:
        self.source_line = max(self.source_line, self.source.position(max(ends))[0])
        self.fact_end = None
