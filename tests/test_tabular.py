"""A table's candidates: what is at zero stays, rows judge whom they did not teach, and weights follow the score."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import lamu
from lamu.base.compile_once import lenient
from lamu.cli.training import compile_time
from lamu.composition import stacking_weights
from lamu.data import UnfamiliarRows
from lamu.families import Ensemble, Point
from lamu.likelihoods import Categorical, HeteroscedasticGaussian
from lamu.likelihoods.table import LIKELIHOODS
from lamu.networks import Columns, EncodedColumns, KernelFeatures, TableNetwork, kernel_features
from lamu.networks.kernel_features import LaplaceKernel, Matern
from lamu.predictives import Sampled
from lamu.record import decode, encode
from lamu.running.checkpoints import Checkpoints
from lamu.running.training_fit import constant_of
from lamu.tabular import stacked_fit
from lamu.tabular.candidates import (
    ADDITIVE,
    KERNELS,
    NETWORKS,
    Candidate,
    candidates_for,
    candidates_to_continue,
    sharpened,
)
from lamu.tabular.stacked_fit import _Table, describe_fits
from lamu.tabular.training import FoldRows, Members, Path, _Length, _optimiser, row_order, rows_padded, train
from lamu.tabular.truncated import Truncated, logit_factor, noise_factor, untruncated_weight

RANDOM = np.random.default_rng(0)
X = np.column_stack(
    [RANDOM.normal(size=60), RANDOM.standard_cauchy(60), RANDOM.integers(0, 2, 60), RANDOM.integers(0, 4, 60)]
)
LEVELS = (0, 0, 0, 3)
COLUMNS = Columns.of(X, LEVELS, pieces=4)


def test_pieces_interpolate_between_quantiles_and_categories_stand_apart():
    columns = Columns.of(np.arange(9.0)[:, None], pieces=2)
    _, pieces = columns.read(jnp.array([[-5.0], [2.0], [4.0], [100.0]]))
    centred = np.asarray(pieces) + np.asarray(columns.centre)
    np.testing.assert_allclose(centred, [[0, 0], [1, 0], [2, 0], [2, 2]], atol=1e-6)
    smooth, cut = COLUMNS.read(jnp.asarray(X, jnp.float32))
    assert smooth.shape == (60, 6)
    assert cut.shape == (60, 8)
    np.testing.assert_array_equal(smooth[:, 3:], X[:, 3, None] == np.arange(1, 4))
    assert np.abs(smooth[:, 1]).max() < 3.0 < np.abs(X[:, 1]).max()  # the heavy tail is levelled
    np.testing.assert_allclose(cut.mean(axis=0), 0.0, atol=1e-5)


def test_a_column_that_is_mostly_zero_is_cut_where_it_is_not():
    values = np.concatenate([np.zeros(900), np.exp(np.random.default_rng(0).normal(size=100))])
    columns = Columns.of(values[:, None], pieces=8)
    lower, width = np.asarray(columns.lower), np.asarray(columns.width)
    assert columns.piece_count >= 7
    assert lower[0] == 0.0
    assert lower[0] + width[0] == pytest.approx(values[values > 0].min())  # a step between none and some
    assert float(columns.scale[0]) == pytest.approx(np.median(values[values > 0]))
    _, pieces = columns.read(jnp.asarray([[0.0], [0.5], [5.0]], jnp.float32))
    assert len(np.unique(np.asarray(pieces), axis=0)) == 3


def test_encoded_columns_are_what_the_columns_read():
    x = jnp.asarray(X, jnp.float32)
    encoded, readings = COLUMNS.encode(x)
    assert encoded == EncodedColumns(smooth_width=6, piece_count=8, numbers_with_pieces=2)
    network, params = TableNetwork(COLUMNS, (5,)), TableNetwork(COLUMNS, (5,)).init(jax.random.key(0), x, 2)[0]
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)
    ahead = TableNetwork(encoded, (5,))
    assert jax.tree.map(jnp.shape, ahead.init(jax.random.key(0), readings, 2)[0]) == jax.tree.map(jnp.shape, params)
    np.testing.assert_array_equal(
        ahead.apply(params, {}, readings, None, False)[0], network.apply(params, {}, x, None, False)[0]
    )


def test_columns_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match="4 columns and x has 3"):
        Columns.of(X[:, :3], LEVELS)
    with pytest.raises(ValueError, match="made for 4"):
        COLUMNS.read(jnp.ones((2, 3)))
    for code in (-1.0, 1.5, 4.0):
        with pytest.raises(ValueError, match=rf"column 3 of x has the code {code:g}, .* are codes 1 to 3 there"):
            Columns.of(np.column_stack([X[:, :3], np.full(60, code)]), LEVELS)


def test_frames_of_a_table_are_matched_by_name_and_unknown_codes_are_told():
    frame = pd.DataFrame(X[:, [0, 3]], columns=["size", "kind"])
    found = lamu.fit_table(frame, X[:, 0] > 0, lamu.likelihoods.Bernoulli(), levels=LEVELS[2:], folds=2, steps=15)
    rows = frame[frame["kind"] > 0][:3]
    mean = found.posterior.predict(rows).mean
    np.testing.assert_array_equal(found.posterior.predict(rows[["kind", "size"]]).mean, mean)
    with pytest.raises(ValueError, match="lacks the column 'size'"):
        found.posterior.predict(rows[["kind"]])
    with pytest.warns(UnfamiliarRows, match=r"'kind' has the code 4, which is none of 1 to 3, in 3 of 3 rows"):
        unknown = found.posterior.predict(rows.assign(kind=4))
    each = [found.posterior.predict(rows.assign(kind=kind)).mean for kind in (1, 2, 3)]
    np.testing.assert_allclose(unknown.mean, np.mean(each, axis=0), atol=0.02)


def test_a_new_category_widens_predictions_of_a_table_as_those_of_the_command_line():
    """A code or dummy columns that training did not have were predicted without an effect and no wider, the latter in
    silence."""
    random = np.random.default_rng(0)
    kind, size = random.integers(0, 4, 240), random.normal(size=240)
    y = np.array([-3.0, 1.0, 0.0, 2.0])[kind] + size + 0.1 * random.normal(size=240)
    coded = pd.DataFrame({"size": size, "kind": kind + 1})
    dummies = pd.get_dummies(coded, columns=["kind"], dtype=float)
    unseen = dummies.iloc[:3].assign(kind_1=0.0, kind_2=0.0, kind_3=0.0, kind_4=0.0)
    given = {"folds": 2, "steps": 150, "progress": False}
    found = lamu.fit_table(coded, y, lamu.likelihoods.Gaussian(), levels=(0, 4), **given)
    by_code, largest = found.posterior, max(found.weights, key=found.weights.get)
    assert re.match(rf"StackedFit\([\d.]+ {re.escape(largest)}(; |, )", repr(found))
    assert len(repr(found)) < 400
    by_dummy = lamu.fit_table(dummies, y, lamu.likelihoods.Gaussian(), **given).posterior
    with pytest.warns(UnfamiliarRows, match="'kind' has the code 9, .* predicted as a new draw from the 4 known"):
        of_code = by_code.predict(coded.iloc[:3].assign(kind=9))
    said = "the columns 'kind_1', .*, 'kind_4', of which each training row has exactly one, are all zero in 3 of 5 rows"
    with pytest.warns(UnfamiliarRows, match=said):
        of_dummies = by_dummy.predict(pd.concat([dummies.iloc[3:5], unseen]))
    known = by_dummy.predict(dummies.iloc[:5])
    assert np.all(np.asarray(of_code.std) > 2.0)
    assert np.all(np.asarray(of_dummies.std)[2:] > 2.0)
    assert np.all(np.asarray(known.std) < 1.2)
    np.testing.assert_allclose(of_dummies.mean[:2], known.mean[3:], rtol=1e-4)


@pytest.mark.stress
def test_wide_tables_are_not_cut_into_pieces():
    x = np.random.default_rng(5).normal(size=(30, 300))
    assert Columns.of(x[:, :256]).piece_count == 4 * 256
    assert Columns.of(x).piece_count == 0
    found = lamu.fit_table(x, np.arange(30) % 2, lamu.likelihoods.Bernoulli(), folds=2, steps=15, progress=False)
    assert found.posterior.predict(x[:3]).mean.shape == (3,)


@pytest.mark.parametrize("kind", [Matern(), LaplaceKernel()], ids=lambda kind: type(kind).__name__)
def test_inner_products_of_kernel_features_are_the_kernel(kind, monkeypatch):
    monkeypatch.setattr(kernel_features, "_KERNELS", (kind,))
    z = RANDOM.normal(size=(40, 3))
    kernel = KernelFeatures.of(z, np.sin(2 * z[:, :1]))
    features = np.asarray(kernel.read(jnp.asarray(z, jnp.float32)))
    np.testing.assert_allclose(features.mean(axis=0), 0.0, atol=1e-4)
    between = z[:, None] - z[None]
    if isinstance(kind, Matern):
        r = np.sqrt(3) * np.linalg.norm(between, axis=-1) / float(kernel.length)
        expected = (1 + r) * np.exp(-r)
    else:
        expected = np.exp(-np.abs(between).sum(axis=-1) / float(kernel.length))
    whole = features + np.asarray(kernel.centre)
    np.testing.assert_allclose(whole @ whole.T, expected, atol=2e-3)
    # A new row between landmarks has features between theirs, and a far one is like none of them.
    far = np.asarray(kernel.read(jnp.full((1, 3), 1e3, jnp.float32))) + np.asarray(kernel.centre)
    np.testing.assert_allclose(far, 0.0, atol=1e-3)
    slope = jax.grad(lambda row: kernel.read(row[None]).sum())(jnp.asarray(z[0], jnp.float32))
    assert np.isfinite(slope).all()


def test_a_kernel_follows_the_axes_where_targets_do():
    """A step along an axis is rough, and a wave along a diagonal is smooth; a posterior keeps its kernel."""
    z = np.random.default_rng(4).uniform(-1, 1, size=(300, 4))
    rough = KernelFeatures.of(z, (np.sign(z[:, :1] - 0.2) + np.sign(z[:, 1:2] + 0.4)))
    assert isinstance(rough.kernel, LaplaceKernel)
    assert isinstance(KernelFeatures.of(z, np.sin(2 * z.sum(axis=1, keepdims=True))).kernel, Matern)
    arrays: dict[str, np.ndarray] = {}
    assert decode(encode(rough, arrays), arrays).kernel == LaplaceKernel()
    assert decode({"record": "networks.Exponential", "fields": {}}, {}) == LaplaceKernel()  # as it was called once


def test_a_kernel_is_decomposed_on_one_thread(monkeypatch):
    """Several threads of BLAS wait for each other, and many times as long beside other work."""
    from threadpoolctl import threadpool_info

    threads, eigh = [], np.linalg.eigh

    def watched(matrix):
        threads.extend(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")
        return eigh(matrix)

    monkeypatch.setattr(np.linalg, "eigh", watched)
    KernelFeatures.of(RANDOM.normal(size=(20, 2)), RANDOM.normal(size=(20, 1)))
    assert set(threads) == {1}


def test_length_of_a_kernel_follows_the_targets():
    z = np.random.default_rng(3).uniform(-1, 1, size=(300, 1))
    fast, slow = KernelFeatures.of(z, np.sin(25 * z)), KernelFeatures.of(z, z**3)
    assert float(fast.length) <= float(slow.length) / 4
    with pytest.raises(ValueError, match="one row of targets"):
        KernelFeatures.of(z, z[:, 0])


def test_kernel_features_are_read_ahead_as_they_are_read():
    x = jnp.asarray(X, jnp.float32)
    kernel = KernelFeatures.of(np.asarray(COLUMNS.read(x)[0]), X[:, :1], features=7)
    network = TableNetwork(COLUMNS, (5,), kernel=kernel)
    params = jax.tree.map(lambda leaf: leaf + 0.1, network.init(jax.random.key(0), x, 2)[0])
    assert params["features"]["kernel"].shape == (7, 2)
    ahead, readings = network.encode(x)
    assert jax.tree.map(jnp.shape, ahead.init(jax.random.key(0), readings, 2)[0]) == jax.tree.map(jnp.shape, params)
    f = network.apply(params, {}, x, None, False)[0]
    np.testing.assert_allclose(ahead.apply(params, {}, readings, None, False)[0], f, atol=1e-5)
    without = {**params, "features": {"kernel": jnp.zeros_like(params["features"]["kernel"])}}
    difference = f - network.apply(without, {}, x, None, False)[0]
    np.testing.assert_allclose(difference[:, 0], 0.1 * readings[:, -7:].sum(axis=1), atol=1e-5)


@pytest.mark.parametrize("candidate", [*ADDITIVE, *KERNELS, *NETWORKS], ids=lambda each: each.name)
def test_parts_that_a_candidate_lacks_stay_at_zero(candidate):
    kernel = KernelFeatures.of(np.asarray(COLUMNS.read(jnp.asarray(X, jnp.float32))[0]), X[:, :1], features=7)
    network = TableNetwork(COLUMNS, (5, 4), kernel=kernel)
    params = network.init(jax.random.key(0), jnp.asarray(X, jnp.float32), 2)[0]
    gates = candidate.gates(network, params, means=1)
    candidate.prior(network).check(params)
    assert bool(gates["additive"]["kernel"].any()) == (candidate.additive > 0)
    assert bool(gates["features"]["kernel"][:, 0].all()) == (candidate.kernel > 0)
    assert not np.any(gates["features"]["kernel"][:, 1])
    assert bool(gates["head"]["kernel"][:, 0].all()) == (candidate.hidden > 0)
    assert bool(gates["hidden"]["pieces"].all()) == candidate.pieces
    # The noise is its own intercept unless it may vary, and that is free.
    assert not np.any(gates["linear"]["kernel"][:, 1])
    assert np.all(gates["linear"]["bias"])


def test_a_linear_path_beside_other_parts_says_no_more_of_many_columns_than_of_few():
    scales = lambda candidate, width: candidate.scales(TableNetwork(EncodedColumns(width, 0, 0)))["linear/kernel"]
    for candidate in (*KERNELS, *NETWORKS):
        deviations = [scales(candidate, width) * width**0.5 for width in (4, 100, 1500)]
        assert max(deviations) == pytest.approx(min(deviations))
        assert scales(candidate, 1) == candidate.linear  # and never wider than alone
    assert [scales(candidate, 1500) for candidate in ADDITIVE] == [1.0, 1.0]


def test_order_takes_every_row_once_before_any_twice_and_none_that_is_held():
    rows = np.arange(0, 40, 2)
    order = row_order(rows, steps=10, batch=4, seed=1)
    assert sorted(order[:5].ravel().tolist()) == rows.tolist() == sorted(order[5:].ravel().tolist())
    assert rows_padded(8) == 8
    assert rows_padded(1001) == rows_padded(1024) == 1024


def test_constant_is_the_frequencies():
    y = jnp.array([0, 0, 0, 1, 2, 2])
    batch = lamu.data.Batch.of(jnp.ones((6, 1)), y)
    intercept, _ = constant_of(lamu.likelihoods.Categorical(3), batch)
    np.testing.assert_allclose(jax.nn.softmax(intercept), [0.5, 1 / 6, 1 / 3], atol=0.02)


def test_weights_of_an_ensemble_reach_predictions_and_draws():
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=1.0))
    stacked = {
        "network": {"layers": {0: {"kernel": jnp.array([[[0.0]], [[4.0]]]), "bias": jnp.zeros((2, 1))}}},
        "likelihood": {},
    }
    belief = Ensemble(Point(stacked), jnp.log(jnp.array([0.75, 0.25])))
    pred = Sampled().predict(model, belief, {}, jnp.ones((1, 1)), 8, jax.random.key(0))
    assert float(pred.mean[0]) == pytest.approx(1.0, abs=1e-6)
    assert float(pred.variance[0]) == pytest.approx(1.0 + 0.75 * 1.0 + 0.25 * 9.0, abs=1e-5)
    # Systematic resampling: exactly a quarter of the draws.
    drawn = belief.draws(jax.random.key(1), 100)["network"]["layers"][0]["kernel"]
    assert int((drawn > 2).sum()) == 25
    one = jax.vmap(belief.sample)(jax.random.split(jax.random.key(2), 400))["network"]["layers"][0]["kernel"]
    assert abs(int((one > 2).sum()) - 100) < 44  # five deviations of a binomial: failure rate 6e-7


@pytest.mark.stress
def test_stack_is_near_the_noise_of_a_line_and_saves(tmp_path):
    x = RANDOM.normal(size=(80, 2))
    y = x @ [1.0, -2.0] + 0.3 * RANDOM.normal(size=80) + 50.0
    found = lamu.fit_table(x, y, lamu.likelihoods.Gaussian(), folds=2)
    assert isinstance(found, lamu.StackedFit)
    # Rows that judge are unseen: the stack is near the entropy of the noise, and no candidate far below it.
    entropy = 0.5 * np.log(2 * np.pi * np.e * 0.09)
    assert entropy - 0.3 < found.stacked_nll < entropy + 0.4
    assert found.stacked_nll <= min(found.nll.values()) + 0.05
    folder = found.posterior.save(tmp_path / "posterior")
    x_new = x[:5] + 0.1
    before, after = found.posterior.predict(x_new), lamu.load(folder).predict(x_new)
    np.testing.assert_array_equal(before.mean, after.mean)
    np.testing.assert_allclose(before.mean, x_new @ [1.0, -2.0] + 50.0, atol=0.5)


@pytest.mark.stress
def test_progress_names_the_fits_and_counts_their_steps(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("COLUMNS", "120")
    y = (X[:, 0] > 0).astype(np.int32)
    likelihood = lamu.likelihoods.Bernoulli()
    options = {"folds": 2, "steps": 30}
    lamu.fit_table(X, y, likelihood, **options)
    assert capsys.readouterr().err == ""  # no terminal
    lamu.fit_table(X, y, likelihood, **options, progress=True)
    shown = capsys.readouterr().err
    assert "8 smaller models" in shown
    assert "6 networks" in shown
    assert "30/30" in shown


@pytest.mark.stress
def test_a_fit_and_its_scores_compile_few_programs():
    """One for the steps, the first weights and the encoding of an architecture each, and few beside.

    A hundred programs of one operation each are seconds, with a cache of compiled programs too.
    """
    random = np.random.default_rng(5)
    x, y = random.normal(size=(62, 3)), random.normal(size=62)  # rows that no other test has: their programs are new
    with compile_time() as fitting:
        found = lamu.fit_table(x, y, lamu.likelihoods.Gaussian(), folds=3, steps=15)
    assert 3 <= fitting.programs <= 20
    with compile_time() as scoring:
        pred = found.posterior.predict(x)
        lamu.scores.nll(pred, y)
        lamu.scores.coverage(pred, y)
    assert 2 <= scoring.programs <= 16


@pytest.mark.stress
def test_threads_learn_in_the_precision_of_who_asks():
    y = np.arange(60) % 2
    with jax.enable_x64(False):
        found = lamu.fit_table(X, y, lamu.likelihoods.Bernoulli(), folds=2, steps=15)
        leaves = jax.tree.leaves(found.posterior.belief.stacked)
        assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float32)}
        assert found.posterior.predict(X).mean.dtype == np.float32


@pytest.mark.stress
def test_an_interruption_ends_all_threads(monkeypatch):
    """The thread that is interrupted ends the others after its stretch; a fit would go on for 15,000 steps."""
    steps = []

    def interrupted(self, done, loss=None):
        steps.append(done)
        raise KeyboardInterrupt

    monkeypatch.setattr("lamu.tabular.stacked_fit.Progress.update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lamu.fit_table(X, np.arange(60) % 2, lamu.likelihoods.Bernoulli(), folds=2, steps=150)
    assert 1 <= len(steps) <= 3


def test_candidates_do_not_learn_from_each_other():
    """The gradient of all members' summed loss is each one's own: a candidate trains as it does alone."""
    network, x = TableNetwork(COLUMNS, ()), jnp.asarray(X)
    model = lamu.Model(network, lamu.likelihoods.Gaussian(scale=1.0))
    batch = lamu.data.Batch.of(x, jnp.asarray(X[:, 0]))
    params = model.init(jax.random.key(0), batch)[0]
    rows = FoldRows(np.arange(60).reshape(1, 15, 4), np.arange(8)[None], np.array([60.0]))

    def members(candidates):
        each = [
            Members(params, c.gates(network, params["network"], None), jax.tree.map(np.asarray, c.prior(network)))
            for c in candidates
        ]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *each)

    both = train(model, members(ADDITIVE), rows, batch, stretches=5, rate=0.1)
    for index, candidate in enumerate(ADDITIVE):
        alone = train(model, members([candidate]), rows, batch, stretches=5, rate=0.1)
        np.testing.assert_allclose(both.log_density[index], alone.log_density[0], rtol=1e-9)
        for a, b in zip(jax.tree.leaves(both.params), jax.tree.leaves(alone.params), strict=True):
            np.testing.assert_allclose(a[index], b[0], rtol=1e-9, atol=1e-12)
    assert not np.allclose(both.log_density[0], both.log_density[1])


@pytest.mark.stress
def test_the_plan_is_what_is_fitted():
    found = lamu.fit_table(X, np.arange(60.0), lamu.likelihoods.Gaussian(), folds=2, steps=15)
    plan = describe_fits(lamu.likelihoods.Gaussian(), 300, folds=2)
    assert plan.startswith(f"{2 * len(found.nll)} fits at most of 990 steps each: 6 linear, additive and kernel models")
    # A noise that may depend on the row is nothing of other targets.
    assert describe_fits(lamu.likelihoods.Bernoulli(), 300, folds=2).startswith(
        "14 fits at most of 990 steps each: 4 linear"
    )


@pytest.mark.stress
def test_held_rows_do_not_teach():
    # Targets that are noise: whoever learned from a row would predict it better than the noise allows.
    x, y = RANDOM.normal(size=(60, 3)), RANDOM.normal(size=60)
    found = lamu.fit_table(x, y, lamu.likelihoods.Gaussian(), folds=2, steps=300)
    assert min(found.nll.values()) > 0.5 * np.log(2 * np.pi * y.var()) + 0.5 - 0.1


def test_noise_narrows_by_what_averaging_over_folds_gains():
    """Members err by the noise and a part of their own, which their mean loses; a deviation knows both."""
    rows, folds = 4000, 5
    random = np.random.default_rng(1)
    own, fold = 0.5 * random.normal(size=(1, folds, rows, 1)), np.arange(rows) % folds
    y = random.normal(size=(rows, 1))
    deviations = np.full((1, folds, rows, 1), np.sqrt(1.25))
    factor = noise_factor(own, deviations, y, fold, np.ones(1))
    # Held-out rows alone would ask for one: 0.02 is four standard errors of the variance of 4,000 rows.
    assert factor**2 == pytest.approx(1.0 - 0.25 * 0.8 / 1.25, abs=0.1)
    assert noise_factor(own, 2 * deviations, y, fold, np.ones(1)) == pytest.approx(factor / 2, abs=0.05)
    agreed = noise_factor(0 * own, deviations, y, fold, np.ones(1))
    assert agreed == pytest.approx(np.sqrt(1 / 1.25), abs=0.05)
    # However far members are apart, four fifths of the variance stay.
    wild = noise_factor(10 * own, deviations, y, fold, np.ones(1))
    held = np.sqrt(np.mean((y - 10 * own[0, fold, np.arange(rows)]) ** 2) / 1.25)
    assert wild == pytest.approx(np.sqrt(0.8) * min(held, 4.0), abs=0.15)


@pytest.mark.stress
def test_truncated_noise_is_scipys():
    base = lamu.likelihoods.Scaled(lamu.likelihoods.HeteroscedasticGaussian(0.7), shift=2.0, scale=3.0)
    likelihood = Truncated(base)
    f = jnp.array([[0.5, 0.3], [-0.6, 0.0], [-4.0, -0.5], [-15.0, 0.2], [-0.7, 2.0], [30.0, 0.0]])
    m, s = np.asarray(base.mean({}, f)), np.sqrt(base.variance({}, f))
    reference = stats.truncnorm(-m / s, np.inf, loc=m, scale=s)
    nodes, weights = np.polynomial.legendre.leggauss(400)  # SciPy's entropy up to infinity is NaN
    reach = (reference.mean() + 30 * reference.std()) / 2
    log_density = reference.logpdf(reach * (1 + nodes[:, None]))
    entropy = -reach * (weights @ (np.exp(log_density) * np.maximum(log_density, -1e3)))
    y = jnp.array([0.01, 3.0, 0.2, 0.05, 40.0, 90.0])
    for found, expected in (
        (likelihood.log_prob({}, f, y), reference.logpdf(y)),
        (likelihood.mean({}, f), reference.mean()),
        (likelihood.variance({}, f), reference.var()),
        (likelihood.entropy({}, f), entropy),
        (likelihood.cdf({}, f, y), reference.cdf(y)),
    ):
        assert found.shape == (6,)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.all(likelihood.log_prob({}, f, -y) == -np.inf)
    assert np.all(likelihood.cdf({}, f, -y) == 0.0)
    draws = jax.vmap(lambda key: likelihood.sample(key, {}, f))(jax.random.split(jax.random.key(0), 4000))
    assert draws.min() > 0
    for index in range(6):  # Kolmogorov's test at level 1e-4 each
        one = stats.truncnorm(-m[index] / s[index], np.inf, loc=m[index], scale=s[index])
        assert stats.kstest(np.asarray(draws[:, index]), one.cdf).pvalue > 1e-4
    far = jnp.array([[-1e4, 0.0], [1e4, 0.0]], jnp.float32)
    for values in (likelihood.mean({}, far), likelihood.variance({}, far), likelihood.log_prob({}, far, jnp.ones(2))):
        assert values.dtype == jnp.float32
        assert np.isfinite(values).all()
    with pytest.raises(ValueError, match="one a row"):
        likelihood.check(np.ones((2, 2)))


@pytest.mark.parametrize("w", [0.0, 0.3])
def test_noise_that_may_not_be_truncated_is_an_average(w: float) -> None:
    """Of SciPy's truncated normal and its normal; moments and entropy by quadrature on either side of zero."""
    likelihood = Truncated(lamu.likelihoods.Scaled(lamu.likelihoods.HeteroscedasticGaussian(0.7), 2.0, 3.0), w)
    f = jnp.array([[0.5, 0.3], [-0.6, 0.0], [-2.0, -0.5], [3.0, 0.0]])
    m, s = (np.asarray(part)[:, None] for part in (likelihood.base.mean({}, f), likelihood.base.variance({}, f) ** 0.5))
    pdf = lambda y: (1 - w) * stats.truncnorm(-m / s, np.inf, loc=m, scale=s).pdf(y) + w * stats.norm(m, s).pdf(y)
    nodes, weights = np.polynomial.legendre.leggauss(200)
    reach = np.abs(m) + 12 * s
    sides = [(reach * (nodes - 1) / 2, reach * weights / 2), (reach * (nodes + 1) / 2, reach * weights / 2)]
    over = lambda function: sum(np.sum(part * function(y), axis=1) for y, part in sides)
    mean = over(lambda y: y * pdf(y))
    np.testing.assert_allclose(over(pdf), 1.0, rtol=1e-6)
    np.testing.assert_allclose(likelihood.mean({}, f), mean, rtol=1e-6)
    np.testing.assert_allclose(likelihood.variance({}, f), over(lambda y: (y - mean[:, None]) ** 2 * pdf(y)), rtol=1e-6)
    entropy = over(lambda y: -pdf(y) * np.log(np.maximum(pdf(y), 1e-300)))
    np.testing.assert_allclose(likelihood.entropy({}, f), entropy, rtol=1e-6)
    y = jnp.array([-1.0, 0.5, 0.01, -20.0])
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(likelihood.log_prob({}, f, y), np.log(np.diag(pdf(np.asarray(y)))), rtol=1e-6)
    below = (1 - w) * stats.truncnorm(-m / s, np.inf, loc=m, scale=s).cdf(y) + w * stats.norm(m, s).cdf(y)
    np.testing.assert_allclose(likelihood.cdf({}, f, y), np.diag(below), rtol=1e-6, atol=1e-12)
    draws = np.asarray(jax.vmap(lambda key: likelihood.sample(key, {}, f))(jax.random.split(jax.random.key(0), 4000)))
    # Five standard errors: a failure in 400,000 seeds.
    share = np.ravel((1 - w) * 0 + w * stats.norm(m, s).cdf(0))
    assert np.all(np.abs((draws < 0).mean(0) - share) <= 5 * np.sqrt(share * (1 - share) / 4000))
    assert np.all(np.abs(draws.mean(0) - mean) < 5 * np.sqrt(np.asarray(likelihood.variance({}, f)) / 4000))


