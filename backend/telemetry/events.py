"""What is counted, by pipeline: the names that writers and readers share."""

ACCEPTED = "input.accepted"
TRANSFORMED = "adapting.transformed"
DROPPED = "adapting.dropped"
ADAPTING_DEAD = "adapting.dead"


def delivered(output: str) -> str:
    return f"output.{output}.delivered"


def retried(output: str) -> str:
    return f"output.{output}.retried"


def dead(output: str) -> str:
    return f"output.{output}.dead"
