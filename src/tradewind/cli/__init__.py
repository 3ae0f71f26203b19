"""The command line: one file per command group. It needs a station's HTTP address (`http.py`), nothing else.

Only `up`, `run`, `demo`, `config` and `doctor` look at settings. Heavy modules are imported inside the commands.
"""
