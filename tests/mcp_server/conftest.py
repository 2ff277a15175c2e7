"""Tests of this folder may be coroutines."""

from tests.invoke.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