def test_a_target_below_zero_keeps_a_density_where_many_were_positive():
    ones, y = np.ones((1, 2, 5000, 1)), np.full((5000, 1), 0.5)
    w = untruncated_weight(0.5 * ones, ones, y, np.arange(5000) % 2, np.ones(1))  # e to the power of −1,800 by the rows
    likelihood = Truncated(lamu.likelihoods.Gaussian(scale=1.0), w)
    assert np.isfinite(likelihood.log_prob({}, jnp.full((1, 1), 0.5, jnp.float32), jnp.array([-0.1], jnp.float32)))


def test_a_sudden_gradient_moves_members_by_few_learning_rates():
    """Of 100 steps after one that is a thousand times as large; Adam's usual memory of squares moves them by 30."""
    optimiser = _optimiser(_Length(steps=2000, stretches=1, rate=0.01))
    gradients = np.random.default_rng(0).normal(size=600)
    gradients[500] = 1000.0
    state, moved = optimiser.init(jnp.zeros(())), 0.0
    with lenient():  # Optax counts steps in whole numbers
        step = jax.jit(optimiser.update)
        for number, gradient in enumerate(gradients):
            update, state = step(jnp.asarray(gradient), state)
            moved += float(update) * (number >= 500)
    assert abs(moved) < 10 * 0.01


