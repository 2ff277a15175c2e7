"""What the workspace pack can do in a repository: read, search, outline, test, patch, commit."""

from .committing import commit
from .failures import parse_failures
from .history import git_diff, git_status
from .outlining import outline
from .patching import apply_patch, check_patch, make_patch, revert_patch
from .reading import read_range
from .searching import search, search_text
from .testing import compare_runs, run_tests

__all__ = [
    "apply_patch",
    "check_patch",
    "commit",
    "compare_runs",
    "git_diff",
    "git_status",
    "make_patch",
    "outline",
    "parse_failures",
    "read_range",
    "revert_patch",
    "run_tests",
    "search",
    "search_text",
]
