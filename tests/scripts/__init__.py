"""Tests of the developer tools in `scripts`."""
