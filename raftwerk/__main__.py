"""`python -m raftwerk` is the `raftwerk` command."""

from raftwerk.cli.main import main

if __name__ == "__main__":
    main()
