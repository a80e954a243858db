"""SASL: mechanisms as pure state machines from token to token, for servers and clients."""
