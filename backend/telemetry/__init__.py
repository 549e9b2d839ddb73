"""Live counts, last errors and job heartbeats: written by the data plane, read by the console.

They live in Redis and are for looking at; the truth about deliveries is in Kafka and PostgreSQL.
"""