def test_targets_are_positive_as_far_as_rows_below_zero_were_to_be_expected():
    random, fold = np.random.default_rng(0), np.arange(200) % 2
    normals = np.full((1, 2, 200, 1), 1.5), np.ones((1, 2, 200, 1))
    positive = stats.truncnorm(-1.5, np.inf, loc=1.5).rvs((200, 1), random_state=random)
    weight = lambda means, y: untruncated_weight(means, normals[1], y, fold, np.ones(1))
    # 200 rows with 7 % below zero each, and none is.
    assert weight(normals[0], positive) == pytest.approx(np.exp(200 * stats.norm.logcdf(1.5)), rel=1e-3)
    assert weight(normals[0], np.where(positive < 0.1, -0.1, positive)) == 1.0
    assert weight(4 * normals[0], positive + 4.5) == pytest.approx(0.5, abs=1e-6)  # far from zero
    assert (
        untruncated_weight(np.zeros((1, 2, 200, 2)), np.ones((1, 2, 200, 2)), np.ones((200, 2)), fold, np.ones(1)) == 1
    )


@pytest.mark.stress
def test_intervals_of_positive_targets_end_at_zero(tmp_path):
    x = np.random.default_rng(1).normal(size=(120, 2))
    y = np.exp(x[:, 0] + 0.5 * np.random.default_rng(2).normal(size=120))
    found = lamu.fit_table(x, y, lamu.likelihoods.Gaussian(), folds=2, steps=150)
    likelihood = found.posterior.model.likelihood
    assert isinstance(likelihood, Truncated)
    pred = lamu.load(found.posterior.save(tmp_path / "posterior")).predict(x)
    lower, upper = pred.interval(0.9)
    assert lower.min() >= 0.0
    assert (lower < upper).all()
    # What is known of every target makes each one likelier, and takes nothing from its interval.
    plain = replace(found.posterior, model=replace(found.posterior.model, likelihood=likelihood.base)).predict(x)
    assert plain.interval(0.9)[0].min() < 0.0
    assert np.all(pred.log_prob(y) >= plain.log_prob(y) - 1e-6)


