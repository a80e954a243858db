"""What the settings say of SASL mechanisms with optional libraries. It is imported where they are used."""
