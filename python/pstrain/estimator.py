"""Estimators of scikit-learn that train by `partial_fit`."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from .arrays import ArrayModel
from .task import Task

#: The attributes that hold parameters: of linear models, and of multi-layer perceptrons.
_ATTRIBUTES = ("coef_", "intercept_", "coefs_", "intercepts_")


def partial_fit(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    classes: Any = None,
    steps: int = 1,
    loss: Optional[Callable[..., Any]] = None,
) -> Task:
    """An estimator of scikit-learn as what `run`, `train` and `simulate` compute with.

    A worker sets the parameters that it received, calls `partial_fit` on the rows of its mini-batch
    `steps` times, and pushes the difference that it made. With the server's usual settings
    (`optimizer = sgd`, `learning-rate = auto`) the mean of the workers' differences is added,
    unscaled, to the parameters: federated averaging for `consistency="bsp"`.

    It is for estimators whose parameters are `coef_` and `intercept_` (SGDClassifier, SGDRegressor,
    Perceptron, PassiveAggressive...; not `average=True`, which keeps other sums), or `coefs_` and
    `intercepts_` (MLPClassifier, MLPRegressor). Their other state, such as the number of steps so
    far, is of each process alone. An estimator that has been fitted starts from what it learned.

    `loss(estimator, X, y)` is what is reported as the mean loss of rows, before the step. By default
    it is the share of wrong predictions of a classifier, and else the mean squared error.
    """
    import numpy
    import sklearn.base

    if getattr(estimator, "average", False):
        raise ValueError("average=True keeps sums that pstrain does not send: use average=False")
    X, y = numpy.asarray(X), numpy.asarray(y)
    options: Dict[str, Any] = {}
    is_classifier = sklearn.base.is_classifier(estimator)
    if is_classifier:
        options["classes"] = numpy.unique(y) if classes is None else numpy.asarray(classes)
    if not any(hasattr(estimator, name) for name in _ATTRIBUTES):
        _begin(estimator, X, y, options)

    def error(estimator: Any, X: Any, y: Any) -> float:
        wrong = estimator.predict(X) - y if not is_classifier else estimator.predict(X) != y
        return float(numpy.mean(numpy.square(wrong)))

    def gradient(params: Any, rows: Any) -> Any:
        _set(estimator, params)
        reported = (loss or error)(estimator, X[rows], y[rows])
        before = _get(estimator)
        for _ in range(steps):
            estimator.partial_fit(X[rows], y[rows], **options)
        after = _get(estimator)
        # Messages have 32-bit values.
        most = numpy.finfo(numpy.float32).max
        if not all((numpy.abs(part) <= most).all() for part in _parts(after)):
            raise FloatingPointError(
                f"the {type(estimator).__name__} has diverged: scale the columns of X "
                "(StandardScaler), or give a smaller learning rate (eta0)"
            )
        return reported, _difference(before, after)

    def evaluate(params: Any, rows: Any) -> Any:
        _set(estimator, params)
        chosen = slice(None) if rows is None else rows
        found = (loss or error)(estimator, X[chosen], y[chosen])
        if is_classifier:
            return found, estimator.score(X[chosen], y[chosen])
        return found

    model = ArrayModel(_get(estimator))
    finish = lambda: _set(estimator, model.params)  # noqa: E731
    return Task(model, len(X), gradient, evaluate, differences=True, finish=finish)


def _begin(estimator: Any, X: Any, y: Any, options: Dict[str, Any]) -> None:
    """Lets the estimator make its parameters, and sets those of linear models to 0."""
    estimator.partial_fit(X[:1], y[:1], **options)
    for name in ("coef_", "intercept_"):
        if hasattr(estimator, name):
            getattr(estimator, name)[...] = 0


def _get(estimator: Any) -> Dict[str, Any]:
    """Copies of the parameters, by attribute."""
    found = {name: getattr(estimator, name) for name in _ATTRIBUTES if hasattr(estimator, name)}
    copies = {name: _copy(value) for name, value in found.items()}
    if not copies:
        raise TypeError(f"{type(estimator).__name__} has neither coef_ nor coefs_")
    return copies


def _parts(params: Dict[str, Any]) -> List[Any]:
    """The arrays of the parameters."""
    values = params.values()
    return [part for it in values for part in (it if isinstance(it, list) else [it])]


def _copy(value: Any) -> Any:
    return [part.copy() for part in value] if isinstance(value, list) else value.copy()


def _set(estimator: Any, params: Dict[str, Any]) -> None:
    for name, values in params.items():
        own = getattr(estimator, name)
        pairs: List[Any] = list(zip(own, values)) if isinstance(own, list) else [(own, values)]
        for part, value in pairs:
            part[...] = value


def _difference(before: Any, after: Any) -> Any:
    if isinstance(before, dict):
        return {name: _difference(before[name], after[name]) for name in before}
    if isinstance(before, list):
        return [_difference(old, new) for old, new in zip(before, after)]
    return after - before

