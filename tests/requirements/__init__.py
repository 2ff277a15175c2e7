"""The requirements as data: one row per requirement under `areas/`, and what holds tests and rows together.

A test names the rows it proves with `@pytest.mark.req("DATA-21")`; `python -m tests.requirements` prints
which rows have tests. docs/reference/requirements.md explains the whole.
"""
