"""One model, four ways to its posterior, one answer.

Bayesian linear regression on the bundled diabetes set has a posterior in closed form. Conjugate updates, Laplace's
method, variational online Newton and NUTS reach it by different roads: one pass, an optimiser, the rule itself, and
sampling. The script prints how far each is from the textbook's formula (written out below in NumPy), at two sizes of
the data and two temperatures, with the target scaled or not.

    python examples/one_model_all_agree.py
"""

import jax
import numpy as np

import lamu

jax.config.update("jax_enable_x64", True)  # agreement to 1e-6 needs double precision

NOISE, PRIOR = 0.7, 1.0


def textbook(x, y, temperature):
    """Mean, covariance and log evidence of linear regression (Bishop 2006, equations 3.50 to 3.54), tempered."""
    design = np.column_stack([np.ones(len(x)), x])
    precision = (design.T @ design / NOISE**2 + np.eye(design.shape[1]) / PRIOR**2) / temperature
    mean = np.linalg.solve(precision, design.T @ y / NOISE**2 / temperature)
    log_joint = (
        -0.5 * np.sum((y - design @ mean) ** 2) / NOISE**2
        - len(y) / 2 * np.log(2 * np.pi * NOISE**2)
        - 0.5 * mean @ mean / PRIOR**2
        - len(mean) / 2 * np.log(2 * np.pi * PRIOR**2)
    )
    volume = len(mean) / 2 * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1] / 2
    return mean, np.linalg.inv(precision), log_joint / temperature + volume


def compare(rows, temperature, scaled):
    x, y = lamu.data.load("diabetes")
    x = (x - x.mean(0)) / x.std(0)
    train, test = x[:rows].astype(float), x[rows : rows + 50].astype(float)
    shift, scale = (140.0, 75.0) if scaled else (0.0, 1.0)
    unit = (y.astype(float) - 140.0) / 75.0
    target, held_out = (shift + scale * unit[:rows]), (shift + scale * unit[rows : rows + 50])

    likelihood = lamu.likelihoods.Gaussian(scale=NOISE)
    if scaled:
        likelihood = lamu.likelihoods.Scaled(likelihood, shift=np.array(shift), scale=np.array(scale))
    model = lamu.Model(lamu.networks.Linear(), likelihood, lamu.priors.Normal(PRIOR))

    mean, covariance, evidence = textbook(train, unit[:rows], temperature)
    evidence -= rows * np.log(scale) / temperature  # the Jacobian of the target's scaling, once a row
    design = np.column_stack([np.ones(50), test])
    spread = np.sqrt(np.einsum("nd,de,ne->n", design, covariance, design) + NOISE**2)
    log_density = (
        -0.5 * ((unit[rows : rows + 50] - design @ mean) / spread) ** 2
        - np.log(spread * scale)
        - 0.5 * np.log(2 * np.pi)
    )

    algorithms, structures = lamu.algorithms, lamu.operators
    roads = {
        "conjugate": (algorithms.conjugate(), {"batch_size": 64}),
        "laplace": (
            algorithms.laplace(optimizer=algorithms.gradient_descent(0.05), structure=structures.Dense),
            {"steps": 20_000},
        ),
        "von": (algorithms.von(0.5, structures.Dense, lamu.expectations.Exact()), {"steps": 60}),
        "nuts": (lamu.mcmc.nuts(chains=4, warmup=500, draws=1000), {}),
    }
    for name, (algorithm, options) in roads.items():
        posterior = lamu.fit(
            model, (train, target), algorithm, temperature=temperature, **({"batch_size": rows} | options)
        ).posterior
        if name == "nuts":
            draws = np.asarray(jax.vmap(jax.vmap(lambda theta: lamu.tree.ravel(theta)[0]))(posterior.samples))
            draws = draws.reshape(-1, draws.shape[-1])
            found_mean, found_covariance = draws.mean(0), np.cov(draws.T)
        else:
            belief = posterior.belief.factors["network"]
            found_mean = np.asarray(lamu.tree.ravel(belief.mean)[0])
            found_covariance = np.linalg.inv(belief.precision.dense(belief.mean))
        pred = posterior.with_rule(
            lamu.predictives.Sampled() if name == "nuts" else lamu.predictives.ClosedForm()
        ).predict(test, samples=1000)
        log_evidence = "-" if posterior.evidence is None else f"{abs(float(posterior.evidence) - evidence):.1e}"
        print(
            f"{rows:5d} {temperature:5.1f} {'yes' if scaled else 'no':>7} {name:>10}"
            f" {np.abs(found_mean - mean).max():10.1e} {np.abs(found_covariance - covariance).max():12.1e}"
            f" {log_evidence:>10} {np.abs(np.asarray(pred.log_prob(held_out)) - log_density).max():14.1e}"
        )


if __name__ == "__main__":
    print("largest deviation from the textbook's formula\n")
    columns = ("N", 5), ("T", 5), ("scaled", 7), ("algorithm", 10), ("mean", 10), ("covariance", 12), ("evidence", 10)
    print(" ".join(f"{name:>{width}}" for name, width in (*columns, ("log predictive", 14))))
    for rows, temperature, scaled in ((100, 1.0, False), (100, 0.5, True), (392, 1.0, True), (392, 0.5, False)):
        compare(rows, temperature, scaled)
    print(
        "\nWhat nuts is away is Monte Carlo error: some hundredths of a posterior standard deviation, from 4,000 draws."
    )
