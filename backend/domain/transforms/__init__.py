"""The transforms a pipeline can apply to a message: one file each, pure Python.

A step is compiled once per pipeline version and maps a JSON document to the documents that go
on: one, several, or none when the message is dropped.
"""
