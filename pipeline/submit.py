"""The script for `spark-submit [...] submit.py JOB [...]`, with the arguments of `raftwerk pipeline run`.

The import is absolute because Spark runs a file, not a module of a package.
"""

from __future__ import annotations

from raftwerk.pipeline.cli import run

if __name__ == "__main__":
    run(prog_name="submit.py")
