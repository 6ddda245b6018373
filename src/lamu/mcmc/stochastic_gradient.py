"""Stochastic-gradient samplers: Langevin dynamics, plain and preconditioned, and Hamiltonian ones."""

from __future__ import annotations

from collections.abc import Callable

from lamu.mcmc.dynamics import Dynamics, Friction, Overdamped, Thermostat, dynamics
from lamu.mcmc.gradients import GradientEstimate
from lamu.mcmc.step_sizes import AnyStepSize, CurvatureStepSize, FrozenAfterWarmup, Preconditioner, RootMeanSquare
from lamu.protocol import recipe
from lamu.typing import Number, Params

__all__ = ["psgld", "sghmc", "sgld", "sgnht"]


@recipe("Welling & Teh 2011, equation 4")
def sgld(
    step_size: AnyStepSize = None,
    chains: int = 4,
    warmup: int = 4000,
    draws: int = 200,
    thinning: int = 100,
    gradient: GradientEstimate | None = None,
    noise_estimate: Number | Callable[..., Params] | None = None,
    start: Params = None,
    shared_batches: bool = False,
) -> Dynamics:
    r"""Stochastic-gradient Langevin dynamics: SGD, with as much noise as makes its path a sample of the posterior.

    \[ \theta \leftarrow \theta - \epsilon_t\, \hat g(\theta) + \sqrt{2 \epsilon_t\, T / N}\;\xi, \qquad
       \xi \sim \mathcal N(0, I) \]

    with \(\hat g\) a minibatch gradient of the mean loss \(\ell/N\), so that ε is a learning rate, the same at every N,
    and the target is \(\exp(-\ell/T)\). One gradient and one normal draw a parameter, chain and step; nothing is
    rejected. Welling and Teh's step size is \(2 \epsilon T/N\) here.

    The bias falls as ε: on a quadratic loss with curvature h a row the variance is too large by a factor
    \((1 - \epsilon h/2)^{-1}\), and by about \(\epsilon V N / (2T)\) more where batches are drawn independently and
    their gradients have the variance V; an epoch's batches are shuffled here, and what they add is less where a chain
    needs many epochs to forget. Without a step size, the warm-up learns one from the largest curvature, for which both
    errors stay near five per cent of the variance (`CurvatureStepSize`); how fast that explores is for the condition
    number and the number of batches to say, and an ill-conditioned posterior needs more `thinning`. Steps that fall as
    `Polynomial` reach the target in the end; `Cyclical` ones reach other modes (cyclical SGLD).

    Departures from the rule: it is no row of the rule; it draws from what the rule's rows approximate.

    Args:
        step_size: ε a row: a number, `Polynomial`, `Cyclical`, or a function of the step; None where the warm-up learns
            it from the curvature (`CurvatureStepSize()`).
        chains: how many chains, side by side.
        warmup: how many steps are dropped.
        draws: how many draws are kept, for each chain.
        thinning: how many steps a kept draw takes; the others are never held.
        gradient: how the gradient is estimated; the minibatch's own where None, or `ControlVariates()`.
        noise_estimate: V, which then heats no more: None to leave it, a number for every coordinate, or `RowNoise()`.
        start: a posterior from whose draws chains start (an optimiser's: from its point), or parameters.
        shared_batches: whether all chains see the same batches, which is a little faster, and makes them dependent.

    Returns:
        The sampler. Its posterior is its draws.

    Raises:
        ValueError: for a step size that is not positive, lengths that make no draw, or no warm-up to learn a step size
            in.

    Source: Welling & Teh (2011), equation 4; Zhang et al. (2020) for cyclical steps.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), lamu.mcmc.sgld(chains=2, warmup=200, draws=50, thinning=4))
        >>> fit.posterior.samples["network"]["layers"][0]["kernel"].shape
        (2, 50, 10, 1)
    """
    lengths = chains, warmup, draws, thinning
    return dynamics(step_size, Overdamped(), gradient, start, lengths, shared_batches, noise_estimate=noise_estimate)


