from manglecp import action


@action(effects=["filesystem"], reversible=True)
def implement(phase_id: int, dry_run: bool = False) -> dict[str, list[str]]:
    """Write the files of a phase."""
    return {"files_created": [] if dry_run else [f"phase-{phase_id}"]}
