"""Pictures: what they show is what was computed, and nothing of matplotlib's global state is touched."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy.stats import binom

from lamu import Sensitivity, plots, scores
from lamu.density import LogDensity
from lamu.families import Draws
from lamu.likelihoods import Poisson
from lamu.plots.style import ACCENT, INK, canvas, likely_range, literal, percent, save_adaptive
from lamu.posterior import Posterior
from lamu.predictives import MixturePredictive, Sampled
from lamu.supports import Classes, Real, TwoClasses

RANDOM = np.random.default_rng(0)


def binary(p) -> SimpleNamespace:
    return SimpleNamespace(support=TwoClasses(), mean=np.asarray(p))


def normal(rows: int, std: float) -> SimpleNamespace:
    return SimpleNamespace(support=Real(), mean=jnp.zeros(rows), cdf=lambda z: norm.cdf(z, scale=std))


def line(axes, label: str) -> np.ndarray:
    (found,) = [each for each in axes.lines if each.get_label() == label]
    return np.asarray(found.get_xydata())


def test_the_curve_is_the_coverage_of_central_intervals() -> None:
    y = RANDOM.normal(size=400)
    left, right = plots.coverage(normal(400, 0.7), y)
    curve = line(left, "observed")
    for level, held in curve[::12]:
        end = 0.7 * norm.ppf(0.5 + level / 2)
        assert held == pytest.approx(np.mean(np.abs(y) <= end))
    heights = [bar.get_height() for bar in right.patches if bar.get_width() == pytest.approx(0.1)]
    assert np.mean(heights) == pytest.approx(1.0)
    assert max(heights[0], heights[-1]) > 1.3  # too narrow: ranks pile up at the ends
    assert any("% of targets" in text.get_text() for text in left.texts)


def test_the_points_are_the_reliability_and_the_bars_count_rows() -> None:
    p = RANDOM.uniform(size=300)
    y = (RANDOM.uniform(size=300) < p**3).astype(int)
    upper, lower = plots.reliability(binary(p), y, event="rain")
    found = scores.reliability(binary(p), y)
    points = np.concatenate([np.asarray(each.get_offsets()) for each in upper.collections])
    np.testing.assert_allclose(points[np.argsort(points[:, 0])], np.stack([found.said, found.happened], axis=1))
    assert [bar.get_height() for bar in lower.patches] == found.count.tolist()
    assert [text.get_text() for text in lower.texts] == [str(count) for count in found.count]
    assert "rain" in lower.get_xlabel()
    right = scores.ece_if_calibrated(binary(p)).value
    assert f"ECE {scores.with_error(scores.ece, binary(p), y)}; {right:.3f} if right" == upper.get_title("right")
    few = plots.reliability(binary(p[:6]), y[:6])[0]
    assert few.get_title("right") == "too few rows for an ECE"
    ranges = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in upper.patches]
    outside = [not low <= each <= high for (low, high), each in zip(ranges, found.happened, strict=True)]
    hollow = [each for each in upper.collections if each.get_label() == "observed, out of range"]
    assert sum(outside) == (len(hollow[0].get_offsets()) if hollow else 0) > 0


def test_extreme_tables_are_drawn() -> None:
    """One row, one bin, probabilities at their ends, more classes than two, several outputs."""
    for p, y in (([1.0], [1]), ([0.0, 0.0], [0, 1]), ([0.5], [0])):
        assert len(plots.reliability(binary(p), np.array(y))) == 2
    sharp = SimpleNamespace(support=Classes(4), mean=np.eye(4)[[0, 1, 2, 3, 0]])
    plots.reliability(sharp, np.array([0, 1, 2, 3, 1]))[0].figure.canvas.draw()
    pair = SimpleNamespace(support=Real(), mean=jnp.zeros((3, 2)), cdf=norm.cdf)
    plots.coverage(pair, np.zeros((3, 2)))[0].figure.canvas.draw()
    plots.coverage(normal(1, 1.0), np.zeros(1))[0].figure.canvas.draw()


def test_the_range_holds_nine_of_ten_calibrated_tables() -> None:
    """4000 tables of 50 rows: a discrete range covers at least 90 %, here within [0.9, 0.96] (seeded)."""
    low, high = likely_range(0.3, 50)
    share = RANDOM.binomial(50, 0.3, 4000) / 50
    assert 0.89 < np.mean((low <= share) & (share <= high)) < 0.96
    probability, rows = np.array([0.0, 1e-9, 0.03, 0.5, 0.98, 1.0]), np.array([[1], [7], [5000]])
    for end, q in zip(likely_range(probability, rows), (0.05, 0.95), strict=True):
        np.testing.assert_array_equal(end, np.maximum(binom.ppf(q, rows, probability), 0.0) / rows)


def test_pictures_refuse_the_wrong_task() -> None:
    with pytest.raises(ValueError, match="'regression'"):
        plots.reliability(normal(2, 1.0), np.zeros(2))
    with pytest.raises(ValueError, match="'binary'"):
        plots.coverage(binary([0.5, 0.5]), np.zeros(2))


def test_no_global_state_is_touched() -> None:
    script = (
        "import sys, matplotlib\nbefore = matplotlib.rcParams.copy()\nimport numpy as np\n"
        "from types import SimpleNamespace\nfrom lamu import plots, supports\nassert 'lamu.plots' in sys.modules\n"
        "pred = SimpleNamespace(support=supports.TwoClasses(), mean=np.array([0.2, 0.9]))\n"
        "plots.reliability(pred, np.array([0, 1]))[0].figure.canvas.draw()\n"
        "assert 'matplotlib.pyplot' not in sys.modules\nassert matplotlib.rcParams.copy() == before\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


class Sloped:
    """A posterior whose probability of one is a logistic function of the first input, at the grid's own points."""

    def __init__(self, classes: int = 2) -> None:
        self.classes = classes

    def predict(self, x) -> SimpleNamespace:
        p = 1 / (1 + np.exp(-4 * x[:, 0]))
        if self.classes == 2:
            return SimpleNamespace(support=TwoClasses(), mean=p, probabilities=np.stack([1 - p, p], axis=1))
        p = np.stack([(1 - p) / 2, (1 - p) / 2, p], axis=1)
        return SimpleNamespace(support=Classes(3), mean=p, probabilities=p)


