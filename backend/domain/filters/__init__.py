"""Filters: a pipeline subscribes to other pipelines' messages by conditions on their indexed fields."""
