"""Joint Optimisation (Tanaka 2018): learn labels together with a net, then train a new net on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reweigh.errors import DataError
from reweigh.lab.procedures.journal import Journal, RunOne, final_and_best, require_cce, require_converged
from reweigh.lab.run import execute
from reweigh.lab.spec import Expression, Run
from reweigh.lab.spec.expression import Value
from reweigh.noise.files import file_hash


def joint_optimisation(
    run: Run,
    root: Path,
    *,
    iterations: int | None = None,
    lr: float | None = None,
    alpha: float = 1.2,
    beta: float = 0.8,
    begin: int = 70,
    slots: int = 10,
    prior: str = "uniform",
    run_one: RunOne = execute,
) -> Path:
    """Learn net and labels alternately at a constant learning rate, then train a new net on the soft labels.

    Args:
        run: the settings of phase 2, plain CCE; phase 1 has the same data, net, batches and optimiser.
        root: directory containing runs.
        iterations: of phase 1; by default the run's.
        lr: of phase 1, constant; too low a rate fits the noisy labels. By default the run's.
        alpha, beta, begin, slots, prior: as in the method `JointLabels`; the prior must match the data.
        run_one: executes a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has final and best test accuracy of both phases.
    """
    require_cce(run, "joint_optimisation")
    iterations = run.iterations if iterations is None else iterations
    lr = run.lr if lr is None else lr
    method: dict[str, Value] = {"alpha": alpha, "beta": beta, "begin": begin, "slots": slots, "prior": prior}
    journal = Journal("joint-optimisation", run, root, method | {"iterations": iterations, "lr": lr}, run_one)
    if journal.is_done:
        return journal.folder
    file = journal.path("labels.npy")
    learned = Expression("JointLabels", (), (("file", file.as_posix()), *method.items()))
    phase = replace(
        run,
        weighting=None,
        method=str(learned),
        schedule="constant",
        iterations=iterations,
        lr=lr,
    )
    first = journal.run("phase 1", phase)
    require_converged(first)
    if not file.exists():
        raise DataError(f"{file}: missing, although {first} is finished; remove that run to learn the labels again")
    soft = Expression("SoftLabels", (), (("file", file.as_posix()), ("hash", file_hash(file.read_bytes()))))
    second = journal.run("phase 2", replace(run, weighting=None, method=str(soft)))
    return journal.finish({"phase 1": final_and_best(first), "phase 2": final_and_best(second)})
