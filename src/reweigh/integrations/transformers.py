"""Hugging Face transformers: the loss of a `Trainer` or a model, `Auto` in a `Trainer`, and a head fused with its loss.

The divisor of a `Trainer` is the number of labels in all micro-batches and processes. So a loss is a sum divided by
that number, and nothing may depend on the other labels of a call: batch normalisation is not available here.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import pad

from reweigh.auto import Auto
from reweigh.criterion import Criterion
from reweigh.functional import Value
from reweigh.labels import Recorder
from reweigh.linear import LinearCriterion
from reweigh.targets import one_of
from reweigh.weightings import CCE, Weighting, as_weighting

IGNORED = -100

Task: TypeAlias = Literal["causal_lm", "classification"]
Normalise: TypeAlias = Literal["auto", "unit"] | None
AnyWeighting: TypeAlias = Weighting | Callable[..., Tensor]
Model = TypeVar("Model", bound=nn.Module)
TrainerClass = TypeVar("TrainerClass", bound=type)


def normalisation(weighting: AnyWeighting, normalise: str | None) -> Literal["unit"] | None:
    """Return the normalisation that goes with a trainer's own divisor: None for a loss, "unit" for a density."""
    if isinstance(weighting, Auto):
        raise TypeError("Auto needs the index of every example: use weighted(Trainer, auto, 'classification')")
    if isinstance(weighting, nn.Module):
        name = type(weighting).__name__
        raise TypeError(
            f"weighting must be a weighting such as GCE(0.7), got a {name}: the trainer has its own divisor"
        )
    if normalise in ("batch", "class"):
        raise ValueError(
            f"normalise must be None or 'unit' in a trainer, got {normalise!r}: the batch's sum of weights is not "
            "known while gradients accumulate"
        )
    one_of("normalise", normalise, ("auto", "unit", None))
    if normalise == "unit":
        return "unit"
    if normalise is None or as_weighting(weighting).kind == "loss":
        return None
    warnings.warn(
        f"{as_weighting(weighting)!r} is divided by its integral in a trainer, and not by the batch's sum of weights "
        "as in Criterion; pass normalise='unit' to confirm this",
        stacklevel=4,
    )
    return "unit"


def loss_for(
    weighting: AnyWeighting, task: Task, *, normalise: Normalise = "auto", value: Value = "cross_entropy"
) -> TrainerLoss:
    """Return a loss for `Trainer(compute_loss_func=...)`, or for `model.loss_function = ...` if the model calls it.

    Args:
        weighting: w(p), a `Weighting` or any callable of p or of (p, q).
        task: "causal_lm" shifts the labels by one token; "classification" is for logits and labels at the same
            positions, which includes token classification, masked language models and encoder-decoders.
        normalise: None keeps w, "unit" divides it by its integral; "auto" is None for a weighting that comes from a
            loss and "unit" for a density, with a warning.
        value: what is logged, as in `Criterion`: "cross_entropy", or "objective" (1 - p for `MAE`).

    >>> from reweigh import GCE
    >>> loss_for(GCE(0.7), "causal_lm")
    loss_for(GCE(q=0.7), 'causal_lm', normalise=None)
    """
    return TrainerLoss(weighting, task, normalise, value)


class TrainerLoss:
    """The loss that `loss_for` returns: a sum over all labels, divided by `num_items_in_batch`."""

    def __init__(
        self, weighting: AnyWeighting, task: Task, normalise: Normalise, value: Value = "cross_entropy"
    ) -> None:
        one_of("task", task, ("causal_lm", "classification"))
        self.task = task
        normalised = normalisation(weighting, normalise)
        self.criterion = Criterion(weighting, reduction="sum", normalise=normalised, value=value)

    def __repr__(self) -> str:
        settings = self.criterion.settings
        return f"loss_for({as_weighting(self.criterion.weighting)!r}, {self.task!r}, normalise={settings.normalise!r})"

    def __call__(
        self,
        *args: Any,
        logits: Tensor | None = None,
        labels: Tensor | None = None,
        pooled_logits: Tensor | None = None,
        shift_labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        ignore_index: int = IGNORED,
        **_others: Any,  # models pass what their forward method received
    ) -> Tensor:
        """Return the loss of a micro-batch.

        Args:
            args: a model's outputs and the labels, as a `Trainer` passes them; or logits and labels in either order,
                as models do.
            logits, pooled_logits, labels, shift_labels, num_items_in_batch, ignore_index: as models pass them.
        """
        if ignore_index != IGNORED:
            raise ValueError(f"ignore_index must be {IGNORED}, got {ignore_index}")
        if args:
            logits, labels = _logits_and_labels(*args[:2])
        elif pooled_logits is not None:
            logits = pooled_logits
        if shift_labels is not None:
            labels = shift_labels
        elif labels is not None and self.task == "causal_lm":
            labels = shifted(labels)
        if logits is None or labels is None:
            missing = "logits" if logits is None else "labels"
            raise ValueError(f"{missing} are missing: a loss needs the model's logits and the column 'labels'")
        if labels.is_floating_point():
            raise TypeError(f"labels must be class indices, got {labels.dtype}")
        labels = labels.to(logits.device).reshape(-1)
        loss: Tensor = self.criterion(logits.reshape(-1, logits.shape[-1]), labels)
        return loss / divisor(labels, num_items_in_batch)


