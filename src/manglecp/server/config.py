"""Settings of a server process, from defaults and the file ``server.toml``. Packs have settings of their own.

Times in the file are whole milliseconds. A rate of 0 per second means no limit.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from manglecp.base.destination import canonical_destinations
from manglecp.base.text import parse_age
from manglecp.pack import (
    PackError,
    Problems,
    SandboxPolicy,
    SecretSource,
    TomlTable,
    read_secret_sources,
    read_toml,
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_MAX_FILE_BYTES: Final = 65_536
_HOUR_MS: Final = 3_600_000
_MIN_CLAIM_MS: Final = 1_000
"""Three heartbeats within this time renew the ownership of a run: a busy machine could miss them in a shorter time."""
_WORD: Final = re.compile(r"\S{1,64}")
_ONE_WORD: Final = re.compile(r"\S{1,300}")
_PATH_PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, slots=True)
class Rate:
    """The parameters of a token bucket: its refill per second, and its size."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Limits and times of one process, with defaults for a small machine. Times are in seconds."""

    identity_rate: Rate | None = Rate(200, 400)
    """Requests of each authenticated client. None: no limit."""
    peer_rate: Rate | None = Rate(2_000, 4_000)
    """Messages from each network address."""
    attempt_rate: Rate | None = Rate(1, 20)
    """Invalid credentials from each network address."""
    evaluation_threads: int = 2
    """Threads that evaluate. If there are more threads than processors, each evaluation is slower."""
    max_queued_evaluations: int = 256
    """Evaluations that wait for a thread, at most."""
    max_queue_wait: float = 5.0
    """The time after which a queued evaluation is refused with ``rate_limited``."""
    max_invocations: int = 256
    """Concurrent invocations, at most."""
    max_pending: int = 64
    """Pending requests of one session, at most."""
    outbox_bytes: int = 4 << 20
    """Unsent bytes of one session, above which no further messages of the session are read."""
    send_timeout: float = 30.0
    """The time after which a client that does not read loses its session."""
    recheck_interval: float = 60.0
    """The time after which the credential of a session is checked again: it may have expired or been revoked."""
    identify_timeout: float = 10.0
    """The time limit of checking a credential."""
    retry_after_ms: int = 1_000
    """The delay before the next attempt, in replies while the server boots or drains."""
    grace_period: float = 30.0
    """The time limit for pending requests when the server drains."""
    worker: bool = True
    """Whether to resume runs whose process has ended."""
    worker_pause: float = 1.0
    """The interval of the search for runs to resume."""
    ownership_time: float = 15.0
    """The time after which the ownership of a run ends, unless its worker renews it with a heartbeat."""
    probe_interval: float = 5.0
    """The interval of checking whether the store responds."""
    keep_decisions_ns: int = 30 * 24 * 3_600 * 10**9
    """How long the decision log keeps decisions, in nanoseconds."""
    decision_content: Literal["full", "digests"] = "full"
    """Whether the decision log has the inputs of decisions, or only their digests."""
    log_decisions: bool = False
    """Whether decisions are also written to the server's log, without their inputs and reasons."""
    base: str = ""
    """The prefix of the paths of messages, such as ``/evaluate``."""
    egress: tuple[str, ...] | None = None
    """The only destinations that a pack may declare. None: every destination."""
    private: tuple[str, ...] = ()
    """Destinations of packs whose names may have a private address."""
    trusted_proxies: tuple[Network, ...] = ()
    """Proxies whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are trusted."""
    secrets: Mapping[str, SecretSource] = field(default_factory=dict, repr=False)
    """The sources of secrets, by name; the source of any other secret is the environment variable of the same name."""

    def restrict(self, policy: SandboxPolicy) -> SandboxPolicy:
        """Return the policy for the hosts of a pack with the destinations that these settings allow."""
        return replace(
            policy,
            egress=policy.egress if self.egress is None else self.egress,
            private=(*policy.private, *self.private),
        )

    def divide_rates(self, processes: int) -> ServerSettings:
        """Return the settings of one of several processes: a share of each rate, and all other limits in full."""

        def share(rate: Rate | None) -> Rate | None:
            return rate and Rate(rate.per_second / processes, math.ceil(rate.burst / processes))

        return replace(
            self,
            identity_rate=share(self.identity_rate),
            peer_rate=share(self.peer_rate),
            attempt_rate=share(self.attempt_rate),
        )


