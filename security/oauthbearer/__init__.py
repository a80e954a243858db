"""SASL/OAUTHBEARER (RFC 7628; KIP-255, KIP-768): tokens of an identity provider, verified here and asked for there."""