def test_logits_are_as_large_as_held_out_rows_say():
    random = np.random.default_rng(2)
    rows, folds = 4000, 5
    f = 2.0 * random.normal(size=(1, 1, rows, 3))
    y = (f[0, 0] + random.gumbel(size=(rows, 3))).argmax(axis=1)
    fold, agreed = np.arange(rows) % folds, np.repeat(f, folds, axis=1)
    # Members that agree, and are right: the factor is one, and the inverse of whatever they are multiplied by.
    assert logit_factor(agreed, y, fold, np.ones(1)) == pytest.approx(1.0, abs=0.06)
    assert logit_factor(agreed / 2, y, fold, np.ones(1)) == pytest.approx(2.0, abs=0.15)
    assert logit_factor(np.concatenate([agreed, agreed]) * 2, y, fold, np.full(2, 0.5)) == pytest.approx(0.5, abs=0.03)
    # Held-out rows judge their own member alone: the others know the answer here.
    told = np.full((1, folds, rows, 3), -20.0)
    told[:, :, np.arange(rows), y] = 20.0
    told[:, fold, np.arange(rows)] = f[0]
    assert logit_factor(told, y, fold, np.ones(1)) < 2.0
    # Members that differ: averaging adds doubt, which goes again.
    apart = agreed + random.normal(size=agreed.shape)
    single, every = logit_factor(apart[:, :1], y, 0 * fold, np.ones(1)), logit_factor(apart, y, fold, np.ones(1))
    assert single + 0.05 < every < 1.5 * single


