"""The data plane on Spark. Never imports Django."""
