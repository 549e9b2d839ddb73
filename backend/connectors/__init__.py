"""The systems Headrace talks to: one file each, found by the registry."""
