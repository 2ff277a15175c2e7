"""``server.toml``."""

from __future__ import annotations

from pathlib import Path

import pytest

from manglecp.pack import PackError
from manglecp.server.config import Rate, ServerSettings, load_server_settings


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "server.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_nothing_said_is_the_default(tmp_path: Path) -> None:
    assert load_server_settings(written(tmp_path, "")) == ServerSettings()


def test_what_is_said_counts(tmp_path: Path) -> None:
    text = """
        rates.identity = { per_second = 5, burst = 9 }
        rates.peer.per_second = 0
        load = { evaluations = 3, waiting = 0, longest_wait_ms = 250 }
        sessions.pending = 7
        states.grace_ms = 1500
        worker = { enabled = false, claim_ms = 2500 }
        decisions = { keep = "90d", content = "digests", log = true }
        http.base = "/api/v1"
        http.trusted_proxies = ["10.0.0.0/8", "::1"]
    """
    settings = load_server_settings(written(tmp_path, text))
    assert settings.identity_rate == Rate(5, 9)
    assert settings.peer_rate is None
    assert settings.attempt_rate == ServerSettings().attempt_rate
    assert (settings.evaluation_threads, settings.max_queued_evaluations, settings.max_queue_wait) == (3, 0, 0.25)
    assert (settings.max_pending, settings.grace_period, settings.worker, settings.base) == (7, 1.5, False, "/api/v1")
    assert settings.ownership_time == 2.5
    assert settings.keep_decisions_ns == 90 * 86_400 * 10**9
    assert (settings.decision_content, settings.log_decisions) == ("digests", True)
    assert [str(one) for one in settings.trusted_proxies] == ["10.0.0.0/8", "::1/128"]


def test_a_rate_is_of_all_processes_together() -> None:
    settings = ServerSettings(
        identity_rate=Rate(100, 5), peer_rate=None, attempt_rate=Rate(1, 1), max_queued_evaluations=7
    )
    part = settings.divide_rates(2)
    assert (part.identity_rate, part.peer_rate, part.attempt_rate) == (Rate(50, 3), None, Rate(0.5, 1))
    assert part.max_queued_evaluations == 7
    assert settings.divide_rates(1) == settings


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("load.evaluation = 3", "evaluations"),
        ("limits.pending = 3", "limits: unknown key"),
        ("rates.identity.per_minute = 3", "per_minute"),
        ("sessions.pending = 0", "sessions.pending: has to be from 1"),
        ("worker.claim_ms = 10", "worker.claim_ms: has to be from 1"),
        ("worker.enabled = 1", "worker.enabled: takes true or false"),
        ('decisions.keep = "0d"', "decisions.keep: takes a number of days, hours or minutes, such as 90d"),
        ('decisions.content = "none"', "decisions.content: takes one of full, digests"),
        ('http.base = "/api/"', "http.base: not a path"),
        ('http.trusted_proxies = ["proxy.example"]', "trusted_proxies: 'proxy.example' is not an address"),
        ('http.trusted_proxies = ["0.0.0.0/0"]', "all addresses"),
        ('http.trusted_proxies = "10.0.0.1"', "http.trusted_proxies: takes a list"),
        ("load = [", "not TOML"),
        (b"\xff", "not UTF-8"),
        ("#" * 70_000, "more than 65,536 bytes"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_assumed(tmp_path: Path, text: str | bytes, told: str) -> None:
    with pytest.raises(PackError) as refused:
        load_server_settings(written(tmp_path, text))
    assert told in " ".join(map(str, refused.value.diagnostics))


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PackError):
        load_server_settings(tmp_path / "server.toml")
