"""``manglecp check``: diagnostics of rule files or of a whole pack."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import click

from manglecp import intent, invoke, pack, toolhost
from manglecp.base.diagnostic import Diagnostic
from manglecp.cli.completion import complete_intents
from manglecp.cli.files import DASH, option, option_group, read_sources
from manglecp.cli.options import (
    CallerOptions,
    RuntimeOptions,
    cache_option,
    degrade_option,
    json_option,
    private_option,
    program_option,
    set_option,
)
from manglecp.cli.output import GeneratorProgress, ProgressLine, count, report, write_lines
from manglecp.mangle import MangleError, Program

_MAX_NAMES: Final = 16  # the most tools that one why-not request may name
_FILE_OR_PACK: Final = click.Path(exists=True, allow_dash=True)
_FILE_OR_PACK.name = "file"  # the name of the argument in errors of click, instead of "path"


@click.command("check")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE_OR_PACK)
@option_group("runtime", RuntimeOptions, set_option, degrade_option, program_option, cache_option, private_option)
@option("--strict", is_flag=True, help="Fail on warnings as well.")
@option(
    "--direct INTENT",
    shell_complete=complete_intents,
    help="Warn of each tool of this intent that `manglecp mcp serve --direct` cannot list.",
)
@json_option("Print the diagnostics as one JSON document.")
def command(files: tuple[str, ...], runtime: RuntimeOptions, strict: bool, direct: str | None, as_json: bool) -> None:
    """Report the errors and warnings of the program in FILEs, or of a pack, which is a folder.

    A program is parsed, analysed and stratified, and not evaluated. All errors of the first stage that fails are
    reported, and all warnings. The check of a pack covers settings, rules, fact files, skills, actions, references
    between them, and generated facts. The exit status is 1 if there is an error, or with --strict a warning.
    """
    folders = [file for file in files if file != DASH and Path(file).is_dir()]
    if folders and len(files) > 1:
        raise click.UsageError("a pack is checked on its own: give one folder, or files")
    if (runtime.pack_params or direct is not None) and not folders:
        raise click.UsageError(f"{'--set' if runtime.pack_params else '--direct'} is for packs")
    result = _check_pack(folders[0], runtime, direct) if folders else _check_files(files)
    error_count = sum(each.severity == "error" for each in result.diagnostics)
    is_ok = not error_count and not (strict and result.diagnostics)
    if as_json:
        document = {"ok": is_ok, **result.pack_id, "diagnostics": list(map(_as_json, result.diagnostics))}
        if result.egress:
            document["egress"] = result.egress
        write_lines([json.dumps(document, indent=2)])
    else:
        report(result.diagnostics)
        warning_count = len(result.diagnostics) - error_count
        verdict = [count(error_count, "error")] if error_count else ["ok"] if is_ok else []
        verdict += [count(warning_count, "warning")] if warning_count else []
        for secret in result.pack_id.get("secrets", ()):
            state = "" if secret["available"] else ", which is missing"
            write_lines([f"secret {secret['name']}: {secret['source']}{state}"])
        write_lines([f"{result.summary}: {', '.join(verdict)}"])
        write_lines([f"{name} connects to {', '.join(egress)}" for name, egress in result.egress.items()])
    if not is_ok:
        raise click.exceptions.Exit(1)


class _Result(NamedTuple):
    summary: str  # what was checked, such as "2 files, 3 rules, 1 fact"
    diagnostics: Sequence[Diagnostic]
    pack_id: dict[str, Any]  # name, version, digest and secrets, for the JSON document; empty without a valid pack
    egress: Mapping[str, Sequence[str]] = MappingProxyType({})  # by function: its destinations, unless it has none


def _check_files(files: tuple[str, ...]) -> _Result:
    summary = count(len(files), "file")
    try:
        with ProgressLine("checking"):
            program = Program.load(read_sources(files))
    except MangleError as error:
        return _Result(summary, error.diagnostics, pack_id={})
    summary += f", {count(len(program.rules), 'rule')}, {count(len(program.facts), 'fact')}"
    return _Result(summary, program.warnings, pack_id={})


def _check_pack(folder: str, options: RuntimeOptions, direct: str | None) -> _Result:
    with ProgressLine("checking"):
        start_hosts = partial(_start_generators, options)
        domain, diagnostics = intent.survey(Path(folder), options.pack_params, start_hosts, sandbox=options.sandbox)
    if domain is None:
        return _Result(Path(folder).resolve().name, diagnostics, pack_id={})
    if direct is not None:
        diagnostics = (*diagnostics, *_unlisted_tools(domain, direct))
    spans = (rule.head.span for rule in domain.program.rules)
    # Rules of the kernel have another source, and are not counted.
    rule_count = sum(span is not None and span.source in domain.pack.sources for span in spans)
    parts = [(rule_count, "rule"), (len(domain.pack.actions), "action"), (len(domain.pack.skills), "skill")]
    if domain.pack.generators:
        parts.append((len(domain.pack.generators), "generator"))
    return _Result(
        f"{domain.pack.name}, {', '.join(count(number, noun) for number, noun in parts)}",
        (*diagnostics, *invoke.check_policy_package(domain.pack, domain.pack.settings.sandbox)),
        {
            "pack": domain.pack.name,
            "version": domain.pack.settings.version,
            "digest": domain.digest,
            **({"secrets": secrets} if (secrets := pack.SecretProvider().describe(domain.pack)) else {}),
        },
        domain.pack.egress,
    )


def _unlisted_tools(domain: intent.Domain, name: str) -> Iterator[Diagnostic]:
    """Yield a warning for each tool that is proven for the intent only with facts of a client."""
    from manglecp.wire import WireError, fact_text
    from manglecp.wire.messages import UNSET

    tools = sorted({str(row[0]) for row in domain.base.evaluate([], now=time.time_ns()).rows(("macro", 2))})
    for start in range(0, len(tools), _MAX_NAMES):
        names = tools[start : start + _MAX_NAMES]
        payload = {"intent": {"name": name}, "options": {"include_proof_hints": True, "x-why_not": names}}
        try:
            request = intent.request_message("intent_request", payload, domain.pack, "check")
            answer = intent.respond(domain, request, CallerOptions(None, ()).identity, clock=time.time_ns)
        except WireError as error:
            suggestion = (error.details or {}).get("suggestion", "")
            raise click.UsageError(f"--direct {name}: {error.message}. {suggestion}".strip()) from None
        hints = answer.response.payload.proof_hints
        for why_not in () if hints is UNSET else hints.why_not or ():
            facts = next(iter(why_not.would_unlock), ())
            if facts:
                texts = " and ".join(map(fact_text, facts))
                message = f"{why_not.tool} is not listed in direct mode: it needs facts of the client, such as {texts}"
                yield Diagnostic("direct", message, severity="warning")


def _start_generators(
    options: RuntimeOptions, checked_pack: pack.Pack
) -> AbstractContextManager[toolhost.FactGenerators | None]:
    if not checked_pack.generators:
        return nullcontext()
    return toolhost.serve_facts(
        checked_pack,
        cache=options.cache,
        programs=options.programs,
        sandbox=options.sandbox,
        on_progress=GeneratorProgress(),
    )


def _as_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """Return a diagnostic as a JSON document. Lines and columns start at 1; the end is after the last character."""
    span = diagnostic.span
    end_line, end_column = (None, None) if span is None else span.source.position(span.end)
    return {
        "severity": diagnostic.severity,
        "stage": diagnostic.code,
        "message": diagnostic.message,
        "file": diagnostic.file or None,
        "line": diagnostic.line,
        "column": diagnostic.column,
        "end_line": end_line,
        "end_column": end_column,
        "clause": diagnostic.clause,
        "fix": diagnostic.fix,
    }
