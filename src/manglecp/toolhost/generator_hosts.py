"""The fact generators of a pack, run by sandboxed hosts for as long as the pack is served.

Generators with the same secrets and the same egress share a host. The host may read the pack and the folders that its
settings name, and write a cache. It does not start if a file of the pack has changed since the pack was read.
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
from manglecp.pack import Pack, PackError, SandboxPolicy, SecretProvider
from manglecp.toolhost.action_hosts import pack_listing, require_command
from manglecp.toolhost.actions import SAFE
from manglecp.toolhost.dispatch.catalogue import ActionProfile
from manglecp.toolhost.dispatch.dispatcher import ServedPlugin
from manglecp.toolhost.passes import FactGenerators, GeneratorHost, PassProgress

_UNUSED_SECONDS: Final = 30 * 86_400  # a cache folder that is unused for longer is removed


def cache_folder(pack: Pack, root: Path | None = None) -> Path:
    """Return the cache folder of a pack, created if missing; raises OSError. ``root`` defaults to the user's cache.

    The folder belongs to one pack with one set of settings and one content of ``facts.py``. Folders of the same pack
    that were unused for a month are removed.
    """
    sha256 = pack.generators_file and pack.generators_file.sha256
    identity = json.dumps([pack.name, sorted(pack.params.items()), sha256]).encode()
    if root is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        root = Path(os.environ.get("MANGLECP_CACHE_DIR") or Path(base) / "manglecp")
    folder_of_pack = root.absolute() / "facts" / pack.name
    folder = folder_of_pack / hashlib.sha256(identity).hexdigest()[:32]
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    os.utime(folder)  # marks it as used
    _remove_unused(folder_of_pack, folder)
    return folder


def _remove_unused(folder_of_pack: Path, current: Path) -> None:
    cutoff = time.time() - _UNUSED_SECONDS
    for other in folder_of_pack.iterdir():
        with contextlib.suppress(OSError):
            if other != current and not other.is_symlink() and other.stat().st_mtime < cutoff:
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
    secrets: SecretProvider | None = None,
    on_progress: Callable[[PassProgress], None] | None = None,
) -> Iterator[FactGenerators | None]:
    """Yield the fact generators of a pack, or None if it has no generators. The first pass starts the host.

    ``cache`` is the root of cache folders; True: the user's cache; False: no cache. ``programs`` (names or absolute
    paths) may be started by generators whose ``spawn`` names them too. ``on_progress`` is called with the progress of
    passes; ``secrets`` has the values of secrets, by default environment variables. Raises :class:`PackError`.
    """
    if not pack.generators or pack.generators_file is None:
        yield None
        return
    folder = _open_cache(pack, cache)
    profiles = {
        each.aid: ActionProfile(
            aid=each.aid,
            tier=SAFE,
            timeout=each.seconds,
            spawn=each.spawn,
            secrets=each.secrets,
            egress=each.egress,
        )
        for each in pack.generators.values()
    }
    listing = pack_listing(pack, pack.generators_file, profiles)
    policy = sandbox or SandboxPolicy()
    plugins = []
    for group in listing.by_egress():
        command = group.command(
            environ or os.environ,
            sandbox=policy.weaker(pack.settings.sandbox),  # None: ``spawn`` if programs are allowed, else ``strict``
            programs=programs,
            workspace=() if folder is None else (str(folder),),
            readable=(*pack.readable, *pack.writable),
            policy=policy,
            python=pack.python,
            single_use=False,  # generators keep state between the pieces of a pass
        )
        plugins.append(ServedPlugin(group.catalogue, require_command(_FILE, command)))
    with background_loop("facts") as loop:
        host = GeneratorHost(loop, plugins, secrets)
        with contextlib.closing(FactGenerators(pack, host, folder, on_progress)) as generators:
            yield generators


def _open_cache(pack: Pack, root: Path | bool) -> Path | None:
    if root is False or not any(generator.cache for generator in pack.generators.values()):
        return None
    try:
        return cache_folder(pack, None if root is True else root)
    except OSError as error:
        if root is not True:  # a folder that the operator chose
            raise PackError.at("", f"the cache folder cannot be used: {error.strerror}") from None
        _log.warning("the facts of %s are not cached: %s", pack.name, error.strerror)
        return None