@pytest.mark.parametrize(("rows", "freedom"), [(3, 1.015), (5, 1.435), (50, 13.0)])
def test_logits_that_few_rows_have_judged_are_smaller(rows: int, freedom: float) -> None:
    """By the square of the 95 % quantile of Student's t over the normal one; logits of zero say nothing else."""
    nothing, y, fold = np.zeros((1, 2, rows, 3)), np.arange(rows) % 3, np.arange(rows) % 2
    expected = stats.norm.ppf(0.95) / stats.t.ppf(0.95, freedom)
    assert logit_factor(nothing, y, fold, np.ones(1)) == pytest.approx(expected**2, rel=1e-3)
    many = logit_factor(nothing, y, fold, np.ones(1), np.full(rows, 1000.0))  # each counts as a thousand
    assert many == pytest.approx(1.0, abs=2e-3)


def test_a_candidate_stops_where_it_serves_the_mixture():
    # After the second stretch every row but one is likelier; the linear candidate covers the one that is missed.
    density = np.array([[[-1.0] * 10, [-0.5] * 9 + [-30.0]], [[-1.0] * 10, [-0.5] * 10]])
    path = Path({"a": jnp.arange(4.0).reshape(2, 2)}, density)
    batch, of_folds = lamu.data.Batch.of(np.ones((20, 1)), np.zeros(20)), FoldRows(None, None, None)
    table = lambda counts: _Table(
        replace(batch, weight=counts), Categorical(2), None, of_folds, [np.arange(10), np.arange(10, 20)], np.arange(2)
    )
    stopped = lambda counts, company: table(counts).stopped(ADDITIVE[0], path, company)
    alone, beside = (stopped(np.ones(20), company) for company in (None, np.full(20, -2.0)))
    np.testing.assert_array_equal(alone.params["a"], [0.0, 2.0])
    np.testing.assert_array_equal(beside.params["a"], [1.0, 3.0])
    assert beside.log_density[9] == -30.0  # what is stacked is the candidate's own density
    counts = np.where(np.arange(20) == 9, 0.01, 1.0)
    np.testing.assert_array_equal(stopped(counts, None).params["a"], [1.0, 3.0])  # the row that is missed hardly counts


