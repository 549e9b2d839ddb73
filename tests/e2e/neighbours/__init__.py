"""A pipeline that gets every hostile message, request and answer that is known, and what has to become of each."""
