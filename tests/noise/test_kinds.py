"""Noise by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reweigh import noise

LABELS = np.arange(100) % 10
GROUPS = (0, 0, 0, 0, 0, 1, 1, 1, 1, 1)
FEATURES = np.random.default_rng(0).normal(size=(100, 3))


@pytest.mark.parametrize("kind", noise.KINDS)
def test_every_name_makes_its_kind(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "labels.npy"
    np.save(file, LABELS)
    result = noise.corrupt(
        kind, LABELS, 0.4, 3, 10, GROUPS, FEATURES, matrix=noise.symmetric_matrix(10, 0.4), file=file
    )
    assert result.kind.startswith(kind + "(")
    assert result.seed == (None if kind == "given" else 3)
    assert (result.clean == LABELS).all()


def test_every_name_is_a_function_of_the_package() -> None:
    assert all(callable(getattr(noise, kind)) for kind in noise.KINDS)


def test_options_reach_their_kind() -> None:
    result = noise.corrupt("symmetric", LABELS, 0.4, include_true=True, count="overall")
    assert result.hash == noise.symmetric(LABELS, 0.4, include_true=True, count="overall").hash


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("symmetric", "rate"),
        ("superclass_pair", "groups"),
        ("superclass_cycle", "groups"),
        ("instance_dependent", "features"),
        ("transition", "matrix"),
        ("given", "file"),
    ],
)
def test_missing_arguments_of_a_kind_are_named(kind: str, missing: str) -> None:
    rate = None if missing == "rate" else 0.4
    with pytest.raises(ValueError, match=f"{missing} is not given; {kind} noise needs it"):
        noise.corrupt(kind, LABELS, rate)


@pytest.mark.parametrize(
    ("word", "near"),
    [("symetric", "symmetric"), ("pairs", "pair"), ("super_class_pair", "superclass_pair"), ("instance", None)],
)
def test_the_closest_name_is_suggested(word: str, near: str | None) -> None:
    with pytest.raises(ValueError, match=f"no noise is named '{word}'") as caught:
        noise.corrupt(word, LABELS, 0.4)
    if near:
        assert f"did you mean '{near}'?" in str(caught.value)
    else:
        assert "instance_dependent" in str(caught.value)


def test_noise_needs_neither_torch_nor_an_extra() -> None:
    code = "import sys, reweigh.noise, reweigh.imbalance; print({'torch', 'scipy', 'sklearn'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
