"""A proxy in front of a Kafka cluster: clients see a few proxy nodes instead of the brokers (KafkaSinkCluster).

Requests that concern several brokers are split and their answers put together again; every address in an answer is
a proxy's.
"""
