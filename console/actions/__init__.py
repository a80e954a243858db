"""What a browser may ask of the cluster beside the live view, by its subject."""
