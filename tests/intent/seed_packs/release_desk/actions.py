from manglecp import action


@action(effects=["none"])
def explain(build: int) -> dict[str, str]:
    """Explain why a build failed."""
    return {"build": str(build)}


@action(effects=["network"], egress=["deploy.test:443"])
def rerun(build: int) -> dict[str, int]:
    """Start a build again."""
    return {"build": build + 1}
