"""What the sandbox can do on this machine, for ``manglecp doctor``."""

from __future__ import annotations

from manglecp.toolhost.sandbox import PROFILES, REMEDIES, Policy, measure

_EGRESS = ("api.github.com:443",)  # no connection is made


def diagnose_sandbox() -> dict[str, dict[str, dict[str, str]]]:
    """Return the mechanisms of each profile by name, each with what is ``missing`` and the ``fix``; or empty texts."""
    profiles: dict[str, dict[str, dict[str, str]]] = {}
    for profile in PROFILES[1:]:  # without the profile none
        measured = measure(profile, Policy(egress=_EGRESS if profile != "standard" else ()))
        missing = measured.missing_mechanisms
        profiles[profile] = {
            name: {
                "missing": missing.get(name, "").partition("; ")[0],
                "fix": REMEDIES.get(name, "") if name in missing else "",
            }
            for name in (*measured.active_mechanisms, *missing)
        }
    return profiles