PLANE = np.array([[-1.0, -1.0], [1.0, 3.0]])


def test_the_boundary_is_where_classes_are_equally_probable() -> None:
    axes = plots.decision_boundary(Sloped(), PLANE, [0, 1])
    (boundary,) = [each for each in axes.collections if type(each).__name__ == "QuadContourSet"]
    corners = np.concatenate([path.vertices for path in boundary.get_paths()])
    np.testing.assert_allclose(corners[:, 0], 0.0, atol=1e-2)
    assert (corners[:, 1].min(), corners[:, 1].max()) == (-2.0, 4.0)
    image = axes.images[0]
    assert list(image.get_extent()) == [-1.5, 1.5, -2.0, 4.0]
    colours = np.asarray(image.get_array())
    assert image.origin == "lower"
    points = np.asarray(axes.collections[-1].get_facecolors())[:, :3]
    for side, point in ((0, points[0]), (-1, points[1])):
        assert np.abs(colours[60, side] - (0.25 + 0.75 * point)).max() < 0.02


def test_pictures_are_drawn_on_the_axes_that_are_given() -> None:
    axes = canvas(3.0, 3.0).subplots()
    assert plots.entropy_map(Sloped(3), PLANE, axes) is axes
    image = axes.images[0]
    p = Sloped(3).predict(np.array([[-1.5, 0.0]])).mean[0]
    np.testing.assert_allclose(image.get_array()[5, 0], -np.sum(p * np.log(p)), rtol=1e-6)
    assert image.get_clim() == (0.0, pytest.approx(np.log(3)))
    assert plots.decision_boundary(Sloped(3), PLANE, [0, 2], axes) is axes


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: plots.entropy_map(Sloped(), np.zeros((4, 3))), r"shape \(4, 3\); a plane has two inputs"),
        (lambda: plots.decision_boundary(Sloped(), PLANE, [0]), r"shape \(1,\) for 2 rows"),
        (
            lambda: plots.entropy_map(SimpleNamespace(predict=lambda x: normal(len(x), 1.0)), PLANE),
            "entropy_map is of classes, and this prediction's task is 'regression'",
        ),
    ],
)
def test_planes_refuse_what_they_cannot_show(make, words) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_point_and_a_posterior_have_a_boundary_each() -> None:
    shifted = SimpleNamespace(predict=lambda x: Sloped().predict(x - np.array([0.5, 0.0], x.dtype)))
    axes = plots.decision_boundary(Sloped(), PLANE, [0, 1], point=shifted)
    lines = [each for each in axes.collections if type(each).__name__ == "QuadContourSet"]
    places = [np.concatenate([path.vertices for path in each.get_paths()])[:, 0].mean() for each in lines]
    np.testing.assert_allclose(places, (0.0, 0.5), atol=1e-2)
    solid, dashed = (each.get_linestyle()[0][1] for each in lines)
    assert solid is None
    assert dashed is not None
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["posterior", "point"]
    with pytest.raises(ValueError, match="the point predicts 3 classes and the posterior 2"):
        plots.decision_boundary(Sloped(), PLANE, [0, 1], point=Sloped(3))


