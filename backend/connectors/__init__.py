"""The systems Headrace talks to: one file each, discovered by the registry."""
