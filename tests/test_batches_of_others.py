"""Data as other libraries hold them: read as arrays, or batch by batch, and what goes wrong in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

import lamu
from lamu.data import Arrays, Batch, DataError, Stream, image_folder
from lamu.data.stream import read
from lamu.sklearn import BayesianRegressor

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 3)).astype(np.float32)
Y = rng.integers(2, size=30)


@pytest.mark.parametrize("kind", ["torch", "memory map", "arrow", "read-only"])
def test_arrays_of_others_are_read_as_they_are(kind: str, tmp_path: Path) -> None:
    x: Any = X
    if kind == "torch":
        x = torch.tensor(X)
    elif kind == "memory map":
        np.save(tmp_path / "x.npy", X)
        x = np.load(tmp_path / "x.npy", mmap_mode="r")
    elif kind == "arrow":
        x = pa.table({name: X[:, index] for index, name in enumerate("abc")})
    else:
        x = X.copy()
        x.flags.writeable = False
    rows = Arrays.of((x, Y))
    np.testing.assert_array_equal(rows.x, X)
    assert rows.x.dtype == np.float32


@pytest.mark.parametrize("tensor", [torch.tensor(X).requires_grad_(), torch.tensor(X).bfloat16()])
def test_tensors_with_gradients_or_few_bits_are_read(tensor: torch.Tensor) -> None:
    known = tensor.detach().float().numpy()
    np.testing.assert_array_equal(Arrays.of((tensor, Y)).x, known)
    posterior = lamu.regression(tensor[:, 1:], tensor[:, 0])
    pred = posterior.predict(tensor[:, 1:])
    np.testing.assert_array_equal(pred.mean, lamu.regression(known[:, 1:], known[:, 0]).predict(known[:, 1:]).mean)
    np.testing.assert_array_equal(pred.log_prob(tensor[:, 0]), pred.log_prob(known[:, 0]))
    assert lamu.scores.rmse(pred, tensor[:, :1]) == lamu.scores.rmse(pred, known[:, 0])
    assert np.isfinite(lamu.composition.stack([posterior], tensor[:, 1:], tensor[:, 0]).weights).all()


def test_tensors_with_gradients_are_read_by_estimators() -> None:
    given: dict[str, Any] = {"likelihood": lamu.likelihoods.Gaussian(0.5), "network": lamu.networks.Linear()}
    ours = BayesianRegressor(algorithm=lamu.algorithms.conjugate(), **given).fit(X[:, 1:], X[:, 0])
    x, y = (torch.tensor(part).requires_grad_() for part in (X[:, 1:], X[:, 0]))
    theirs = BayesianRegressor(algorithm=lamu.algorithms.conjugate(), **given).fit(x, y)
    np.testing.assert_array_equal(theirs.predict(x), ours.predict(X[:, 1:]))


LIKELIHOODS = [lamu.likelihoods.Gaussian(0.5), lamu.likelihoods.Bernoulli(), lamu.likelihoods.Categorical(2)]


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda likelihood: likelihood.name)
def test_a_column_of_targets_is_one_a_row_for_fits_as_for_scores(likelihood: Any) -> None:
    given: dict[str, Any] = {"algorithm": lamu.algorithms.adam(0.1), "epochs": 2}
    column = Y[:, None]
    fits = [
        lamu.fit(lamu.Model(lamu.networks.Linear(), likelihood).standardised(X, y), (X, y), **given).posterior
        for y in (Y, column)
    ]
    np.testing.assert_array_equal(fits[1].predict(X).mean, fits[0].predict(X).mean)
    assert lamu.scores.nll(fits[1].predict(X), column) == lamu.scores.nll(fits[0].predict(X), Y)
    batches = [{"x": X, "y": column}]
    streamed = lamu.fit(lamu.Model(lamu.networks.Linear(), likelihood), batches, data_size=30, **given).posterior
    plain = lamu.fit(lamu.Model(lamu.networks.Linear(), likelihood), [{"x": X, "y": Y}], data_size=30, **given)
    np.testing.assert_array_equal(streamed.predict(X).mean, plain.posterior.predict(X).mean)


def test_a_data_loader_is_a_stream() -> None:
    rows = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    stream = Stream(torch.utils.data.DataLoader(rows, batch_size=8))
    for _ in range(2):
        batches = list(stream)
        assert [float(batch.count) for batch in batches] == [8.0, 8.0, 8.0, 6.0]
        np.testing.assert_array_equal(np.concatenate([batch.x for batch in batches])[:30], X)


class Loader:
    """Says how many batches each pass has."""

    def __init__(self, *passes: int) -> None:
        self.passes = iter(passes)

    def __iter__(self) -> Iterator[Any]:
        return iter([(X[:5], Y[:5])] * next(self.passes))


class OfColumns:
    """Batches by name, as a Hugging Face data set or a grain loader has them, anew at every pass."""

    def __iter__(self) -> Iterator[Any]:
        return ({"x": X[start : start + 8].tolist(), "y": Y[start : start + 8]} for start in range(0, 30, 8))


def test_batches_by_name_are_a_stream() -> None:
    stream = Stream(OfColumns())
    for _ in range(2):
        np.testing.assert_allclose(np.concatenate([batch.x for batch in stream])[:30], X, rtol=1e-6)
    with pytest.raises(TypeError, match="can be read once only"):
        Stream(iter(OfColumns()))


class OfHuggingFace:
    """As `datasets.Dataset.batch(8)`, or without it: rows by name, random access, and a shape that is no array's."""

    def __init__(self, size: int | None = 8) -> None:
        self.size, self.column_names = size, ["x", "y"]
        self.shape = (len(self), 2)

    def __len__(self) -> int:
        return 30 if self.size is None else -(-30 // self.size)

    def __getitem__(self, index: int) -> dict[str, Any]:
        rows: Any = index if self.size is None else slice(index * self.size, (index + 1) * self.size)
        return {"x": X[rows].tolist(), "y": Y[rows].tolist()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[index] for index in range(len(self)))


def test_a_data_set_of_hugging_face_is_a_stream_of_its_batches() -> None:
    """Its shape is that of a table of batches: taken for an array, it was refused."""
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
    fits = [
        lamu.fit(model, data, lamu.algorithms.sgd(1e-2), epochs=2, data_size=30)
        for data in (OfHuggingFace(), [(X[i : i + 8].astype(float), Y[i : i + 8]) for i in range(0, 30, 8)])
    ]
    first, second = (fit.posterior.mean["network"]["layers"][0]["kernel"] for fit in fits)
    np.testing.assert_allclose(first, second, rtol=1e-5)
    with pytest.raises(
        ValueError, match=r"OfHuggingFace yields single rows; .* for instance by its method batch\(64\)"
    ):
        lamu.fit(model, OfHuggingFace(None), lamu.algorithms.sgd(1e-2), epochs=2, data_size=30)


@pytest.mark.parametrize("part", ["x", "y"])
def test_a_number_that_is_none_in_a_later_batch_is_said(part: str) -> None:
    x, y = X.copy(), Y.astype(float)
    (x if part == "x" else y)[13] = np.nan
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    with pytest.raises(ValueError, match=f"{part} is NaN or infinite .* row 3"):
        lamu.fit(model, [(x[:10], y[:10]), (x[10:20], y[10:20])], lamu.algorithms.sgd(), epochs=1, data_size=20)


def test_a_pass_that_ends_early_is_said() -> None:
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
    options: Any = {"data_size": 15, "epochs": 3}
    with pytest.raises(ValueError, match="this pass over the data ended after 1 batches, and the first one had 3"):
        lamu.fit(model, Loader(3, 3, 3, 3, 1, 1, 1), lamu.algorithms.sgd(1e-3), **options)
    stream = Stream(Loader(3, 3))
    assert [len(list(stream)) for _ in range(2)] == [3, 3]


@pytest.mark.parametrize(
    ("likelihood", "label", "words"),
    [
        (lamu.likelihoods.Categorical(2), -1, r"batch 1: the target in row 3 is -1, and Categorical\(2\) takes"),
        (lamu.likelihoods.Bernoulli(), -1, "batch 1: the target in row 3 is -1, and Bernoulli takes 0 and 1"),
        (lamu.likelihoods.Categorical(2), 2, r"batch 1: the target in row 3 is 2, and Categorical\(2\) takes"),
    ],
    ids=str,
)
def test_targets_of_batches_are_checked(likelihood: Any, label: int, words: str) -> None:
    """The label -1 was read as the last class, in silence, and 2 of two classes as a loss that diverged."""
    y = Y.copy()
    y[13] = label
    model = lamu.Model(lamu.networks.Linear(), likelihood)
    for batches in ([(X[:10], y[:10]), (X[10:20], y[10:20])], [Batch.of(X[:10], y[:10]), Batch.of(X[10:20], y[10:20])]):
        with pytest.raises(ValueError, match=words):
            lamu.fit(model, batches, lamu.algorithms.sgd(), epochs=1, data_size=20)
    masked = replace(Batch.of(X[10:20], y[10:20]), mask=jnp.ones(10).at[3].set(0))
    assert len(list(model.read([masked]))) == 1


def test_a_shift_of_batches_is_one_of_the_mean_alone() -> None:
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.HeteroscedasticGaussian())
    data: Any = {"x": X, "y": X[:, 0], "offset": X[:, 1]}
    (batch,) = model.read([data])
    np.testing.assert_array_equal(batch.offset, model.read(data).offset)
    np.testing.assert_array_equal(batch.offset, np.column_stack([X[:, 1], np.zeros(30)]))


