"""Carries the configuration from the manager to the data plane: protocol, snapshot and client."""