SENSITIVITY = Sensitivity(np.array([0.1, 0.5]), np.zeros((2, 1)), np.array([0.2, 0.4]), np.array([0.3, 1.0]))
PANELS = {
    "coverage": (2, lambda axes: plots.coverage(normal(9, 1.0), np.arange(9.0), axes)),
    "reliability": (2, lambda axes: plots.reliability(binary([0.2, 0.9]), np.array([0, 1]), axes=axes)),
    "influence": (2, lambda axes: plots.influence(SENSITIVITY, axes=axes)),
    "image_rows": (3, lambda axes: plots.image_rows(dict.fromkeys("abc", np.ones((1, 2, 2))), axes=axes)),
    "analogies": (2, lambda axes: plots.analogies(np.ones((2, 2, 2)), np.ones((2, 3, 2, 2)), axes=axes)),
}


@pytest.mark.parametrize("name", PANELS)
def test_pictures_of_several_panels_draw_on_the_axes_that_are_given(name) -> None:
    count, draw = PANELS[name]
    figure = canvas(6.0, 6.0)
    mine = figure.subplots(count, 1)
    found = draw(list(mine))
    assert [id(each) for each in found] == [id(each) for each in mine]
    assert all(each.has_data() for each in mine)
    assert len(figure.axes) == count
    assert len(draw(None)) == count
    with pytest.raises(ValueError, match=f"{name if name != 'analogies' else 'image_rows'} draws on {count} axes"):
        draw(canvas(1.0, 1.0).subplots(1, 4))


def test_every_picture_takes_axes() -> None:
    for name in plots.__all__:
        assert "axes" in inspect.signature(getattr(plots, name)).parameters, name


def test_an_adaptive_picture_has_no_colour_of_one_theme_alone(tmp_path) -> None:
    axes = plots.coverage(normal(9, 1.0), np.arange(9.0))
    save_adaptive(axes[0].figure, tmp_path / "found.svg")
    source = (tmp_path / "found.svg").read_text()
    ElementTree.fromstring(source)
    style, _, body = source.partition("</style>")
    for colour in (INK, ACCENT, "#ffffff"):
        assert colour in style
        assert colour not in body
        assert f"var(--lamu-{colour[1:]})" in body
    with pytest.raises(ValueError, match=r"is not an \.svg file, the only kind that adapts; name it found\.svg"):
        save_adaptive(axes[0].figure, tmp_path / "found.png")


