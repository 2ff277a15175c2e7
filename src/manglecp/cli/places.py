"""Where a verb that runs actions has what it needs: the pack's parameters, the store, the folders that may be written.

The options of several verbs, as one decorator; what they say is handed to the verb as one argument, in the words of
:func:`manglecp.invoke.local.open_packs`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from manglecp.cli.asking import pack_options
from manglecp.cli.looking import ShownLooking
from manglecp.cli.stores import store_key, store_options

if TYPE_CHECKING:
    from manglecp.toolhost import Looking

__all__ = ["Place", "place_options"]


class Place(TypedDict):
    """What :func:`place_options` hands to a verb. ``where`` and ``key`` are those of the store."""

    where: str | None
    key: bytes | None
    params: dict[str, str]
    workspace: tuple[Path, ...]
    programs: tuple[str, ...]
    degrade: bool
    allow_weaker: bool
    cache: Path | bool
    looking: Callable[[Looking], None]


_workspace: Final = click.option(
    "--workspace",
    metavar="DIR",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder that actions may write; they work in the first. By default there is none.",
)


def place_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``place``, from --workspace, --store, --store-key and what every verb takes that loads a pack."""

    @wraps(function)
    def placed(
        *args: Any,
        workspace: tuple[Path, ...],
        programs: tuple[str, ...],
        where: str | None,
        key_file: Path | None,
        settings: dict[str, str],
        degrade: bool,
        allow_weaker: bool,
        cache: Path | bool,
        **more: Any,
    ) -> Any:
        place = Place(
            where=where,
            key=store_key(key_file),
            params=settings,
            workspace=workspace,
            programs=programs,
            degrade=degrade,
            allow_weaker=allow_weaker,
            cache=cache,
            looking=ShownLooking(),
        )
        return function(*args, place=place, **more)

    return _workspace(store_options(pack_options(placed)))
