"""The actions of the release pack: publish a file of the workspace, and deploy."""

from pathlib import Path
from typing import TypedDict

from manglecp import action


class Shown(TypedDict):
    text: str


@action(effects=["filesystem"], mutates=False)
def show(file: str) -> Shown:
    """Return the text of a file."""
    return {"text": Path(file).read_text(encoding="utf-8")}


@action(effects=["filesystem"], preview="show")
def publish(file: str, text: str = "") -> str:
    """Publish a file, if it still has the text that the approver read."""
    if Path(file).read_text(encoding="utf-8") != text:
        raise ValueError(f"{file} was changed")
    Path("published.txt").write_text(text, encoding="utf-8")
    return f"published {file}"


@action(effects=["filesystem"])
def deploy() -> str:
    """Deploy the release."""
    Path("deployed.txt").write_text("done", encoding="utf-8")
    return "deployed"
