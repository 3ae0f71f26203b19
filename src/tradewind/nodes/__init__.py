"""The built-in node types, one file per family. Importing this package registers them (entry point `tradewind.nodes`).

Needs the node SDK of `flows`, the expressions of `expr`, and the rooms of points and models. Emits nothing by itself.
"""

from __future__ import annotations

from tradewind.nodes.aggregate import Aggregate
from tradewind.nodes.approval import Approval
from tradewind.nodes.constant import Constant
from tradewind.nodes.control import Condition, Delay, Switch
from tradewind.nodes.expression import ExpressionNode
from tradewind.nodes.fan_out import Map
from tradewind.nodes.http_request import HttpRequest
from tradewind.nodes.log_line import LogLine
from tradewind.nodes.points import ModelRead, PointRead, SendCommand
from tradewind.nodes.python_node import PythonNode
from tradewind.nodes.subflow import Subflow

__all__ = [
    "Aggregate", "Approval", "Condition", "Constant", "Delay", "ExpressionNode", "HttpRequest", "LogLine", "Map",
    "ModelRead", "PointRead", "PythonNode", "SendCommand", "Subflow", "Switch",
]  # fmt: skip
