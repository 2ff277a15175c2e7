"""Actions on a repository: read, search, outline, test, patch and commit."""