def test_costly_candidates_go_on_where_the_first_fold_needs_them():
    random = np.random.default_rng(0)
    rows = 400
    cheap = random.normal(-1.0, 0.5, (rows, 2))
    better, same, none = cheap[:, 0] + 0.2, cheap[:, 0] + random.normal(0.0, 0.01, rows) - 0.01, cheap[:, 1] - 3.0
    together = lambda *costly: np.column_stack([cheap, *costly])
    choice = lambda densities, counts=None, groups=None: candidates_to_continue(
        densities, range(2, densities.shape[1]), np.ones(len(densities)) if counts is None else counts, 1.0, groups
    )
    assert choice(together(same, none)) == []
    assert choice(together(none, better)) == [3]
    assert choice(together(better, better)) in ([2], [3])  # of two of a kind one is enough
    assert choice(together(same, none)[:49]) == [2, 3], "few rows do not show that a candidate is not needed"
    assert choice(together(same, none), np.full(rows, 0.2)) == []
    of_groups = [choice(together(same, none), None, np.arange(rows) % number) for number in (rows, 49)]
    assert of_groups == [[], [2, 3]], "few groups do not show it either"
    # Rows without weight say nothing: the others need the candidate.
    half = np.where(np.arange(rows) < rows // 2, 1.0, 0.0)
    assert choice(together(np.where(half > 0, better, -9.0)), half) == [2]


@pytest.mark.stress
def test_candidates_that_stop_early_have_no_weight_and_take_no_further_fold(monkeypatch):
    trained = []
    monkeypatch.setattr(stacked_fit, "train", lambda *of: trained.append(len(of[2].order)) or train(*of))
    monkeypatch.setattr(stacked_fit, "candidates_to_continue", lambda densities, costly, *_: list(costly)[:1])
    found = lamu.fit_table(X, np.arange(60) % 2, lamu.likelihoods.Bernoulli(), folds=3, steps=15)
    # Smaller models and the network in one program over folds; two members of the first fold, and two of further ones.
    assert sorted(trained) == [1, 1, 1, 1, 3, 3]
    assert list(found.weights) == list(found.nll) == [each.name for each in (*ADDITIVE, *KERNELS, *NETWORKS)]
    assert found.weights[NETWORKS[2].name] == 0.0
    assert np.isfinite(found.nll[NETWORKS[2].name])
    assert sum(found.weights.values()) == pytest.approx(1.0)


def test_a_network_without_pieces_is_one_whose_pieces_stay_at_zero():
    """Its program leaves out what its gates would hold at zero, and its start and its weights are the same."""
    x, y = jnp.asarray(X), np.arange(60.0)
    network, readings = TableNetwork(COLUMNS, (8,)).encode(x)
    plain = replace(network, columns=replace(network.columns, piece_count=0))
    found = {}
    for each, inputs in ((network, readings), (plain, readings[:, : COLUMNS.smooth_width])):
        model = lamu.Model(each, lamu.likelihoods.Gaussian(scale=1.0))
        batch = lamu.data.Batch.of(inputs, jnp.asarray(y / 60))
        params = model.init(jax.random.key(0), batch)[0]
        one = lambda tree: jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree)
        members = Members(
            one(params), one(NETWORKS[0].gates(each, params["network"], None)), one(NETWORKS[0].prior(each))
        )
        rows = FoldRows(np.arange(60).reshape(1, 15, 4), np.arange(8)[None], np.array([60.0]))
        found[each] = train(model, members, rows, batch, stretches=5, rate=0.1)
    whole, without = found.values()
    np.testing.assert_allclose(without.log_density, whole.log_density, rtol=1e-9)
    like = jax.tree.map(lambda leaf: leaf[0, 0], whole.params)
    completed = stacked_fit._completed(jax.tree.map(lambda leaf: leaf[:, -1], without.params), like)
    for a, b in zip(jax.tree.leaves(completed), jax.tree.leaves(whole.params), strict=True):
        np.testing.assert_allclose(a, b[:, -1], rtol=1e-9, atol=1e-12)