# The course of a run, abstention and comparisons


def test_the_risk_is_that_of_the_most_certain_rows_and_the_line_that_of_all() -> None:
    total = np.arange(1.0, 101.0)
    pred = SimpleNamespace(support=Real(), mean=np.zeros(100), total=total)
    axes = plots.risk_coverage(pred, total)  # the error of a row is its uncertainty
    base, curve = (np.asarray(each.get_xydata()) for each in axes.lines[:2])
    np.testing.assert_allclose(curve[49], [0.5, np.sqrt(np.mean(total[:50] ** 2))])
    np.testing.assert_allclose(base[:, 1], np.sqrt(np.mean(total**2)))
    mine = canvas(3.0, 3.0).subplots()
    many = SimpleNamespace(support=TwoClasses(), mean=RANDOM.uniform(size=5000), total=RANDOM.uniform(size=5000))
    assert plots.risk_coverage(many, np.zeros(5000, int), mine) is mine
    assert len(mine.lines[1].get_xdata()) <= 200  # a file of a point a row would be large


def test_a_forest_has_an_interval_for_each_estimate_from_the_top() -> None:
    found = {"a $b$": scores.Estimate(-0.2, 0.05), "c": scores.Estimate(0.1, float("nan"))}
    axes = plots.forest(found, "nll", "nats")
    (intervals,) = axes.collections
    ends = [path.vertices[:, 0] for path in intervals.get_paths()]
    np.testing.assert_allclose(ends[0], [-0.2 - 1.96 * 0.05, -0.2 + 1.96 * 0.05])
    np.testing.assert_allclose(ends[1], [0.1, 0.1])
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    axes.figure.canvas.draw()
    with pytest.raises(ValueError, match="no estimate"):
        plots.forest({})


def test_curves_are_means_of_parts_and_leave_out_the_first_tenth() -> None:
    loss = np.concatenate([np.full(100, 1000.0), np.linspace(2.0, 1.0, 900)])
    axes = plots.training_curve([{"loss": loss}, {"loss": loss + 1.0}])
    steps, values = axes.lines[0].get_data()
    assert (len(steps), steps[-1]) == (200, 1000)
    assert np.mean(values) == pytest.approx(loss.mean())
    assert axes.get_ylim()[1] < 5
    history = {"loss": loss, "validation_step": np.array([500, 1000]), "validation_nll": np.array([1.2, 1.1])}
    np.testing.assert_array_equal(plots.validation_curve(history).lines[0].get_xydata(), [[500, 1.2], [1000, 1.1]])
    for draw in (plots.training_curve, plots.validation_curve):
        with pytest.raises(ValueError, match="no history has a"):
            draw({"loss": np.zeros(0)})


def test_names_are_no_formulas() -> None:
    axes = canvas(3.0, 3.0).subplots()
    axes.set_title(literal("a $\\frac$ b"))
    axes.figure.canvas.draw()
    assert axes.title.get_text() == "a \\$\\frac\\$ b"


def test_rows_of_images_share_a_scale_and_mark_what_is_missing() -> None:
    images = np.zeros((2, 3, 4))
    images[0, 0, 0], images[1, 2, 3] = 2.0, np.nan
    panels = plots.image_rows({"one": images, "two": np.ones((1, 12))}, shape=(3, 4))
    first, second = (np.asarray(axes.images[0].get_array()) for axes in panels)
    assert first.shape == (3, 9, 4)
    np.testing.assert_allclose(first[0, 0, :3], 0.0, atol=0.01)  # the largest value is black
    np.testing.assert_allclose(second[0, 0, :3], 0.5, atol=0.01)
    assert len(set(first[2, 8, :3].round(3))) > 1  # a missing pixel is tinted
    assert [axes.get_ylabel() for axes in panels] == ["one", "two"]
    with pytest.raises(ValueError, match="one has the shape"):
        plots.image_rows({"one": np.zeros((2, 5))}, shape=(3, 4))
    with pytest.raises(ValueError, match="images is empty"):
        plots.image_rows({})


