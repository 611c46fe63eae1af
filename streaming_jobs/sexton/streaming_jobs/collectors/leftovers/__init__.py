"""Leftovers: what lies under prefixes that were given up, of dropped tenants and of promises."""
