"""Files that are made to hold credentials, by their names.

In ``.env`` any line may be a secret, whatever it is called and however it looks. So of such files nothing is shown,
nothing is changed and nothing is committed. What only shows which lines one needs (``.env.example``) is as any other.
"""

from __future__ import annotations

from typing import Final

from .refusal import Refused

__all__ = ["KIND", "holds_credentials", "refuse_credentials"]

KIND: Final = "file of credentials"
_NAMES: Final = frozenset(
    {
        *(".env", ".envrc", ".netrc", "_netrc", ".pgpass", "pgpass.conf", ".my.cnf", ".mylogin.cnf", ".pypirc"),
        *(".htpasswd", ".git-credentials", ".dockercfg", ".vault-token", ".vault_pass", ".s3cfg", ".boto"),
        *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials.json", "client_secret.json"),
    }
)
_ENDINGS: Final = (".env", ".ppk", ".pgpass", ".htpasswd")
_PATHS: Final = ("/.aws/credentials", "/.docker/config.json", "/.kube/config")
_ONLY_SHOWS: Final = frozenset({"example", "sample", "template", "tmpl", "dist", "defaults", "schema"})


def holds_credentials(path: str) -> bool:
    """Whether the name says so, in capital or small letters."""
    path = path.casefold()
    name = path.rpartition("/")[2]
    if _ONLY_SHOWS & set(name.replace("-", ".").replace("_", ".").split(".")):
        return False
    return name in _NAMES or name.startswith(".env.") or name.endswith(_ENDINGS) or f"/{path}".endswith(_PATHS)


def refuse_credentials(path: str) -> None:
    """Nobody reads or writes it here."""
    if holds_credentials(path):
        raise Refused(f"{path!r} is made to hold credentials, and is left to a person")
