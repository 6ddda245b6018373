"""Stochastic-gradient samplers: Langevin, preconditioned Langevin and Hamiltonian dynamics."""

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
    r"""Stochastic-gradient Langevin dynamics: SGD with added noise, so that its path samples the posterior.

    \[ \theta \leftarrow \theta - \epsilon_t\, \hat g(\theta) + \sqrt{2 \epsilon_t\, T / N}\;\xi, \qquad
       \xi \sim \mathcal N(0, I) \]

    with \(\hat g\) a minibatch gradient of the mean loss \(\ell/N\), so that ε is a learning rate that does not depend
    on N, and the target is \(\exp(-\ell/T)\). It takes one gradient and one normal draw a parameter, chain and step,
    without rejection. Welling and Teh's step size is \(2 \epsilon T/N\) here.

    The bias is proportional to ε: on a quadratic loss with curvature h a row the variance is too large by a factor \((1
    - \epsilon h/2)^{-1}\), and by about \(\epsilon V N / (2T)\) more for independently drawn batches whose gradients
    have the variance V. Here an epoch's batches are shuffled, which adds less where a chain needs many epochs to mix.
    Without a step size, the warm-up learns one from the largest curvature, for which both errors stay near five per
    cent of the variance (`CurvatureStepSize`). Its speed of exploration depends on the condition number and the number
    of batches; an ill-conditioned posterior needs more `thinning`. With `Polynomial` steps the bias vanishes; with
    `Cyclical` ones chains reach other modes (cyclical SGLD).

    Departures from the rule: it is not an instance of the rule; it samples the distribution that the rule approximates.

    Args:
        step_size: ε a row: a number, `Polynomial`, `Cyclical`, or a function of the step; None to learn it in the
            warm-up from the curvature (`CurvatureStepSize()`).
        chains: the number of parallel chains.
        warmup: the number of first steps, which are dropped.
        draws: the number of kept draws of each chain.
        thinning: the number of steps a kept draw; other draws are never stored.
        gradient: the gradient estimator; the minibatch gradient where None, or `ControlVariates()`.
        noise_estimate: V, for which the added noise is reduced: None, a number for every coordinate, or `RowNoise()`.
        start: a posterior, from whose draws chains start (for an optimiser's posterior from its point), or parameters.
        shared_batches: whether all chains use the same batches, which is slightly faster, but makes them dependent.

    Returns:
        The sampler, whose posterior consists of draws.

    Raises:
        ValueError: for a step size that is not positive, lengths without a draw, or no warm-up to learn a step size.

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
    r"""Preconditioned SGLD: RMSprop with added noise, so that its path samples the posterior.

    \[ G = \Big(\lambda + \sqrt{V}\Big)^{-1}, \qquad
       \theta \leftarrow \theta - \epsilon_t\, G\, \hat g(\theta) + \sqrt{2 \epsilon_t G\, T / N}\;\xi \]

    with V the average of squared minibatch gradients. It takes one gradient and one normal draw a parameter, chain and
    step. In the paper G follows the chain and \(\Gamma = \nabla \cdot G\) is omitted, which causes a bias. Here G is
    learned in the warm-up and fixed while draws are kept, so that Γ is zero; with `RootMeanSquare()` instead of
    `FrozenAfterWarmup(RootMeanSquare())` it is the paper's algorithm.

    Departures from the rule: it is not an instance of the rule; it samples the distribution that the rule approximates.

    Args:
        step_size: ε a row, in units of G: a number, `Polynomial`, `Cyclical`, or a function of the step; None where the
            warm-up learns it from the curvature in those units (`CurvatureStepSize()`).
        preconditioner: G; `FrozenAfterWarmup(RootMeanSquare())` where None.
        chains: the number of parallel chains.
        warmup: the number of first steps, which are dropped.
        draws: the number of kept draws of each chain.
        thinning: the number of steps a kept draw; other draws are never stored.
        gradient: the gradient estimator; the minibatch gradient where None.
        start: a posterior, from whose draws chains start (for an optimiser's posterior from its point), or parameters.
        shared_batches: whether all chains use the same batches, which is slightly faster, but makes them dependent.

    Returns:
        The sampler, whose posterior consists of draws.

    Raises:
        ValueError: for a step size that is not positive, lengths without a draw, or no warm-up to learn a
            preconditioner.

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
    r"""Stochastic-gradient Hamiltonian Monte Carlo: momentum SGD with the noise that balances its friction.

    \[ p \leftarrow (1 - \alpha)\, p - \sqrt{\epsilon_t}\, G^{1/2} \hat g(\theta) +
           \sqrt{2 \alpha T/N - \epsilon_t G \hat V}\;\xi, \qquad
       \theta \leftarrow \theta + \sqrt{\epsilon_t}\, G^{1/2} p \]

    with \(\hat g\) a minibatch gradient of the mean loss \(\ell/N\): ε is a learning rate and 1 − α a momentum, neither
    of which depends on N; the target is \(\exp(-\ell/T)\). It takes one gradient and one normal draw a parameter, chain
    and step, without rejection. Without friction the noise of batches would heat the chain without bound; friction
    removes this heat, and added noise makes up the difference. \(\hat V\) is an estimate of the noise of batches (the
    authors' \(\hat B\)); by default zero, which heats by about \(\epsilon V N/(2 \alpha T)\) for independently drawn
    batches, and less for shuffled ones. Without a step size, the warm-up learns one from the largest curvature, for
    which that and the error of a step of finite size stay near five per cent of the variance (`CurvatureStepSize`).
    With `Cyclical` steps it is cyclical SGHMC, and with a preconditioner too it is preconditioned cyclical SGHMC.

    Departures from the rule: it is not an instance of the rule; it samples the distribution that the rule approximates.

    Args:
        step_size: ε a row: a number, `Polynomial`, `Cyclical`, or a function of the step; None to learn it in the
            warm-up from the curvature (`CurvatureStepSize()`).
        friction: α in (0, 1]; one is SGLD.
        preconditioner: G; the identity where None, or for instance `FrozenAfterWarmup(RootMeanSquare())`.
        chains: the number of parallel chains.
        warmup: the number of first steps, which are dropped.
        draws: the number of kept draws of each chain.
        thinning: the number of steps a kept draw; other draws are never stored.
        gradient: the gradient estimator; the minibatch gradient where None, or `ControlVariates()`.
        noise_estimate: \(\hat V\): None, a number for every coordinate, or `RowNoise()`.
        start: a posterior, from whose draws chains start (for an optimiser's posterior from its point), or parameters.
        shared_batches: whether all chains use the same batches, which is slightly faster, but makes them dependent.

    Returns:
        The sampler, whose posterior consists of draws.

    Raises:
        ValueError: for a step size that is not positive, a friction outside (0, 1], lengths without a draw, or no
            warm-up to learn a step size or a preconditioner.

    Source: Chen, Fox & Guestrin (2014), equation 15; Wenzel et al. (2020), section 3, for varying steps; Zhang et al.
    (2020) for cyclical ones.

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
    r"""The stochastic-gradient Nosé–Hoover thermostat: SGHMC with a friction that adapts to the noise of batches.

    \[ p \leftarrow (1 - \zeta)\, p - \sqrt{\epsilon_t}\, \hat g(\theta) + \sqrt{2 \alpha T/N}\;\xi, \qquad
       \theta \leftarrow \theta + \sqrt{\epsilon_t}\, p, \qquad
       \zeta \leftarrow \zeta + \frac{\epsilon_t}{Q} \Big(\big(1 - \tfrac\zeta2\big) \frac{N}{T}\,
       \frac{\lVert p\rVert^2}{d} - 1\Big) \]

    ζ starts at α, and rises until the momentum has the temperature of the target: then it has absorbed the noise of the
    batches, as far as that is isotropic. It takes one gradient and one normal draw a parameter, chain and step.

    Departures from the rule: it is not an instance of the rule; it samples the distribution that the rule approximates.
    From its source: the factor 1 - ζ/2, without which parameters are that much too cold (a fifth at ζ = 0.4).

    Args:
        step_size: ε a row: a number, `Polynomial`, `Cyclical`, or a function of the step; None to learn it in the
            warm-up from the curvature (`CurvatureStepSize()`).
        friction: α in (0, 1], whose noise is added.
        inertia: Q, in rows: the slowness of the thermostat. Q = N/T is the published one. None for one row with a given
            step size, and for \(10\, \epsilon/\alpha^2\), which has no units, with a learned one.
        chains: the number of parallel chains.
        warmup: the number of first steps, which are dropped.
        draws: the number of kept draws of each chain.
        thinning: the number of steps a kept draw; other draws are never stored.
        gradient: the gradient estimator; the minibatch gradient where None, or `ControlVariates()`.
        start: a posterior, from whose draws chains start (for an optimiser's posterior from its point), or parameters.
        shared_batches: whether all chains use the same batches, which is slightly faster, but makes them dependent.

    Returns:
        The sampler, whose posterior consists of draws.

    Raises:
        ValueError: for a step size or an inertia that is not positive, a friction outside (0, 1], lengths without a
            draw, or no warm-up to learn a step size.

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
