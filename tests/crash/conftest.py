"""The store of some of these tests is a PostgreSQL."""

from tests.store.postgres import postgres_url

__all__ = ["postgres_url"]
