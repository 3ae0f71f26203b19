"""`tradewind apply` as a process that can be killed, forked from a server that has everything imported."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.process import BaseProcess

PRELOAD = [
    "httpx2",
    "tests.cli.apply_process",
    "tradewind.cli.main",
    "tradewind.cli.apply_steps",
    "tradewind.flows.syntax",
    "tradewind.history.policy",
    "tradewind.models.model_file",
    "tradewind.points.channel_file",
    "tradewind.points.channel_store",
    "tradewind.points.driver_registry",
    "tradewind.points.secrets",
    "tradewind.rules.rule_file",
]


def run(url: str, folder: str) -> None:
    from tradewind.cli.main import main

    os.environ["TRADEWIND_URL"] = url
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.exit(main(["apply", "-f", folder, "--prune", "--start"]))


def start(url: str, folder: str) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    process = context.Process(target=run, args=(url, folder), daemon=True)
    process.start()
    return process
