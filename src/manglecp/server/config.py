"""Settings of a server process, and ``server.toml``, which overrides their defaults. The pack's are in ``pack.toml``.

Times in the file are whole milliseconds. A rate of 0 a second is no limit.
"""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from manglecp.pack import PackError, Problems, TomlTable, read_toml

__all__ = ["Network", "Rate", "ServerSettings", "load_server_settings", "parse_network", "parse_server_settings"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LARGEST: Final = 65_536
_HOUR_MS: Final = 3_600_000
_SHORTEST_CLAIM_MS: Final = 1_000
"""It is renewed three times as often, and a busy machine must not lose its runs to others."""
_WORD: Final = re.compile(r"\S{1,64}")
_BASE: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, slots=True)
class Rate:
    """So many requests a second in the long run, and so many at once after a pause."""

    per_second: float
    burst: int

    def part(self, processes: int) -> Rate:
        """What each of so many processes may grant of it."""
        return Rate(self.per_second / processes, math.ceil(self.burst / processes))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Limits and times of one process, with defaults for a small machine."""

    # --- how often ---------------------------------------------------------------------------------------------------
    identity_rate: Rate | None = Rate(200, 400)
    """For each authenticated client. None: no limit."""
    peer_rate: Rate | None = Rate(2_000, 4_000)
    """For each network address, whoever speaks from there."""
    attempt_rate: Rate | None = Rate(1, 20)
    """For credentials that do not hold, for each network address."""
    # --- how many at once --------------------------------------------------------------------------------------------
    evaluations: int = 2
    """In threads. More than there are processors makes each slower and none faster."""
    waiting: int = 256
    """Evaluations that wait for their turn."""
    longest_wait: float = 5.0
    """Seconds that one waits before it is told to come back later."""
    invocations: int = 256
    pending: int = 64
    """Unanswered requests of one session."""
    # --- sessions ----------------------------------------------------------------------------------------------------
    outbox_bytes: int = 4 << 20
    """Unsent answers of one session before nothing more is read from it."""
    send_timeout: float = 30.0
    """Seconds that a client may leave a message untaken."""
    recheck: float = 60.0
    """Seconds after which the credential of a session is looked at again: it may have expired or been withdrawn."""
    identify_timeout: float = 10.0
    # --- states ------------------------------------------------------------------------------------------------------
    retry_after_ms: int = 1_000
    """What a client is told to wait while the server boots or drains."""
    grace: float = 30.0
    """Seconds that running requests have to end when the server drains."""
    worker: bool = True
    """Go on with runs that other processes left behind."""
    worker_pause: float = 1.0
    claim: float = 15.0
    """Seconds after which a run belongs to nobody, if whoever carries it out does not say that it is still there."""
    probe: float = 5.0
    """Seconds between two looks at whether the store answers."""
    # --- HTTP --------------------------------------------------------------------------------------------------------
    base: str = ""
    """What comes before ``/evaluate`` and ``/invoke``."""
    trusted_proxies: tuple[Network, ...] = ()
    """Proxies whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are trusted."""

    def of_one_of(self, processes: int) -> ServerSettings:
        """For each of several processes that know nothing of each other: a rate is of all of them together, so each
        grants its part. What bounds memory and work (``load``, ``sessions``) is of each."""

        def part(rate: Rate | None) -> Rate | None:
            return None if rate is None else rate.part(processes)

        return replace(
            self,
            identity_rate=part(self.identity_rate),
            peer_rate=part(self.peer_rate),
            attempt_rate=part(self.attempt_rate),
        )


def parse_network(text: str) -> Network:
    """Parse an address or a network. Raises ValueError."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"{text!r} is no address such as 10.0.0.7 and no network such as 10.0.0.0/8") from None
    if network.prefixlen == 0:
        raise ValueError(f"{text} is everybody, and nobody would be who they are")
    return network


def load_server_settings(path: Path) -> ServerSettings:
    """What a file says; a PackError with everything that is wrong with it."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise PackError.at(path.name, f"has more than {_LARGEST:,} bytes")
        text = data.decode()
    except OSError as error:
        raise PackError.at(path.name, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PackError.at(path.name, "not UTF-8") from None
    problems = Problems()
    settings = parse_server_settings(path.name, text, problems)
    problems.refuse()
    return settings


def parse_server_settings(file: str, text: str, problems: Problems) -> ServerSettings:
    """What the text says, with defaults for what it does not say. What is wrong goes to ``problems``."""
    default = ServerSettings()
    whole = read_toml(file, text, problems)
    rates, load, sessions = whole.section("rates"), whole.section("load"), whole.section("sessions")
    states, worker, http = whole.section("states"), whole.section("worker"), whole.section("http")
    settings = ServerSettings(
        identity_rate=_rate(rates, "identity", default.identity_rate),
        peer_rate=_rate(rates, "peer", default.peer_rate),
        attempt_rate=_rate(rates, "attempt", default.attempt_rate),
        evaluations=load.number("evaluations", default.evaluations, 1, 256),
        waiting=load.number("waiting", default.waiting, 0, 100_000),
        longest_wait=_seconds(load, "longest_wait_ms", default.longest_wait),
        invocations=load.number("invocations", default.invocations, 1, 100_000),
        pending=sessions.number("pending", default.pending, 1, 100_000),
        outbox_bytes=sessions.number("outbox_bytes", default.outbox_bytes, 1, 1 << 30),
        send_timeout=_seconds(sessions, "send_timeout_ms", default.send_timeout),
        recheck=_seconds(sessions, "recheck_ms", default.recheck),
        identify_timeout=_seconds(sessions, "identify_timeout_ms", default.identify_timeout),
        retry_after_ms=states.number("retry_after_ms", default.retry_after_ms, 1, _HOUR_MS),
        grace=_seconds(states, "grace_ms", default.grace),
        probe=_seconds(states, "probe_ms", default.probe),
        worker=worker.flag("enabled", default.worker),
        worker_pause=_seconds(worker, "pause_ms", default.worker_pause),
        claim=_seconds(worker, "claim_ms", default.claim, _SHORTEST_CLAIM_MS),
        base=http.text("base", default.base, pattern=_BASE, takes="a path such as /api, without a slash at its end"),
        trusted_proxies=_networks(http, "trusted_proxies"),
    )
    for section in (rates, load, sessions, states, worker, http, whole):
        section.finish()
    return settings


def _seconds(section: TomlTable, key: str, default: float, least_ms: int = 1) -> float:
    return section.number(key, round(default * 1_000), least_ms, _HOUR_MS) / 1_000


def _networks(section: TomlTable, key: str) -> tuple[Network, ...]:
    found = []
    for text in section.texts(key, _WORD, "an address or a network"):
        try:
            found.append(parse_network(text))
        except ValueError as error:
            section.report(key, str(error))
    return tuple(found)


def _rate(rates: TomlTable, name: str, default: Rate | None) -> Rate | None:
    """``identity = { per_second = 200, burst = 400 }``."""
    if name not in rates:
        rates.section(name)
        return default
    rate = rates.section(name)
    per_second = rate.number("per_second", 0, 0, 1_000_000)
    burst = rate.number("burst", max(per_second, 1), 1, 1_000_000)
    rate.finish()
    return Rate(per_second, burst) if per_second else None
