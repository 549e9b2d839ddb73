"""The configuration's way from the manager to the data plane: protocol, snapshot and client."""
