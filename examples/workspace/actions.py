"""What the workspace pack can do in a repository: read, search, outline, test, patch, commit."""

from repository.actions.committing import commit
from repository.actions.failures import parse_failures
from repository.actions.history import git_diff
from repository.actions.outlining import outline
from repository.actions.patching import apply_patch, check_patch, make_patch, revert_patch
from repository.actions.reading import read_range
from repository.actions.searching import search, search_text
from repository.actions.testing import compare_runs, run_tests

__all__ = [
    "apply_patch",
    "check_patch",
    "commit",
    "compare_runs",
    "git_diff",
    "make_patch",
    "outline",
    "parse_failures",
    "read_range",
    "revert_patch",
    "run_tests",
    "search",
    "search_text",
]
