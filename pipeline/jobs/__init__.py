"""The jobs. Each module has options, a class with `start` for programs, and a `command` for the command line."""
