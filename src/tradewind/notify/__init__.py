"""Notifications: an outbox that scripts write to, a policy of who is told what when, deliveries with retries.

Needs Redis and the election of tasks. Emits messages through apprise and webhooks, faults on `station:faults`. Read:
message, policy → policy_check → job, plan → guard → webhook, services → courier → store → desk → term → keeper.
"""
