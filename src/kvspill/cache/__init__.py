"""Tiers with byte ledgers, placement, demotion and eviction policies."""
