"""Hashes and folder names: equal for equivalent spellings, and stable."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper.protocols import authors, paper
from reweigh.lab.data.registry import NAMES
from reweigh.lab.spec import Run
from reweigh.lab.spec.checks import DATA_NAMES

PLAIN: dict[str, Any] = {"data": "digits", "net": "mlp-256-256", "weighting": "DM(0.5, 8)"}


def run_of(**values: Any) -> Run:
    return Run.from_mapping(PLAIN | values)


def test_equivalent_spellings_have_the_same_hash() -> None:
    assert run_of(weighting="DM(lam=.5, beta=8.0)").hash() == run_of(weighting="DM( beta=8, lam=0.5)").hash()
    assert run_of(weighting="DM(0.5, 8)").hash() == run_of(weighting="DM(lam=0.5, beta=8)").hash()
    assert run_of(lr=1).hash() == run_of(lr=1.0).hash()
    assert run_of(weight_decay=-0.0).hash() == run_of(weight_decay=0).hash()
    assert run_of(taper="5e-7").hash() == run_of(taper=5e-7).hash()
    assert run_of(seed=0, momentum=0.9).hash() == run_of().hash()


def test_hashes_do_not_change() -> None:
    """A change here renames every recorded run: add fields with defaults, never rename them or change defaults."""
    assert run_of().hash() == "9c09f4b0e7b0"
    assert paper("cifar100", rate=0.4).hash() == "8cec69690e57"
    assert authors("cifar100", rate=0.4).hash() == "bef9c7f742fb"
    assert run_of(weighting="GCE(0.7)").hash() == "f931a016284a"
    assert run_of(weighting="Focal(2)").hash() == "c21f68d141b8"


@given(st.text(min_size=1, max_size=80).filter(lambda t: t.isprintable() and t == t.strip()))
def test_folder_names_are_safe_for_any_data_name(data: str) -> None:
    name = run_of(data=data).folder_name()
    assert re.fullmatch(r"[A-Za-z0-9.-]+-s0-[0-9a-f]{12}", name)
    assert len(name) < 160
    assert Path(name).name == name


@pytest.mark.parametrize(
    ("spellings", "plain"),
    [
        (("./ok.csv", "././/ok.csv", Path("ok.csv")), "ok.csv"),
        (("photos/", "./photos", "./photos//"), "photos"),
        (("a/./b.npz", "a//b.npz"), "a/b.npz"),
        (("/data//photos/",), "/data/photos"),
        (("./digits", "digits/"), "./digits"),
        (("tracklets:./videos",), "tracklets:./videos"),
        (("a/../ok.csv",), "a/../ok.csv"),  # another file, where a is a link
        ((".", "./"), "."),
    ],
)
def test_a_path_has_one_spelling(spellings: tuple[Any, ...], plain: str) -> None:
    for spelling in spellings:
        run = run_of(data=spelling, test_data=spelling)
        assert run.data == plain
        assert run.folder_name() == run_of(data=plain, test_data=plain).folder_name()
    assert run_of(data="./digits").hash() != run_of(data="digits").hash(), "a folder, and the data set"


@pytest.mark.parametrize(
    ("field", "expression"),
    [
        ("noise", "given({})"),
        ("noise", "given({}, 'key')"),
        ("noise", "given(truth=False, file={})"),
        ("imbalance", "kept({})"),
        ("imbalance", "kept(file={}, hash='0123')"),
        ("loss", "Forward(file({}))"),
        ("loss", "Backward(T=file(path={}, hash='0123'))"),
        ("method", "SIGUABC(file({}))"),
        ("method", "SoftLabels({})"),
        ("method", "JointLabels(file={})"),
        ("method", "Curriculum({}, start=0.5)"),
    ],
)
def test_a_path_inside_an_expression_has_one_spelling(field: str, expression: str) -> None:
    taught = {"weighting": None} if field in ("loss", "method") else {}
    plain = run_of(**taught, **{field: expression.format("'a/b.npy'")})
    for spelling in ("./a/b.npy", "a//b.npy", "a/./b.npy"):
        run = run_of(**taught, **{field: expression.format(repr(spelling))})
        assert getattr(run, field) == getattr(plain, field)
        assert run.folder_name() == plain.folder_name()
    other = run_of(**taught, **{field: expression.format("'a/../b.npy'")})
    assert getattr(other, field) != getattr(plain, field), "another file, where a is a link"


def test_other_text_in_an_expression_is_not_changed() -> None:
    assert run_of(noise="given('./a.npy', './key')").noise == "given('a.npy', './key')"
    assert run_of(noise="cifar_n('./worse')").noise == "cifar_n('./worse')"
    assert run_of(noise="given('')").noise == "given('')"
    assert run_of(noise="given(3)").noise == "given(3)"


def test_data_names_are_complete() -> None:
    assert set(DATA_NAMES) == set(NAMES)


def test_folder_name_reads_well() -> None:
    run = run_of(noise="symmetric", rate=0.4, seed=3)
    assert run.folder_name() == f"digits-mlp-256-256-DM-0.5-8-symmetric-0.4-s3-{run.hash()}"


@pytest.mark.parametrize("text", ["DM(lam=0.5, beta=8)", "DM(beta=8.0, lam=.5)", "DM(0.5, beta=8)"])
def test_spellings_of_a_weighting_share_a_folder(text: str) -> None:
    assert run_of(weighting=text).folder_name() == run_of(weighting="DM(0.5, 8)").folder_name()


@pytest.mark.parametrize(
    ("short", "written"),
    [
        ("GCE", "GCE(0.7)"),
        ("GCE()", "GCE(q=0.7)"),
        ("Focal", "Focal(2)"),
        ("Focal(gamma=2.0, detach=False)", "Focal(2)"),
        ("Focal(detach=True)", "Focal(2, detach=True)"),
        ("SL(b=9.21)", "SL(0.1, 9.21)"),
        ("Tapered(GCE)", "Tapered(GCE(0.7), 5e-7)"),
        ("CCE + 0.5 * PHuber", "CCE + 0.5 * PHuber(2)"),
    ],
)
def test_a_default_may_be_left_out(short: str, written: str) -> None:
    assert run_of(weighting=short).folder_name() == run_of(weighting=written).folder_name()
    assert run_of(weighting="Focal(detach=True)").hash() != run_of(weighting="Focal").hash()


@pytest.mark.parametrize(
    ("field", "spellings"),
    [
        ("loss", ("BootstrapHard", "BootstrapHard()", "BootstrapHard(0.8)", "BootstrapHard(beta=0.80)")),
        ("loss", ("BootstrapHard(0.7)", "BootstrapHard(beta=0.7)")),
        ("loss", ("LabelSmoothing(sl_compat=True)", "LabelSmoothing(0.1, True)")),
        ("loss", ("Forward(symmetric(0.4))", "Forward(T=symmetric(0.4))")),
        ("method", ("ELR", "ELR(3, 0.7)", "ELR(beta=0.7, half=False)")),
        ("method", ("D2L(34)", "D2L(34, 5)", "D2L(k=20, start=34.0)")),
        ("method", ("SelfPaced(decay=0.4)", "SelfPaced(0.7, 0.4, None)")),
        ("method", ("MentorNetPD", "MentorNetPD(example_dropout=[[0.5, 17], [0.05, 83]])")),
        ("method", ("CoTeaching(linear(0, 0.4))", "CoTeaching(forget_rate=linear(0, 0.4), warm_up=10)")),
        ("method", ("SoftLabels('a.npy')", "SoftLabels(file='./a.npy', hash=None)")),
    ],
)
def test_spellings_of_a_loss_or_method_share_a_folder(field: str, spellings: tuple[str, ...]) -> None:
    first, *others = (run_of(weighting=None, **{field: text}) for text in spellings)
    assert {run.folder_name() for run in others} <= {first.folder_name()}
    assert first.identity()[field] == spellings[0].replace("'./", "'"), "the shortest way to say it, which stays"


def test_different_losses_and_methods_have_different_hashes() -> None:
    texts = ("ELR(half=True)", "ELR", "ELR(2)", "ELR(beta=2)", "D2L", "MDYRH(1)", "MDYRH", "MDYRH(105, 1)")
    assert len({run_of(weighting=None, method=text).hash() for text in texts}) == len(texts)
    sided = (run_of(weighting=None, loss=f"LabelSmoothing(0.1, {side})").hash() for side in (0, False))
    assert len(set(sided)) == 2, "0 is no False"
