"""Who a peer is, and what it may do: principals, TLS, SASL. Network and disk are used by the layers above."""
