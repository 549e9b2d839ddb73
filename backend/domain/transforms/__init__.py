"""The transforms that a pipeline can apply to messages: pure Python, one file each.

A step is compiled once per pipeline version. It maps a JSON document to the resulting documents: one, several, or
none if the message is dropped.
"""
