"""A worker of a running server, which the script owns."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Any, Callable, Iterator, Optional, Type, TypeVar, Union

from .buffers import Rules
from .model import model_of
from .program import Program, Setting, flags
from .protocol import Connection
from .session import Session, Step, reason
from .task import Task, task_of

Function = TypeVar("Function", bound=Callable[..., Any])


class Worker:
    """A worker: iterate over it to receive the steps that the server gives out.

        with pstrain.Worker("gateway:7070", model=net, examples=len(data)) as worker:
            for step in worker:
                loss = loss_of(net, data, step.rows)
                loss.backward()
                step.push(loss)

    `server` is the server's address, or `-` if pstrain has started this script as its compute
    process (`--process 'python3 script.py -'`). Give a torch module as `model`, or arrays as
    `params`: a dictionary, which may have dictionaries and lists in it. `examples` is the number of
    examples, and `digest` a text that tells datasets apart: workers with another one are refused.
    `state` is what arrays have besides parameters, such as running means; that of a module is in its
    buffers. `combine` says by name how the states of several workers become one, where that is not
    `mean` for floating-point numbers and `first` for whole ones: `{"*.positions": "local"}`.
    With `differences=True` a step is training of its own, with an optimizer of its own, and
    what it changed is pushed: federated averaging. `evaluate` is for `-`: see the method of this name. Other options are those of `pstrain worker`,
    such as `tls="certificates/worker-1"`, `psk`, `insecure=True`, `id`, `name`, `lease`.
    """

    def __init__(
        self,
        server: str,
        *,
        model: Any = None,
        params: Any = None,
        examples: int,
        evaluate: Optional[Callable[..., Any]] = None,
        digest: Optional[str] = None,
        state: Any = None,
        combine: Optional[Rules] = None,
        differences: bool = False,
        **options: Setting,
    ) -> None:
        if (model is None) == (params is None):
            raise TypeError("give a torch module as model, or arrays as params")
        found = model_of(params if model is None else model, state, combine)
        self._start(server, Task(found, examples, None, evaluate, digest, differences), options)

    def _start(self, server: str, task: Task, options: Any) -> None:
        self._program: Optional[Program] = None
        if server == "-":
            connection = Connection.of_process()
        else:
            ours, theirs = socket.socketpair()
            connection = Connection.of_socket(ours)
            with theirs:
                arguments = ["worker", f"--server={server}", "--process=-", *flags(options)]
                self._program = Program(arguments, stdin=theirs, stdout=theirs)
            self._forwarding = threading.Thread(
                target=self._forward, args=[self._program], daemon=True
            )
            self._forwarding.start()
        self._session = Session(task, connection)

    @classmethod
    def of_task(cls, server: str, task: Task, **options: Setting) -> Worker:
        """A worker for a task, such as that of `partial_fit`."""
        worker = cls.__new__(cls)
        worker._start(server, task, options)
        return worker

    def evaluate(self, function: Function) -> Function:
        """Registers the function that evaluates the parameters, where the server asks this process.

        It is called with the rows that were held out, or None for all that the process evaluates
        on; the function of `params` with the parameters before that. It returns the mean loss,
        or (loss, accuracy), or a dictionary of `loss`, `accuracy`, `examples`, `recall` and `f1`.
        A torch module is in its evaluation mode meanwhile, and records no gradients.
        """
        self._session.task.evaluate = function
        return function

    @property
    def number(self) -> Optional[int]:
        """The number of this worker, from 0; known in the loop."""
        return self._session.job.get("worker")

    @property
    def workers(self) -> Optional[int]:
        """The number of workers of the job; known in the loop."""
        return self._session.job.get("workers")

    @property
    def seed(self) -> Optional[int]:
        """The seed of the job; known in the loop."""
        return self._session.job.get("seed")

    def __iter__(self) -> Iterator[Step]:
        session = self._session
        while not session.ended:
            step = session.answer()
            if step is not None:
                yield step
        self._finish()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        step = self._session.open
        if step is not None:
            why = "the script left its loop" if error is None else reason(error)
            try:
                step.refuse(why)
            except OSError:  # pstrain is gone: the error of the script matters more.
                pass
        self._session.close()
        if self._program is not None:
            self._program.stop()
            self._forwarding.join()
            self._program.messages.close()

    def _finish(self) -> None:
        self._session.close()
        if self._program is not None:
            # Its last messages are the reason of an error.
            self._forwarding.join()
            self._program.wait()

    @staticmethod
    def _forward(program: Program) -> None:
        while program.forward():
            pass


def run(
    server: str,
    gradient: Union[Task, Callable[..., Any]],
    params: Any = None,
    *,
    examples: Optional[int] = None,
    evaluate: Optional[Callable[..., Any]] = None,
    digest: Optional[str] = None,
    state: Any = None,
    combine: Optional[Rules] = None,
    differences: bool = False,
    **options: Setting,
) -> None:
    """Works for a server until the run has ended.

    `gradient(params, rows)` returns the mean loss of the rows, and its gradients in the structure
    of `params`: `jax.value_and_grad(loss)` is such a function. If `params` is a torch module,
    `gradient(rows)` returns the loss alone. A function that returns None leaves the mini-batch out,
    as dynamic loss scaling does after an overflow. Or `gradient` is what `pstrain.partial_fit` returns,
    and brings its parameters. With `state` the function is `gradient(params, state, rows)`, and
    returns the loss, the gradients and the new state; `evaluate` is a function of the same three.
    The other arguments are those of `Worker`.
    """
    task = task_of(gradient, params, examples, evaluate, digest, state, combine, differences)
    with Worker.of_task(server, task, **options) as worker:
        for step in worker:
            step.compute()
