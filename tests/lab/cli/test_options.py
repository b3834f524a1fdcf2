from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

from reweigh.lab.cli.options import COMMON, DEFAULT_LOSS, EPOCHS, SUSPECTS_DEFAULTS
from reweigh.lab.cli.train import make_run, train
from reweigh.lab.search.plan import HELD_OUT
from reweigh.lab.spec import Run, describe
from reweigh.lab.suspects import default_run

BASE = {"data": "digits", "net": "mlp-8", "weighting": "CCE"}


def test_every_field_of_a_run_is_an_option_of_train(reweigh) -> None:
    shown = reweigh("train", "--help").stdout
    parameters = inspect.signature(train).parameters
    for field in describe():
        assert field.name in parameters
        assert f"--{field.name.replace('_', '-')} " in shown, field.name


CHOSEN = {"lr": 0.001, "iterations": 375, "record_p": True, "record_margins": True}


def test_options_arrive_as_fields(monkeypatch: pytest.MonkeyPatch, reweigh) -> None:
    seen: list[Run] = []

    def refuse(run: Run, root: object, speed: object) -> None:
        seen.append(run)
        raise ValueError("far enough")

    monkeypatch.setattr("reweigh.lab.cli.train.run_one", refuse)
    line = ["train", "--data", "digits", "--net", "mlp-8", "--weighting", "DM(.5, 8)", "--optimiser", "adam"]
    more = ["--betas", "0.5", "0.9", "--taper", "1e-6", "--deterministic", "--seed", "3", "--evaluate-every", "7"]
    assert reweigh(*line, *more).code == 2
    assert seen == [
        Run(
            data="digits",
            net="mlp-8",
            weighting="DM(0.5, 8)",
            optimiser="adam",
            betas=(0.5, 0.9),
            taper=1e-6,
            deterministic=True,
            seed=3,
            evaluate_every=7,
            **CHOSEN,
        )
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data": "digits"}, "a run needs 'net'"),
        (BASE | {"optimiser": "adm"}, "did you mean 'adam'"),
        (BASE | {"loss": "X"}, "exactly one of weighting, loss and method"),
        (BASE | {"weighting": "DM(0.5"}, "never closed"),
        (BASE | {"betas": (1.0, 2.0)}, "betas is 1.0"),
    ],
)
def test_a_wrong_run_is_a_value_error(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make_run(fields)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--data nowhere", "data is 'nowhere': no such folder or file, and no data set of that name"),
        ("--data digit", "did you mean 'digits'?"),
        ("--iterations x", "'--iterations': takes a whole number, not 'x'"),
        ("--lr high", "'--lr': takes a number, not 'high'"),
        ("--jobs 0", "not '0'"),
        ("--noise symmetric --rate 40", "expected a number in [0, 1]; did you mean 0.4?"),
        ("--weighting DN", "no weighting is named 'DN'; did you mean 'DM'?"),
        ("--weighting dm(0.5,8)", "did you mean 'DM'?"),
        ("--weighting ELR", "no weighting is named 'ELR'; it is a method: use --method"),
        ("--weighting CCE --weighting MAE", "--weighting is given 2 times; it takes one value: to train several, use"),
        ("--seed 1 --seed=2", "for several, use --seeds 0,1,2"),
    ],
)
def test_messages_name_the_fix(reweigh, tmp_path: Path, line: str, message: str) -> None:
    words_of = dict(zip(*[iter(line.split())] * 2, strict=False))
    rest = {"--data": "digits", "--net": "mlp-8", "--weighting": "CCE", "--iterations": "2"}
    rest = {name: value for name, value in rest.items() if name not in words_of}
    ended = reweigh("train", *line.split(), *(word for pair in rest.items() for word in pair), "--runs", tmp_path)
    assert ended.code == 2
    assert message in words(ended.stderr)


def test_both_spellings_are_options(reweigh, tmp_path: Path) -> None:
    line = ["train", "--data", "digits", "--net", "mlp-8", "--weighting", "CCE", "--iterations", 2, "--runs", tmp_path]
    ended = reweigh(*line, "--optimizer", "adam", "--normalize", "batch", "--json")
    run = reweigh("show", ended.json["folder"], "--json").json["header"]["run"]
    assert (run["optimiser"], run["normalise"]) == ("adam", "batch")


def test_the_common_options_come_first(reweigh) -> None:
    shown = reweigh("train", "--help").stdout
    first = shown[shown.index("Options ─") : shown.index("Data and noise")]
    names = [field.name for field in (*describe(), EPOCHS)]
    assert {name for name in names if f"--{name.replace('_', '-')} " in first} == set(COMMON)


def test_a_switch_and_its_opposite_contradict(reweigh) -> None:
    ended = reweigh("train", "--deterministic", "--no-deterministic")
    assert ended.code == 2
    assert "contradict" in ended.stderr


def words(shown: str) -> str:
    """The help without frames and line ends."""
    return " ".join(shown.replace("│", " ").split())


@pytest.mark.parametrize("command", ["suspects", "correct"])
def test_commands_on_data_show_their_own_defaults(reweigh, command: str) -> None:
    shown = words(reweigh(command, "--help").stdout)
    assert "required" not in shown.partition("Data and noise")[2]
    assert f"Loss or method ({DEFAULT_LOSS})" in shown
    for default in SUSPECTS_DEFAULTS.values():
        assert f"({default})" in shown


def test_the_defaults_shown_are_those_of_a_run_on_data(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("x,label\n" + "".join(f"{x},{'no' if x % 5 else 'yes'}\n" for x in range(40)))
    labels = np.arange(8) % 2
    np.savez(tmp_path / "mine.npz", x_train=np.zeros((8, 8, 8, 3), np.uint8), y_train=labels)
    numbers = {
        "iterations": "40 epochs",
        "batch_size": "less",
        "lr": "less",
        "evaluate_every": "tenth",
        "record_p": "on",
        "record_margins": "on",
    }
    shown = {"method": DEFAULT_LOSS, **SUSPECTS_DEFAULTS}
    for name in ("mine.csv", "mine.npz"):
        made = default_run(str(tmp_path / name))
        for field, value in made.to_mapping().items():
            if field != "data":
                assert numbers.get(field, str(value)) in shown[field]
        assert made.evaluate_every == made.iterations // 10 > 0


def test_search_shows_its_own_defaults(reweigh) -> None:
    shown = words(reweigh("search", "--help").stdout)
    assert f"({HELD_OUT}, or none with --trusted)" in shown
    assert "Loss or method (one of --weighting, --loss, --method, or the space)" in shown
