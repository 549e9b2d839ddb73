"""Outbound HTTP, and the policy on the addresses that it may reach."""
