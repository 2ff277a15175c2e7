"""The tools of the github pack. Whether an issue may be answered, labelled or closed is a matter of ``rules/policy``."""

from typing import Annotated, Literal, TypedDict

from github_api import EGRESS, request, rows

from manglecp import Context, Limits, Secret, action

Token = Annotated[str, Secret("GITHUB_TOKEN")]
Number = Annotated[int, Limits(ge=1), "the number of the issue"]
Text = Annotated[str, Limits(min_length=1, max_length=20_000)]


class Comment(TypedDict):
    author: str
    text: str


class Issue(TypedDict):
    title: str
    state: str
    author: str
    labels: list[str]
    text: str
    comments: list[Comment]


class IssueNow(TypedDict):
    """What an approver sees of an issue."""

    title: str
    state: str
    labels: list[str]
    last_comment: str
    updated_at: str


def _path(context: Context, number: int) -> str:
    return f"/repos/{context.settings['repository']}/issues/{number}"


@action(effects=["network"], mutates=False, egress=EGRESS)
def read_issue(context: Context, number: Number, token: Token) -> Issue:
    """Return an issue with its comments."""
    path = _path(context, number)
    issue = request(token, "GET", path)
    return Issue(
        title=issue["title"],
        state=issue["state"],
        author=issue["user"]["login"],
        labels=[label["name"] for label in issue["labels"]],
        text=issue["body"] or "",
        comments=[Comment(author=row["user"]["login"], text=row["body"]) for row in rows(token, f"{path}/comments")],
    )


@action(effects=["network"], mutates=False, egress=EGRESS, tool=False)
def issue_now(context: Context, number: Number, token: Token) -> IssueNow:
    """Return the state of an issue for its approver."""
    path = _path(context, number)
    issue = request(token, "GET", path)
    texts = [row["body"] for row in rows(token, f"{path}/comments")]
    return IssueNow(
        title=issue["title"],
        state=issue["state"],
        labels=[label["name"] for label in issue["labels"]],
        last_comment=texts[-1] if texts else "",
        updated_at=issue["updated_at"],
    )


@action(effects=["network"], egress=EGRESS, preview="issue_now")
def comment(context: Context, number: Number, text: Text, token: Token) -> str:
    """Comment on an issue, in public. Returns the address of the comment."""
    return str(request(token, "POST", f"{_path(context, number)}/comments", {"body": text})["html_url"])


@action(effects=["network"], idempotent=True, reversible=True, egress=EGRESS)
def label_issue(context: Context, number: Number, labels: Annotated[list[str], Limits(max_length=20)], token: Token) -> list[str]:
    """Set the labels of an issue. Returns all its labels."""
    answer = request(token, "PUT", f"{_path(context, number)}/labels", {"labels": labels})
    return [label["name"] for label in answer]


@action(effects=["network"], idempotent=True, reversible=True, egress=EGRESS, preview="issue_now")
def close_issue(
    context: Context, number: Number, reason: Literal["completed", "not_planned"], token: Token
) -> str:
    """Close an issue. Returns its state."""
    answer = request(token, "PATCH", _path(context, number), {"state": "closed", "state_reason": reason})
    return str(answer["state"])
