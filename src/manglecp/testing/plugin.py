"""The pytest plugin: a fixture ``pack``, and the coverage of a pack's rules.

    pytest --pack examples/incident --pack-coverage

The pack is given by ``--pack``, by ``manglecp_pack`` in pytest's configuration, or by the nearest ``pack.toml`` above
the test. It is loaded once per session; each test has a store and hosts of its own. Workers of pytest-xdist send their
coverage to the controller. pytest imports this module wherever manglecp is installed, so all other modules of manglecp
are imported only when a test needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from manglecp.testing.coverage import PackCoverage
    from manglecp.testing.pack import Pack

_PACK_FILE: Final = "pack.toml"
_WORKER_COVERAGE: Final = "manglecp_pack_coverage"


class _Packs:
    """The packs of a test session, with their coverage by folder. Coverage names packs relative to ``directory``."""

    def __init__(self, directory: Path, settings: dict[str, str], *, with_coverage: bool, degrade: bool) -> None:
        self._directory = directory
        self._settings = settings
        self._with_coverage = with_coverage
        self._degrade = degrade
        self._loaded: dict[Path, Pack] = {}
        self.coverage: dict[str, PackCoverage] = {}

    def load(self, folder: Path) -> Pack:
        if folder not in self._loaded:
            from manglecp.testing.pack import load_pack

            coverage = self.coverage_of(str(folder)) if self._with_coverage else None
            self._loaded[folder] = load_pack(folder, self._settings, degrade=self._degrade, coverage=coverage)
        return self._loaded[folder]

    def coverage_of(self, folder: str) -> PackCoverage:
        from manglecp.testing.coverage import PackCoverage

        path = Path(folder)
        is_inside = path.is_relative_to(self._directory) and path != self._directory
        name = str(path.relative_to(self._directory)) if is_inside else path.name
        return self.coverage.setdefault(folder, PackCoverage(name))

    def close(self) -> None:
        while self._loaded:
            self._loaded.popitem()[1].close()


_PACKS: Final = pytest.StashKey[_Packs]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("manglecp", "packs")
    group.addoption("--pack", metavar="DIR", help="the folder of the pack that the fixture `pack` loads")
    group.addoption(
        "--pack-set", metavar="NAME=VALUE", action="append", default=[], help="a setting of the pack; may be repeated"
    )
    group.addoption("--pack-coverage", action="store_true", help="list the rules of packs that no test fired")
    minimum_help = "fail if fewer than PERCENT of the rules of a pack fired; implies --pack-coverage"
    group.addoption("--pack-coverage-fail-under", metavar="PERCENT", type=int, help=minimum_help)
    parser.addini("manglecp_pack", "the folder of the pack, relative to the configuration file; --pack overrides it")
    parser.addini("manglecp_set", "settings of the pack, NAME=VALUE", type="linelist", default=[])
    degrade_help = "accept a machine that cannot fully sandbox a pack's Python files"
    parser.addini("manglecp_degrade", degrade_help, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    coverage = config.getoption("--pack-coverage") or config.getoption("--pack-coverage-fail-under") is not None
    directory = Path(config.invocation_params.dir).resolve()
    settings = dict(map(_parse_setting, [*config.getini("manglecp_set"), *config.getoption("--pack-set")]))
    degrade = bool(config.getini("manglecp_degrade"))
    config.stash[_PACKS] = _Packs(directory, settings, with_coverage=bool(coverage), degrade=degrade)


def _parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise pytest.UsageError(f"a setting of a pack is NAME=VALUE, not {text!r}")
    return name, value


@pytest.fixture
def pack(request: pytest.FixtureRequest) -> Iterator[Pack]:
    """Return the pack under test: ``pack.intent("diagnose_error", facts=[…])``."""
    with request.config.stash[_PACKS].load(_pack_folder(request)).fresh() as fresh:
        yield fresh


def _pack_folder(request: pytest.FixtureRequest) -> Path:
    config = request.config
    if option := config.getoption("--pack"):
        return Path(config.invocation_params.dir, option).resolve()
    if setting := config.getini("manglecp_pack"):
        return Path(config.rootpath if config.inipath is None else config.inipath.parent, setting).resolve()
    for folder in request.path.resolve().parents:
        if (folder / _PACK_FILE).is_file():
            return folder
    raise pytest.UsageError(f"no {_PACK_FILE} above {request.path}: give --pack DIR, or set manglecp_pack")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Close the packs. A worker of pytest-xdist sends its coverage; another session fails if coverage is too low."""
    packs = session.config.stash[_PACKS]
    packs.close()
    worker_output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if worker_output is not None:
        worker_output[_WORKER_COVERAGE] = {folder: coverage.as_json() for folder, coverage in packs.coverage.items()}
    elif _find_insufficient(session.config) and session.exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the coverage of a worker of pytest-xdist."""
    packs: _Packs = node.config.stash[_PACKS]
    for folder, rules in getattr(node, "workeroutput", {}).get(_WORKER_COVERAGE, {}).items():
        packs.coverage_of(folder).merge(rules)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    from manglecp.base.text import escape_invisible

    by_folder = config.stash[_PACKS].coverage
    if not by_folder:
        return
    terminalreporter.section("pack coverage")
    for _, coverage in sorted(by_folder.items()):
        for line in coverage.lines():
            terminalreporter.line(escape_invisible(line))
    for coverage in _find_insufficient(config):
        minimum = config.getoption("--pack-coverage-fail-under")
        text = f"FAIL {escape_invisible(coverage.pack)}: {coverage.percent} % is less than {minimum} %"
        terminalreporter.line(text, red=True)


def _find_insufficient(config: pytest.Config) -> list[PackCoverage]:
    minimum = config.getoption("--pack-coverage-fail-under")
    coverages = config.stash[_PACKS].coverage.values()
    return [] if minimum is None else [coverage for coverage in coverages if coverage.percent < minimum]