def parse_network(text: str) -> Network:
    """Parse an IP address or a network of proxies. Raises ValueError, also for a network of all addresses."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an address such as 10.0.0.7 or a network such as 10.0.0.0/8") from None
    if network.prefixlen == 0:
        raise ValueError(f"{text} contains all addresses: every client could forge its own address")
    return network


def load_server_settings(path: Path) -> ServerSettings:
    """Read the settings of a file. Raises PackError with all problems of the file."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            raise PackError.at(path.name, f"has more than {_MAX_FILE_BYTES:,} bytes")
        text = data.decode()
    except OSError as error:
        raise PackError.at(path.name, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PackError.at(path.name, "not UTF-8") from None
    problems = Problems()
    settings = parse_server_settings(path.name, text, problems)
    problems.raise_if_errors()
    return settings


def parse_server_settings(file: str, text: str, problems: Problems) -> ServerSettings:
    """Return the settings in ``text``, and defaults for missing ones. Errors are added to ``problems``."""
    default = ServerSettings()
    root = read_toml(file, text, problems)
    rates, load, sessions = root.section("rates"), root.section("load"), root.section("sessions")
    states, worker, http = root.section("states"), root.section("worker"), root.section("http")
    decisions, egress, secrets = root.section("decisions"), root.section("egress"), root.section("secrets")
    settings = ServerSettings(
        identity_rate=_rate(rates, "identity", default.identity_rate),
        peer_rate=_rate(rates, "peer", default.peer_rate),
        attempt_rate=_rate(rates, "attempt", default.attempt_rate),
        evaluation_threads=load.number("evaluations", default.evaluation_threads, 1, 256),
        max_queued_evaluations=load.number("waiting", default.max_queued_evaluations, 0, 100_000),
        max_queue_wait=_seconds(load, "longest_wait_ms", default.max_queue_wait),
        max_invocations=load.number("invocations", default.max_invocations, 1, 100_000),
        max_pending=sessions.number("pending", default.max_pending, 1, 100_000),
        outbox_bytes=sessions.number("outbox_bytes", default.outbox_bytes, 1, 1 << 30),
        send_timeout=_seconds(sessions, "send_timeout_ms", default.send_timeout),
        recheck_interval=_seconds(sessions, "recheck_ms", default.recheck_interval),
        identify_timeout=_seconds(sessions, "identify_timeout_ms", default.identify_timeout),
        retry_after_ms=states.number("retry_after_ms", default.retry_after_ms, 1, _HOUR_MS),
        grace_period=_seconds(states, "grace_ms", default.grace_period),
        probe_interval=_seconds(states, "probe_ms", default.probe_interval),
        worker=worker.flag("enabled", default.worker),
        worker_pause=_seconds(worker, "pause_ms", default.worker_pause),
        ownership_time=_seconds(worker, "claim_ms", default.ownership_time, _MIN_CLAIM_MS),
        keep_decisions_ns=_age(decisions, "keep", default.keep_decisions_ns),
        decision_content=decisions.choice("content", default.decision_content, ("full", "digests")),  # type: ignore[arg-type]  # one of these
        log_decisions=decisions.flag("log", default.log_decisions),
        egress=_destinations(egress, "allow") if "allow" in egress else None,
        private=_destinations(egress, "private"),
        base=http.text(
            "base", default.base, pattern=_PATH_PREFIX, takes="a path such as /api, without a slash at its end"
        ),
        trusted_proxies=_networks(http, "trusted_proxies"),
        secrets=read_secret_sources(secrets),
    )
    for section in (rates, load, sessions, states, worker, decisions, egress, http, root):
        section.finish()  # reports unknown keys
    return settings


def _seconds(section: TomlTable, key: str, default: float, min_ms: int = 1) -> float:
    """Return the setting ``key``, which is in milliseconds, in seconds."""
    return section.number(key, round(default * 1_000), min_ms, _HOUR_MS) / 1_000


def _age(section: TomlTable, key: str, default: int) -> int:
    """Return a duration such as ``90d`` in nanoseconds."""
    text = section.text(key, None)
    age = default if text is None else parse_age(text)
    if age is None:
        section.report(key, "takes a number of days, hours or minutes, such as 90d, 12h or 30m")
    return age or default


def _destinations(section: TomlTable, key: str) -> tuple[str, ...]:
    try:
        return canonical_destinations(section.texts(key, _ONE_WORD, "a destination HOST:PORT"))
    except ValueError as error:
        section.report(key, str(error))
        return ()


def _networks(section: TomlTable, key: str) -> tuple[Network, ...]:
    networks = []
    for text in section.texts(key, _WORD, "an address or a network"):
        try:
            networks.append(parse_network(text))
        except ValueError as error:
            section.report(key, str(error))
    return tuple(networks)


def _rate(rates: TomlTable, name: str, default: Rate | None) -> Rate | None:
    """Return a rate such as ``identity = { per_second = 200, burst = 400 }``."""
    if name not in rates:
        rates.section(name)  # registers the name as known
        return default
    rate = rates.section(name)
    per_second = rate.number("per_second", 0, 0, 1_000_000)
    burst = rate.number("burst", max(per_second, 1), 1, 1_000_000)
    rate.finish()
    return Rate(per_second, burst) if per_second else None
