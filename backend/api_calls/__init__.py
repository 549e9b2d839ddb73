"""What transforms that wait are given: external APIs, and what is remembered of other messages."""
