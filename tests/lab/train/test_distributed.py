"""Two processes train a net as one process does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from reweigh.lab.record import read_rows
from reweigh.lab.run import execute
from reweigh.lab.spec import Run
from reweigh.lab.train.distributed import Ranks

RUN = Run(
    data="digits",
    net="mlp-16",
    weighting="DM(0.5, linear(2, 8))",
    noise="symmetric",
    rate=0.4,
    iterations=30,
    batch_size=33,  # the shards of two ranks differ
    evaluate_every=15,
    device="cpu",
)

STEP = """
import sys
import torch
from torch import nn
from reweigh.criterion import Criterion
from reweigh.lab.train.distributed import IgnoringCriterion, gradient_averaging, join_ranks
from reweigh.weightings import DM

def teach(net, ranks):
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    average = gradient_averaging(net.parameters(), ranks) if ranks.size > 1 else torch.Tensor.detach
    criterion = Criterion(DM(0.5, 8), process_group=ranks.group)
    for step in range(20):
        size = [7, 1, 4][step % 3]  # of the whole batch: at times smaller than the number of ranks
        part = ranks.shard(size)
        positions = slice(step * 7, step * 7 + size)
        x, y = inputs[positions][part], target[positions][part]
        taught = criterion if ranks.counted(size) else IgnoringCriterion(criterion)
        loss = taught(net(x), y)
        optimiser.zero_grad()
        loss.backward()
        yield average(loss).item()
        optimiser.step()

torch.set_num_threads(1)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()
inputs, target = torch.randn(200, 5, dtype=torch.float64), torch.randint(0, 3, (200,))
with join_ranks(torch.device("cpu")) as ranks:
    losses = list(teach(net, ranks))
if ranks.first:
    torch.save([torch.tensor(losses), *net.state_dict().values()], sys.argv[1])
"""

# a gloo thread that holds a tensor when the interpreter ends aborts the process
ALONE = """
from pathlib import Path
left = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
assert not [name for name in left if "gloo" in name], left
"""

RUNNER = """
import sys
from pathlib import Path
import torch
from reweigh.lab.run import execute
from reweigh.lab.spec import Run
torch.set_num_threads(1)
execute(Run.from_json(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
"""


def launch(ranks: int, program: str, *arguments: str, port: int) -> None:
    """As torchrun starts them; the programs themselves see only the environment."""
    shared = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program + ALONE, *arguments],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    problems = [process.communicate(timeout=200)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks, "\n".join(problems)


@pytest.fixture
def port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
    return number


def test_every_example_is_in_exactly_one_shard() -> None:
    for size in range(1, 6):
        for batch in range(1, 12):
            shards = [Ranks(rank, size).shard(batch) for rank in range(size)]
            counted = [Ranks(rank, size).counted(batch) for rank in range(size)]
            positions = np.concatenate([np.arange(batch)[s][:n] for s, n in zip(shards, counted, strict=True)])
            assert positions.tolist() == list(range(batch))
            assert max(counted) - min(counted) <= 1
            assert all(len(range(batch)[s]) >= 1 for s in shards)


def test_a_single_process_agrees() -> None:
    assert Ranks().any(True)
    assert not Ranks().any(False)
    Ranks().agree(3, "an iteration")
    assert Ranks().device(torch.device("cuda")) == torch.device("cuda")
    assert Ranks(1, 2, local=1).device(torch.device("cuda")) == torch.device("cuda", 1)


@pytest.mark.slow
def test_three_ranks_equal_one_process_in_float64(tmp_path: Path, port: int) -> None:
    launch(1, STEP, str(tmp_path / "one.pt"), port=port)
    launch(3, STEP, str(tmp_path / "three.pt"), port=port)
    one, three = (torch.load(tmp_path / name) for name in ("one.pt", "three.pt"))
    for a, b in zip(one, three, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "change",
    [{}, pytest.param({"weighting": None, "loss": "BootstrapSoft(0.8)"}, marks=pytest.mark.slow)],
    ids=["weighting", "loss"],
)
def test_a_run_of_two_processes_is_the_run_of_one(tmp_path: Path, port: int, change: dict[str, object]) -> None:
    """Not bit for bit: a sum over the batch in float32 is made in another order."""
    run = replace(RUN, **change)  # type: ignore[arg-type]
    path = tmp_path / "run.json"
    path.write_text(run.to_json())
    launch(2, RUNNER, str(path), str(tmp_path / "two"), port=port)
    one, two = execute(run, tmp_path / "one"), tmp_path / "two" / run.folder_name()
    ours, theirs = (load_file(folder / "model" / "model.safetensors") for folder in (one, two))
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, rtol=1e-4, atol=1e-5)
    for a, b in zip(read_rows(one), read_rows(two), strict=True):
        assert a["step"] == b["step"]
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a["p_mean"] == pytest.approx(b["p_mean"], rel=1e-4)


def test_methods_that_need_complete_batches_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reweigh.lab.run.material import gather
    from reweigh.lab.run.parts import batches_of, net_of, objective_of, order_of

    run = replace(RUN, weighting=None, method="OHEM")
    material = gather(run)
    batches = batches_of(run, material.train, material, torch.device("cpu"), order=order_of(run, material.train))
    net = net_of(run, material, torch.device("cpu"))
    with pytest.raises(ValueError, match="run it in one process, not 2"):
        objective_of(run, material, batches, None, net, Ranks(0, 2))
