"""What nodes answer, found in the bytes of the simulated connections."""
