"""Notifications: an outbox that scripts write to, a policy of who is told what when, deliveries with retries.

Needs Redis. Emits messages through apprise and webhooks. Read: policy → guard → store → plan → deliver → keeper.
"""
