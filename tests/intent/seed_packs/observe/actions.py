from manglecp import action


@action(effects=[])
def look() -> str:
    """Look at the console."""
    return ""