def test_a_map_of_latents_shows_how_sure_they_are() -> None:
    means = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 1.2]])
    axes = plots.latent_map(means, labels=[3, 7, 7], deviations=np.full((3, 2), 0.1))
    first = axes.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose(np.ptp(first, axis=0).max(), 0.2)


# Bands, shifts, parameters, chains, latents, evidence


class Widening:
    """A posterior whose mean is the second input plus twice the first, and whose uncertainty grows with the first."""

    def predict(self, x) -> SimpleNamespace:
        mean = 2.0 * x[:, 0] + x[:, 1]
        ends = lambda level: (mean - 3.0, mean + 3.0)
        return SimpleNamespace(support=Real(), mean=mean, epistemic=x[:, 0] ** 2, interval=ends)


def test_the_bands_are_of_targets_and_of_means_along_one_input() -> None:
    x = np.stack([np.linspace(0.0, 1.0, 11), np.full(11, 5.0)], axis=1)
    axes = plots.predictive_bands(Widening(), x, x[:, 0])
    along, mean = axes.lines[0].get_data()
    np.testing.assert_allclose((along[0], along[-1]), (-0.15, 1.15))
    np.testing.assert_allclose(mean, 2 * along + 5.0)  # the other input stays at its median
    outer, inner = (each.get_paths()[0].vertices[:, 1] for each in axes.collections[:2])
    assert outer.max() == pytest.approx(mean[-1] + 3.0)
    assert inner.max() == pytest.approx(mean[-1] + 1.645 * 1.15)
    with pytest.raises(ValueError, match="no column 2"):
        plots.predictive_bands(Widening(), x, column=2)
    with pytest.raises(ValueError, match=r"shape \(3,\) for 11 rows"):
        plots.predictive_bands(Widening(), x, np.zeros(3))
    with pytest.raises(ValueError, match="is of a regression"):
        plots.predictive_bands(Sloped(), x)


def test_a_shift_has_both_histograms_and_what_tells_them_apart() -> None:
    axes = plots.uncertainty_shift(np.zeros(100), np.ones(50))
    assert axes.get_title("right") == "AUROC 1.000"
    areas = [sum(bar.get_height() * bar.get_width() for bar in bars) for bars in axes.containers]
    np.testing.assert_allclose(areas, 1.0)


def test_the_intervals_of_parameters_are_quantiles_of_their_samples() -> None:
    drawn = {"a": np.linspace(0.0, 1.0, 401)[:, None] * np.array([1.0, -2.0]), "b": np.zeros(401)}
    posterior = SimpleNamespace(sample=lambda key, n: drawn)
    axes = plots.weight_posteriors(posterior, jax.random.key(0))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a[0]", "a[1]", "b"]
    wide = [path.vertices[:, 0] for path in axes.collections[0].get_paths()]
    np.testing.assert_allclose(wide, [[0.05, 0.95], [-1.9, -0.1], [0.0, 0.0]])
    few = plots.weight_posteriors(posterior, jax.random.key(0), "a", most=1)
    assert few.get_title("right") == "1 more"
    with pytest.raises(ValueError, match="no parameter has a path like 'c'; the paths are a, b"):
        plots.weight_posteriors(posterior, jax.random.key(0), "c")


def test_chains_are_drawn_on_the_axes_that_are_given() -> None:
    samples = {"a": jnp.asarray(RANDOM.normal(size=(2, 30)))}
    density = LogDensity(lambda theta: -0.5 * theta["a"] ** 2, {"a": jnp.zeros(())})
    of = lambda belief: Posterior(density, belief, {}, Sampled(), jax.random.key(0))
    posterior = of(Draws(samples, statistics={"energy": jnp.asarray(RANDOM.normal(size=(2, 30)))}))
    axes = canvas(3.0, 3.0).subplots()
    assert plots.trace(posterior, "a", axes) is axes
    np.testing.assert_allclose([line.get_ydata() for line in axes.lines], samples["a"])
    with pytest.raises(ValueError, match="no parameter 'b'; choose one of a"):
        plots.trace(posterior, "b")
    assert plots.energy(posterior).get_title("left") == "Energy"
    with pytest.raises(ValueError, match="follows no energy"):
        plots.energy(of(Draws(samples)))


