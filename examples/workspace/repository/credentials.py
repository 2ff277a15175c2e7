"""Credential files, recognised by name.

Any line of a file such as ``.env`` can be a secret, so actions never read, change or commit these files. Templates such
as ``.env.example`` are ordinary files.
"""

from __future__ import annotations

from typing import Final

from .refusal import Refusal

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
_TEMPLATE_WORDS: Final = frozenset({"example", "sample", "template", "tmpl", "dist", "defaults", "schema"})


def holds_credentials(path: str) -> bool:
    """Return whether the name is that of a credential file; case is ignored."""
    path = path.casefold()
    name = path.rpartition("/")[2]
    if _TEMPLATE_WORDS & set(name.replace("-", ".").replace("_", ".").split(".")):
        return False
    return name in _NAMES or name.startswith(".env.") or name.endswith(_ENDINGS) or f"/{path}".endswith(_PATHS)


def refuse_credentials(path: str) -> None:
    """Raise :class:`Refusal` for a credential file."""
    if holds_credentials(path):
        raise Refusal(f"{path!r} is made to hold credentials: a person has to read and change it")
