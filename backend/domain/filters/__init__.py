"""Filters: pipelines subscribe to the indexed fields of other pipelines' messages (seed 003, "Filtering")."""
