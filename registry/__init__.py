"""A schema registry with the HTTP interface and the topic of Confluent's."""
