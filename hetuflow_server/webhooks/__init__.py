"""Webhooks: definitions, deliveries, receipts."""
