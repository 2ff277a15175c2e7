"""What every test has: the `req` mark and the option that lists it (tests/requirements/plugin.py)."""

from hypothesis import settings

from tests.requirements.plugin import pytest_addoption, pytest_collection_modifyitems, pytest_configure

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_configure"]

# A loaded machine is slow, not wrong.
settings.register_profile("manglecp", deadline=None)
settings.load_profile("manglecp")
