"""A proxy in front of a Kafka cluster: clients see a few proxy nodes instead of the brokers.

Requests that concern several brokers are split and their answers merged; every broker's address in an answer is
replaced by a proxy's. docs/adr/0010-kafka-proxy.md gives the design.
"""
