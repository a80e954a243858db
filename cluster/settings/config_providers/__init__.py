"""Values of settings that stand elsewhere: in files and in environment variables (KIP-297)."""
