"""The issuer's operations."""
