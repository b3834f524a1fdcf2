"""Joint Optimisation (Tanaka 2018): learn the labels with a net, then a new net from the labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reweigh.errors import DataError
from reweigh.lab.procedures.journal import CarryOut, Journal, accuracies, require_cce, require_converged
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
    carry_out: CarryOut = execute,
) -> Path:
    """Phase 1 learns net and labels in turn under a constant rate; phase 2 trains a new net on the soft labels.

    Args:
        run: phase 2, as plain CCE would be trained; phase 1 shares its data, net, batches and optimiser.
        root: where run folders lie.
        iterations: of phase 1; by default the run's.
        lr: of phase 1, constant and high, or the labels freeze on the noise; by default the run's.
        alpha, beta, begin, slots, prior: as in the method `JointLabels`. The prior must match the data.
        carry_out: executes a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has final and best test accuracy of both phases.
    """
    require_cce(run, "joint_optimisation")
    iterations = run.iterations if iterations is None else iterations
    lr = run.lr if lr is None else lr
    method: dict[str, Value] = {"alpha": alpha, "beta": beta, "begin": begin, "slots": slots, "prior": prior}
    journal = Journal("joint-optimisation", run, root, method | {"iterations": iterations, "lr": lr}, carry_out)
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
        raise DataError(f"{file}: gone, though {first} is finished; remove that run to learn the labels again")
    soft = Expression("SoftLabels", (), (("file", file.as_posix()), ("hash", file_hash(file.read_bytes()))))
    second = journal.run("phase 2", replace(run, weighting=None, method=str(soft)))
    return journal.finish({"phase 1": accuracies(first), "phase 2": accuracies(second)})
