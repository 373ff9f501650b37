"""A whole cluster from one script or notebook: its server, its workers, and their links."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import subprocess
import tempfile
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Union

from .buffers import Rules
from .program import Program, Setting, flags
from .protocol import Connection
from .results import Results
from .session import Session, reason
from .task import Task, task_of


def train(
    gradient: Union[Task, Callable[..., Any]],
    params: Any = None,
    *,
    examples: Optional[int] = None,
    evaluate: Optional[Callable[..., Any]] = None,
    digest: Optional[str] = None,
    state: Any = None,
    combine: Optional[Rules] = None,
    differences: bool = False,
    out: Optional[str] = None,
    verbose: bool = False,
    **settings: Setting,
) -> Results:
    """Trains with a whole cluster on this machine, in real time, and returns its results.

    `gradient`, `params`, `examples`, `evaluate`, `state`, `combine` and `differences` are those of
    `pstrain.run`. This process computes for all workers, one at a time. Other arguments are the settings of `pstrain run`, with `_` for
    `-`, such as `workers=4, epochs=2, consistency="asp", links={"2": "delay=100ms"}`. The results
    are kept in the folder `out`, or without it for as long as the object lives. Afterwards a torch
    module has the final parameters; `Results.params` has them in the structure of `params`.
    An exception of a user's function ends the run, and is raised here.
    """
    task = task_of(gradient, params, examples, evaluate, digest, state, combine, differences)
    return _cluster("run", task, out, verbose, settings)


def simulate(
    gradient: Union[Task, Callable[..., Any]],
    params: Any = None,
    *,
    examples: Optional[int] = None,
    evaluate: Optional[Callable[..., Any]] = None,
    digest: Optional[str] = None,
    state: Any = None,
    combine: Optional[Rules] = None,
    differences: bool = False,
    out: Optional[str] = None,
    verbose: bool = False,
    **settings: Setting,
) -> Results:
    """Trains in virtual time, over modelled links, and returns the results.

    The arguments are those of `train`, and the settings those of `pstrain simulate`. `compute="3ms"`
    says how long a mini-batch takes; the time that the functions really take does not count.
    """
    task = task_of(gradient, params, examples, evaluate, digest, state, combine, differences)
    return _cluster("simulate", task, out, verbose, settings)


def _cluster(
    command: str,
    task: Task,
    out: Optional[str],
    verbose: bool,
    settings: Dict[str, Setting],
) -> Results:
    folder = tempfile.mkdtemp(prefix="pstrain-")
    results_in = out or os.path.join(folder, "results")
    path = os.path.join(folder, "process")
    try:
        arguments = [command, f"--process=unix:{path}", f"--out={results_in}"]
        # `quiet` may be among the settings, and a switch may be there once.
        arguments += flags(settings if verbose else {**settings, "quiet": True})
        output = None if verbose else subprocess.DEVNULL
        listener = socket.socket(socket.AF_UNIX)
        with contextlib.ExitStack() as stack:
            stack.callback(listener.close)
            listener.bind(path)
            listener.listen()
            program = stack.enter_context(
                Program(arguments, stdin=subprocess.DEVNULL, stdout=output)
            )
            # Before the program, whose workers would connect again and wait.
            stack.callback(listener.close)
            _serve(task, listener, program)
            program.wait()
        results = Results(results_in)
    except BaseException:
        shutil.rmtree(folder)
        raise
    if out is None:
        weakref.finalize(results, shutil.rmtree, folder, ignore_errors=True)
    else:
        shutil.rmtree(folder)
    results.params = _final(task, results)
    return results


def _serve(task: Task, listener: socket.socket, program: Program) -> None:
    """Answers the workers' requests in this thread, until the program has ended."""
    sessions: List[Session] = []
    with selectors.DefaultSelector() as selector:
        try:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(program.messages, selectors.EVENT_READ)
            for ready in _ready(selector):
                if ready.fileobj is listener:
                    stream = listener.accept()[0]
                    number = stream.fileno()
                    session = Session(task, Connection.of_socket(stream), raises=True)
                    sessions.append(session)
                    selector.register(number, selectors.EVENT_READ, session)
                elif ready.data is None:
                    if not program.forward():
                        return
                else:
                    _answer(ready.data)
                    if ready.data.ended:
                        selector.unregister(ready.fileobj)
                        ready.data.close()
        finally:
            for session in sessions:
                session.close()


def _ready(selector: selectors.BaseSelector) -> Iterator[Any]:
    while True:
        for key, _ in selector.select():
            yield key


def _answer(session: Session) -> None:
    """Answers one request."""
    step = session.answer()
    if step is not None:
        try:
            step.compute()
        except BaseException as error:
            if session.open is not None:
                step.refuse(reason(error))
            raise


def _final(task: Task, results: Results) -> Any:
    """Gives the model its final parameters. Returns them as the user's functions received them."""
    parameters = task.model.parameters
    for (name, _, start, end) in parameters.ranges():
        parameters.bytes[4 * start : 4 * end] = results.floats_of(name)
    task.model.load()
    if task.finish is not None:
        task.finish()
    results.beside = task.model.beside()
    return task.model.params