@recipe("Li, Chen, Carlson & Carin 2016, algorithm 1")
def psgld(
    step_size: AnyStepSize = None,
    preconditioner: Preconditioner | None = None,
    chains: int = 4,
    warmup: int = 4000,
    draws: int = 200,
    thinning: int = 100,
    gradient: GradientEstimate | None = None,
    start: Params = None,
    shared_batches: bool = False,
) -> Dynamics:
    r"""Preconditioned SGLD: RMSprop, with as much noise as makes its path a sample of the posterior.

    \[ G = \Big(\lambda + \sqrt{V}\Big)^{-1}, \qquad
       \theta \leftarrow \theta - \epsilon_t\, G\, \hat g(\theta) + \sqrt{2 \epsilon_t G\, T / N}\;\xi \]

    with V the average of squared minibatch gradients. One gradient and one normal draw a parameter, chain and step.
    The paper lets G follow the chain and drops \(\Gamma = \nabla \cdot G\), which biases what it samples. Here G learns
    in the warm-up and is held while draws are kept, so that Γ is zero; `RootMeanSquare()` in the place of
    `FrozenAfterWarmup(RootMeanSquare())` is the paper's algorithm.

    Departures from the rule: it is no row of the rule; it draws from what the rule's rows approximate.

    Args:
        step_size: ε a row, in units of G: a number, `Polynomial`, `Cyclical`, or a function of the step; None where the
            warm-up learns it from the curvature in those units (`CurvatureStepSize()`).
        preconditioner: G; `FrozenAfterWarmup(RootMeanSquare())` where None.
        chains: how many chains, side by side.
        warmup: how many steps are dropped.
        draws: how many draws are kept, for each chain.
        thinning: how many steps a kept draw takes; the others are never held.
        gradient: how the gradient is estimated; the minibatch's own where None.
        start: a posterior from whose draws chains start (an optimiser's: from its point), or parameters.
        shared_batches: whether all chains see the same batches, which is a little faster, and makes them dependent.

    Returns:
        The sampler. Its posterior is its draws.

    Raises:
        ValueError: for a step size that is not positive, lengths that make no draw, or a preconditioner that has no
            step to learn in.

    Source: Li, Chen, Carlson & Carin (2016), algorithm 1.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), lamu.mcmc.psgld(chains=2, warmup=200, draws=50, thinning=4))
        >>> fit.posterior.predict(x[:5]).mean.shape
        (5,)
    """
    lengths = chains, warmup, draws, thinning
    preconditioner = FrozenAfterWarmup(RootMeanSquare()) if preconditioner is None else preconditioner
    return dynamics(step_size, Overdamped(), gradient, start, lengths, shared_batches, preconditioner)


@recipe("Chen, Fox & Guestrin 2014, equation 15")
def sghmc(
    step_size: AnyStepSize = None,
    friction: float = 0.1,
    preconditioner: Preconditioner | None = None,
    chains: int = 4,
    warmup: int = 4000,
    draws: int = 200,
    thinning: int = 100,
    gradient: GradientEstimate | None = None,
    noise_estimate: Number | Callable[..., Params] | None = None,
    start: Params = None,
    shared_batches: bool = False,
) -> Dynamics:
    r"""Stochastic-gradient Hamiltonian Monte Carlo: momentum SGD, with the noise that its friction asks for.

    \[ p \leftarrow (1 - \alpha)\, p - \sqrt{\epsilon_t}\, G^{1/2} \hat g(\theta) +
           \sqrt{2 \alpha T/N - \epsilon_t G \hat V}\;\xi, \qquad
       \theta \leftarrow \theta + \sqrt{\epsilon_t}\, G^{1/2} p \]

    with \(\hat g\) a minibatch gradient of the mean loss \(\ell/N\): ε is a learning rate and 1 − α a momentum, and
    both are the same at every N; the target is \(\exp(-\ell/T)\). One gradient and one normal draw a parameter, chain
    and step; nothing is rejected. Without friction the noise of batches would heat the chain without bound; friction
    carries it off, and the noise that is added makes up the rest. \(\hat V\) is the share of it that batches are
    known to add already (the authors' \(\hat B\)); zero unless given, which heats by about
    \(\epsilon V N/(2 \alpha T)\) where batches are drawn independently, and less where they are shuffled. Without a
    step size, the warm-up learns one from the largest curvature, for which that and the error of a step of finite size
    stay near five per cent of the variance (`CurvatureStepSize`). With `Cyclical` steps it is cyclical SGHMC, with a
    preconditioner beside them preconditioned cyclical SGHMC.

    Departures from the rule: it is no row of the rule; it draws from what the rule's rows approximate.

    Args:
        step_size: ε a row: a number, `Polynomial`, `Cyclical`, or a function of the step; None where the warm-up learns
            it from the curvature (`CurvatureStepSize()`).
        friction: α in (0, 1]; one is SGLD.
        preconditioner: G; the identity where None, or for instance `FrozenAfterWarmup(RootMeanSquare())`.
        chains: how many chains, side by side.
        warmup: how many steps are dropped.
        draws: how many draws are kept, for each chain.
        thinning: how many steps a kept draw takes; the others are never held.
        gradient: how the gradient is estimated; the minibatch's own where None, or `ControlVariates()`.
        noise_estimate: \(\hat V\): None, a number for every coordinate, or `RowNoise()`.
        start: a posterior from whose draws chains start (an optimiser's: from its point), or parameters.
        shared_batches: whether all chains see the same batches, which is a little faster, and makes them dependent.

    Returns:
        The sampler. Its posterior is its draws.

    Raises:
        ValueError: for a step size that is not positive, a friction outside (0, 1], lengths that make no draw, or a
            step size or a preconditioner that has no step to learn in.

    Source: Chen, Fox & Guestrin (2014), equation 15; Wenzel et al. (2020), section 3, for steps that change; Zhang et
    al. (2020) for cyclical ones.

    Examples:
        >>> import lamu
        >>> from lamu.mcmc import Cyclical
        >>> x, y = lamu.data.load("digits")
        >>> model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Categorical(10)).standardised(x, y)
        >>> sampler = lamu.mcmc.sghmc(Cyclical(0.02), chains=1, warmup=0, draws=20, thinning=5)
        >>> lamu.scores.accuracy(lamu.fit(model, (x, y), sampler).posterior.predict(x), y) > 0.9
        True
    """
    momentum, lengths = Friction(friction), (chains, warmup, draws, thinning)
    return dynamics(step_size, momentum, gradient, start, lengths, shared_batches, preconditioner, noise_estimate)


