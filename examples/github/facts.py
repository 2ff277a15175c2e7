"""The live facts of the github pack: open issues, their labels and pull requests, read from GitHub."""

import re
from collections.abc import Iterator
from typing import Annotated

from github_api import EGRESS, rows

from manglecp import Secret, facts

CLOSES = re.compile(r"\b(?:close|fix|resolve)[sd]?:? #(\d+)", re.IGNORECASE)


@facts("issue", "issue_label", "pull_request", "closes", "repository_label", every=30.0, egress=EGRESS)
def repository_state(repository: str, token: Annotated[str, Secret("GITHUB_TOKEN")]) -> Iterator[tuple[str | int, ...]]:
    """Read the open issues and pull requests, and the labels of the repository."""
    for row in rows(token, f"/repos/{repository}/issues?state=open"):
        number: int = row["number"]
        if "pull_request" in row:
            yield "pull_request", number, row["title"]
            for issue in set(CLOSES.findall(row["body"] or "")):
                yield "closes", number, int(issue)
            continue
        yield "issue", number, row["title"], row["user"]["login"]
        for label in row["labels"]:
            yield "issue_label", number, label["name"]
    for row in rows(token, f"/repos/{repository}/labels"):
        yield "repository_label", row["name"]
