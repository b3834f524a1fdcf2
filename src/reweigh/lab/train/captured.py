"""The whole iteration as one CUDA graph: captured once, replayed with one launch.

A graph repeats the same operations on the same memory. So what changes from one iteration to the next has a fixed place
that is written before every replay: which examples (`Resident.plan`), the learning rate, scheduled parameters. The rest
(gathering, augmentation, forward, criterion, backward, update) is in the graph.

The first iterations run as they are, so that kernels are loaded, algorithms chosen and the optimiser's state is there;
capturing executes nothing. A captured run therefore does exactly what an uncaptured one does.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from reweigh.lab.batches import Batch, Loader, Resident
from reweigh.lab.methods.criterion import ByCriterion
from reweigh.lab.spec import Run
from reweigh.lab.train.convolution import use_small_convolutions
from reweigh.lab.train.evaluate import WAITING, Seen, Waiting, Weigh, columns, look, seen_of
from reweigh.lab.train.loop import Eager

WORTH_COMPILING = 5_000_000  # images: half a minute is won back, or nearly, and the next run finds it in the cache
WARM = 3  # iterations before the capture: the optimiser's state exists after one, autotuning is over after two


@dataclass(frozen=True)
class Speed:
    """How a GPU is used; without effect elsewhere. It is recorded with the environment of a run.

    Args:
        capture: replay the iteration as one graph.
        kernels: in bfloat16, take small convolutions from `reweigh.lab.train.convolution`.
        compile: compile the net: a third faster, other in the last bits, half a minute to begin with where the cache
            has nothing. None does so in bfloat16 where the run, or all runs of its net in one process together, are
            long enough to repay it, and need not be deterministic.
    """

    capture: bool = True
    kernels: bool = True
    compile: bool | None = None

    def for_run(self, run: Run, device: torch.device, images: int = 0) -> Speed:
        """What is really used for a run: no None is left.

        Args:
            run: what is to be done.
            device: where.
            images: that all runs of its net train on in this process; they share what is compiled.
        """
        if device.type != "cuda":
            return Speed(False, False, False)
        bf16 = run.precision.startswith("bf16")
        long = bf16 and not run.deterministic and max(images, run.iterations * run.batch_size) >= WORTH_COMPILING
        return Speed(self.capture, self.kernels and bf16, long if self.compile is None else self.compile)

    def described(self) -> dict[str, Any]:
        """What a record says."""
        used = {"captured": self.capture, "own_convolutions": self.kernels, "compiled": bool(self.compile)}
        return used if any(used.values()) else {}


@contextmanager
def on_stream(device: torch.device) -> Iterator[None]:
    """A stream of its own for everything a run does on a GPU: the default one can't be captured."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()


def usable(eager: Eager, speed: Speed, obstacle: str | None = None) -> tuple[Speed, str | None]:
    """What an iteration can use of what was asked for, and where that is less, one line saying why."""
    if eager.batches.device.type != "cuda":
        return Speed(False, False, False), None
    note = None
    if getattr(eager.method, "differentiates_twice", False) and (speed.kernels or speed.compile):
        speed = replace(speed, kernels=False, compile=False)  # of neither torch knows a second derivative
        note = f"not compiled, without own convolutions: {type(eager.method).__name__} differentiates twice"
    elif getattr(eager.method, "reads_features", False) and speed.compile:
        speed = replace(speed, compile=False)
        name = type(eager.method).__name__
        note = f"not compiled: {name} reads the features of the net, and what is compiled is the whole of it"
    why = (obstacle or _obstacle(eager)) if speed.capture else None
    if why is None:
        return speed, note
    return replace(speed, capture=False), "; ".join(filter(None, (note, f"not captured: {why}")))


def fastest(eager: Eager, speed: Speed, obstacle: str | None = None) -> tuple[Callable[[int], Tensor], str | None]:
    """The iteration to use, and where that is not what was asked for, one line saying why."""
    speed, note = usable(eager, speed, obstacle)
    if eager.batches.device.type == "cuda":
        give_velocities(eager.optimiser)
    if speed.kernels:
        use_small_convolutions(eager.method.trainable)
    if speed.compile:
        for net in taught(eager.method.trainable):
            compile_net(net)
    return Captured(eager) if speed.capture else eager, note


def _obstacle(eager: Eager) -> str | None:
    if isinstance(eager.batches, Loader):
        return "the images are decoded as they are needed"
    if eager.share is not Tensor.detach:
        return "several processes share the run"
    if eager.dropout_seed is not None:
        return "dropout draws from a random state that is set anew at every iteration"
    if any("delta" in group for group in eager.optimiser.param_groups):
        return "the epsilon of adam-caffe changes at every iteration"
    if not isinstance(eager.method, ByCriterion) and not hasattr(eager.method, "capture_key"):
        unknown = f"{type(eager.method).__name__} decides on the host what to learn from"
        return str(getattr(eager.method, "uncaptured", unknown))
    return None


def taught(trainable: nn.Module) -> list[nn.Module]:
    """The nets, in a list if there are two, without what learns beside; not who predicts, which may be an average."""
    if isinstance(trainable, nn.ModuleList):
        return list(trainable)
    return [trainable["net"]] if isinstance(trainable, nn.ModuleDict) else [trainable]


def give_velocities(optimiser: torch.optim.Optimizer) -> None:
    """Let every parameter have a velocity, 0 to begin with: the same steps, where parameters start to learn later.

    torch's fused SGD makes velocities at its first step, and refuses a parameter that comes without one afterwards.
    """
    for group in optimiser.param_groups:
        if group.get("fused") and group.get("momentum"):
            for parameter in group["params"]:
                optimiser.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))


