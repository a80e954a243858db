"""Raftwerk: a Kafka-compatible, KRaft-style clustered broker."""

__version__ = "0.1.0"
