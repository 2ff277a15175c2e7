"""The data of tau-bench is not part of the project: tests over it are collected where its folder exists."""

from tests.examples.airline_data import DATA

collect_ignore = [] if DATA.is_dir() else ["test_airline_data.py"]
