"""`Run`: canonical values, checks and hash."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.lab.spec import Run, describe

PLAIN: dict[str, Any] = {"data": "digits", "net": "mlp-256-256", "weighting": "DM(0.5, 8)"}

CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "data_hash": st.sampled_from(["0123456789ab", "a" * 64]),
    "imbalance": st.sampled_from(["ratio(ratio=10, minority=0)", "long_tail(100)", "step(10)"]),
    "dropout": st.floats(0, 0.99),
    "bn_momentum": st.floats(0.001, 1),
    "normalise": st.sampled_from(["auto", "batch", "unit", "none"]),
    "taper": st.sampled_from(["auto", 0, 5e-7, "linear(0.001, 0)"]),
    "iterations": st.integers(1, 10**6),
    "batch_size": st.integers(1, 10**4),
    "augment": st.sampled_from(["none", "pad-crop-flip", "resize-crop-flip"]),
    "inputs": st.sampled_from(["mean-std", "mean", "none"]),
    "lr": st.floats(1e-9, 100),
    "schedule": st.sampled_from(["cosine", "constant", "inv(1e-4, 0.75)", "step(0.1, at=[0.5])"]),
    "momentum": st.floats(0, 0.99),
    "caffe_momentum": st.booleans(),
    "weight_decay": st.floats(0, 1),
    "decay_exempt": st.booleans(),
    "seed": st.integers(0, 2**53),
    "precision": st.sampled_from(["fp32", "tf32", "bf16", "bf16-logits"]),
    "deterministic": st.booleans(),
    "evaluate_every": st.integers(1, 10**5),
    "record_p": st.booleans(),
    "record_margins": st.booleans(),
    "fold": st.sampled_from(["1/5", "5/5", "3/10"]),
    "threshold_set": st.integers(0, 9),
}
PLACES: dict[str, st.SearchStrategy[Any]] = {
    "data_root": st.sampled_from(["/data", "elsewhere"]),
    "device": st.sampled_from(["auto", "cpu", "cuda", "cuda:1", "mps"]),
    "workers": st.integers(0, 8),
    "checkpoint_every": st.integers(1, 100),
}


def run_of(**values: Any) -> Run:
    return Run.from_mapping(PLAIN | values)


@given(st.fixed_dictionaries({}, optional=CHANGES | PLACES))
def test_mapping_and_json_round_trip(values: dict[str, Any]) -> None:
    run = run_of(**values)
    assert Run.from_mapping(run.to_mapping()) == run
    assert Run.from_json(run.to_json()) == run
    assert Run.from_json(run.to_json()).hash() == run.hash()
    assert dataclasses.replace(run) == run
    defaults = {field.name: field.default for field in describe()}
    assert all(value != defaults[name] for name, value in run.to_mapping().items())


@given(st.fixed_dictionaries({}, optional=CHANGES), st.fixed_dictionaries({}, optional=PLACES))
def test_paths_do_not_affect_the_hash(values: dict[str, Any], places: dict[str, Any]) -> None:
    assert run_of(**values, **places).hash() == run_of(**values).hash()


@given(st.fixed_dictionaries({}, optional=CHANGES), st.fixed_dictionaries({}, optional=CHANGES))
def test_the_hash_is_equal_exactly_when_the_runs_are(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert (run_of(**one).hash() == run_of(**two).hash()) == (run_of(**one) == run_of(**two))


def test_every_hashed_field_changes_the_hash() -> None:
    base = run_of()
    values: dict[str, dict[str, Any]] = {
        "data": {"data": "other"},
        "net": {"net": "linear"},
        "noise": {"noise": "symmetric", "rate": 0.1},
        "rate": {"noise": "symmetric", "rate": 0.2},
        "include_true": {"noise": "symmetric", "rate": 0.2, "include_true": True},
        "noise_count": {"noise": "symmetric", "rate": 0.2, "noise_count": "overall"},
        "noise_seed": {"noise": "symmetric", "rate": 0.2, "noise_seed": 5},
        "validation": {"validation": 0.2},
        "validation_labels": {"validation": 0.2, "validation_labels": "noisy"},
        "weighting": {"weighting": "DM(0.5, 9)"},
        "loss": {"weighting": None, "loss": "LabelSmoothing(0.1)"},
        "method": {"weighting": None, "method": "CoTeaching(forget_rate=0.4)"},
        "sampler": {"sampler": "balanced"},
        "classes_per_batch": {"sampler": "balanced", "classes_per_batch": 8},
        "optimiser": {"optimiser": "adam"},
        "betas": {"optimiser": "adam", "betas": [0.9, 0.99]},
        "eps": {"optimiser": "adam", "eps": 0.1},
        "data_hash": {"data_hash": "0" * 12},
        "label_column": {"label_column": "y"},
        "text_column": {"text_column": "review"},
        "test_data": {"test_data": "test.csv"},
        "text_vectors": {"data": "imdb", "text_vectors": "pv-dbow"},
        "image_size": {"image_size": 32},
        "imbalance": {"imbalance": "long_tail(10)"},
        "dropout": {"dropout": 0.2},
        "bn_momentum": {"bn_momentum": 0.001},
        "init_hash": {"init_file": "weights", "init_hash": "0" * 12},
        "normalise": {"normalise": "unit"},
        "taper": {"taper": 0},
        "iterations": {"iterations": 5},
        "batch_size": {"batch_size": 5},
        "augment": {"augment": "pad-crop-flip"},
        "inputs": {"inputs": "mean"},
        "lr": {"lr": 0.01},
        "schedule": {"schedule": "constant"},
        "momentum": {"momentum": 0.5},
        "caffe_momentum": {"caffe_momentum": True},
        "weight_decay": {"weight_decay": 0},
        "decay_exempt": {"decay_exempt": True},
        "seed": {"seed": 1},
        "precision": {"precision": "bf16"},
        "deterministic": {"deterministic": True},
        "calibrate": {"calibrate": True, "validation": 0.2},
        "evaluate_every": {"evaluate_every": 10},
        "record_p": {"record_p": True},
        "record_margins": {"record_margins": True},
        "fold": {"fold": "1/5"},
        "threshold_set": {"threshold_set": 0},
        "labels": {"labels": "labels.csv"},
        "patience": {"patience": 3},
        "code_hash": {"weighting": "my.py:curve", "code_hash": "0" * 12},
        "only_columns": {"only_columns": "a,b"},
        "drop_columns": {"drop_columns": "a"},
        "holdout": {"holdout": 0},
        "features": {"features": "wordllama"},
    }
    assert set(values) == {field.name for field in describe() if field.hashed}
    hashes = [run_of(**value).hash() for value in values.values()]
    assert len({base.hash(), *hashes}) == len(hashes) + 1


def test_numpy_numbers_are_accepted() -> None:
    plain = Run(data="digits", net="mlp", weighting="CCE", seed=1, lr=0.5, betas=(0.5, 0.25), optimiser="adam")
    run = dataclasses.replace(
        plain, seed=np.arange(3)[1], lr=np.float32(0.5), betas=(np.float64(0.5), np.float16(0.25))
    )
    assert run == plain
    assert run.to_json() == plain.to_json()
    assert (type(run.seed), type(run.lr)) == (int, float)
    with pytest.raises(TypeError, match="expected a whole number"):
        dataclasses.replace(plain, seed=np.True_)


def test_values_are_canonical() -> None:
    run = run_of(lr=1, iterations=30.0, betas=(0.9, 0.999), schedule="cosine()", taper="0")
    assert isinstance(run.lr, float)
    assert isinstance(run.iterations, int)
    assert (run.schedule, run.taper) == ("cosine", 0.0)
    assert hash(run) == hash(dataclasses.replace(run))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"weight_dcay": 0.1}, "no field 'weight_dcay'; did you mean 'weight_decay'"),
        ({"q": 1}, "no field 'q'; there are data"),
        ({"loss": "CCE"}, "exactly one of weighting, loss and method, not weighting and loss"),
        ({"weighting": None}, "exactly one of weighting, loss and method, not none of them"),
        ({"weighting": "DM(0.5"}, "weighting: expression 'DM\\(0.5'"),
        ({"weighting": "linear(1, 2)"}, "weighting: .*can only replace a number"),
        ({"weighting": "DM(1, linear(2))"}, "weighting: schedule linear\\(2\\): missing"),
        ({"rate": 0.4}, "rate is 0.4 with no noise"),
        ({"noise": "symmetric"}, "noise is symmetric without a rate"),
        ({"noise": "sl_block_pair", "rate": 0.2, "noise_count": "overall"}, "noise_count is 'overall', which has no"),
        ({"noise": "given(file='a.npy')", "rate": 0.1}, "rate is 0.1 with noise=given"),
        ({"noise": "symmetric", "rate": 1.5}, "rate is 1.5; expected a number in \\[0, 1\\]"),
        ({"noise": "pair", "rate": 0.5, "include_true": True}, "include_true is True, which has no effect"),
        ({"validation": 1}, "expected a number in \\[0, 1\\)"),
        ({"fold": "6/5"}, "fold is '6/5'; expected a fold among two or more, as in 2/5"),
        ({"fold": "1/1"}, "expected a fold among two or more"),
        ({"fold": "half"}, "expected a fold among two or more"),
        ({"fold": "1/5", "validation": 0.1}, "fold is 1/5 and validation is 0.1: give only one of the two"),
        ({"validation_labels": "noisy"}, "no effect"),
        ({"classes_per_batch": 8}, "no effect"),
        ({"optimiser": "adm"}, "did you mean 'adam'"),
        ({"optimiser": "adam", "momentum": 0.5}, "momentum is 0.5, which has no effect"),
        ({"optimiser": "sgd", "caffe_momentum": True}, "no effect"),
        ({"betas": (0.5, 0.9)}, "betas .*no effect"),
        ({"weighting": None, "loss": "LabelSmoothing(0.1)", "taper": 0}, "taper is 0.0, which has no effect"),
        ({"optimiser": "adam", "betas": [0.9, 1]}, "betas is 1"),
        ({"iterations": 0}, "iterations is 0; expected a whole number from 1"),
        ({"iterations": 1.5}, "iterations is 1.5"),
        ({"lr": 0}, "lr is 0; expected a number in \\(0, inf\\)"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"lr": float("inf")}, "lr is inf"),
        ({"lr": 10**400}, "lr is 1000"),
        ({"iterations": float("inf")}, "iterations is inf"),
        ({"seed": -1}, "seed is -1"),
        ({"schedule": "stepp(0.1, at=[1])"}, "schedule: .*did you mean 'step'"),
        ({"taper": -1}, "taper is -1"),
        ({"taper": "linear(1, -1)"}, "taper: .*reaches -1"),
        ({"taper": "nan"}, "taper is nan"),
        ({"taper": "DM(1, 2)"}, "taper: .*no schedule is named 'DM'"),
        ({"normalise": "Batch"}, "did you mean 'batch'"),
        ({"weighting": None, "method": "ELR(3, 0.7)", "normalise": "unit"}, "normalise is 'unit', which has no effect"),
        ({"text_vectors": "pv-dbow"}, "text_vectors is .pv-dbow., which has no effect"),
        ({"init_file": "w.safetensors"}, "without init_hash"),
        ({"init_hash": "0" * 12}, "init_hash is '0+', which has no effect"),
        ({"data": ""}, "data is ''"),
        ({"data": "a\nb"}, "data is"),
        ({"net": " resnet"}, "net is ' resnet'"),
        ({"device": "gpu"}, "device is 'gpu'; expected auto, cpu, cuda"),
        ({"data_hash": "xyz"}, "hexadecimal"),
    ],
)
def test_bad_values_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_of(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lr": "0.1"}, "lr is '0.1'; expected a number"),
        ({"lr": True}, "lr is True"),
        ({"seed": None}, "seed is None; expected a whole number"),
        ({"iterations": "5"}, "iterations"),
        ({"record_p": 1}, "record_p is 1; expected true or false"),
        ({"weighting": 5}, "weighting is 5; expected a string"),
        ({"optimiser": None}, "optimiser is None; expected one of sgd"),
        ({"optimiser": "adam", "betas": 0.9}, "two numbers"),
        ({"taper": None}, "taper is None"),
    ],
)
def test_wrong_types_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        run_of(**values)


def test_missing_fields_and_other_json_are_refused() -> None:
    with pytest.raises(ValueError, match="needs 'net'"):
        Run.from_mapping({"data": "digits", "weighting": "CCE"})
    with pytest.raises(ValueError, match="JSON object"):
        Run.from_json("[1]")


def test_a_run_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        run_of().seed = 3  # type: ignore[misc]  # the point of the test


def test_describe_lists_all_fields() -> None:
    by_name = {field.name: field for field in describe()}
    assert [field.name for field in describe()] == [field.name for field in dataclasses.fields(Run)]
    assert by_name["optimiser"].choices == ("sgd", "momentum", "nesterov", "adam", "adam-caffe", "adamw")
    assert all(field.help for field in describe())
    required = [field.name for field in describe() if field.default is dataclasses.MISSING]
    assert required == ["data", "net"]


def test_mapping_is_json_serialisable() -> None:
    run = run_of(optimiser="adam", betas=(0.8, 0.9))
    assert json.loads(json.dumps(run.to_mapping())) == run.to_mapping()
