"""Resilience of every call to an external system: circuit breaker, rate limit, retries and bulkheads."""
