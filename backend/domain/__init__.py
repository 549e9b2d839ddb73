"""The pure core: configuration models, routing, transforms and masking.

Imports nothing else of Headrace, and neither Django nor Spark, so that every
process can share one meaning of a pipeline.
"""