def test_a_row_that_counts_three_times_is_three_rows() -> None:
    rng = np.random.default_rng(4)
    counts, fold, weights = rng.integers(1, 4, 60), np.arange(60) % 2, np.array([0.7, 0.3])
    repeat = lambda values, axis: np.repeat(values, counts, axis=axis)
    means, y = rng.normal(2.0, 1.0, (2, 2, 60, 1)), np.abs(rng.normal(2.0, 1.5, (60, 1))) + 0.01
    deviations = rng.uniform(0.5, 1.5, (2, 2, 60, 1))
    for factor in (noise_factor, untruncated_weight):
        once = factor(means, deviations, y, fold, weights, counts.astype(float))
        of_rows = repeat(means, 2), repeat(deviations, 2), repeat(y, 0), repeat(fold, 0)
        np.testing.assert_allclose(once, factor(*of_rows, weights), rtol=1e-4)
        assert abs(once / factor(means, deviations, y, fold, weights) - 1) > 1e-3  # they do count
    logits, classes = rng.normal(size=(2, 2, 60, 3)), rng.integers(0, 3, 60)
    once = logit_factor(logits, classes, fold, weights, counts.astype(float))
    np.testing.assert_allclose(
        once, logit_factor(repeat(logits, 2), repeat(classes, 0), repeat(fold, 0), weights), 1e-4
    )
    densities = rng.normal(size=(60, 3))
    once, of_rows = stacking_weights(densities, 1.0, counts.astype(float)), stacking_weights(repeat(densities, 0), 1.0)
    np.testing.assert_allclose(once, of_rows, atol=1e-4)


@pytest.mark.stress
def test_a_stack_learns_by_the_weights_of_its_rows() -> None:
    # Two groups of rows, each with as many of both classes, which the weights make nine to one and one to nine.
    x = np.repeat(np.array([[-1.0], [1.0]]), 100, axis=0)
    y = np.arange(200) % 2
    weight = np.where((y == 1) == (x[:, 0] > 0), 1.8, 0.2)
    posterior = lamu.fit_table(x, y, lamu.likelihoods.Bernoulli(), weight=weight, folds=2, steps=150).posterior
    # Five standard errors of a frequency of 0.9 from 100 rows are 0.15.
    np.testing.assert_allclose(np.asarray(posterior.predict(np.array([[-1.0], [1.0]])).mean), [0.1, 0.9], atol=0.1)
    with pytest.raises(ValueError, match="weights must not be negative"):
        lamu.fit_table(x, y, lamu.likelihoods.Bernoulli(), weight=-weight)


def test_sharpened_members_have_sharper_outputs():
    network, x = TableNetwork(COLUMNS, (5,)), jnp.asarray(X, jnp.float32)
    params = jax.tree.map(lambda leaf: leaf + 0.1, network.init(jax.random.key(0), x, 2)[0])
    sharper = sharpened({"network": params}, 1.5)["network"]
    f = network.apply(params, {}, x, None, False)[0]
    np.testing.assert_allclose(network.apply(sharper, {}, x, None, False)[0], 1.5 * f, rtol=1e-5, atol=1e-5)


