"""Robust training without knowing the noise: the size and the direction of the derivative follow the data.

For an example i with label y and prediction p (the softmax of its logits, a constant), at each visit:

    t_i <- β t_i + (1 - β) p              the opinion: a running mean of the net's predictions for this example
    s   ∝ t_i^τ                           sharpened,
    s   ∝ s · (κ / C + (1 - κ) a) / b     without moving mass between classes: a and b are running means of t and s
    r   ∝ s · J[:, y]                     the posterior of the true class, given opinion and label
    J   <- m J + (1 - m) mean r e_yᵀ      the counted joint distribution of true class and label

J[c, y] / Σ_y J[c, y] is the probability of label y for an example of class c. J starts as (1 - ε) I / C + ε / C², t
and the totals start uniform, and m = 1 - (batch size) / N. The loss is

    L = mean of  -Σ_c r_c log p_c + λ log(1 - <t_i, p>),

so that the derivative handed to the logits is p - r, plus the anchor of early-learning regularisation (Liu 2020), which
keeps predictions near opinions. Where the net agrees with the label, r is the label and this is cross entropy. Where
it disagrees, r moves from the label to the opinion as far as the counted confusion allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Dataset

from reweigh.checks import flag, integer, number
from reweigh.functional import group_size, over_group
from reweigh.margin import at_least_float32
from reweigh.targets import check_tensors
from reweigh.weightings.parameter import all_true

if TYPE_CHECKING:
    from reweigh.labels import Suspects

NO_LABEL = -100
TINY = 1e-8  # no class is impossible
SHRINK = 1 - 1e-4  # of <t, p> in the anchor: its logarithm stays finite


class Auto(nn.Module):
    """A loss for noisy labels that needs no noise rate: `loss = auto(logits, labels, index)`.

    It keeps an opinion about every training example, so it needs to know which example is which: `index` has the
    positions of the batch's examples in the training set (`Indexed` adds them to a data set). All state is in buffers;
    it moves with `.to()` and is saved with `state_dict()`. After `auto.eval()` a call leaves the state as it is.

    Args:
        num_examples: N, examples in the training set.
        num_classes: C.
        beta: β in [0, 1), how much of an opinion is kept at each visit.
        eps: ε in (0, 1], the share of labels that the joint distribution starts from as noise.
        tau: τ >= 1, the sharpening of opinions; at 1 there is none, and noisy labels are fitted.
        kappa: κ in [0, 1], how far class totals are drawn towards balanced classes.
        lam: λ >= 0, the strength of the anchor.
        remember: keep an opinion about every example. Without, nothing of size N is stored, and every call takes
            `opinion` in place of `index`: for large or streamed data, from a net with averaged weights.
        dtype: of the stored opinions and posteriors; 4 N C bytes in float16.
        process_group: the processes that share a data-parallel batch; every rank keeps the same state.

    A label of -100 is unknown: the opinion takes its place.

    >>> auto = Auto(num_examples=4, num_classes=3)
    >>> logits = torch.zeros(2, 3, requires_grad=True)
    >>> auto(logits, torch.tensor([0, 2]), index=torch.tensor([3, 1])).backward()
    >>> logits.grad
    tensor([[-0.1667,  0.0833,  0.0833],
            [ 0.0833,  0.0833, -0.1667]])
    """

    opinions: Tensor
    posteriors: Tensor
    visits: Tensor
    labels: Tensor
    joint: Tensor
    opinion_total: Tensor
    sharpened_total: Tensor

    def __init__(
        self,
        num_examples: int,
        num_classes: int,
        *,
        beta: float = 0.9,
        eps: float = 0.5,
        tau: float = 2.0,
        kappa: float = 0.5,
        lam: float = 1.0,
        remember: bool = True,
        dtype: torch.dtype = torch.float16,
        process_group: Any = None,
    ) -> None:
        super().__init__()
        self.num_examples: int = integer(1)("num_examples", num_examples)
        self.num_classes: int = integer(2)("num_classes", num_classes)
        self.beta: float = number(0, 1, below=True)("beta", beta)
        self.eps: float = number(0, 1, above=True)("eps", eps)
        self.tau: float = number(1)("tau", tau)
        self.kappa: float = number(0, 1)("kappa", kappa)
        self.lam: float = number(0)("lam", lam)
        self.process_group = process_group
        self.remember: bool = flag("remember", remember)
        n, c = self.num_examples if remember else 0, self.num_classes
        self.register_buffer("opinions", torch.full((n, c), 1 / c, dtype=dtype))
        self.register_buffer("posteriors", torch.full((n, c), 1 / c, dtype=dtype))  # means over all visits
        self.register_buffer("visits", torch.zeros(n, dtype=torch.int32))
        self.register_buffer("labels", torch.full((n,), NO_LABEL, dtype=torch.int32))
        self.register_buffer("joint", (1 - self.eps) * torch.eye(c) / c + self.eps / c**2)
        self.register_buffer("opinion_total", torch.full((c,), 1 / c))
        self.register_buffer("sharpened_total", torch.full((c,), 1 / c))

    def extra_repr(self) -> str:
        return (
            f"{self.num_examples}, {self.num_classes}, beta={self.beta:g}, eps={self.eps:g}, tau={self.tau:g}, "
            f"kappa={self.kappa:g}, lam={self.lam:g}"
        )

    def forward(
        self,
        logits: Tensor,
        labels: Tensor,
        index: Tensor | None = None,
        *,
        opinion: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Update the state by a batch and return its loss.

        Args:
            logits: (B, C).
            labels: (B,) class ids, -100 where the label is unknown.
            index: (B,) positions in the training set.
            opinion: (B, C) probabilities, in place of the index where no opinions are remembered.
            sample_weight: (B,) weights of the examples in the mean.
        """
        self._check(logits, labels, index, opinion, sample_weight)
        log_p = at_least_float32(logits).log_softmax(1)
        if self.training:
            seen = log_p.detach().exp() if opinion is None else opinion.detach().to(log_p.dtype)
            opinion, r = self._visit(seen, labels, index)
        else:
            if index is not None:
                opinion = self.opinions[index].to(log_p.dtype)
            assert opinion is not None  # checked above
            r = self._given(self._sharpened(opinion), labels)
        losses = -(r * log_p.masked_fill(log_p == -math.inf, 0.0)).sum(1)  # a logit of -inf masks its class
        if self.lam > 0:
            losses = losses + self.lam * torch.log1p(-SHRINK * (opinion * log_p.exp()).sum(1))
        weights = torch.ones_like(losses) if sample_weight is None else sample_weight
        total = over_group(weights.sum(), self.process_group)
        return (losses * weights).sum() * (group_size(self.process_group) / total)

    @torch.no_grad()
    def posterior(self, index: Tensor | None = None) -> Tensor:
        """Return (N, C) the probability of each true class, given the example's opinion and label.

        Args:
            index: positions in the training set, if not of all examples.
        """
        opinions, labels = (x if index is None else x[index] for x in (self.opinions, self.labels))
        return self._given(self._sharpened(opinions.float()), labels)

    @property
    def confusion(self) -> Tensor:
        """(C, C) the estimated probability of each label (column), given the true class (row)."""
        return self.joint / self.joint.sum(1, keepdim=True)

    @property
    def noise_rate(self) -> float:
        """The estimated share of wrong labels."""
        return 1.0 - float(self.joint.trace() / self.joint.sum())

    def suspects(self) -> Suspects:
        """Rank the labels seen so far by 1 - p, the mean of three probabilities of the given label.

        They are its posterior at the end, its posterior averaged over training, and its opinion: the first is the best
        of them until a net memorises labels, the others after that. The suggested class is that of the opinion.
        """
        from reweigh.labels import find_suspects

        rows = ((self.visits > 0) & (self.labels >= 0)).nonzero()[:, 0]
        if not len(rows):
            raise ValueError("no suspects yet: no labelled example has been seen")
        labels = self.labels[rows].long()
        opinions, means = (
            x[rows].double() / x[rows].double().sum(1, keepdim=True) for x in (self.opinions, self.posteriors)
        )
        p = torch.stack((self.posterior(rows).double(), means, opinions)).mean(0).gather(1, labels[:, None])
        found = find_suspects(
            labels.cpu().numpy(),
            opinions.cpu().numpy(),
            history=p.clamp(0, 1).cpu().numpy(),
            method="mean-p",
            sources=[str(row) for row in rows.tolist()],
            description="1 - posterior of the given label",
        )
        return replace(found, index=rows.cpu().numpy())

    @torch.no_grad()
    def _visit(self, seen: Tensor, labels: Tensor, index: Tensor | None) -> tuple[Tensor, Tensor]:
        """Update the state by a batch; return its opinions and posteriors of the true class."""
        (seen, labels), own = gather((seen, labels), self.process_group)
        if index is None:
            opinion = seen
        else:
            (index,), own = gather((index,), self.process_group)
            opinion = self._remembered(seen, labels, index)
        s = self._sharpened(opinion)
        r = self._given(s, labels)
        if index is not None:
            change = (r - self.posteriors[index].to(r.dtype)) / self.visits[index][:, None]
            self.posteriors.index_add_(0, index, change.to(self.posteriors.dtype))
        is_labelled = labels >= 0
        counts = torch.zeros_like(self.joint, dtype=r.dtype).index_add_(
            1, labels.clamp_min(0), (r * is_labelled[:, None]).T
        )
        share = min(1.0, len(labels) / self.num_examples)  # so that the totals are means over about an epoch
        labelled = is_labelled.sum().clamp_min(1)
        self.joint.lerp_((counts / labelled).to(self.joint.dtype), share * is_labelled.any())
        self.opinion_total.lerp_(opinion.mean(0).to(self.opinion_total.dtype), share)
        self.sharpened_total.lerp_(s.mean(0).to(self.sharpened_total.dtype), share)
        return opinion[own], r[own]

    def _remembered(self, p: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        """Add predictions to the opinions about these examples, and return the opinions.

        An example that occurs k times in a batch has k visits, and its opinion the mean of their predictions.
        """
        before = self.visits[index]
        self.visits.index_add_(0, index, torch.ones_like(before))
        times = (self.visits[index] - before)[:, None]
        self.labels[index] = labels.to(self.labels.dtype)
        change = (1 - self.beta) * (p - self.opinions[index].to(p.dtype)) / times
        self.opinions.index_add_(0, index, change.to(self.opinions.dtype))
        return self.opinions[index].to(p.dtype)

    def _sharpened(self, opinion: Tensor) -> Tensor:
        """Return s: opinions to the power of τ, with the classes' totals restored."""
        wanted = self.kappa / self.num_classes + (1 - self.kappa) * self.opinion_total
        log_s = self.tau * opinion.clamp_min(TINY).log() + (wanted / self.sharpened_total).log()
        return log_s.softmax(1)

    def _given(self, s: Tensor, labels: Tensor) -> Tensor:
        """Return the posterior of the true class, given s and the label; s itself where there is no label."""
        likelihood = self.confusion.T[labels.clamp_min(0)].to(s.dtype) + TINY
        r = s * torch.where((labels >= 0)[:, None], likelihood, 1.0)
        return r / r.sum(1, keepdim=True)

    def _check(
        self,
        logits: Tensor,
        labels: Tensor,
        index: Tensor | None,
        opinion: Tensor | None,
        sample_weight: Tensor | None,
    ) -> None:
        needed, other = ("index", "opinion") if self.remember else ("opinion", "index")
        found = {"index": index, "opinion": opinion}
        if found[needed] is None or found[other] is not None:
            raise ValueError(f"with remember={self.remember}, pass {needed} and not {other}")
        check_tensors({"logits": logits, "labels": labels, needed: found[needed]}, {"sample_weight": sample_weight})
        for name, value in (("logits", logits), ("opinion", opinion)):
            if value is not None and (value.shape != (len(logits), self.num_classes) or not value.is_floating_point()):
                expected = f"floats shaped ({'B' if name == 'logits' else len(logits)}, {self.num_classes})"
                raise ValueError(f"{name} must be {expected}, got {tuple(value.shape)} of {value.dtype}")
        for name, value, end in (("labels", labels, self.num_classes), ("index", index, self.num_examples)):
            if value is None:
                continue
            if value.shape != logits.shape[:1] or value.is_floating_point() or value.dtype == torch.bool:
                raise ValueError(
                    f"{name} must be integers shaped ({len(logits)},), got {tuple(value.shape)} of {value.dtype}"
                )
            within = (value >= 0) & (value < end) | ((value == NO_LABEL) & (name == "labels"))
            if not all_true(within):
                allowed = f"from 0 to {end - 1}" + (" or -100 (unknown)" if name == "labels" else "")
                raise ValueError(f"{name} must be {allowed}, got {value[~within][0].item()}")
        if sample_weight is not None and sample_weight.shape != labels.shape:
            raise ValueError(f"sample_weight must be shaped {tuple(labels.shape)}, got {tuple(sample_weight.shape)}")


def gather(tensors: Sequence[Tensor], group: Any) -> tuple[list[Tensor], slice]:
    """Return the rows of all processes of a group, and which of them are this process's; ranks may differ in number."""
    size = len(tensors[0])
    if group is None:
        return list(tensors), slice(size)
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    own = torch.tensor([size], device=tensors[0].device)
    sizes = [torch.empty_like(own) for _ in range(world)]
    dist.all_gather(sizes, own, group=group)
    lengths = [int(each) for each in sizes]
    gathered = []
    for tensor in tensors:
        padded = tensor.new_zeros(max(lengths), *tensor.shape[1:])
        padded[:size] = tensor
        parts = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(parts, padded, group=group)
        gathered.append(torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)]))
    start = sum(lengths[:rank])
    return gathered, slice(start, start + size)


class Indexed(Dataset[Any]):
    """A map-style data set whose items also have their index: (inputs, label) becomes (inputs, label, index).

    An item that is a dict gets the key "index".

    >>> Indexed([("a", 0), ("b", 1)])[1]
    ('b', 1, 1)
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        item = self.dataset[index]
        if isinstance(item, dict):
            return {**item, "index": index}
        return (*item, index) if isinstance(item, tuple | list) else (item, index)