def test_whole_numbers_of_a_batch_are_computed_as_floats() -> None:
    """They rounded the scale of a standardised network to zero."""
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0)).standardised(X, X[:, 0])
    whole = np.rint(3 * X).astype(int)
    params, state = model.init(jax.random.key(0), Batch.of(X, X[:, 0]))
    by_row = model.log_likelihood(params, state, Batch.of(whole, X[:, 0]))[0]
    np.testing.assert_array_equal(by_row, model.log_likelihood(params, state, model.rows((whole, X[:, 0])).full())[0])
    assert Batch.of(X > 0, Y).x.dtype == Arrays.of((X > 0, Y)).x.dtype


@pytest.mark.measured
def test_one_batch_measures_a_belief_as_its_rows_do() -> None:
    """One pair of draws has no standard error: exact posteriors were told to be off by a factor of 8."""
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.4))
    y = X @ np.array([1.0, -2.0, 0.5], np.float32)
    convergence = lamu.fit(model, [(X, y)], lamu.algorithms.conjugate(), data_size=30).convergence
    assert convergence is not None
    assert convergence.converged


def test_a_change_of_shape_is_said() -> None:
    stream = Stream([(X, Y), (X[:, :2], Y)])
    with pytest.raises(ValueError, match=r"batch 1 has rows of the shape \(2,\), and those before it \(3,\)"):
        list(stream)


