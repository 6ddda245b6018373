"""`lamu fit images.npz --model vae`, and `lamu predict` for its folder, which fills in missing pixels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from lamu import plots, store
from lamu.algorithms import adam
from lamu.cli.output_dir import (
    FORMAT,
    altered,
    draft,
    keep_posterior,
    load_posterior,
    read_config,
    refuse_existing,
    refuse_unwritable,
    unfinished,
)
from lamu.cli.printing import dump, show_document, show_line, show_unreliable
from lamu.cli.recipes import whole_settings
from lamu.cli.request import Request
from lamu.cli.versions import package_versions
from lamu.convergence import Unconverged
from lamu.data.sources import arrays_of
from lamu.data.wording import nearest
from lamu.latent import generate, impute, models, reconstruct
from lamu.likelihoods import Bernoulli, Gaussian
from lamu.loop import fit
from lamu.networks import MLP
from lamu.posterior import Posterior
from lamu.rate import Annealed
from lamu.scores import mean_log_prob
from lamu.typing import Options, Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MODELS", "fill_images", "train_images"]

MODELS = ("vae",)
BLOCK = 256  # images that are filled in together
_STEPS, _RATE, _SAMPLES, _SHOWN = 3_000, 2e-3, 100, 10
# A learned noise starts at the deviation of the pixels, where latents are useless, and hardly moves from there.
_GREY_NOISE = 0.15
_SETTINGS = {"latents": 16, "hidden": 200}


@dataclass(frozen=True)
class Images:
    """Images as rows of pixels."""

    pixels: np.ndarray  # zeros and ones, or grey values from 0 to 1, `[N, pixels]`; NaN if missing
    shape: tuple[int, ...]  # of an image
    unit: float  # the divisor of the file's values

    @property
    def bits(self) -> bool:
        """Whether every pixel is 0 or 1."""
        observed = self.pixels[~np.isnan(self.pixels)]
        return bool(np.all((observed == 0) | (observed == 1)))


def train_images(
    request: Request,
    out: Path,
    model: str,
    settings: Sequence[str] = (),
    as_json: bool = False,
    force: bool = False,
    resume: bool = False,
) -> None:
    """Fits a variational autoencoder to images, and writes the folder `out`; prints the density of held-out images."""
    # Binary pixels have a `Bernoulli` likelihood; grey values have a `Gaussian` one with a noise of
    # 0.15, and are divided by 255 if they exceed 1.
    refuse_existing(out, force)
    data, seed, test_size, samples = request.data, request.seed, request.test_size, request.samples or _SAMPLES
    if model not in MODELS:
        raise ValueError(f"there is no model {model!r} of images; {nearest(model, MODELS)}")
    sizes = whole_settings(settings, _SETTINGS, "images")
    if not 0 < test_size < 1:
        raise ValueError(f"--test-size is {test_size:g}; give a share between 0 and 1, for instance 0.2")
    images = _read(data)
    order = np.random.default_rng(seed).permutation(len(images.pixels))
    size = round(test_size * len(order))
    if not 2 <= size <= len(order) - 2:
        raise ValueError(f"{len(order)} images leave {size} to score and {len(order) - size} to learn from; give more")
    test, train = images.pixels[order[:size]], images.pixels[order[size:]]
    batch = request.batch_size or 128
    epochs = request.epochs or max(1, round(_STEPS * batch / len(train)))
    network = MLP((sizes["hidden"],))
    likelihood = Bernoulli() if images.bits else Gaussian(scale=_GREY_NOISE)
    graph = models.VAE(sizes["latents"], test.shape[1], network, network, likelihood=likelihood)
    refuse_unwritable(out)
    choices = {"data": data, "model": model, "set": sizes, "epochs": epochs, "batch_size": batch, "seed": seed}
    begun = time.perf_counter()
    with unfinished(out, {**choices, "test_size": test_size}, resume, force) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", Unconverged)  # the density of held-out images shows the quality
        algorithm = adam(Annealed(_RATE))
        options: Options = {"epochs": epochs, "batch_size": batch, "seed": seed}
        learned = fit(graph, {"y": train}, algorithm, **options, checkpoint=place, resume=resume)
        keep_posterior(learned.posterior, place)
        seconds, posterior = time.perf_counter() - begun, learned.posterior
        with show_unreliable():
            density = mean_log_prob(posterior, {"y": test}, samples)
        rows = {"train": len(train), "test": len(test)}
        scores = {"log_prob": density.value, "standard_error": density.error}
        metrics = {**scores, "rows": rows, "seconds": seconds, "remarks": list(learned.warnings)}
        with draft(out, force) as folder:
            folder.mkdir(mode=0o755)
            posterior.save(folder / "posterior")
            config = {
                "format": FORMAT,
                **choices,
                "algorithm": "adam",
                "target": None,
                "shape": list(images.shape),
                "unit": images.unit,
                "likelihood": "bernoulli" if images.bits else "gaussian",
                "samples": samples,
                "posterior": store.fingerprint(folder / "posterior"),
                "versions": package_versions(),
            }
            (folder / "metrics.json").write_text(dump(metrics), encoding="utf-8")
            (folder / "config.json").write_text(dump(config), encoding="utf-8")
            if len(images.shape) == 2:
                _picture(posterior, test[:_SHOWN], images.shape).savefig(folder / "images.png")
    if as_json:
        show_document({"out": str(out), "metrics": metrics, "config": config})
        return
    show_line(f"a VAE of {sizes['latents']} latents on {data}: {len(train):,} images fitted in {seconds:.1f} s")
    by = f"by {samples} importance samples"
    show_line(f"log p(y) of {len(test):,} test images: {density} nats an image, {by}; written to {out}")
    for remark in metrics["remarks"]:
        show_line(remark)


def fill_images(
    run: Path, request: Request, out: Path | None, as_json: bool = False, trust: Sequence[str] = ()
) -> None:
    """Fills in the missing pixels of images, block by block, and writes their means and 90 % intervals."""
    data, config = request.data, read_config(run)
    shape, unit = config.get("shape"), config.get("unit", 0.0)
    valid = isinstance(shape, list) and all(type(size) is int and 0 < size < 2**31 for size in shape)
    if not (valid and type(unit) in (float, int) and 0 < unit < float("inf")):
        raise altered(run)
    posterior = load_posterior(run, config, trust)
    images = _read(data, config["unit"])
    if images.shape != tuple(config["shape"]):
        raise ValueError(f"an image in {data!r} has the shape {images.shape}; {run} was fitted to {config['shape']}")
    holes = np.isnan(images.pixels)
    if not holes.any():
        raise ValueError(f"no pixel in {data!r} is missing; write NaN where one is to be filled in")
    if out is not None and out.suffix.lower() != ".npz":
        raise ValueError(f"--out {str(out)!r} is not an .npz file, and images are written as one; give FILE.npz")
    arrays = _filled(posterior, images.pixels, request.samples or config["samples"])
    if out is not None:
        refuse_existing(out)
        with draft(out) as path:
            shaped: Options = {name: (part * images.unit).reshape(-1, *images.shape) for name, part in arrays.items()}
            np.savez(path, **shaped)
    summary = {"images": len(holes), "missing": int(holes.sum()), "out": None if out is None else str(out)}
    if as_json:
        show_document(summary)
        return
    width = np.mean((arrays["upper"] - arrays["lower"])[holes]) * images.unit
    show_line(
        f"{holes.sum():,} missing pixels of {holes.any(axis=1).sum():,} images filled in; their 90 % intervals are "
        f"{width:.3g} wide on average" + ("; --out FILE.npz writes them" if out is None else f"; written to {out}")
    )


def _filled(posterior: Posterior, pixels: np.ndarray, draws: int) -> dict[str, np.ndarray]:
    """Returns means and ends of the 90 % intervals by name, block by block: the draws of all would not fit."""
    parts = []
    for number_of_block, start in enumerate(range(0, len(pixels), BLOCK)):
        block = pixels[start : start + BLOCK]
        key = jax.random.fold_in(jax.random.key(0), number_of_block)
        missing = np.isnan(block).any()
        values = np.asarray(impute(posterior, {"y": block}, key, draws)["y"]) if missing else block[None]
        lower, upper = np.quantile(values, [0.05, 0.95], axis=0)
        parts.append({"X": values.mean(0), "lower": lower, "upper": upper})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _picture(posterior: Posterior, shown: np.ndarray, shape: tuple[int, ...]) -> Figure:
    lower = np.where(np.arange(shown.shape[1]) < shown.shape[1] // 2, shown, np.nan).astype(shown.dtype)
    keys = jax.random.split(jax.random.key(0), 3)
    rows: Mapping[str, Rows] = {
        "left out": shown,
        "rebuilt": reconstruct(posterior, {"y": shown}, keys[0])["y"],
        "upper half": lower,
        "filled in": _filled(posterior, lower, 50)["X"],
        "new": generate(posterior, len(shown), keys[1])["y"],
    }
    clipped = {name: np.clip(part, 0, 1) for name, part in rows.items()}
    return plots.image_rows(clipped, shape=(shape[0], shape[1]))[0].figure


def _read(data: str, unit: float | None = None) -> Images:
    """Returns the images of a file, divided by a unit: by default 255 if values exceed 1."""
    path = Path(data)
    if path.suffix.lower() != ".npz":
        raise ValueError(f"{data!r} is not an .npz file; write images with numpy.savez(file, X=images)")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {data!r}; give an .npz file with the array X")
    values = arrays_of(path, ("X",))[0].get("X")
    if values is None:
        raise ValueError(f"{data!r} has no array 'X'; write images with numpy.savez(file, X=images)")
    if values.ndim < 2 or 0 in values.shape:
        raise ValueError(f"X in {data!r} has the shape {values.shape}; give [N, height, width] or [N, pixels]")
    if not (np.issubdtype(values.dtype, np.number) or values.dtype == bool) or np.iscomplexobj(values):
        raise ValueError(f"X in {data!r} holds {values.dtype} and no numbers; give pixels")
    values = values.astype(jax.dtypes.canonicalize_dtype(float))
    low, high = np.nanmin(values, initial=np.inf), np.nanmax(values, initial=-np.inf)
    if not (low >= 0 and high <= 255):
        raise ValueError(
            f"pixels in {data!r} lie between {low:g} and {high:g}; give values from 0 to 1 or from 0 to 255"
        )
    empty = np.flatnonzero(np.isnan(values.reshape(len(values), -1)).all(axis=1))
    if len(empty):
        raise ValueError(f"image {empty[0]} in {data!r} has no pixel that is observed; leave it out")
    unit = unit or (255.0 if high > 1 else 1.0)
    return Images(values.reshape(len(values), -1) / unit, values.shape[1:], unit)
