"""Protobuf schemas: texts and descriptors, and what can read what."""
