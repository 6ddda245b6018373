"""Tables of mixed columns as variables of a row: kinds, units, holes, and the autoencoder that fills them in."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import lognorm, norm

import lamu
from lamu.data.wording import DataError
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row
from lamu.latent import Columns, models
from lamu.latent.columns import kind_of
from lamu.latent.locals.encoder import encoded
from lamu.networks import MLP, Linear, Trained

N = 400


def planted() -> pd.DataFrame:
    """Columns of every kind, most of them of one hidden number."""
    random = np.random.default_rng(0)
    z = random.normal(size=N)
    return pd.DataFrame(
        {
            "warmth": 20.0 + 4.0 * z + random.normal(size=N),
            "income": np.exp(8.0 + 0.9 * z + 0.3 * random.normal(size=N)),
            "visits": random.poisson(np.exp(1.0 + 0.7 * z)),
            "smokes": (random.random(N) < 1 / (1 + np.exp(-3 * z))).astype(int),
            "ward": np.array(["low", "middle", "top"])[np.digitize(z + 0.2 * random.normal(size=N), [-0.5, 0.5])],
        }
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.5, -2.0, 0.3], "number"),
        ([0.0, 1.0, 1.0, np.nan], "bit"),
        ([0.0, 3.0, 1.0, 7.0], "count"),
        ([1990.0, 1991.0, 1995.0, 1993.0], "number"),
        (np.exp(np.linspace(-3, 3, 40)).tolist(), "positive"),
        ([10.1, 11.3, 12.9], "number"),
    ],
)
def test_values_tell_the_kind(values, kind) -> None:
    assert kind_of(np.array(values), ()) == kind
    assert kind_of(np.array(values), ("a", "b")) == "category"


def test_rows_come_back_in_the_units_of_the_table() -> None:
    table = planted()
    table.iloc[3, 1] = np.nan
    columns = Columns.of(table)
    assert columns.kinds == ("number", "positive", "count", "bit", "category")
    rows = columns.rows(table)
    assert {name: part.shape for name, part in rows.items()} == {
        "numbers": (N, 2),
        "counts": (N, 1),
        "bits": (N, 1),
        "ward": (N,),
    }
    np.testing.assert_allclose(np.nanmean(rows["numbers"], axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(np.nanstd(rows["numbers"], axis=0), 1.0, rtol=1e-5)
    values = columns.values(rows)
    np.testing.assert_allclose(values[:, 1], table["income"], rtol=1e-4)
    assert np.isnan(rows["numbers"][3, 1])
    values[3, 1] = np.nan
    filled = columns.filled(values, np.where(np.isnan(values), 2.0, np.broadcast_to(values, (7, *values.shape))))
    for position, name in enumerate(("warmth", "income")):  # to the last bit, unlike a mean of seven copies
        np.testing.assert_array_equal(filled[name], np.where(np.isnan(values[:, position]), 2.0, values[:, position]))


def test_a_density_is_that_of_the_values() -> None:
    """Of standardised numbers and logarithms it is off by the logarithm of the units, holes apart."""
    table = planted()[["warmth", "income"]]
    columns = Columns.of(table)
    values = table.to_numpy().copy()
    values[1, 0] = np.nan
    z = columns.rows_of(values)["numbers"].astype(float)
    told = np.nansum(norm.logpdf(z), axis=1) - columns.log_unit(values)
    warm = norm.logpdf(values[:, 0], columns.centres[0], columns.scales[0])
    rich = lognorm.logpdf(values[:, 1], columns.scales[1], scale=np.exp(columns.centres[1]))
    np.testing.assert_allclose(told, np.nan_to_num(warm) + rich, rtol=1e-4)


def test_a_marked_encoder_reads_which_entries_are_there() -> None:
    table = pd.DataFrame({"size": [1.0, 2.5, 4.0, 0.2, 1.1], "sort": ["a", "b", "b", "a", "c"]})
    columns = Columns.of(table)
    seen = Trained(lambda w, y: y + w["zero"][None], {"zero": jnp.zeros(6)})
    graph = models.TableVAE(columns, 3, Linear(), seen)

    def read(size: float, sort: float) -> np.ndarray:
        there = jnp.isfinite(jnp.array([size])), jnp.isfinite(jnp.asarray(sort))
        data = {"numbers": jnp.nan_to_num(jnp.array([size])), "sort": jnp.nan_to_num(jnp.asarray(sort))}
        row = Row.of(graph.in_rows, graph.columns, data, 1.0, jnp.float32)
        row = replace(row, observed=dict(zip(data, there, strict=True)))
        return np.asarray(encoded(seen, seen.params, "z", (), row, Environment({}), True))

    np.testing.assert_allclose(read(2.0, 1.0), [2.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    np.testing.assert_allclose(read(np.nan, 2.0), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0])
    np.testing.assert_allclose(read(2.0, np.nan), [2.0, 1.0, 0.0, 0.0, 0.0, 0.0])


def test_what_cannot_be() -> None:
    table = planted()
    with pytest.raises(DataError, match="'visits' has -1, and every value of it is a whole number from 0"):
        Columns.of(table).rows(table.assign(visits=-1))
    with pytest.raises(DataError, match="holds words such as 'low', which are not a number"):
        Columns.of(table, {"ward": "number"})
    with pytest.raises(DataError, match="has one value in the rows"):
        Columns.of(table.assign(same=3.5))
    with pytest.raises(DataError, match="there is no column 'wards'"):
        Columns.of(table, {"wards": "category"})
    columns = Columns.of(table)
    with pytest.raises(ValueError, match="no kind 'word'"):
        Columns(columns.encoding, ("word",) * 5, columns.centres, columns.scales, columns.frequencies)


@pytest.mark.stress
def test_it_equals_factor_analysis_on_numbers() -> None:
    """A linear decoder of Gaussian columns is factor analysis, of which scikit-learn has the largest likelihood."""
    from sklearn.decomposition import FactorAnalysis

    random = np.random.default_rng(3)
    x = random.normal(size=(N, 1)) @ [[1.0, -0.8, 0.6, 0.9]] + 0.5 * random.normal(size=(N, 4))
    table = pd.DataFrame(x, columns=list("abcd"))
    columns = Columns.of(table)
    graph = models.TableVAE(columns, 1, Linear(), Linear())
    adam = lamu.algorithms.adam(lamu.rate.Annealed(0.03))
    posterior = lamu.fit(graph, columns.rows(table), adam, steps=600, batch_size=N).posterior
    own = columns.log_prob(posterior, table, samples=64).mean()
    assert own == pytest.approx(FactorAnalysis(1).fit(x).score(x), abs=0.03)


@pytest.mark.stress
def test_holes_of_every_kind_are_filled_by_what_the_others_say() -> None:
    """Planted in one hidden number: a word and a number are found again, and the intervals hold nine tenths."""
    table, random = planted(), np.random.default_rng(5)
    holes = table.mask(random.random(table.shape) < 0.2)
    columns = Columns.of(holes)
    graph = models.TableVAE(columns, 1, Linear(), MLP((16,)))
    adam = lamu.algorithms.adam(lamu.rate.Annealed(0.02))
    posterior = lamu.fit(graph, columns.rows(holes), adam, steps=700, batch_size=100).posterior
    asked = table.mask(random.random(table.shape) < 0.3).iloc[:150]
    asked = asked[asked.notna().any(axis=1)]
    filled, true = columns.imputed(posterior, asked, jax.random.key(0), draws=80), table.loc[asked.index]
    gone = asked.isna().to_numpy()
    right = (filled["ward"].to_numpy() == true["ward"].to_numpy())[gone[:, 4]].mean()
    assert right > 0.6  # the most frequent word is right of two fifths
    inside = []
    for position, name in ((0, "warmth"), (1, "income"), (2, "visits")):
        value = true[name].to_numpy()
        held = (filled[f"{name} lower"].to_numpy() <= value + 1e-3) & (
            value - 1e-3 <= filled[f"{name} upper"].to_numpy()
        )
        inside.append(held[gone[:, position]])
    assert np.concatenate(inside).mean() > 0.8
    error = np.abs(filled["warmth"].to_numpy() - true["warmth"].to_numpy())[gone[:, 0]].mean()
    assert error < 0.75 * np.abs(true["warmth"] - table["warmth"].mean()).mean()


@pytest.mark.stress
def test_knowing_less_never_narrows() -> None:
    """Of a row of which less is known, the belief about its latents is no narrower."""
    table = planted()[["warmth", "income", "visits"]]
    columns = Columns.of(table)
    graph = models.TableVAE(columns, 1, Linear(), MLP((16,)))
    random = np.random.default_rng(5)
    rows = columns.rows(table.mask(random.random(table.shape) < 0.3).dropna(how="all"))
    adam = lamu.algorithms.adam(lamu.rate.Annealed(0.02))
    posterior = lamu.fit(graph, rows, adam, steps=500, batch_size=100).posterior
    whole, part = table.iloc[:50], table.iloc[:50].assign(warmth=np.nan, income=np.nan)
    wide = lambda some: np.asarray(posterior.local(columns.rows(some))["z"].std)
    assert (wide(part) > wide(whole)).all()
