"""The live facts of the pack: open issues, their labels, and open pull requests, read from GitHub."""

import re
from collections.abc import Iterator
from typing import Annotated

from github_api import EGRESS, GitHub

from manglecp import Secret, facts

CLOSES = re.compile(r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):? #(\d{1,9})\b", re.IGNORECASE)


@facts("issue", "issue_label", "pull_request", "closes", "repository_label", egress=EGRESS)
def repository_state(
    api: str, repository: str, ca: str, token: Annotated[str, Secret("GITHUB_TOKEN")]
) -> Iterator[tuple[str | int, ...]]:
    """Read the open issues and pull requests, and the labels of the repository."""
    github = GitHub(token, api, repository, ca)
    for row in github.rows("issues?state=open"):  # GitHub lists pull requests as issues
        number: int = row["number"]
        if "pull_request" in row:
            yield "pull_request", number, row["title"]
            for issue in sorted(set(CLOSES.findall(row["body"] or ""))):
                yield "closes", number, int(issue)
        else:
            yield "issue", number, row["title"]
            for label in row["labels"]:
                yield "issue_label", number, label["name"]
    for row in github.rows("labels"):
        yield "repository_label", row["name"]
