"""The tools of the pack. Which issue may be changed, and how, is decided by ``rules/policy``."""

from typing import Annotated, Any, Literal, TypedDict

from github_api import EGRESS, GitHub

from manglecp import Context, Limits, Secret, action

Token = Annotated[str, Secret("GITHUB_TOKEN")]
Number = Annotated[int, Limits(ge=1), "the number of the issue"]
Text = Annotated[str, Limits(min_length=1, max_length=20_000)]
Labels = Annotated[list[str], Limits(max_length=20)]


class Summary(TypedDict):
    number: int
    title: str
    labels: list[str]


class Comment(TypedDict):
    author: str
    body: str


class Issue(TypedDict):
    """An issue, for the model and for approvers."""

    title: str
    state: str
    labels: list[str]
    body: str
    comments: list[Comment]


@action(effects=["network"], mutates=False, egress=EGRESS)
def list_issues(context: Context, token: Token) -> list[Summary]:
    """List the open issues, the newest first."""
    rows = GitHub(token, **context.settings).rows("issues?state=open")
    return [
        Summary(number=row["number"], title=row["title"], labels=_labels(row["labels"]))
        for row in rows
        if "pull_request" not in row
    ]


@action(effects=["network"], mutates=False, egress=EGRESS)
def read_issue(context: Context, number: Number, token: Token) -> Issue:
    """Read an issue and its comments."""
    github = GitHub(token, **context.settings)
    issue = github.request("GET", f"issues/{number}")
    comments = github.rows(f"issues/{number}/comments")
    return Issue(
        title=issue["title"],
        state=issue["state"],
        labels=_labels(issue["labels"]),
        body=issue["body"] or "",
        comments=[Comment(author=row["user"]["login"], body=row["body"]) for row in comments],
    )


@action(effects=["network"], egress=EGRESS, preview="issue_now")
def comment(context: Context, number: Number, text: Text, token: Token) -> str:
    """Comment on an issue in public. Returns the address of the comment."""
    created = GitHub(token, **context.settings).request("POST", f"issues/{number}/comments", {"body": text})
    return str(created["html_url"])


@action(effects=["network"], idempotent=True, reversible=True, egress=EGRESS)
def label_issue(context: Context, number: Number, labels: Labels, token: Token) -> list[str]:
    """Replace the labels of an issue. Returns its labels."""
    return _labels(GitHub(token, **context.settings).request("PUT", f"issues/{number}/labels", {"labels": labels}))


@action(effects=["network"], idempotent=True, reversible=True, egress=EGRESS, preview="issue_now")
def close_issue(context: Context, number: Number, reason: Literal["completed", "not_planned"], token: Token) -> str:
    """Close an issue. Returns its state."""
    change = {"state": "closed", "state_reason": reason}
    return str(GitHub(token, **context.settings).request("PATCH", f"issues/{number}", change)["state"])


@action(effects=["network"], mutates=False, egress=EGRESS)
def issue_now(context: Context, number: Number, token: Token) -> Issue:
    """Read an issue for its approver."""
    return read_issue(context, number, token)


def _labels(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["name"] for row in rows)
