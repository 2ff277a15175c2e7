"""What every test has: the `req` mark and the option that lists it (tests/requirements/plugin.py)."""

from hypothesis import settings

from tests.requirements.plugin import pytest_addoption, pytest_collection_modifyitems, pytest_configure

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_configure"]

# A loaded machine is slow, not wrong.
# The same examples every time: what fails here fails for everyone. Others are looked for by make soak.
settings.register_profile("manglecp", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("soak", deadline=None, max_examples=1_000)
settings.load_profile("manglecp")
