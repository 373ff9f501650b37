"""Requests of one worker, or of a server's evaluations, and their answers."""

from __future__ import annotations

import traceback
from typing import Any, Dict, Optional

from .protocol import VERSION, Connection, ProtocolError
from .task import Task, evaluation, number


class Step:
    """A mini-batch to compute the gradient of.

    The model has the parameters of this step until the gradient is pushed.
    """

    def __init__(self, session: Session, number: int, rows: Any) -> None:
        self._session = session
        self._number = number
        #: Numbers of the examples of the mini-batch: a tensor for torch, else a numpy array.
        self.rows = session.task.model.numbers(rows)
        #: The parameters: the module, or the structure of arrays.
        self.params = session.task.model.params
        #: The state in the structure that was given; None for a module, which has its own.
        self.state = session.task.model.state

    def push(self, loss: Any, gradients: Any = None, state: Any = None) -> None:
        """Sends the gradient of the mean loss of the rows, and that loss.

        A torch module's gradients are those that `backward()` left in it, and its state is in its
        buffers. Others are given, in the structure of the parameters and of the state. With
        `differences=True`, the difference takes the place of the gradients: a module's is what
        training of its own has changed in its parameters.
        """
        model = self._session.task.model
        if self._session.task.differences and gradients is None:
            model.differ()
        else:
            model.collect(gradients, state)
        loss = number("loss", loss.detach() if hasattr(loss, "detach") else loss)
        self._session.task.trained(loss, len(self.rows))
        answer = {"id": self._number, "loss": loss}
        self._session.finish(self, answer, model.gradients.bytes)

    def skip(self, why: str = "the script skips it") -> None:
        """Leaves the mini-batch out, as dynamic loss scaling does after an overflow.

        The worker goes on with the next; after 16 in a row it leaves the run.
        """
        self._session.finish(self, {"id": self._number, "skip": why}, b"")

    def compute(self) -> None:
        """Calls the gradient function of the task, and pushes what it returns; None skips."""
        task = self._session.task
        assert task.gradient is not None
        found = task.model.gradient(task.gradient, self.rows)
        if found is None:
            self.skip("its function returned None")
        else:
            self.push(*found)

    def refuse(self, why: str) -> None:
        """Says that there is no gradient: the worker leaves the run with this reason."""
        self._session.finish(self, {"id": self._number, "error": why}, b"")


class Session:
    """The requests on one connection."""

    def __init__(self, task: Task, connection: Connection, raises: bool = False) -> None:
        self.task = task
        #: True if an exception of an evaluation is raised here, and not only told.
        self.raises = raises
        self._connection = connection
        #: True once pstrain has said goodbye.
        self.ended = False
        #: The step that is not pushed yet.
        self.open: Optional[Step] = None
        #: What pstrain said of the job: number of the worker and of workers, seed.
        self.job: Dict[str, Any] = {}

    def answer(self) -> Optional[Step]:
        """Reads one request. Answers it, unless it asks for a gradient: returns that step."""
        if self.open is not None:
            raise RuntimeError("the last step has no gradient yet: call step.push(loss) in the loop")
        request = self._connection.read_line()
        do = "bye" if request is None else request.get("do")
        if request is None or do == "bye":
            self.ended = True
        elif do == "hello":
            self._hello(request)
        elif do == "start":
            self._connection.write({}, self.task.initial)
        elif do in ("gradient", "evaluate"):
            rows = self._receive(request)
            if do == "gradient":
                self.open = Step(self, request["id"], rows)
                return self.open
            self._evaluate(request["id"], rows)
        else:
            raise ProtocolError(f"pstrain asks for {do!r}, which this version does not know")
        return None

    def finish(self, step: Step, answer: Dict[str, Any], values: Any) -> None:
        """Sends the answer to a step."""
        if step is not self.open:
            raise RuntimeError("this step has been pushed before")
        self._connection.write(answer, values)
        self.open = None

    def close(self) -> None:
        """Closes the connection."""
        self.ended = True
        self._connection.close()

    def _hello(self, request: Dict[str, Any]) -> None:
        if request.get("protocol") != VERSION:
            why = f"the Python module speaks protocol {VERSION}, not {request.get('protocol')}"
            self._connection.write({"error": why})
            raise ProtocolError(f"{why}: install the module of the same version")
        self.job = request
        self._connection.write(self.task.description())

    def _receive(self, request: Dict[str, Any]) -> Any:
        """Receives parameters, and the numbers of rows."""
        model = self.task.model
        if request["values"] != model.parameters.size:
            raise ProtocolError(
                f"pstrain sent {request['values']} parameters, the model has {model.parameters.size}"
            )
        self._connection.read_into(model.parameters.bytes)
        model.load()
        after = request.get("rows_after")
        return self._connection.read_rows(after) if after else request.get("rows")

    def _evaluate(self, request: int, rows: Any) -> None:
        task = self.task
        if task.evaluate is None:
            found = None if rows is not None else task.training_loss()
            if found is not None:
                self._connection.write({"id": request, **found})
                return
            why = "the script has no function that evaluates: give one to Worker.evaluate"
            self._connection.write({"id": request, "error": why})
            return
        try:
            found = task.model.evaluate(task.evaluate, rows)
            examples = task.examples if rows is None else len(rows)
            message = evaluation(found, examples)
        except Exception as error:
            self._connection.write({"id": request, "error": reason(error)})
            if self.raises:
                raise
            traceback.print_exc()  # A run goes on without evaluations.
            return
        self._connection.write({"id": request, **message})


def reason(error: BaseException) -> str:
    """An exception in one line, for pstrain's messages."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
