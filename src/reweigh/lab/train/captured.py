"""A training iteration as one CUDA graph: captured once, replayed with one launch.

A graph repeats the same operations on the same memory. Whatever changes between iterations has a fixed place that is
written before every replay: the examples (`Resident.plan`), the learning rate, scheduled parameters. Everything else
(gathering, augmentation, forward, criterion, backward, update) is in the graph.

The first iterations run eagerly, so that kernels are loaded, algorithms chosen and the optimiser's state exists;
capturing executes nothing. A captured run therefore gives exactly the results of an uncaptured one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from reweigh.lab.batches import Loader, Resident
from reweigh.lab.methods.criterion import ByCriterion
from reweigh.lab.spec import Run
from reweigh.lab.train.convolution import use_small_convolutions
from reweigh.lab.train.evaluate import ExampleStats, Weigh, evaluate
from reweigh.lab.train.step import EXCLUSIVE, EagerStep

WORTH_COMPILING = 5_000_000  # images: enough to win back about half a minute; later runs find the compiled net cached
WARM_UP = 3  # eager iterations before a capture: one creates the optimiser's state, two complete autotuning


@dataclass(frozen=True)
class Speed:
    """How a GPU is used; no effect on other devices. Recorded with the environment of a run.

    Args:
        capture: replay the iteration as one graph.
        kernels: in bfloat16, use the small convolutions of `reweigh.lab.train.convolution`.
        compile: compile the net: a third faster, differs in the last bits, and takes half a minute at the start where
            nothing is cached. None compiles in bfloat16 if the run, or all runs of its net in one process together, is
            long enough to repay it and need not be deterministic.
    """

    capture: bool = True
    kernels: bool = True
    compile: bool | None = None

    def for_run(self, run: Run, device: torch.device, images: int = 0) -> Speed:
        """Return the settings for a run, with `compile` decided.

        Args:
            run: the run.
            device: where it runs.
            images: how many images all runs of its net train on in this process; they share the compiled net.
        """
        if device.type != "cuda":
            return Speed(False, False, False)
        bf16 = run.precision.startswith("bf16")
        long = bf16 and not run.deterministic and max(images, run.iterations * run.batch_size) >= WORTH_COMPILING
        return Speed(self.capture, self.kernels and bf16, long if self.compile is None else self.compile)

    def described(self) -> dict[str, Any]:
        """Return the settings as stored in a record."""
        used = {"captured": self.capture, "own_convolutions": self.kernels, "compiled": bool(self.compile)}
        return used if any(used.values()) else {}


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Run everything on a new CUDA stream: the default stream cannot be captured."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()


def usable_speed(eager: EagerStep, speed: Speed, obstacle: str | None = None) -> tuple[Speed, str | None]:
    """Return what an iteration can use of the requested settings, and a note if that is less.

    Args:
        eager: the iteration.
        speed: the requested settings.
        obstacle: why the iteration cannot be captured, where the caller knows a reason.
    """
    if eager.batches.device.type != "cuda":
        return Speed(False, False, False), None
    note, name = None, type(eager.method).__name__
    if getattr(eager.method, "differentiates_twice", False) and (speed.kernels or speed.compile):
        speed = replace(speed, kernels=False, compile=False)  # neither supports second derivatives
        note = f"not compiled, without own convolutions: {name} differentiates twice"
    elif getattr(eager.method, "reads_features", False) and speed.compile:
        speed = replace(speed, compile=False)
        note = f"not compiled: {name} reads the net's features, and only the net as a whole is compiled"
    why = (obstacle or _obstacle(eager)) if speed.capture else None
    if why is None:
        return speed, note
    return replace(speed, capture=False), "; ".join(filter(None, (note, f"not captured: {why}")))


def _obstacle(eager: EagerStep) -> str | None:
    if isinstance(eager.batches, Loader):
        return "images are decoded on demand"
    if eager.average is not Tensor.detach:
        return "several processes share the run"
    if eager.dropout_seed is not None:
        return "dropout is seeded anew at every iteration"
    if any("delta" in group for group in eager.optimiser.param_groups):
        return "the epsilon of adam-caffe changes at every iteration"
    if not isinstance(eager.method, ByCriterion) and not hasattr(eager.method, "capture_key"):
        unknown = f"{type(eager.method).__name__} makes decisions on the host"
        return str(getattr(eager.method, "uncaptured", unknown))
    return None


class Step(Protocol):
    """One iteration, eager or captured."""

    def __call__(self, step: int) -> Tensor:
        """Train on the batch of that step and return the loss, which stays valid until the next call."""


def make_step(eager: EagerStep, speed: Speed) -> Step:
    """Return the iteration with these settings, as decided by `usable_speed`."""
    if eager.batches.device.type == "cuda":
        create_velocities(eager.optimiser)
    if speed.kernels:
        use_small_convolutions(eager.method.trainable)
    if speed.compile:
        for net in trained_nets(eager.method.trainable):
            compile_net(net)
    return CapturedStep(eager) if speed.capture else eager


def trained_nets(trainable: nn.Module) -> list[nn.Module]:
    """Return the net or nets that are trained, without other modules of the method; `predictor` may be an average."""
    if isinstance(trainable, nn.ModuleList):
        return list(trainable)
    return [trainable["net"]] if isinstance(trainable, nn.ModuleDict) else [trainable]


def create_velocities(optimiser: torch.optim.Optimizer) -> None:
    """Create the missing velocities of a fused SGD, as zeros, which does not change its steps.

    torch creates velocities at the first step, and fails later at a parameter that had no gradient then.
    """
    for group in optimiser.param_groups:
        if group.get("fused") and group.get("momentum"):
            for parameter in group["params"]:
                optimiser.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))


def compile_net(net: nn.Module) -> None:
    """Compile a net in place, for training, with a cache that later processes find."""
    with EXCLUSIVE:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "reweigh" / "compiled"
        chosen = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
        if not chosen or Path(chosen).name.startswith("torchinductor_"):  # torch's default: a temporary folder
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
        # torch recommends TF32 at every start, but precision is the run's choice
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
        net.compile(dynamic=False)


class CapturedStep:
    """`EagerStep`, captured and replayed.

    A method other than a criterion can be captured if it has `capture_key(step)`: iterations with equal keys do the
    same on the host; when the key changes the graph is captured anew, after an eager iteration. What the host decides
    at every step, such as a random partner for every example, `prepare(step, size of the batch)` writes to fixed
    places before a replay (`reweigh.lab.methods.device_values`). A method changes its state on the device in place.

    Where capturing fails, because something in the net or the method waits for the device, the run continues
    uncaptured and `note` says why.
    """

    def __init__(self, eager: EagerStep) -> None:
        if not isinstance(eager.batches, Resident):
            raise TypeError(f"batches must be Resident to be captured, not {type(eager.batches).__name__}")
        self.eager, self.batches = eager, eager.batches
        self._key_of: Callable[[int], Hashable] = getattr(eager.method, "capture_key", lambda step: None)
        self._prepare: Callable[[int, int], None] = getattr(eager.method, "prepare", lambda step, size: None)
        self.note: str | None = None
        self._warm, self._key = 0, cast(Hashable, None)
        self._graph: Graph | None = None
        self._plan: Tensor
        self._loss: Tensor

    def __call__(self, step: int) -> Tensor:
        """Train on the batch of that step; the loss stays valid until the next call."""
        key = self._key_of(step)
        if key != self._key:
            self._graph, self._warm, self._key = None, min(self._warm, WARM_UP - 1), key
        if self._graph is None and (self._warm < WARM_UP or self.note is not None):
            self._warm += 1
            return self.eager(step)
        plan = self.batches.plan(step)
        self.eager.prepare(step)
        self._prepare(step, plan.shape[1])
        if self._graph is None:
            try:
                self._graph = self._capture(step, plan.clone())
            except RuntimeError as error:
                self.note = f"not captured: {str(error).partition(chr(10))[0]}"
                return self.eager(step)
        self._plan.copy_(plan)
        self._graph.replay()
        return self._loss

    def _capture(self, step: int, plan: Tensor) -> Graph:
        self._plan = plan

        def iteration() -> None:
            self._loss = self.eager.learn(self.batches.assemble(self._plan), step)

        return Graph(iteration)


class Graph:
    """The operations of `work` on the current stream as a CUDA graph; creating it executes nothing.

    The stream must be the run's own: libraries keep a workspace per stream, which concurrent graphs must not share.
    Unlike `torch.cuda.graph`, capturing does not stop other streams, unless memory is short.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        torch.cuda.current_stream().synchronize()
        with EXCLUSIVE:
            free, total = torch.cuda.mem_get_info()
            if free < total // 4:
                torch.cuda.empty_cache()  # a graph has memory of its own; this waits for the device
            self._graph = torch.cuda.CUDAGraph()
            self._graph.capture_begin(capture_error_mode="thread_local")
            try:
                work()
            finally:
                self._graph.capture_end()

    def replay(self) -> None:
        """Launch the operations."""
        self._graph.replay()

    def __del__(self) -> None:
        with EXCLUSIVE:  # torch keeps an unguarded set of the graphs that share a random state
            self.__dict__.clear()


