"""Where a pipeline's messages come from: one file for each kind of input."""