def _image(path: Path, size: tuple[int, int] = (4, 6), grey: int = 0) -> None:
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(np.full((*size, 3), grey, np.uint8)).save(path)


def test_images_have_the_class_of_their_folder(tmp_path: Path) -> None:
    for name, grey in (("b/1.png", 255), ("a/2.png", 0), ("b/0.jpg", 255), ("a/notes.txt", None)):
        if grey is None:
            (tmp_path / name).write_text("no image")
        else:
            _image(tmp_path / name, grey=grey)
    x, y, classes = image_folder(tmp_path)
    assert (x.shape, x.dtype, y.tolist(), classes) == ((3, 4, 6, 3), np.float32, [0, 1, 1], ("a", "b"))
    np.testing.assert_allclose(x[:, 0, 0, 0], [0.0, 1.0, 1.0], atol=0.01)
    _image(tmp_path / "b/2.png", (8, 8))
    with pytest.raises(DataError, match=r"2\.png' has the size \(8, 8\), and images before it \(4, 6\); give size="):
        image_folder(tmp_path)
    assert image_folder(tmp_path, size=(5, 7), mode="L")[0].shape == (4, 5, 7, 1)


def test_folders_that_are_none_are_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder; give one that has a folder of images for each class"):
        image_folder(tmp_path / "none")
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match="has no folders of images"):
        image_folder(tmp_path)
    (tmp_path / "a" / "0.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"0\.png' is not a readable image"):
        image_folder(tmp_path)


def test_sets_of_torch_are_told_how_they_are_read():
    rows = torch.utils.data.TensorDataset(torch.ones(4, 2), torch.ones(4))
    with pytest.raises(TypeError, match=r"type TensorDataset cannot be read; give its arrays, data.tensors, or give"):
        read(rows)
    with pytest.raises(
        TypeError, match=r"type Subset cannot be read; give torch.utils.data.DataLoader\(data, 64\), or"
    ):
        read(torch.utils.data.Subset(rows, [0, 1]))
    assert read(rows.tensors).batches(4) is not None
