"""Who a client says it is. The token shows in no text that is made of it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias, cast

from manglecp.client.errors import Refused
from manglecp.wire import API_KEY_HEADER, SCHEMES

__all__ = ["Credential", "Scheme", "TokenSource"]

Scheme: TypeAlias = Literal["bearer", "oauth2", "api_key"]
TokenSource: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A token, or what gives one: it is asked again when the server no longer takes the last."""


class Credential:
    """A token and how it is presented."""

    def __init__(self, token: TokenSource, scheme: Scheme | None = None) -> None:
        if scheme is not None and scheme not in SCHEMES:
            raise ValueError(f"{scheme} is no scheme; one of {', '.join(SCHEMES)}")
        self._source = token
        self._token = token if isinstance(token, str) else None
        self._scheme = scheme

    def __repr__(self) -> str:
        return f"Credential({self._scheme or 'any scheme'}, …)"

    @property
    def renewable(self) -> bool:
        """Can there be another token, because a function gives them?"""
        return not isinstance(self._source, str)

    def forget(self) -> None:
        """The server does not take this token any more."""
        if self.renewable:
            self._token = None

    async def token(self) -> str:
        """The token; asked for where there is none, and kept until :meth:`forget`."""
        if self._token is None:
            assert not isinstance(self._source, str)
            given = self._source()
            self._token = await given if inspect.isawaitable(given) else given
        return self._token

    def scheme(self, taken: Sequence[str]) -> Scheme:
        """The one that was asked for, if the server takes it; else bearer or the first that it takes."""
        if self._scheme is not None:
            if self._scheme not in taken:
                raise Refused("auth_required", f"the server takes {', '.join(taken) or 'no credentials'} only")
            return self._scheme
        return cast(Scheme, "bearer" if "bearer" in taken else taken[0])

    async def headers(self, taken: Sequence[str]) -> dict[str, str]:
        """For transports without a session, where every request says who asks."""
        token = await self.token()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise Refused("bad_token", "a token has letters, digits and signs, and no blanks")
        if self.scheme(taken) == "api_key":
            return {API_KEY_HEADER: token}
        return {"Authorization": f"Bearer {token}"}
