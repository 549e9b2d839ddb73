"""Consumer groups of the gateway's own: their members, assignments and committed offsets."""
