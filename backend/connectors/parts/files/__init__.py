"""Files of a store: how they are listed, read as records, and written."""
