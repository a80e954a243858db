"""Streaming writes in transactions that the driver commits, so that each micro-batch is in the topics once."""