def test_a_map_has_a_point_a_row_in_the_colour_of_its_label() -> None:
    z = RANDOM.normal(size=(6, 2))
    axes = plots.latent_map(z, ["b", "a", "b", "b", "a", "$"])
    assert [len(each.get_offsets()) for each in axes.collections] == [1, 2, 3]
    np.testing.assert_allclose(axes.collections[1].get_offsets(), z[[1, 4]])
    assert len(plots.latent_map(z).collections[0].get_offsets()) == 6
    with pytest.raises(ValueError, match="for 6 rows"):
        plots.latent_map(z, np.arange(5))
    with pytest.raises(ValueError, match="10 colours, and there are 11"):
        plots.latent_map(RANDOM.normal(size=(11, 2)), np.arange(11))
    with pytest.raises(ValueError, match="two or three dimensions"):
        plots.latent_map(np.zeros((3, 4)))


def test_a_map_in_space_has_three_axes() -> None:
    z = RANDOM.normal(size=(6, 3))
    axes = plots.latent_map(z, ["b", "a", "b", "b", "a", "c"], deviations=np.full((6, 3), 0.1))
    assert axes.get_zlabel() == "third latent"
    points = [each for each in axes.collections if hasattr(each, "_offsets3d") and len(each.get_facecolor())]
    assert sorted(len(each._offsets3d[0]) for each in points) == [1, 2, 3]
    with pytest.raises(ValueError, match='projection="3d"'):
        plots.latent_map(z, axes=plots.latent_map(z[:, :2]))


def test_analogies_stand_beside_what_they_are_of() -> None:
    images, swept = np.ones((2, 6)), np.zeros((2, 3, 6))
    axes = plots.analogies(images, swept, shape=(2, 3), names=["a", "b", "c"])
    assert [label.get_text() for label in axes[0].get_xticklabels()] == ["given", "a", "b", "c"]
    assert axes[1].images[0].get_array().shape[:2] == (2, 4 * 4 - 1)
    with pytest.raises(ValueError, match="for 2 images"):
        plots.analogies(images, swept[:1], shape=(2, 3))
    with pytest.raises(ValueError, match="2 names for 3 classes"):
        plots.analogies(images, swept, shape=(2, 3), names="ab")


def test_the_greatest_evidence_is_marked_and_lost_fits_are_not() -> None:
    found = {3: scores.Estimate(-6.0, 0.1), 1: scores.Estimate(-np.inf, 0.0), 2: scores.Estimate(-5.0, 0.1)}
    axes = plots.evidence_curve(found, "units")
    assert axes.get_title("right") == "greatest at 2"
    assert axes.lines[0].get_xdata()[0] == 2
    with pytest.raises(ValueError, match="none of them finite"):
        plots.evidence_curve({1: scores.Estimate(-np.inf, 0.0)})


def test_the_share_in_intervals_is_the_score_of_that_name() -> None:
    """Of counts too, whose intervals have both their ends, and to a tenth of a percent: 92.5 is neither 92 nor 93."""
    random = np.random.default_rng(3)
    rate = random.uniform(0.5, 3, size=(1, 40, 1))
    pred, y = MixturePredictive.equal(Poisson(), {}, jnp.log(rate)), random.poisson(rate[0, :, 0])
    found = scores.coverage(pred, y, 0.9)
    texts = [text.get_text() for text in plots.coverage(pred, y)[0].texts]
    assert texts == [f"{100 * found:.1f} % of targets\nin 90 % intervals".replace(".0 %", " %")]
    assert percent(0.925) == "92.5"
    assert percent(0.9) == "90"
