"""What every call to a system outside shares: circuit breaker, rate limit, retries and bounded shares."""
