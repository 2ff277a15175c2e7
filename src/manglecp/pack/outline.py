"""The settings of a pack that is not loaded yet, and the manifest that a server can make from the settings alone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from manglecp.pack.diagnostics import PackError, Problems
from manglecp.pack.folder import Folder
from manglecp.pack.settings import FILE, MAX_SETTINGS_BYTES, Settings, read_settings
from manglecp.wire import messages

CONFORMANCE_LEVEL: Final = 3  # defined by the protocol; servers of this project reach it


def read_outline(folder: Path) -> Settings:
    """Return the settings of the pack in a folder. Raises :class:`PackError`."""
    problems = Problems()
    if not folder.is_dir():
        raise PackError.at("", f"there is no folder {str(folder)[:300]!r}")
    root = folder.resolve()
    text = Folder(root, problems).text(FILE, MAX_SETTINGS_BYTES) if (root / FILE).exists() else None
    settings = read_settings(text or "", root.name, problems)
    problems.raise_if_errors()
    return settings


def outline_manifest(
    settings: Settings, status: messages.Status, endpoints: messages.Endpoints | None, auth: messages.Auth
) -> messages.Manifest:
    """Return a manifest of the settings alone: name, intents, limits."""
    limits = settings.limits
    return messages.Manifest(
        payload=messages.ManifestPayload(
            server_name=settings.name,
            server_version=settings.version,
            protocol=messages.Protocol(conformance_level=CONFORMANCE_LEVEL),
            status=status,
            domain=messages.Domain(
                id=settings.domain.id,
                description=settings.domain.description or settings.description or settings.name,
                categories=settings.domain.categories or messages.UNSET,
            ),
            endpoints=endpoints or messages.UNSET,
            intents=tuple(
                messages.IntentDescription(name=intent.name, description=intent.description)
                for intent in settings.intents
            ),
            facts_profile=messages.FactsProfile(time_formats=messages.TIME_FORMATS),
            capabilities=messages.Capabilities(temporal=True),
            limits=messages.ServerLimits(
                max_message_bytes=limits.max_message_bytes,
                max_facts_per_request=limits.max_facts_per_request,
                max_derived_facts=limits.max_derived_facts,
            ),
            auth=auth,
        )
    )
