"""One call of the criterion: which way it goes, and what is common to all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from reweigh import ops as kernels
from reweigh.criterion.by_class import log_class_totals
from reweigh.criterion.direct import Found, Ways, direct, is_direct, is_plain, plainly
from reweigh.criterion.emit import emit, log_total, weigh
from reweigh.criterion.labels import Labels, choose, positions_of, read
from reweigh.criterion.options import Options, check_call
from reweigh.margin import known_labels, log_probabilities, margin_and_pull
from reweigh.ops.forms import OTHER
from reweigh.weightings.compose import align, may_learn
from reweigh.weightings.parameter import in_checked_mode

Quick = Callable[[Tensor, Tensor], "Found | None"]
"""As `Find`, of logits and labels that it may not be for."""


class Call(NamedTuple):
    """All that a call is made with but its logits and labels."""

    options: Options
    weight: Tensor | None
    ignore_index: int
    label_smoothing: float
    sample_weight: Tensor | None
    log_normaliser: Tensor | float | None
    inplace: bool

    def value(self, logits: Tensor, target: Tensor) -> Tensor:
        """By the shortest way there is."""
        options, inplace = self.options, self.inplace
        by_index = self.label_smoothing == 0 and not target.is_floating_point()
        if kernels.usable(logits, target) and not in_checked_mode():  # a kernel takes labels on trust
            plain = options.value == "cross_entropy" and options.process_group is None and self.log_normaliser is None
            if plain and by_index and options.normalise != "class":
                beside = (options, self.weight, self.ignore_index, self.sample_weight)
                value = kernels.whole(logits, target, *beside, inplace, self.by_margins, self.log_weight)
                if value is not None:
                    return value
            if by_index and self.is_direct():
                passes = (self.ignore_index, inplace, self.between_passes, self.by_margins)
                return kernels.weighed(logits, target, *passes)
        elif by_index and self.is_direct():
            return direct(logits, target, Ways(self.directly, self.by_margins))
        return self.by_margins(logits, target)

    def weighed(
        self, logits: Tensor, target: Tensor, find: Callable[[Tensor, Tensor], Tensor] | None = None
    ) -> tuple[Labels, Tensor, Tensor]:
        """The labels, read and checked, with their values and coefficients; `find` as in `read`."""
        weighted = (self.weight, self.sample_weight, self.ignore_index, self.label_smoothing)
        labels = read(logits, target, self.options.weighting, *weighted, self.inplace, find)
        self.check()
        return labels, *weigh_labels(labels, self.options, self.log_normaliser)

    def check(self) -> None:
        check_call(self.options, self.log_normaliser, {"weight": self.weight, "sample_weight": self.sample_weight})

    def by_margins(self, logits: Tensor, target: Tensor) -> Tensor:
        """With a graph that can be differentiated in every way."""
        labels, value, coefficient = self.weighed(logits, target)
        return reduced(emit(value, labels.margin, coefficient), self.options, labels.dense, logits)

    def directly(self, logits: Tensor, target: Tensor) -> Found:
        """Without a graph: in C++, in few operations of torch, or in all of them, whichever is the first that can."""
        for quick in self.quickly(logits, target):
            if (quickly_found := quick(logits, target)) is not None:
                self.remember(quick, logits, target)
                return quickly_found
        found = []

        def find(z: Tensor, y: Tensor) -> Tensor:
            m, pull = margin_and_pull(z, y)
            found.append(pull)
            return m

        labels, value, coefficient = self.weighed(logits, target, find)
        return reduced(value, self.options, labels.dense, logits), coefficient / 2, found[0]

    def quickly(self, logits: Tensor, target: Tensor) -> Iterator[Quick]:
        """What may find a value and a gradient for logits and labels like these, or None, in less time."""
        options, factors = self.options, (self.weight, self.sample_weight)
        if self.log_normaliser is not None or not is_plain(logits, target, options):
            return
        self.check()
        how = (float(options.taper), options.batch, options.reduction)
        beside = (*factors, self.ignore_index, options.form or OTHER, self.log_weight)
        if (rows := kernels.in_cpp(logits, target, *beside, *how)) is not None:
            yield lambda z, y: rows(z, y, *factors)
        if factors == (None, None):
            yield lambda z, y: plainly(z, y, options, self.ignore_index)

    def remember(self, quick: Quick, logits: Tensor, target: Tensor) -> None:
        """Try `quick` at once where the next call is like this one."""
        if self.weight is None and self.sample_weight is None:
            ways = Ways(lambda z, y: quick(z, y) or self.directly(z, y), self.by_margins)
            kernels.remember(self.options.repeats, direct, ways, logits, target)

    def log_weight(self, margins: Tensor, target: Tensor, num_classes: int) -> Tensor:
        """Of rows that kernels have measured and cannot weigh."""
        weighting = self.options.weighting
        if self.options.by_label:
            known, _ = known_labels(target, self.ignore_index)
            weighting = choose(weighting, known, num_classes, margins.shape)
        return weighting.log_weight(*log_probabilities(margins))

    def between_passes(self, logits: Tensor, target: Tensor, margins: Tensor) -> tuple[Tensor, Tensor]:
        """The value and the coefficients, where a kernel has found the margins."""
        labels, value, coefficient = self.weighed(logits, target, lambda *_: margins)
        return reduced(value, self.options, labels.dense, logits), coefficient

    def is_direct(self) -> bool:
        """Whether nobody can ask for another derivative than that of the logits."""
        options = self.options
        learnt = options.value == "objective" and may_learn((options.weighting, options.taper))
        return not learnt and is_direct(self.weight, self.sample_weight, self.log_normaliser)


def weigh_labels(labels: Labels, options: Options, log_normaliser: Tensor | float | None) -> tuple[Tensor, Tensor]:
    """The value of every label and the coefficient of its direction; a taper by example stands where its example is."""
    if isinstance(options.taper, Tensor):
        options = replace(options, taper=align(options.taper, positions_of(labels)))
    arguments = (labels.s, active(labels), labels.divisor, labels.weighting, options, log_normaliser)
    return weigh(labels.margin, *arguments, lambda log_w: log_total_of(log_w, labels, options))


def active(labels: Labels) -> Tensor:
    """Where a label has a derivative to give: valid, and some other class is admissible."""
    return labels.valid & (labels.margin != math.inf)


def log_normaliser_of(labels: Labels, options: Options) -> Tensor:
    """log Σ s w of a call (and its process group), as batch normalisation would divide by."""
    if options.normalise == "class":
        raise ValueError("log_normaliser adds up over micro-batches under normalise='batch', not under 'class'")
    log_w = labels.weighting.log_weight(*log_probabilities(labels.margin))
    return log_total_of(log_w, labels, options).detach()


def log_total_of(log_w: Tensor, labels: Labels, options: Options) -> Tensor:
    """The logarithm of what a call divides by: one number, or within classes one for each label."""
    if options.normalise == "class":
        by_class = (labels.classes, labels.num_classes)
        return log_class_totals(log_w, labels.s, active(labels), *by_class, options.process_group)
    return log_total(log_w, labels.s, active(labels), options.process_group)


def reduced(terms: Tensor, options: Options, dense: bool, logits: Tensor) -> Tensor:
    """What a call returns: one number, or one for each position; `dense` terms have the classes in front."""
    if options.reduction != "none":
        terms = terms.sum()
    elif dense:
        terms = terms.sum(0)
    return terms.to(logits.dtype if logits.dtype == torch.float64 else torch.float32)
