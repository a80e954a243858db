"""The exit codes of a node's process, for the process itself and for those that start it."""

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_BAD_CONFIG = 2
