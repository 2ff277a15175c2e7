"""The fact generator of the workspace pack: a repository scan, repeated while the server runs."""

from collections.abc import Iterator
from pathlib import Path

from repository.scan.scan_facts import ScanPart
from repository.scan.scanner import Scanner, Settings

from manglecp import Part, Progress, facts

_scanners: dict[tuple[Path, Path | None, Settings], Scanner] = {}


@facts(
    *("file", "unreadable", "syntax_error", "odd_name", "link", "symbol", "module", "base_name"),
    *("subject", "in_package", "imports", "imports_file", "test_file", "conftest_of", "test", "tests_symbol"),
    *("config_file", "lock_file", "generated", "secret_in", "small_name", "many_files"),
    *("changed", "changed_symbol", "staged", "renamed", "under_way", "head", "current_branch", "default_branch"),
    *("last_change", "authors", "churn", "owner", "invalid_owners"),
    *("protected_path", "protected_start", "protected_end", "area_path", "area_start", "area_end", "limit_of_tests"),
    every=1.0,
    seconds=600.0,
    changes=True,
    spawn=["git"],
)
def scan(
    root: Path,
    git_dir: str,
    protected: str,
    area: str,
    default_branch: str,
    protected_branches: str,
    history: int,
    many: int,
    test_seconds: int,
    test_memory: int,
    *,
    cache: Path | None,
) -> Iterator[Part | Progress]:
    """Scan the repository: its files, definitions, tests, changes, history and owners."""
    branches = f"{default_branch} {protected_branches}"
    settings = Settings(protected, area, branches, git_dir, history, many, test_seconds, test_memory)
    key = (root, cache, settings)
    if key not in _scanners:
        _scanners[key] = Scanner(root, cache, settings)
    for item in _scanners[key].scan():
        yield Part(*item) if isinstance(item, ScanPart) else Progress(*item)
