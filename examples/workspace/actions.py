"""The actions of the workspace pack: read, search, outline, test, patch and commit."""

from repository.actions.commit_previews import preview_commit
from repository.actions.commits import commit
from repository.actions.failures import parse_failures
from repository.actions.history import git_diff
from repository.actions.line_ranges import read_range
from repository.actions.outlines import outline
from repository.actions.patches import apply_patch, check_patch, make_patch, revert_patch
from repository.actions.pytest_runs import compare_runs, run_tests
from repository.actions.text_search import search, search_text

__all__ = [
    "apply_patch",
    "check_patch",
    "commit",
    "compare_runs",
    "git_diff",
    "make_patch",
    "outline",
    "parse_failures",
    "preview_commit",
    "read_range",
    "revert_patch",
    "run_tests",
    "search",
    "search_text",
]
