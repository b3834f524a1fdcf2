"""The protocols, which differ exactly where the authors departed from their text; shorter runs and searches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from paper.protocols import BETAS, authors, ours, paper, search_beta, search_rate, shortened, trial_of
from reweigh.lab.nets.registry import names
from reweigh.lab.spec import Run


def test_protocols_differ_where_the_authors_did() -> None:
    printed, ran = paper("cifar100", rate=0.4), authors("cifar100", rate=0.4)
    differing = {
        name for name in printed.to_mapping() | ran.to_mapping() if getattr(printed, name) != getattr(ran, name)
    }
    assert differing == {
        "net",
        "sampler",
        "augment",
        "inputs",
        "weight_decay",
        "caffe_momentum",
        "noise_count",
    }
    assert (printed.weight_decay, ran.weight_decay) == (1e-4, 5e-4)
    assert (printed.net, ran.net) == ("resnet44", "resnet44-projection")
    assert printed.iterations == ran.iterations == 30_000
    assert printed.batch_size == ran.batch_size == 256


@pytest.mark.parametrize(
    ("lam", "betas"), [(0, [2, 1, 1, 1]), (0.5, [6, 6, 8, 8]), (1, [6, 8, 8, 2]), (None, [6, 6, 8, 8])]
)
def test_betas_of_cifar100(lam: float | None, betas: list[float]) -> None:
    got = [authors(rate=rate, lam=lam).weighting for rate in (0, 0.2, 0.4, 0.6)]
    assert got == [f"DM({0.5 if lam is None else lam:g}, {beta})" for beta in betas]


@pytest.mark.parametrize("protocol", [paper, authors])
def test_protocols_of_the_other_data_sets(protocol: Any) -> None:
    imdb = protocol("imdb", rate=0.4)
    assert (imdb.weighting, imdb.batch_size, imdb.lr, imdb.weight_decay) == ("DM(0, -0.33)", 250, 0.01, 2e-3)
    assert imdb.schedule == "inv(gamma=1e-05, power=0.75)"
    assert imdb.sampler == "cyclic"
    clothing = protocol("clothing1m")
    assert (clothing.weighting, clothing.iterations, clothing.weight_decay) == ("DM(1, 2)", 20_000, 2e-5)
    mars = protocol("mars", weighting="CCE")
    assert (mars.batch_size, mars.schedule) == (180, "halving(every=10000)")
    assert protocol("cifar10", rate=0.8).weighting == "DM(0.5, 8)"
    assert protocol("cifar10", method="CoTeaching(forget_rate=0.4)").weighting is None
    with pytest.raises(ValueError, match="no beta was published for mars"):
        protocol("mars")
    with pytest.raises(ValueError, match="no beta was published for cifar100, rate"):
        protocol("cifar100", rate=0.3)
    with pytest.raises(ValueError, match="protocols exist for cifar100"):
        protocol("digits", weighting="CCE")


def test_the_nets_exist() -> None:
    for protocol in (paper, authors):
        for data in ("cifar100", "cifar10", "clothing1m", "mars", "imdb"):
            assert protocol(data, weighting="CCE").net in names()


def test_our_protocol() -> None:
    run = ours(0.4, weighting="GCE(0.7)")
    assert (run.net, run.batch_size, run.lr, run.weight_decay) == ("resnet56", 256, 0.1, 5e-4)
    assert (run.augment, run.precision, run.noise_count, run.include_true) == (
        *("pad-crop-flip", "bf16", "per_class"),
        False,
    )
    assert ours(0, weighting="CCE").noise is None


def test_a_shortened_run_has_the_same_schedule() -> None:
    run = paper("mars", weighting="CCE")
    assert shortened(run, 0.1).schedule == "halving(every=1000)"
    assert shortened(replace(run, schedule="halving(10000)"), 0.1).schedule == "halving(every=1000)"
    short = shortened(paper("cifar100", rate=0.4), 0.5)
    assert (short.iterations, short.schedule, short.evaluate_every) == (15_000, "step(0.1, at=[7500, 11000])", 500)
    assert shortened(run, 1e-9).iterations == 1


@pytest.mark.parametrize(
    ("full", "quarter"),
    [
        ({"weighting": "DM(1, linear(0, 16, until=5000))"}, {"weighting": "DM(1, linear(0, 16, until=1250))"}),
        ({"weighting": "DM(1, linear(0, 16, until=0.1))"}, {"weighting": "DM(1, linear(0, 16, until=0.1))"}),
        (
            {"weighting": "CCE + 0.5 * Tapered(DM(1, step(0, 8, 16, at=[0.1, 8000])), cosine(1, 0, until=2))"},
            {"weighting": "CCE + 0.5 * Tapered(DM(1, step(0, 8, 16, at=[0.1, 2000])), cosine(1, 0, until=1.5))"},
        ),
        (
            {"weighting": "DM(1, 16)", "taper": "linear(0.001, 0, until=400)"},
            {"weighting": "DM(1, 16)", "taper": "linear(0.001, 0, until=100)"},
        ),
        ({"weighting": "DM(1, 16)", "taper": 0.25}, {"weighting": "DM(1, 16)", "taper": 0.25}),
        ({"loss": "BootstrapHard(linear(1, 0.8, until=400))"}, {"loss": "BootstrapHard(linear(1, 0.8, until=100))"}),
        (
            {"method": "CoTeaching(forget_rate=linear(0, 0.4, until=4000))"},
            {"method": "CoTeaching(linear(0, 0.4, until=1000), 2)"},
        ),
        ({"method": "CoTeaching(0.4, warm_up=40)"}, {"method": "CoTeaching(0.4)"}),
        ({"method": "D2L(34, k=10)"}, {"method": "D2L(8, 2, 10)"}),
        ({"method": "D2L(start=0, window=2)"}, {"method": "D2L(0, 2)"}),
        ({"method": "MDYRH"}, {"method": "MDYRH(26)"}),
        ({"method": "MDYRH(3)"}, {"method": "MDYRH(0)"}),
        ({"method": "MDDYRSH(cooling=2)"}, {"method": "MDDYRSH(26, 27, 1)"}),
        ({"method": "PrunedGCE(start=41)"}, {"method": "PrunedGCE(start=10, every=2)"}),
        ({"method": "LDAM(drw_at=160)"}, {"method": "LDAM(drw_at=40)"}),
        ({"method": "LDAM"}, {"method": "LDAM"}),
        ({"method": "Decoupling(5000)"}, {"method": "Decoupling(1250)"}),
        ({"method": "MentorNetPD(mentor='net')"}, {"method": "MentorNetPD(mentor='net')"}),
        ({"method": "JointLabels('a.npy')"}, {"method": "JointLabels('a.npy', begin=17, slots=2)"}),
        ({"method": "Curriculum('a.npy', start=0.5)"}, {"method": "Curriculum('a.npy', start=0.5)"}),
    ],
)
def test_schedules_and_methods_are_shortened_with_the_run(full: dict[str, Any], quarter: dict[str, Any]) -> None:
    short = shortened(Run(data="digits", net="mlp-8", iterations=20_000, **full), 0.25)
    assert {name: getattr(short, name) for name in quarter} == quarter


def test_a_search_tries_every_beta_on_four_fifths() -> None:
    choice = search_beta(lambda weighting: ours(0.4, weighting=weighting), 0.5)
    assert [option.run.weighting for option in choice.options] == [f"DM(0.5, {beta})" for beta in BETAS]
    for option in choice.options:
        assert (option.trial.validation, option.trial.validation_labels) == (0.2, "clean")
        assert option.run.validation == 0
        assert option.trial.iterations == 5_000
    rates = search_rate(ours(weighting="CCE"), short=0.1)
    assert [option.run.lr for option in rates.options] == [0.01, 0.03, 0.1, 0.3]
    assert {(option.trial.iterations, option.trial.evaluate_every) for option in rates.options} == {(2_000, 1_000)}
    assert trial_of(replace(ours(weighting="CCE"), iterations=5), 1, evaluations=2).evaluate_every == 3


def test_trials_are_those_of_the_search(tiny: Callable[..., Run]) -> None:
    """`reweigh search` on the same grid makes the same runs."""
    pytest.importorskip("optuna")
    from reweigh.lab.search import plan_search

    run = tiny("DM(0.5, 1)")
    fields = {key: value for key, value in run.to_mapping().items() if key != "weighting"}
    plan = plan_search(fields, "DM(lam=0.5, beta={1, 2})")
    choice = search_beta(lambda weighting: replace(run, weighting=weighting), 0.5, (1, 2), short=1)
    assert plan.points is not None
    trials = [plan.run(point).hash() for point in plan.points]
    assert trials == [option.trial.hash() for option in choice.options]
    assert trial_of(run, 1).hash() == trials[0]
