"""Tests of this folder may be coroutines; those over the data of tau-bench are collected where its folder exists."""

from tests.examples.airline_data import DATA
from tests.invoke.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]

collect_ignore = [] if DATA.is_dir() else ["test_airline_data.py"]