@recipe("Ding et al. 2014, algorithm 2")
def sgnht(
    step_size: AnyStepSize = None,
    friction: float = 0.1,
    inertia: float | None = None,
    chains: int = 4,
    warmup: int = 4000,
    draws: int = 200,
    thinning: int = 100,
    gradient: GradientEstimate | None = None,
    start: Params = None,
    shared_batches: bool = False,
) -> Dynamics:
    r"""The stochastic-gradient Nosé–Hoover thermostat: SGHMC whose friction finds out how hot the batches are.

    \[ p \leftarrow (1 - \zeta)\, p - \sqrt{\epsilon_t}\, \hat g(\theta) + \sqrt{2 \alpha T/N}\;\xi, \qquad
       \theta \leftarrow \theta + \sqrt{\epsilon_t}\, p, \qquad
       \zeta \leftarrow \zeta + \frac{\epsilon_t}{Q} \Big(\big(1 - \tfrac\zeta2\big) \frac{N}{T}\,
       \frac{\lVert p\rVert^2}{d} - 1\Big) \]

    ζ starts at α, and rises until the momentum is as hot as the target has it: then it has taken up the noise of the
    batches, so far as that is the same in all directions. One gradient and one normal draw a parameter, chain and step.

    Departures from the rule: it is no row of the rule; it draws from what the rule's rows approximate. From its source:
    the factor 1 - ζ/2, without which parameters are that much too cold (a fifth at ζ = 0.4).

    Args:
        step_size: ε a row: a number, `Polynomial`, `Cyclical`, or a function of the step; None where the warm-up learns
            it from the curvature (`CurvatureStepSize()`).
        friction: α in (0, 1], whose noise is added.
        inertia: Q, in rows: how slow the thermostat is. Q = N/T is the published one. None for one row where a step
            size is given, and where it is learned for \(10\, \epsilon/\alpha^2\), which has no units.
        chains: how many chains, side by side.
        warmup: how many steps are dropped.
        draws: how many draws are kept, for each chain.
        thinning: how many steps a kept draw takes; the others are never held.
        gradient: how the gradient is estimated; the minibatch's own where None, or `ControlVariates()`.
        start: a posterior from whose draws chains start (an optimiser's: from its point), or parameters.
        shared_batches: whether all chains see the same batches, which is a little faster, and makes them dependent.

    Returns:
        The sampler. Its posterior is its draws.

    Raises:
        ValueError: for a step size or an inertia that is not positive, a friction outside (0, 1], or lengths that make
            no draw, or no warm-up to learn a step size in.

    Source: Ding, Fang, Babbush, Chen, Skeel & Neven (2014), algorithm 2.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), lamu.mcmc.sgnht(chains=2, warmup=200, draws=50, thinning=4))
        >>> fit.posterior.predict(x[:5]).mean.shape
        (5,)
    """
    if inertia is None and step_size is not None and not isinstance(step_size, CurvatureStepSize):
        inertia = 1.0
    momentum, lengths = Thermostat(friction, inertia), (chains, warmup, draws, thinning)
    return dynamics(step_size, momentum, gradient, start, lengths, shared_batches)
