"""The kernels compile for a GPU that is not there: the interpreter knows no types, no registers and no assembler."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing"),
]

POINTERS = {
    "logits": "*bf16",
    "gradient": "*bf16",
    "target": "*i64",
    "book": "*fp64",
    "settled": "*fp64",
    "values": "*fp32",
    "incoming": "*fp32",
    "correction": "*fp32",
    "partial": "*fp32",
    "value": "*fp32",
    "class_weight": "*fp32",
    "sample_weight": "*fp64",
}
LONG = {"stride", "gradient_stride", "incoming_stride", "ignore"}
REAL = {"a", "b", "c", "inner", "taper", "share"}
WEIGHING = {"FAMILY": 1, "INNER": True, "TAPER": True}
WALKING = {"U": 4, "R": 1, "T": 128, "K": 8, "WHOLE": False, "SHIFTED": False}
WHOLE = {"U": 1, "R": 8, "T": 16, "K": 8, "WHOLE": True, "SHIFTED": False}
AT_ONCE = {"BATCH": True, "REDUCTION": 1, "R": 16, "T": 16, "K": 8}
WEIGHED = {"REDUCTION": 1, "BATCH": True}
# More rows than threads, their values one by one, narrow labels and one weight: too much for Triton 3.3 to 3.6, once.
LABOURED = WEIGHING | AT_ONCE | {"BOUNDED": True, "REDUCTION": 0, "R": 512, "T": 4, "K": 1, "target": "*i32"}
GIVEN = {"FAMILY": 4, "INNER": False, "TAPER": True, "BOUNDED": False, "REDUCTION": 1}
CASES = [
    *(
        ("passes", name, shape | more)
        for name, more in (("measure", {}), ("emit", {"FORCE": 2}), ("fused", WEIGHING | {"REDUCTION": 1}))
        for shape in (WALKING, WALKING | {"SHIFTED": True}, WHOLE)
    ),
    ("passes", "at_once", WEIGHING | AT_ONCE | {"FAMILY": 2, "BOUNDED": False}),
    ("passes", "at_once", WEIGHING | AT_ONCE | {"FAMILY": 3, "BOUNDED": False}),
    ("passes", "at_once", WEIGHING | AT_ONCE | {"FAMILY": 1, "BOUNDED": True}),
    ("passes", "at_once", LABOURED | {"class_weight": None}),
    ("passes", "at_once", LABOURED | {"sample_weight": None, "class_weight": "*fp32"}),
    ("passes", "rescale", {"T": 256, "K": 8}),
    ("weigh", "weigh_rows", WEIGHING | WEIGHED | {"FAMILY": 0, "BOUNDED": False, "ALONE": False, "B": 128}),
    ("weigh", "weigh_rows", WEIGHING | WEIGHED | {"FAMILY": 1, "BOUNDED": True, "ALONE": True, "B": 1024}),
    ("weigh", "weigh_rows", GIVEN | {"BATCH": True, "ALONE": True, "B": 1024}),
    ("weigh", "weigh_rows", GIVEN | {"BATCH": False, "ALONE": True, "B": 1024}),
    ("weigh", "weigh_rows", GIVEN | {"BATCH": False, "ALONE": False, "B": 128}),
    ("weigh", "settle", {"REDUCTION": 1, "BATCH": True, "B": 256}),
    ("weigh", "settle", {"REDUCTION": 2, "BATCH": False, "B": 256}),
    ("weigh", "count", {"B": 1024}),
    ("weigh", "tally", {"PRESUMED": True, "SINGLE": True, "B": 1024}),
    ("weigh", "tally", {"PRESUMED": True, "SINGLE": False, "B": 1024}),
]


@pytest.mark.parametrize(("module", "name", "constants"), CASES)
def test_compiles_for_hopper(module: str, name: str, constants: dict[str, Any]) -> None:
    triton = pytest.importorskip("triton")
    compiler = pytest.importorskip("triton.compiler")
    backend = pytest.importorskip("triton.backends.compiler")
    direct = pytest.importorskip("reweigh.ops.direct")
    kernel = getattr(pytest.importorskip(f"reweigh.ops.{module}"), name)
    given = POINTERS | constants | {"EARLY": direct.launches_early()}

    def kind(argument: str) -> str:
        if argument in given:
            return (given[argument] or "constexpr") if argument in POINTERS else "constexpr"
        return "i64" if argument in LONG else "fp64" if argument in REAL else "i32"

    names = kernel.arg_names
    signature = {argument: kind(argument) for argument in names}
    source = compiler.ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(n,): given[argument] for n, argument in enumerate(names) if signature[argument] == "constexpr"},
        # tensors of their own begin at 16 bytes
        attrs={
            (n,): [["tt.divisibility", 16]]
            for n, parameter in enumerate(kernel.params)
            if signature[parameter.name][0] == "*" and not parameter.do_not_specialize_on_alignment
        },
    )
    compiled = triton.compile(source, target=backend.GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    assert compiled.asm["cubin"]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize(
    ("classes", "dtype"),
    [(21841, torch.float32), (151936, torch.float32), (151936, torch.bfloat16), (151936, torch.float16)],
    ids=str,
)
@pytest.mark.parametrize("family", range(4))
def test_rows_compile_for_hopper(family: int, classes: int, dtype: torch.dtype, tmp_path: Path) -> None:
    rows = pytest.importorskip("reweigh.ops.rows")
    cut = rows.parts(classes, dtype.itemsize)
    written, made = tmp_path / "rows.cu", tmp_path / "rows.cubin"
    written.write_text(rows.source(), encoding="utf-8")
    for choices, reduction in (((family, 0, 1), 1), ((family, 1, 0), 0)):
        options = rows.definitions(dtype, cut, choices, reduction)
        subprocess.run(["nvcc", "-cubin", "-arch=sm_90", *options, "-o", made, written], check=True)
        assert made.stat().st_size
