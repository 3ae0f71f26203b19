"""Mutation testing: makes one small mistake at a time in the product and sees whether a test notices.

`sites` finds the mistakes, `coverage_map` records which test runs which line, `selection` picks the tests that
can notice, `run` is the command.
Everything it writes stands in `.mutants/`.
"""
