"""Who may use a cluster: delegation tokens."""
