"""The read gateway: Kafka consumers read collections although no Kafka broker holds them.

docs/adr/0018-read-gateway.md gives the design. It reaches storage, API keys and committed offsets only through the
protocols of ports.py.
"""