class Evaluate(Protocol):
    """Evaluates a part of a run."""

    def __call__(self, net: nn.Module, part: Resident | Loader, weigh: Weigh | None = None) -> ExampleStats:
        """Return the statistics of every example of the part."""


def make_evaluator(
    speed: Speed, autocast: Callable[[], AbstractContextManager[Any]], batch_size: int, beat: Callable[[], None]
) -> Evaluate:
    """Return `evaluate` with these settings; forward passes of full batches are captured where possible."""
    captured: dict[int, _CapturedForward] = {}  # by net, which a method may replace; all parts have one shape

    def evaluate_part(net: nn.Module, part: Resident | Loader, weigh: Weigh | None = None) -> ExampleStats:
        forward: Callable[[Tensor], Tensor] = _EagerForward(net, autocast)
        if speed.capture and isinstance(part, Resident):
            forward = captured.setdefault(id(net), _CapturedForward(net, autocast, batch_size))
        return evaluate(net, part, batch_size, forward, weigh, beat)

    return evaluate_part


class _EagerForward:
    """A forward pass in the precision of the run."""

    def __init__(self, net: nn.Module, autocast: Callable[[], AbstractContextManager[Any]]) -> None:
        self.net, self.autocast = net, autocast

    def __call__(self, inputs: Tensor) -> Tensor:
        with EXCLUSIVE, self.autocast():
            logits: Tensor = self.net.forward(inputs)  # not the compiled net, which was compiled for training
        return logits


class _CapturedForward:
    """A forward pass: full batches by replay, others eagerly, and all where capturing fails."""

    def __init__(self, net: nn.Module, autocast: Callable[[], AbstractContextManager[Any]], batch_size: int) -> None:
        self._eager, self._batch_size = _EagerForward(net, autocast), batch_size
        self._graph: Graph | None = None
        self._capturable = True
        self._inputs: Tensor
        self._logits: Tensor

    def __call__(self, inputs: Tensor) -> Tensor:
        if len(inputs) == self._batch_size and self._graph is None and self._capturable:
            self._capture(inputs)
        if len(inputs) != self._batch_size or self._graph is None:
            return self._eager(inputs)
        self._inputs.copy_(inputs)
        self._graph.replay()
        return self._logits

    def _capture(self, inputs: Tensor) -> None:
        self._inputs = inputs.clone(memory_format=torch.preserve_format)
        self._eager(self._inputs)

        def forward() -> None:
            self._logits = self._eager(self._inputs)

        try:
            self._graph = Graph(forward)
        except RuntimeError:  # out of memory, or the net waits for the device
            self._capturable = False
