"""What every test has: the `req` mark and the option that lists it (tests/requirements/plugin.py), its lane
(tests/lanes), and whether coverage watches it (tests/unwatched.py).
"""

import pytest
from hypothesis import settings

from tests.lanes import guard
from tests.lanes.marks import declare_lanes, mark_lanes
from tests.requirements import plugin
from tests.requirements.plugin import pytest_addoption
from tests.unwatched import leave_properties_unwatched, pytest_runtest_protocol, pytest_sessionstart

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_runtest_protocol",
    "pytest_sessionstart",
]

# A loaded machine is slow, not wrong.
# The same examples every time: what fails here fails for everyone. Others are looked for by make soak.
settings.register_profile("manglecp", deadline=None, derandomize=True, max_examples=12)
settings.register_profile("soak", deadline=None, max_examples=1_000)
settings.load_profile("manglecp")


def pytest_configure(config: pytest.Config) -> None:
    plugin.pytest_configure(config)
    declare_lanes(config)
    config.pluginmanager.register(guard, "lane-guard")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_lanes(items)
    plugin.pytest_collection_modifyitems(config, items)
    leave_properties_unwatched(items)
