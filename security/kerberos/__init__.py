"""SASL/GSSAPI (Kerberos): the exchange on both sides, and how the names of Kerberos become those of users."""
