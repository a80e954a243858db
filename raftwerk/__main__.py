"""`python -m raftwerk` is the `raftwerk` command."""

from raftwerk.cluster.cli import main

if __name__ == "__main__":
    main()
