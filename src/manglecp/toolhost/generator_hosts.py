"""The fact generators of a pack, run by one sandboxed host for as long as the pack is served.

The host may read the pack and the folders that the operator named, and write a cache. It is pinned to the file that the
pack describes, and no file of the pack may have changed when it is set up.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from manglecp.base.background_loop import background_loop
from manglecp.pack import Pack, PackError, SandboxPolicy
from manglecp.toolhost.action_hosts import pack_listing, servable
from manglecp.toolhost.actions import SAFE
from manglecp.toolhost.dispatch import ServedPlugin
from manglecp.toolhost.dispatch.catalogue import ActionProfile
from manglecp.toolhost.passes import FactGenerators, GeneratorHost, PassProgress

_OLD: Final = 30 * 86_400


def cache_folder(pack: Pack, root: Path | None = None) -> Path:
    """Return the cache folder of a pack, created if missing; raises OSError.

    It belongs to one pack with one set of settings and one content of ``facts.py``. Folders unused for a month are
    removed.
    """
    sha256 = pack.generators_file and pack.generators_file.sha256
    about = json.dumps([pack.name, sorted(pack.params.items()), sha256]).encode()
    if root is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        root = Path(os.environ.get("MANGLECP_CACHE_DIR") or Path(base) / "manglecp")
    within = root.absolute() / "facts" / pack.name
    folder = within / hashlib.sha256(about).hexdigest()[:32]
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    os.utime(folder)
    _remove_unused(within, folder)
    return folder


def _remove_unused(within: Path, current: Path) -> None:
    oldest = time.time() - _OLD
    for other in within.iterdir():
        with contextlib.suppress(OSError):
            if other != current and not other.is_symlink() and other.stat().st_mtime < oldest:
                shutil.rmtree(other, ignore_errors=True)


_FILE: Final = "facts.py"
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def serve_facts(
    pack: Pack,
    *,
    cache: Path | bool = True,
    programs: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    sandbox: SandboxPolicy | None = None,
    on_progress: Callable[[PassProgress], None] | None = None,
) -> Iterator[FactGenerators | None]:
    """Start a host for the generators of a pack and yield them; None if it has none. Raises :class:`PackError`.

    ``cache`` is the root of cache folders; by default this user's; False: none. ``programs`` are those that generators
    may start, by name or absolute path, if they name them too. ``on_progress`` is
    called with the progress of passes.
    """
    if not pack.generators or pack.generators_file is None:
        yield None
        return
    folder = _cache(pack, cache)
    profiles = {
        each.aid: ActionProfile(aid=each.aid, tier=SAFE, timeout=each.seconds, spawn=each.spawn)
        for each in pack.generators.values()
    }
    listing = pack_listing(pack, pack.generators_file, profiles)
    policy = sandbox or SandboxPolicy()
    command = listing.command(
        environ or os.environ,
        # None is the strictest profile that allows the programs.
        sandbox=policy.weaker(pack.settings.sandbox) or (None if programs else "strict"),
        programs=programs,
        workspace=() if folder is None else (str(folder),),
        readable=(*pack.readable, *pack.writable),
        policy=policy,
        single_use=False,  # generators keep state between the pieces of a pass
    )
    with background_loop("facts") as loop:
        generated = FactGenerators(
            pack, GeneratorHost(loop, ServedPlugin(profiles, servable(_FILE, command))), folder, on_progress
        )
        try:
            yield generated
        finally:
            generated.close()


def _cache(pack: Pack, root: Path | bool) -> Path | None:
    if root is False or not any(generator.cache for generator in pack.generators.values()):
        return None
    try:
        return cache_folder(pack, None if root is True else root)
    except OSError as error:
        if root is not True:
            raise PackError.at("", f"the cache folder cannot be used: {error.strerror}") from None
        _log.warning("the facts of %s are not cached: %s", pack.name, error.strerror)
        return None
