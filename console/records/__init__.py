"""Records of topics: found, and shown in words."""
