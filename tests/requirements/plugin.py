"""The pytest side: the `req` mark, and `--requirements-json PATH` to write down who names what."""

from pathlib import Path

import pytest

from .marks import Marks, marks_of

__all__ = ["WHOLE_SUITE", "pytest_addoption", "pytest_collection_modifyitems", "pytest_configure"]

WHOLE_SUITE = pytest.StashKey[Marks]()
"""The marks of all tests, in a run that collects all of them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--requirements-json", metavar="PATH", help="write which collected tests name which requirement")


def pytest_configure(config: pytest.Config) -> None:
    if not any(line.startswith("req(") for line in config.getini("markers")):
        config.addinivalue_line("markers", "req(id, ...): requirement ids this test proves")


@pytest.hookimpl(tryfirst=True)  # before `-m "not soak"` and `-k` take tests away
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if [Path(one).resolve() for one in config.args] == [Path(__file__).parents[1]]:
        config.stash[WHOLE_SUITE] = marks_of(items)
    path = config.getoption("--requirements-json")
    if path is None or _worker(config) not in (None, "gw0"):
        return
    Path(config.invocation_params.dir, path).write_text(marks_of(items).to_json(), "utf-8")


def _worker(config: pytest.Config) -> str | None:
    """The name of this xdist worker; every worker collects all tests, so one of them is enough."""
    known: dict[str, str] = getattr(config, "workerinput", {})
    return known.get("workerid")
