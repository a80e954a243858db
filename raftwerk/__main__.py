"""`python -m raftwerk` is the `raftwerk` command."""

import sys


def main() -> None:
    """Run the command. Ctrl-C while its modules are imported ends it as at any other time."""
    try:
        from raftwerk.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
