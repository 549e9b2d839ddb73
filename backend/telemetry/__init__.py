"""Live counts, last errors and job heartbeats: written by the data plane, read by the console.

They are kept in Redis and only serve observation; the authoritative records are in Kafka and PostgreSQL.
"""
