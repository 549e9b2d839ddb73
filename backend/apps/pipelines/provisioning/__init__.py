"""Creates what versions need in other systems before they can be published."""
