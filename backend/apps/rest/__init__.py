"""Shared building blocks of the REST APIs of all apps."""
