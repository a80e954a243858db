"""What `spark-submit` is given: `spark-submit [...] submit.py JOB [...]`, with the words of `raftwerk pipeline run`.

Spark runs a file, not a module of a package, hence the absolute import.
"""

from __future__ import annotations

from raftwerk.pipeline.cli import run

if __name__ == "__main__":
    run(prog_name="submit.py")
