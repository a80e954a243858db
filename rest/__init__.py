"""A REST proxy: the HTTP interface of Confluent's REST proxy, in front of a cluster."""