def _logits_and_labels(first: Any, second: Any = None) -> tuple[Any, Any]:
    """Return the logits, which are never integers and may be in a model's outputs, and the labels."""
    if isinstance(first, Tensor):
        return (first, second) if first.is_floating_point() else (second, first)
    return first["logits"] if isinstance(first, Mapping) else first[0], second


def shifted(labels: Tensor) -> Tensor:
    """Return the labels that the logits at each position predict: those of the next one, nothing at the last."""
    return pad(labels, (0, 1), value=IGNORED)[..., 1:]


def divisor(labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor | int:
    """Return the trainer's number of labels, or without one that of this call."""
    if num_items_in_batch is None:
        return labels.ne(IGNORED).sum().clamp_min(1)
    return num_items_in_batch.to(labels.device) if isinstance(num_items_in_batch, Tensor) else num_items_in_batch


def weighted(
    trainer: TrainerClass,
    weighting: AnyWeighting | Auto,
    task: Task,
    *,
    normalise: Normalise = "auto",
    recorder: Recorder | None = None,
) -> TrainerClass:
    """Return a subclass of `Trainer` that trains with `Auto` or a weighting, and records suspects.

    `Auto` and the recorder need a column "index" in the training data, an example's position there
    (`data.add_column("index", range(len(data)))`, or `reweigh.Indexed` around items that are dicts), and
    `TrainingArguments(remove_unused_columns=False)`, because models have no argument of that name. Evaluation does not
    change their states and needs no index; with `Auto` its loss is cross entropy. Checkpoints contain the states, and
    `train(resume_from_checkpoint=...)` restores them. Several processes share them.

    Args:
        trainer: `transformers.Trainer` or a subclass.
        weighting: an `Auto`, or w(p).
        task, normalise: as in `loss_for`; `Auto` and the recorder are for one label per example.
        recorder: `Recorder(len(data))`, which records every training example.
    """
    auto = weighting if isinstance(weighting, Auto) else None
    loss = TrainerLoss(CCE() if isinstance(weighting, Auto) else weighting, task, normalise)
    states: dict[str, Auto | Recorder] = {} if auto is None else {"auto": auto}
    states |= {} if recorder is None else {"recorder": recorder}
    if states and task != "classification":
        raise ValueError(
            f"task must be 'classification' with Auto or a recorder, got {task!r}: they keep one label each"
        )

    def loss_of(index: Tensor, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        logits, _ = _logits_and_labels(outputs, labels)
        if logits.ndim != 2 or labels.ndim != 1:
            raise ValueError(f"Auto and a recorder need logits (B, C) and labels (B,), got {tuple(logits.shape)}")
        if recorder is not None:
            recorder.update(index, logits.detach(), labels)
        if auto is None:
            return loss(outputs, labels, num_items_in_batch=num_items_in_batch)
        value: Tensor = auto.to(logits.device)(logits, labels, index.to(logits.device))
        return value * (len(labels) / divisor(labels, num_items_in_batch))

    class WeightedTrainer(trainer):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, compute_loss_func=loss, **kwargs)
            for state in states.values():
                if self.args.world_size > 1 and state.process_group is None:
                    state.process_group = dist.group.WORLD
            if states:
                self.add_callback(_saver(states))

        def train(self, resume_from_checkpoint: Any = None, **kwargs: Any) -> Any:
            if states and resume_from_checkpoint:
                _restore(states, resume_from_checkpoint, self.args)
            return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

        def compute_loss(
            self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            inputs = dict(inputs)
            index = inputs.pop("index", None)
            if states and model.training:
                if index is None:
                    raise ValueError(
                        "the training data need a column 'index', data.add_column('index', range(len(data))), and "
                        "TrainingArguments(remove_unused_columns=False)"
                    )
                self.compute_loss_func: Any = functools.partial(loss_of, index)
            try:
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
            finally:
                self.compute_loss_func = loss

    WeightedTrainer.__name__ = WeightedTrainer.__qualname__ = f"Weighted{trainer.__name__}"
    return WeightedTrainer  # type: ignore[return-value]


def _state_file(folder: str | os.PathLike[str], args: Any) -> Path:
    return Path(folder) / f"reweigh-{args.process_index}.pt"


def _saver(states: Mapping[str, Auto | Recorder]) -> Any:
    """Return a callback that adds the states to every checkpoint, one file per process."""
    from transformers import TrainerCallback
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

    class StateSaver(TrainerCallback):  # type: ignore[misc]
        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            path = _state_file(folder, args)
            part = path.with_suffix(".part")
            torch.save({name: each.state_dict() for name, each in states.items()}, part)
            part.replace(path)

    return StateSaver()


def _restore(states: Mapping[str, Auto | Recorder], checkpoint: Any, args: Any) -> None:
    from transformers.trainer_utils import get_last_checkpoint

    folder = get_last_checkpoint(args.output_dir) if checkpoint is True else checkpoint
    if folder is None:
        return  # the trainer says so
    path = _state_file(folder, args)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: the checkpoint has no state of Auto or the recorder")
    stored = torch.load(path, map_location="cpu", weights_only=True)
    for name, state in states.items():
        state.load_state_dict(stored[name])


def fuse_head(
    model: Model, weighting: AnyWeighting, *, normalise: Normalise = "auto", chunk: int | None = None
) -> Model:
    """Fuse the head of a causal language model with its loss, and return the model: no logits are stored in training.

    In training mode `model(..., labels=...)` then returns the loss, and None as logits; without labels, in evaluation
    and generation it works as before. The head is computed inside the model's forward pass, so that data parallelism
    and sharding by FSDP2 work. A head that is not a `torch.nn.Linear` (with LoRA, say), and a model that changes the
    logits after its head (soft caps, scales) are refused.

    Args:
        model: a causal language model of transformers, also in a PEFT model; it is changed in place.
        weighting, normalise: as in `loss_for`.
        chunk: tokens at a time, as in `LinearCriterion`.
    """
    given: Any = model
    inner: Any = given.get_base_model() if hasattr(model, "get_base_model") else model
    criterion = LinearCriterion(weighting, reduction="sum", normalise=normalisation(weighting, normalise), chunk=chunk)
    head = inner.get_output_embeddings()
    if isinstance(head, FusedHead):
        raise ValueError("the head of this model is fused already")
    if type(head) is not nn.Linear:
        raise _no_linear(head)
    fused: Any = head
    fused.__class__ = FusedHead  # the same parameters under the same names
    fused.criterion, fused.pending = criterion, None
    kind = type(inner)
    members = {"forward": _forward_of(kind), "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    inner.__class__ = type(kind.__name__, (kind,), members)  # the name is saved with the weights
    return model


class FusedHead(nn.Linear):
    """A linear layer that returns the loss instead of the logits while labels are pending."""

    criterion: LinearCriterion
    pending: tuple[Tensor, Tensor | int | None] | None

    def forward(self, hidden: Tensor) -> Tensor:
        if self.pending is None:
            return super().forward(hidden)
        labels, num_items_in_batch = self.pending
        if hasattr(self.weight, "device_mesh"):
            raise ValueError(
                "the head's weight is sharded while it is used; fuse_head works with FSDP2 and not with TP"
            )
        labels = labels.to(hidden.device)
        loss: Tensor = self.criterion(hidden, self.weight, labels, self.bias)
        return (loss / divisor(labels, num_items_in_batch)).reshape(1, 1, 1)


def _no_linear(head: object) -> ValueError:
    return ValueError(
        f"the head must be a torch.nn.Linear to be fused, got {type(head).__module__}.{type(head).__qualname__}; leave "
        "it out of LoRA's targets, or use loss_for"
    )


def _forward_of(model: type[Any]) -> Callable[..., Any]:
    """Return the forward method of a class of models, with the loss from the fused head."""
    original: Callable[..., Any] = model.forward

    @functools.wraps(original)
    def forward(
        self: Any,
        *args: Any,
        labels: Tensor | None = None,
        shift_labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> Any:
        if not self.training or (labels is None and shift_labels is None):
            targets = {"labels": labels, "shift_labels": shift_labels, "num_items_in_batch": num_items_in_batch}
            return original(self, *args, **kwargs, **{name: x for name, x in targets.items() if x is not None})
        head = self.get_output_embeddings()
        if not isinstance(head, FusedHead):
            raise _no_linear(head)
        if labels is not None and shift_labels is None:
            shift_labels = shifted(labels)
        assert shift_labels is not None
        head.pending = (shift_labels, num_items_in_batch)
        seen: list[Tensor] = []
        hook = head.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
        try:
            outputs = original(self, *args, **kwargs)
        finally:
            head.pending = None
            hook.remove()
        if not isinstance(outputs, Mapping):
            raise ValueError("return_dict must be True for a fused head")
        if len(seen) != 1 or outputs["logits"] is not seen[0]:
            raise ValueError(
                f"{type(self).__name__} changes its logits after the head: it can't be fused; use loss_for"
            )
        return type(outputs)(**{**outputs, "loss": seen[0].reshape(()), "logits": None})

    return forward