@pytest.mark.stress
def test_intervals_of_a_stack_cover_new_rows_as_often_as_they_say():
    x = RANDOM.normal(size=(1200, 2))
    y = np.sin(2 * x[:, 0]) + 0.3 * RANDOM.normal(size=1200)
    found = lamu.fit_table(x[:200], y[:200], lamu.likelihoods.Gaussian(), folds=3, steps=300)
    assert isinstance(found.posterior.model.likelihood.base, lamu.likelihoods.HeteroscedasticGaussian)
    assert found.posterior.model.likelihood.base.factor != 1.0
    # 0.06 is of the 200 rows that choose the noise; the coverage of 1,000 new rows has a standard error of 0.01.
    assert lamu.scores.coverage(found.posterior.predict(x[200:]), y[200:]) == pytest.approx(0.9, abs=0.06)


def test_noise_may_vary_only_where_there_is_one():
    assert all(not each.varying for group in candidates_for(False, kernels=True) for each in group)
    assert [each.varying for each in candidates_for(True, kernels=False)[0]] == [False, False, True, True]
    assert [each.kernel > 0 for each in candidates_for(True, kernels=True)[0]] == [False] * 4 + [True] * 2
    assert Candidate("linear").scales(TableNetwork(COLUMNS, ()))["additive/kernel"] == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 1}, "folds=1 cannot be made of 60"),
        ({"folds": 61}, "folds=61"),
        ({"steps": 3}, "steps=3 are too few"),
    ],
)
def test_settings_that_cannot_be_meant(options, message):
    with pytest.raises(ValueError, match=message):
        lamu.fit_table(X, np.arange(60.0), lamu.likelihoods.Gaussian(), **options)


@pytest.mark.stress
def test_columns_of_two_values_alone_are_a_table() -> None:
    """Where no column is cut in pieces, the weights of the pieces are arrays without entries."""
    random = np.random.default_rng(0)
    x = (random.uniform(size=(60, 3)) < 0.5).astype(np.float32)
    found = lamu.fit_table(x, x[:, 0].astype(int), lamu.likelihoods.Bernoulli(), folds=2, steps=30)
    assert np.isfinite(found.stacked_nll)
    assert lamu.scores.accuracy(found.posterior.predict(x), x[:, 0].astype(int)) == 1.0


@pytest.mark.stress
def test_programs_are_traced_one_after_the_other(monkeypatch):
    """Three threads train; JAX's memory of custom derivatives is lost where both trace at the same time."""
    inside, most, own = [0], [0], HeteroscedasticGaussian.log_prob

    def slow(self, params, f, y):
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.1)
        inside[0] -= 1
        return own(self, params, f, y)

    monkeypatch.setattr(HeteroscedasticGaussian, "log_prob", slow)
    x = RANDOM.normal(size=(47, 2))
    lamu.fit_table(x, x[:, 0], lamu.likelihoods.Gaussian(), folds=2, steps=15)
    assert most == [1]


def _cut_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training is interrupted after a stretch."""

    def train_until(*of, **options):
        *rest, callback, kept = of

        def cut(steps: int) -> None:
            callback(steps)
            if steps == step:
                raise KeyboardInterrupt

        return train(*rest, cut, kept, **options)

    monkeypatch.setattr(stacked_fit, "train", train_until)


@pytest.mark.stress
def test_a_fit_that_is_interrupted_goes_on_to_the_same_end(tmp_path, monkeypatch) -> None:
    x, y = lamu.data.load("iris")
    fit = partial(lamu.fit_table, x, y, Categorical(3), folds=2, steps=30, progress=False)
    whole = fit()
    with monkeypatch.context() as patch:
        _cut_at(12, patch)
        with pytest.raises(KeyboardInterrupt):
            fit(checkpoint=tmp_path)
    kept = {part.name: Checkpoints(part).latest() or 0 for part in tmp_path.iterdir() if part.is_dir()}
    assert max(kept.values()) == 12, "of whichever training came there first"
    assert min(kept["small"], kept["networks"]) > 0, "the others end after their stretch, and are kept"
    with pytest.raises(ValueError, match=r"there are checkpoints in .* resume=True"):
        fit(checkpoint=tmp_path)
    with pytest.raises(ValueError, match="is of a fit with seed='0', and this one has '1'"):
        fit(checkpoint=tmp_path, resume=True, seed=1)
    went_on = fit(checkpoint=tmp_path, resume=True)
    assert (went_on.weights, went_on.nll) == (whole.weights, whole.nll)
    np.testing.assert_array_equal(went_on.posterior.predict(x).mean, whole.posterior.predict(x).mean)
    with pytest.raises(ValueError, match="resume=True needs the folder"):
        fit(resume=True)


def test_a_fit_that_is_killed_has_its_last_checkpoint(tmp_path, monkeypatch) -> None:
    """Written between stretches, `every` seconds at most after the one before."""
    x, y = lamu.data.load("iris")
    written = []
    monkeypatch.setattr(Checkpoints, "save", lambda self, step, *_, **__: written.append(step))
    for every, runs in ((0.0, {4, 5, 6}), (3600.0, {0})):  # the first fold of both costly candidates; all of them
        written.clear()
        place = Checkpoints(tmp_path, every=every)
        lamu.fit_table(x, y, Categorical(3), folds=2, steps=15, progress=False, checkpoint=place)
        assert len(written) // 15 in runs
        assert sorted(written) == sorted(list(range(1, 16)) * (len(written) // 15))


def test_counts_with_an_exposure_have_rates() -> None:
    """Every candidate is one of the log rate: without its offsets the mixture would predict mean counts."""
    random = np.random.default_rng(0)
    x, exposure = random.normal(size=(400, 1)), np.exp(1.5 * random.normal(size=400))
    rate = np.exp(0.5 + 0.7 * x[:, 0])
    y, offset = random.poisson(exposure * rate), np.log(exposure)
    for name in ("poisson", "zero_inflated_poisson"):
        found = lamu.fit_table(x, y, LIKELIHOODS[name][1](0), offset=offset, folds=2, steps=300)
        rates = np.asarray(found.posterior.predict(x).mean)
        assert np.sqrt(np.mean(np.log(rates / rate) ** 2)) < 0.1, name
        for times in (1.0, 2.0):
            mean = found.posterior.predict(x, offset=np.log(times * exposure)).mean
            np.testing.assert_allclose(mean, times * exposure * rates, rtol=1e-4)
    with pytest.raises(ValueError, match="the offset of Gaussian is not the log of an exposure"):
        lamu.fit_table(x, x[:, 0], lamu.likelihoods.Gaussian(), offset=offset)
