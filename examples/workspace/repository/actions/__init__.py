"""What can be done in a repository: read, search, outline, test, patch, commit."""
