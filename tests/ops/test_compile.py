"""The kernels compile for a GPU that is not there: the interpreter knows no types, no registers and no assembler."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing"),
]

POINTERS = {
    "logits": "*bf16",
    "gradient": "*bf16",
    "target": "*i64",
    "row_stats": "*fp64",
    "normaliser": "*fp64",
    "values": "*fp32",
    "factor": "*fp32",
    "forces": "*fp64",
    "class_weight": "*fp32",
    "sample_weight": "*fp64",
}
LONG = {"stride", "gradient_stride", "factor_stride", "ignore"}
REAL = {"a", "b", "c", "inner", "taper", "lift"}
WEIGHING = {"FAMILY": 1, "INNER": True, "TAPER": True}
WALKING = {"U": 4, "R": 1, "T": 128, "K": 8, "WHOLE": False, "SHIFTED": False}
WHOLE = {"U": 1, "R": 8, "T": 16, "K": 8, "WHOLE": True, "SHIFTED": False}
AT_ONCE = {"BATCH": True, "REDUCTION": 1, "R": 16, "T": 16, "K": 8}
WEIGHED = {"REDUCTION": 1}
# More rows than threads, their values one by one, narrow labels and one weight: too much for Triton 3.3 to 3.6, once.
LABOURED = WEIGHING | AT_ONCE | {"BOUNDED": True, "REDUCTION": 0, "R": 512, "T": 4, "K": 1, "target": "*i32"}
CASES = [
    *(
        (name, shape | more)
        for name, more in (
            ("measure", {}),
            ("emit", {"FORCE": 2}),
            ("emit", {"FORCE": 0}),
            ("fused", WEIGHING | {"REDUCTION": 1}),
        )
        for shape in (WALKING, WALKING | {"SHIFTED": True}, WHOLE)
    ),
    ("at_once", WEIGHING | AT_ONCE | {"FAMILY": 2, "BOUNDED": False}),
    ("at_once", WEIGHING | AT_ONCE | {"FAMILY": 3, "BOUNDED": False}),
    ("at_once", WEIGHING | AT_ONCE | {"FAMILY": 1, "BOUNDED": True}),
    ("at_once", LABOURED | {"class_weight": None}),
    ("at_once", LABOURED | {"sample_weight": None, "class_weight": "*fp32"}),
    ("rescale", {"T": 256, "K": 8}),
    ("weigh_rows", WEIGHING | WEIGHED | {"FAMILY": 0, "BOUNDED": False, "ALONE": False, "B": 128}),
    ("weigh_rows", WEIGHING | WEIGHED | {"FAMILY": 1, "BOUNDED": True, "ALONE": True, "B": 1024}),
    ("merge", {"REDUCTION": 1, "B": 256}),
    ("count", {"B": 1024}),
]


@pytest.mark.parametrize(("name", "constants"), CASES)
def test_compiles_for_hopper(name: str, constants: dict[str, Any]) -> None:
    triton = pytest.importorskip("triton")
    compiler = pytest.importorskip("triton.compiler")
    backend = pytest.importorskip("triton.backends.compiler")
    kernel = getattr(pytest.importorskip("reweigh.ops.kernels"), name)
    given = POINTERS | constants

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
