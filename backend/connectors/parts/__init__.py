"""Parts of connections that several connectors share."""
