"""Settings that cannot work are refused with a sentence that names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from reweigh.lab.methods import Context
from reweigh.lab.methods.learned_weights import trusted_batches
from reweigh.lab.objectives import method_from
from reweigh.lab.spec import parse


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("CoTeching(0.4)", "no method is named 'CoTeching'; did you mean 'CoTeaching'"),
        ("CoTeaching", "CoTeaching needs forget_rate"),
        ("CoTeaching(1)", r"forget_rate is 1; expected a number in \[0, 1\)"),
        ("CoTeaching(-0.1)", "forget_rate is -0.1"),
        ("CoTeaching(forget=0.4)", "has no argument 'forget'"),
        ("CoTeaching(0.4, context=1)", "has no argument 'context'"),
        ("CoTeaching(linear(0, 1))", "forget_rate must be a plain value"),
        ("CoTeaching('high')", "forget_rate is 'high'"),
        ("SIGUA(1)", "forget_rate is 1"),
        ("SIGUA(0.4, rate=2)", "SIGUA's rate is 2"),
        ("SIGUABC", "SIGUABC needs T"),
        ("SIGUABC(symmetric(0.75))", "cannot be inverted"),
        ("OHEM('x')", "OHEM's keep is 'x'"),
        ("ELR(half=1)", "ELR's half is 1; expected true or false"),
        ("SoftLabels(3)", r"SoftLabels\(3\): "),
        ("OHEM(0)", r"OHEM's keep is 0; expected a number in \(0, 1\]"),
        ("ClassBalanced(1)", "ClassBalanced's beta is 1"),
        ("ELR(beta=1)", "ELR's beta is 1"),
        ("SelfPaced(1.5)", "percentile is 1.5"),
        ("SelfPaced(decay=1)", "decay is 1"),
        ("SelfPaced(divide_by='all')", "divide_by is 'all'"),
        ("SPCL(gamma=0)", "gamma is 0"),
        ("ActiveBias('variant', warm_up=1)", "ActiveBias's form is 'variant'; did you mean 'variance'"),
        ("ActiveBias(warm_up=1, epsilon=0)", "ActiveBias's epsilon is 0"),
        ("ActiveBias", "ActiveBias's warm_up is 15 epochs, but the run has 6"),
        ("PrunedGCE", "PrunedGCE's start is 40 epochs, but the run has 6"),
        ("PrunedGCE(k=1, start=1)", "PrunedGCE's k is 1"),
        ("D2L", "D2L's start with its window is 45 epochs, but the run has 6"),
        ("D2L(start='x')", "D2L's start is 'x'; expected a whole number"),
        ("D2L(start=1.5)", "D2L's start is 1.5; expected a whole number"),
        ("D2L(start=0, k=200)", "D2L's k is 200"),
        ("MDYRH", "MDYRH's warm_up is 105 epochs, but the run has 6"),
        ("MDDYRSH(warm_up=3, soft_from=2)", "MDDYRSH's soft_from is 2, before the end of its warm_up"),
        ("LDAM(drw_at=160)", "LDAM's drw_at is 160 epochs, but the run has 6"),
        ("LDAM(scale=0)", "LDAM's scale is 0"),
        ("SAdaptation('simpel', warm_up=1)", "SAdaptation's kind is 'simpel'; did you mean 'simple'"),
        ("SAdaptation(warm_up=1, top=5)", "SAdaptation's top is 5"),
        ("Masking(warm_up=1)", "Masking needs mask"),
        ("Masking([[1, 1], [1, 1]])", "Masking's mask must be 4 rows of 4 numbers 0 or 1"),
        ("Masking(3)", "Masking's mask must be 4 rows"),
        ("Masking('tri')", "Masking's mask must be 4 rows"),
        ("Masking([[0,1,1,1],[1,1,1,1],[1,1,1,1],[1,1,1,1]])", "must have 1 on its diagonal"),
        ("MentorNetPD(example_dropout=[[0.5, 17]])", "example_dropout must cover 100 percent of training, not 17"),
        ("MentorNetPD(example_dropout=[0.5, 17])", r"example_dropout holds pairs \(rate, percents\)"),
        ("MentorNetPD(example_dropout=0.5)", r"example_dropout holds pairs \(rate, percents\), not 0.5"),
        ("MentorNetPD(example_dropout=[[1, 100]])", "example_dropout's rate is 1"),
        ("MentorNetPD(mentor='network')", "MentorNetPD's mentor is 'network'"),
        ("MentorNetDD(noise=0)", "MentorNetDD's noise is 0"),
        ("MetaWeightNet(inner_lr=0)", "MetaWeightNet's inner_lr is 0"),
        ("LearningToReweight(clean_batch=0)", "LearningToReweight's clean_batch is 0"),
        ("ProSelfLC(transit=2)", "ProSelfLC's transit is 2"),
        ("Decoupling(warm_up=-1)", "Decoupling's warm_up is -1"),
        ("ANL(delta=-1)", "ANL's delta is -1"),
        ("OSMCAA(alpha=2.5)", r"OSMCAA's alpha is 2.5; expected a number in \(0, 2\]"),
        ("OSMCAA(temperature=0)", "OSMCAA's temperature is 0"),
        ("OSMCAA(lam=2)", "OSMCAA's lam is 2"),
        ("DRSA", "DRSA needs a net such as drsa-resnet50, not MLP"),
        ("CAE", "CAE needs a net such as cae-resnet50, not MLP"),
    ],
)
def test_refusals(text: str, sentence: str, make_context: Callable[..., Context]) -> None:
    with pytest.raises(ValueError, match=sentence):
        method_from(parse(text), make_context())


@pytest.mark.parametrize("text", ["LearningToReweight", "MetaWeightNet", "MentorNetDD"])
def test_a_missing_trusted_set_is_missed(text: str, make_context: Callable[..., Context]) -> None:
    with pytest.raises(ValueError, match=f"{text} needs trusted examples: hold some out with validation=0.1"):
        method_from(parse(text), make_context(trusted=False))


@pytest.mark.parametrize(
    ("text", "net", "sentence"),
    [
        ("DRSA(frames=0)", "drsa-resnet20", "DRSA's frames is 0"),
        ("DRSA(over='all')", "drsa-resnet20", "DRSA's over is 'all'"),
        ("DRSA(momentum=1)", "drsa-resnet20", "DRSA's momentum is 1"),
        ("CAE(scale=0)", "cae-mlp-16", "CAE's scale is 0"),
        ("CAE(negatives=0)", "cae-mlp-16", "CAE's negatives is 0"),
    ],
)
def test_refusals_of_methods_with_nets_of_their_own(
    text: str, net: str, sentence: str, make_context: Callable[..., Context]
) -> None:
    with pytest.raises(ValueError, match=sentence):
        method_from(parse(text), make_context(net=net))


@pytest.mark.parametrize("text", ["LDAM", "D2L(start=0)", "SAdaptation(warm_up=0)", "OSMCAA"])
def test_nets_without_features_are_refused(text: str, make_context: Callable[..., Context]) -> None:
    context = replace(make_context(), net=nn.Linear(6, 4))
    with pytest.raises(ValueError, match=r"needs a net with a? ?(features|classifier), not Linear"):
        method_from(parse(text), context)


def test_trusted_batches_have_their_own_size_and_order(make_context: Callable[..., Any]) -> None:
    context = make_context()
    assert trusted_batches("x", context, 16).batch(0).target.shape == (16,)
    assert trusted_batches("x", context, 1000).batch(0).target.shape == (40,)
    first = trusted_batches("x", context, 16).batch(3)
    again = trusted_batches("x", context, 16).batch(3)
    assert torch.equal(first.index, again.index)
    assert context.trusted.order is None
    assert trusted_batches("x", context, 16).seed != context.trusted.seed  # or pictures would be augmented alike
