"""Commands in the test's own process, whose measuring processes are shared by tests: to start one is to import torch, for a second.

A shared process is as real as any: it does each request in a fork, which alone imports the plugins, so nothing stays from one test to the
next. For tests of what is measured, judged and said. Those of processes and their layouts, of isolation, of signals, and of what a fresh
interpreter finds call `front_door.dlbench`.
"""

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import front_door

from dlbench.cli import session
from dlbench.harness import pool, runner
from dlbench.harness.probe.sampler import Window
from dlbench.harness.process.launch import Interruption
from dlbench.harness.process.wire import PrepareRequest, Request
from dlbench.harness.process.worker_process import START_S, Interpreter, RequestOutcome, WorkerProcess

_STARTED: dict[object, WorkerProcess] = {}
_MOST = 4
"""At a time, which is more than a command uses: beyond that, the one that was not used for longest ends."""
_HERE = Interpreter(folder=front_door.ROOT)


class Lent:
    """What a command gets in place of a process of its own: one that outlives it."""

    mode = "fork"

    def __init__(self, mode: str, threads: int, seed: int, interruption: Interruption, interpreter: Interpreter = _HERE) -> None:
        environ = {name: value for name, value in interpreter.environment().items() if name != "PYTEST_CURRENT_TEST"}
        folder = interpreter.folder or (Path.cwd() if interpreter.environ else front_door.ROOT)
        self.interpreter = replace(interpreter, environ=environ, folder=folder)
        key = (threads, interpreter.python, folder, interpreter.imports_from_folder, frozenset(environ.items()))
        process = _STARTED.pop(key, None)
        while len(_STARTED) >= _MOST:
            _STARTED.pop(next(iter(_STARTED))).end()
        if process is None or not process.usable:
            process = WorkerProcess("fork", threads, seed, Interruption(), self.interpreter)
        self._process = _STARTED[key] = process

    @property
    def usable(self) -> bool:
        return self._process.usable

    def send(self, request: Request) -> None:
        # The command's folder is not the process's. What the process itself imports would stay for the next test.
        files = {each: str(Path(each).resolve()) for each in request.plugins if Path(each).is_file()}
        plugins = () if isinstance(request, PrepareRequest) else tuple(files.get(each, each) for each in request.plugins)
        self._process.send(replace(request, plugins=plugins))

    def answer(self, deadline_s: float = START_S, run_ends: float = math.inf, window: Window | None = None) -> RequestOutcome:
        return self._process.answer(deadline_s, run_ends, window)

    def ask(self, request: Request, *limits: Any, **more: Any) -> RequestOutcome:
        self.send(request)
        return self.answer(*limits, **more)

    def end(self) -> None:
        """Leave it to the next command."""

    def __enter__(self) -> "Lent":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def dlbench(*arguments: str, cwd: Path, variables: Mapping[str, str] = MappingProxyType({})) -> front_door.Done:
    """Run the command to its end as `front_door.dlbench` does, but in this process and with shared ones to measure in."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict("os.environ", front_door.environment(**{"COLUMNS": "100000", **variables}), clear=True))
        for module in (session, pool, runner):
            stack.enter_context(mock.patch.object(module, "WorkerProcess", Lent))
        return front_door.in_process(cwd, *arguments)


def end_all() -> None:
    """End the shared processes."""
    while _STARTED:
        _STARTED.popitem()[1].end()


def run(folder: Path, *arguments: str, code: int = 0, **options: Any) -> tuple[front_door.Done, list[dict[str, Any]]]:
    """Measure to the end as `front_door.run` does."""
    return front_door.run(folder, *arguments, code=code, by=dlbench, **options)