def compile_net(net: nn.Module) -> None:
    """Compile a net in place, for training, keeping what was compiled for the next run."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "reweigh" / "compiled"
    chosen = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
    if not chosen or Path(chosen).name.startswith("torchinductor_"):  # torch's own choice, made as it was imported:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)  # among temporary files, which a restart removes
    # precision is the run's choice, and compiling need not advise against it at every start
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
    net.compile(dynamic=False)


class Captured:
    """`Eager`, replayed.

    A method other than a criterion takes part if it has `capture_key(step)`: iterations with equal keys do the same
    on the host, and when the key changes the graph is captured anew, after an iteration as it is. What the host decides
    for every step, such as a random partner for every example, `prepare(step, size of the batch)` writes to fixed
    places before a replay (`reweigh.lab.methods.device_values`). What a method keeps on the device it changes in place.

    Where capturing fails, because something in the net or the method waits for the device, the run goes on uncaptured
    and `note` says why.
    """

    def __init__(self, eager: Eager) -> None:
        if not isinstance(eager.batches, Resident):
            raise TypeError(
                f"batches must lie on the device (Resident), not come from a {type(eager.batches).__name__}"
            )
        self.eager, self.batches = eager, eager.batches
        self._key_of: Callable[[int], Hashable] = getattr(eager.method, "capture_key", lambda step: None)
        self._prepare: Callable[[int, int], None] = getattr(eager.method, "prepare", lambda step, size: None)
        self.note: str | None = None
        self._warm, self._key = 0, cast(Hashable, None)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._plan: Tensor
        self._loss: Tensor

    def __call__(self, step: int) -> Tensor:
        """Train on the batch of that step; the loss stays valid until the next call."""
        key = self._key_of(step)
        if key != self._key:
            self._graph, self._warm, self._key = None, min(self._warm, WARM - 1), key
        if self._graph is None and (self._warm < WARM or self.note is not None):
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

    def _capture(self, step: int, plan: Tensor) -> torch.cuda.CUDAGraph:
        self._plan = plan

        def iteration() -> None:
            self._loss = self.eager.learn(self.batches.assemble(self._plan), step)

        return capture(iteration)


def capture(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """What `work` does on the current stream, as a graph; nothing is executed.

    The stream is the run's own: libraries keep a workspace for each, which graphs that run side by side must not share.
    Nothing of this run is under way then; but unlike `torch.cuda.graph` it lets the device go on with other runs,
    unless memory is short.
    """
    torch.cuda.current_stream().synchronize()
    graph = torch.cuda.CUDAGraph()
    free, total = torch.cuda.mem_get_info()
    if free < total // 4:
        torch.cuda.empty_cache()  # a graph has memory of its own; giving back what is free waits for the device
    graph.capture_begin(capture_error_mode="thread_local")
    try:
        work()
    finally:
        graph.capture_end()
    return graph


See = Callable[..., Generator[Waiting, None, Seen]]


def looking(
    speed: Speed, autocast: Callable[[], AbstractContextManager[Any]], batch_size: int, beat: Callable[[], None]
) -> See:
    """(net, part, weigh) -> Seen: `look`, whose forward pass over full batches is captured where it can be."""
    graphs: dict[int, _Forward] = {}  # by net, which a method may change; the parts of a run have one shape

    def see(net: nn.Module, part: Resident | Loader, weigh: Weigh | None = None) -> Generator[Waiting, None, Seen]:
        if not speed.capture or isinstance(part, Loader):
            return look(net, part, batch_size, autocast, weigh, beat)
        if id(net) not in graphs:
            graphs[id(net)] = _Forward(net, autocast)
        return graphs[id(net)](part, batch_size, weigh, beat)

    return see


class _Forward:
    """Evaluation of a net: full batches by replay, the last, shorter one as it is, and all where capturing fails."""

    def __init__(self, net: nn.Module, autocast: Callable[[], AbstractContextManager[Any]]) -> None:
        self.net, self.autocast = net, autocast
        self._graph: torch.cuda.CUDAGraph | None = None
        self._capturable = True
        self._inputs: Tensor
        self._logits: Tensor

    @torch.no_grad()
    def __call__(
        self, part: Resident, batch_size: int, weigh: Weigh | None, beat: Callable[[], None]
    ) -> Generator[Waiting, None, Seen]:
        was_training = self.net.training
        self.net.eval()
        found = []
        for batch in part.evaluation(batch_size):
            beat()
            full = len(batch.target) == batch_size
            found.append(columns(self._replay(batch) if full else self._forward(batch.inputs), batch, weigh))
            yield WAITING
        self.net.train(was_training)
        return (yield from seen_of(found))

    def _forward(self, inputs: Tensor) -> Tensor:
        with self.autocast():
            logits: Tensor = self.net.forward(inputs)  # past what is compiled, which was compiled for training
        return logits

    def _replay(self, batch: Batch) -> Tensor:
        if self._graph is None and self._capturable:
            self._inputs = batch.inputs.clone(memory_format=torch.preserve_format)
            self._forward(self._inputs)

            def forward() -> None:
                self._logits = self._forward(self._inputs)

            try:
                self._graph = capture(forward)
            except RuntimeError:  # for want of memory, or because the net waits for the device
                self._capturable = False
        if self._graph is None:
            return self._forward(batch.inputs)
        self._inputs.copy_(batch.inputs)
        self._graph.replay()
        return self._logits
