"""`python -m manglecp` is the `manglecp` command."""

from manglecp.cli import main

if __name__ == "__main__":
    main()
