"""The delivery engine: sends messages to their outputs, tries again, and gives up in writing."""
