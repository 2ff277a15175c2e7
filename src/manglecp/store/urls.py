"""Addresses of databases, which may hold a password that nobody is to read.

A URL whose password has signs such as ``@`` or ``/`` in it is taken apart at the wrong places, and what the driver then
complains about would quote a piece of the password. So such a URL is refused here, without quoting anything of it.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from manglecp.store.errors import Unusable

__all__ = ["PostgresUrl", "is_postgres", "unreadable"]

_SCHEMES: Final = ("postgresql://", "postgres://")
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[^:@,\[\]]*)(?::[0-9]+)?"
_PLACE: Final = re.compile(rf"(?:(?P<user>[^:@]*)(?::[^@]*)?@)?(?P<hosts>{_HOST}(?:,{_HOST})*)")


def is_postgres(where: str) -> bool:
    """Is it the address of a server, and not the path of a file?"""
    return where.startswith(_SCHEMES)


class PostgresUrl:
    """``str()`` and ``repr()`` leave out the password; :attr:`secret` is for the driver only."""

    __slots__ = ("_shown", "secret")

    def __init__(self, url: str) -> None:
        self.secret: Final = url
        try:
            parts = urlsplit(url)
            query = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
        except ValueError:
            raise unreadable() from None
        place = _PLACE.fullmatch(parts.netloc)
        if place is None or "@" in parts.path or parts.fragment:
            raise unreadable()
        user = place["user"] or query.get("user", [""])[0]
        hosts = place["hosts"] or query.get("host", [""])[0]
        self._shown: Final = f"postgresql://{f'{user}@' if user else ''}{unquote(hosts)}{parts.path}"

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return f"PostgresUrl({self._shown!r})"


def unreadable() -> Unusable:
    """Says what such a URL looks like, and nothing of this one."""
    return Unusable(
        "the URL of the PostgreSQL database cannot be read, or has an option that is unknown. It is "
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE; in user and password, signs other than letters, digits, "
        "'-', '.' and '_' are percent-encoded ('@' is %40)."
    )
