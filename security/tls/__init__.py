"""Certificates and keys, in the formats that Kafka takes."""
