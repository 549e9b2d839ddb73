"""Turns staged messages into files: staging in Parquet, formats, and the steps by which a file is stored."""
