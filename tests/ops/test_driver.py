"""What rows.py hands to CUDA's driver, where there is neither a driver nor a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
direct, rows, tiles = (pytest.importorskip(f"reweigh.ops.{name}") for name in ("direct", "rows", "tiles"))
NUMBERS = (-100, 0.5, 8.0, 0.25, 0.0, 5e-7)


class Driver:
    """Answers, and remembers what was launched."""

    def __init__(self, version: int = 13000, clusters: int = 39, code: int = 0) -> None:
        self.version, self.clusters, self.code = version, clusters, code
        self.launched: list[dict[str, Any]] = []

    def cuDriverGetVersion(self, to: Any) -> int:
        to._obj.value = self.version
        return 0

    def cuOccupancyMaxActiveClusters(self, to: Any, kernel: object, config: Any) -> int:
        assert config._obj.grid[0] > 1
        to._obj.value = self.clusters
        return 0

    def cuLaunchKernelEx(self, config: Any, kernel: object, parameters: Any, extra: None) -> int:
        how, given = config._obj, rows.Arguments.from_address(parameters[0])
        self.launched.append(
            {name: getattr(given, name) for name, *_ in given._fields_}
            | {"kernel": kernel, "blocks": how.grid[0], "threads": how.block[0], "shared": how.shared}
            | {"stream": how.stream, "early": how.count and rows.Attribute.from_address(how.attributes).name}
        )
        return self.code


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A driver, and as much of a Hopper as is asked for."""
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(direct, "launches_early", lambda: True)  # which an old Triton does not
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=132))
    monkeypatch.setattr(torch.cuda, "device", lambda _: torch.no_grad())  # any context
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 7, raising=False)
    kernel = SimpleNamespace(func="rows", set_shared_memory_config=lambda size: None)
    monkeypatch.setattr(torch.cuda, "_compile_kernel", lambda *_, **__: kernel, raising=False)

    def put(driver: Driver) -> Driver:
        for module in (direct, rows):
            monkeypatch.setattr(module, "driver", lambda: driver)
        direct.begins_early.cache_clear()
        rows._compiled.cache_clear()
        return driver

    yield put
    direct.begins_early.cache_clear()
    rows._compiled.cache_clear()


def layout(n: int, c: int, dtype: torch.dtype) -> Any:
    kinds = (dtype, torch.int64, None, None)
    return tiles.Layout(0, kinds, n, c, c, c, dtype.itemsize, 1, True)


def test_a_row_for_each_block(install: Any) -> None:
    driver = install(Driver())
    logits, target, values = torch.zeros(4), torch.zeros(4, dtype=torch.int64), torch.zeros(4)
    one = rows.rows(layout(1024, 21841, torch.float32), NUMBERS, (1, 0, 1), 1)
    one(logits, target, logits, values, None, None, None)
    (launched,) = driver.launched
    assert one.programs == launched["blocks"] == 128  # eight rows for each of so many
    assert (launched["threads"], launched["shared"]) == (32 * 17, 2048 + 11 * 8192)
    assert (launched["n"], launched["c"], launched["stride"], launched["ignore"]) == (1024, 21841, 21841, -100)
    assert [launched[name] for name in ("a", "b", "exponent", "inner", "taper")] == list(NUMBERS[1:])
    assert [launched[name] for name in ("logits", "target", "gradient", "values")] == [
        x.data_ptr() for x in (logits, target, logits, values)
    ]
    assert (launched["kernel"], launched["stream"], launched["early"]) == ("rows", 7, 6)


def test_several_blocks_for_a_row_and_an_old_driver(install: Any) -> None:
    driver = install(Driver(version=12020))
    one = rows.rows(layout(4096, 151936, torch.bfloat16), NUMBERS, (1, 0, 1), 1)
    one(*[torch.zeros(1)] * 4)
    assert one.programs == 39
    assert (driver.launched[0]["blocks"], driver.launched[0]["early"]) == (117, 0)


def test_what_cannot_be_launched(install: Any) -> None:
    install(Driver(clusters=0))
    assert rows.rows(layout(4096, 151936, torch.bfloat16), NUMBERS, (1, 0, 1), 1) is None
    install(Driver(code=719))
    one = rows.rows(layout(64, 21841, torch.float32), NUMBERS, (1, 0, 1), 1)
    with pytest.raises(RuntimeError, match="21841 classes could not be launched: CUDA error 719"):
        one(*[torch.zeros(1)] * 4)
