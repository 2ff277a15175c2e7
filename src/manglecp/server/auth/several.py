"""Several ways to know somebody: the first that knows a credential decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from manglecp.intent import Identity
from manglecp.server.auth import Auth

__all__ = ["Several"]


class Several:
    """Asks each in turn. Nobody is anonymous: one of them has to know the credential."""

    required: Final = True

    def __init__(self, ways: Sequence[Auth]) -> None:
        self._ways = tuple(ways)

    @property
    def schemes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(scheme for way in self._ways for scheme in way.schemes))

    @property
    def token_url(self) -> str | None:
        return next((way.token_url for way in self._ways if way.token_url is not None), None)

    async def identify(self, scheme: str, credential: str) -> Identity | None:
        for way in self._ways:
            if scheme in way.schemes and (found := await way.identify(scheme, credential)) is not None:
                return found
        return None
