r"""Generalised linear models: networks of one layer with default priors and algorithms.

\[ y_i \sim p(y \mid f_i), \qquad f_i = b + \sum_j w_j \frac{x_{ij} - \bar x_j}{s_j} \]
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from lamu.algorithms.closed_form.conjugate import conjugate
from lamu.algorithms.closed_form.linear_regression import linear_posterior
from lamu.algorithms.optimisers import map_estimate
from lamu.algorithms.post_hoc.laplace import laplace
from lamu.data.arrays import readable, warn_of_scale
from lamu.data.stream import by_name, column_names
from lamu.data.wording import nearest
from lamu.folds import in_units
from lamu.likelihoods import Gaussian, Likelihood, Ordinal, Scaled
from lamu.likelihoods.table import LIKELIHOODS, OTHER_NAMES
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import Linear
from lamu.posterior import Posterior
from lamu.priors import Normal
from lamu.protocol import Algorithm
from lamu.running.compiled_steps import keys_of
from lamu.running.conclusion import warn_constant
from lamu.supports import value_of
from lamu.typing import Inputs, Targets

__all__ = ["linear_model", "regression"]

_STEPS = 200
_SLOPES, _INTERCEPT = 2.5, 10.0


def regression(
    x: Inputs,
    y: Targets,
    likelihood: str | Likelihood = "gaussian",
    *,
    weight: object = None,
    offset: object = None,
    prior: object = None,
    algorithm: Algorithm | None = None,
    seed: int = 0,
) -> Posterior:
    r"""Fits a generalised linear model and returns its posterior.

    Columns are standardised, and so is a real-valued target; predictions are in the units of the data. The default
    prior is then weak: \(w_j \sim N(0, 2.5^2)\) and \(b \sim N(0, 10^2)\), the scales of Gelman et al. (2008). For a
    Under a reciprocal or square root link both are about the constant model, in steps of about one in log μ. For a
    Gaussian with unknown noise it is \(w_j \sim N(0, s^2)\) with one s for all columns and \(b \sim N(0, 1000^2)\).
    There \(\log s\) and \(\log \sigma\) are uniform, s from \(0.03 / \sqrt D\) to 10 and σ from \(10^{-4}\) to
    \(10^3\), so that intervals hold their level from two rows on, whatever the number of columns.

    | likelihood | posterior |
    |---|---|
    | Gaussian, unknown noise | noise and s integrated over, then one Normal–Gamma: predictions are Student's t |
    | the same with a `prior` | the noise integrated over |
    | Gaussian, given noise | exact (`conjugate`) |
    | any other | Laplace's approximation at the mode; for few rows one learned dispersion is integrated over |
    | with `algorithm=lamu.mcmc.nuts()` | draws |

    Args:
        x: columns of numbers, `[N, D]`: an array, or a frame of pandas, whose columns predictions then find by name.
        y: targets `[N]`, or a mapping where rows have more: `{"value": successes, "trials": n}`.
        likelihood: a name, as for `lamu fit --likelihood`, or a likelihood. The scale of a given Gaussian is in
            standard deviations of the target.
        weight: the weight of each row, `[N]`: a weight of two equals the row written twice. Ones where None.
        offset: a known part of f and in its units, `[N]` or `[N, outputs]`, such as the log of an exposure. Predictions
            take their own, `posterior.predict(x, offset=...)`, by default zero.
        prior: of the weights; the one above where None.
        algorithm: the algorithm; as in the table where None.
        seed: of the algorithm.

    Returns:
        The posterior. The weights, per standard deviation of a column, are `posterior.mean["network"]["layers"][0]`.

    Raises:
        ValueError: for an unknown name, columns that are not numbers, or targets outside the likelihood's support.

    Warns:
        UserWarning: for a Gaussian with unknown noise whose targets do not vary, for instance a single row.
        FewRows: for rare events: a class, or a sum of counts, below five and below a tenth of the rows.

    Source: McCullagh & Nelder (1989); Gelman, Jakulin, Pittau & Su (2008), for the scales of the prior.

    Examples:
        >>> import lamu, numpy as np
        >>> random = np.random.default_rng(0)
        >>> x = random.normal(size=(200, 2))
        >>> posterior = lamu.regression(x, random.poisson(np.exp(x[:, 0])), likelihood="poisson")
        >>> posterior.predict(x[:3]).mean.shape
        (3,)
        >>> lamu.regression(x, x[:, 0] + random.normal(size=200)).predict(x[:3]).interval(0.9)[0].shape
        (3,)
    """
    x, y = _numbers(readable(x)), readable(y)
    beside = {name: part for name, part in (("weight", weight), ("offset", offset)) if part is not None}
    model = linear_model(x, y, likelihood, prior, **beside)
    if algorithm is None and _learns_noise(model, y):
        rows = np.asarray(by_name(x, model.columns))
        read = {"x": x if rows.shape[1] else np.zeros((len(rows), 1)), "y": y, **beside}
        model.read(read)  # refuses invalid data
        if weight is not None:
            warn_of_scale(np.asarray(weight, float))
        remedy = "give more rows, or the noise, lamu.likelihoods.Gaussian(scale)"
        warn_constant(np.asarray(y), f"intervals are those of a noise of about one unit of y; {remedy}")
        return linear_posterior(model, rows, np.asarray(y), keys_of(seed)[3], **beside, learn_scale=prior is None)
    options: dict[str, Any] = {}
    if algorithm is None:
        algorithm = _default(model, y)
        if algorithm.traits.batching != "once":
            options = {"steps": _STEPS, "batch_size": len(x)}
    return fit(model, {"x": x, "y": y, **beside}, algorithm, seed=seed, **options).posterior


def linear_model(
    x: Inputs,
    y: Targets,
    likelihood: str | Likelihood,
    prior: Any = None,
    weight: object = None,
    offset: object = None,
) -> Model:
    """Returns the model of one layer, its columns standardised, under the prior of `regression`.

    Args:
        x: columns of numbers.
        y: targets, as for `regression`.
        likelihood: a name or a likelihood.
        prior: of the weights; None for the default.
        weight: the weight of each row in the standardisation of columns; ones where None.
        offset: as for `regression`.

    Raises:
        ValueError: for an unknown name.

    Examples:
        >>> import numpy as np
        >>> from lamu.one_layer import linear_model
        >>> linear_model(np.ones((3, 1)), [0, 2, 1], "ordinal").likelihood.classes
        3
    """
    kind = _named(likelihood, y) if isinstance(likelihood, str) else likelihood
    bias = not isinstance(kind, Ordinal)  # whose cut-points are the intercepts
    default = Normal({"*bias": _INTERCEPT, "*": _SLOPES} if bias else _SLOPES)
    model = Model(Linear(bias=bias), kind, default if prior is None else prior).standardised(x, y, weight)
    if np.shape(x)[1:] == (0,) and not _learns_noise(model, y):
        raise ValueError(
            f"x has no column, which only a Gaussian of unknown noise may do without, and here is {kind.name}; give "
            "one of zeros, np.zeros((len(y), 1))"
        )
    rows = {"x": x, "y": y, "weight": weight, "offset": offset}
    return in_units(model, {name: part for name, part in rows.items() if part is not None}) if prior is None else model


def _named(name: str, y: Targets) -> Likelihood:
    if name not in LIKELIHOODS:
        raise ValueError(f"there is no likelihood {name!r}; {nearest(name, LIKELIHOODS, OTHER_NAMES)}")
    task, make = LIKELIHOODS[name]
    if task != "classes":
        return make(0)
    values = np.asarray(value_of(y))
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.number):
        raise ValueError(
            f"the target {values.ravel()[:1].tolist()} is not a number of a class, and {name} takes whole numbers "
            "from 0; encode the classes, names, y = np.unique(y, return_inverse=True)"
        )
    return make(int(np.max(values, initial=1)) + 1)


def _default(model: Model, y: Targets) -> Algorithm:
    if model.quadratic and not isinstance(y, Mapping) and not model.likelihood.init(np.asarray(y, float)):
        return conjugate()
    return _laplace()


@cache
def _laplace() -> Algorithm:
    """Returns one cached algorithm for all calls, since new closures of optax would be compiled again."""
    import optax

    return laplace(map_estimate(optax.lbfgs()))


def _learns_noise(model: Model, y: Targets) -> bool:
    """Whether the likelihood is a Gaussian with unknown noise."""
    return not isinstance(y, Mapping) and isinstance(model.likelihood, Scaled) and _is_learned(model.likelihood.base)


def _is_learned(likelihood: Likelihood) -> bool:
    return isinstance(likelihood, Gaussian) and likelihood.scale is None


def _numbers(x: Inputs) -> Any:
    """Returns inputs with the Booleans of a frame as numbers; refuses columns that are not numbers."""
    names = column_names(x)
    if names is None:
        if np.ndim(x) != 2:
            raise ValueError(f"x has the shape {np.shape(x)}; give [rows, columns], a single one as x[:, None]")
        return x
    columns = [np.asarray(x[name]) for name in names]
    for name, column in zip(names, columns, strict=True):
        if not (np.issubdtype(column.dtype, np.number) or column.dtype == bool):
            raise ValueError(
                f"the column {name!r} holds {column[:1].tolist()}, which is not a number; code it, for instance "
                "x = pandas.get_dummies(x, drop_first=True)"
            )
    return x.astype(float) if any(column.dtype == bool for column in columns) else x
