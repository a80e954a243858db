"""The jobs. Each is a module with options, a `start` for programs and a `command` for people and `spark-submit`."""
