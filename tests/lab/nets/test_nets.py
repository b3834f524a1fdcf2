"""Properties of every net, and the architecture of each."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from reweigh.lab.nets import Net, bn_inception, build, googlenet, names
from reweigh.lab.nets.registry import _layout

# name -> (input shape that is quick on a CPU, features)
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    **{f"resnet{d}{kind}": ((3, 8, 8), 64) for d in (20, 32, 44, 56) for kind in ("", "-projection")},
    "resnet10-thin": ((3, 32, 32), 128),
    "resnet18": ((3, 8, 8), 512),
    "resnet34": ((3, 8, 8), 512),
    "resnet50": ((3, 32, 32), 2048),
    "preact-resnet18": ((3, 8, 8), 512),
    "wrn-56-10": ((3, 4, 4), 640),
    "googlenet-v1": ((3, 32, 32), 1024),
    "googlenet-v1-cifar": ((3, 8, 8), 1024),
    "bn-inception": ((3, 32, 32), 1024),
    "cifarnet": ((3, 32, 32), 192),
    "cnn9": ((3, 28, 28), 128),
    "imdb": ((100,), 8),
    "linear": ((64,), 64),
    "mlp-256-256": ((64,), 256),
    "cae-resnet20": ((3, 8, 8), 128),
    "drsa-resnet20": ((3, 8, 8), 6 * 128),
}
VECTORS = {"imdb": 100, "linear": 64, "mlp-256-256": 64}
# One of each kind of block, light enough to be run several times.
LIGHT = ["resnet20", "resnet20-projection", "resnet18", "preact-resnet18", "googlenet-v1", "cifarnet", "imdb"]
LIGHT += ["linear", "mlp-256-256", "cnn9", "googlenet-v1-cifar", "bn-inception", "resnet50"]

COUNTS = [
    ("resnet20", 10, 269_722),
    ("resnet20", 100, 275_572),
    ("resnet32", 10, 464_154),
    ("resnet32", 100, 470_004),
    ("resnet44", 10, 658_586),
    ("resnet44", 100, 664_436),
    ("resnet56", 10, 853_018),
    ("resnet56", 100, 858_868),
    ("resnet20-projection", 10, 272_474),
    ("resnet20-projection", 100, 278_324),
    ("resnet32-projection", 10, 466_906),
    ("resnet32-projection", 100, 472_756),
    ("resnet44-projection", 10, 661_338),
    ("resnet44-projection", 100, 667_188),
    ("resnet56-projection", 10, 855_770),
    ("resnet56-projection", 100, 861_620),
    ("cifarnet", 10, 1_756_426),
    ("cifarnet", 100, 1_773_796),
    ("googlenet-v1", 10, 5_983_802),
    ("googlenet-v1-cifar", 10, 6_166_250),
    ("googlenet-v1-cifar", 100, 6_258_500),
    ("bn-inception", 1000, 11_295_240),
    ("cnn9", 10, 4_434_570),
    ("wrn-56-10", 10, 84_627_034),
    ("preact-resnet18", 10, 11_172_170),
    ("resnet10-thin", 10, 310_746),
    ("resnet18", 10, 11_173_962),
    ("resnet34", 10, 21_282_122),
    ("resnet50", 1000, 25_557_032),
    ("resnet50", 14, 23_508_032 + 2048 * 14 + 14),
    ("imdb", 2, 826),
    ("linear", 10, 650),
    ("mlp-256-256", 10, 64 * 256 + 256 + 256 * 256 + 256 + 2570),
]


def make(name: str, num_classes: int = 10, seed: int = 7, dropout: float = 0.0) -> Net:
    generator = torch.Generator().manual_seed(seed)
    return build(name, num_classes, VECTORS.get(name), generator=generator, dropout=dropout)


def example(name: str, n: int = 2) -> Tensor:
    return torch.randn(n, *SHAPES[name][0], generator=torch.Generator().manual_seed(3))


def test_every_name_is_tested() -> None:
    assert set(SHAPES) == set(names())


@pytest.mark.parametrize(("name", "num_classes", "count"), COUNTS)
def test_parameter_count(name: str, num_classes: int, count: int) -> None:
    with torch.device("meta"):
        net = _layout(name, num_classes, VECTORS.get(name), 0.0)
    assert sum(parameter.numel() for parameter in net.parameters()) == count


@pytest.mark.parametrize("name", names())
def test_shapes(name: str) -> None:
    net = make(name).eval()
    x = example(name)
    with torch.no_grad():
        features, logits = net.features(x), net(x)
        assert features.shape == (2, SHAPES[name][1])
        assert logits.shape == (2, 10)
        assert isinstance(net.classifier, nn.Linear)
        torch.testing.assert_close(net.classifier(features), logits)
    assert net.classifier is net.get_submodule("fc")


@pytest.mark.parametrize("name", LIGHT)
def test_gradient_reaches_every_parameter(name: str) -> None:
    net = make(name)
    net(example(name, 4)).square().sum().backward()
    for key, parameter in net.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
    first = next(net.parameters())
    assert first.grad is not None
    assert first.grad.abs().sum() > 0


@pytest.mark.parametrize("name", LIGHT)
def test_built_from_the_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    first = make(name).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    second, other = make(name).state_dict(), make(name, seed=8).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not torch.equal(first["fc.weight"], other["fc.weight"])


@pytest.mark.parametrize("name", LIGHT)
def test_initialise_fills_everything(name: str, generator: torch.Generator) -> None:
    net, fresh = make(name), make(name).state_dict()
    for tensor in net.state_dict().values():
        tensor.fill_(math.nan if tensor.is_floating_point() else -1)
    net.initialise(generator)
    assert all(torch.equal(tensor, fresh[key]) for key, tensor in net.state_dict().items())


@pytest.mark.parametrize("name", LIGHT)
def test_logits_are_float32_under_autocast(name: str) -> None:
    net, seen = make(name, dropout=0.5), []
    net.dropout.register_forward_hook(lambda _module, _inputs, out: seen.append(out.dtype))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert net(example(name)).dtype == torch.float32
    # A linear model has no body to be run in low precision.
    assert seen == [torch.float32 if name == "linear" else torch.bfloat16]


def test_gradient_passes_the_classifier_under_autocast() -> None:
    net = make("resnet20")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = net(example("resnet20"))
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_a_net_in_float64_keeps_float64() -> None:
    net = make("mlp-256-256").double()
    assert net(example("mlp-256-256").double()).dtype == torch.float64


@pytest.mark.parametrize("name", ["resnet20", "imdb"])
def test_dropout_before_the_classifier(name: str) -> None:
    net, x = make(name, dropout=0.5), example(name, 64)  # by chance two draws are never equal
    plain = make(name)
    assert torch.equal(net.eval()(x), plain.eval()(x))
    net.train()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    assert torch.equal(net.features(x), plain.features(x))
    assert not torch.equal(net(x), net(x))


def test_classifier_can_be_replaced() -> None:
    net = make("resnet20")
    net.classifier = nn.Linear(64, 3)
    assert net(example("resnet20")).shape == (2, 3)
    assert not any(key.startswith("classifier") for key in net.state_dict())


def test_option_a_has_no_parameters_and_pads_both_sides() -> None:
    net = make("resnet20")
    shortcut = net.get_submodule("layer2.0.downsample")
    assert list(shortcut.parameters()) == []
    x = torch.arange(1.0, 1 + 16 * 16).view(1, 16, 4, 4)
    y = shortcut(x)
    assert y.shape == (1, 32, 2, 2)
    assert torch.equal(y[:, 8:24], x[:, :, ::2, ::2])
    assert y[:, :8].abs().sum() + y[:, 24:].abs().sum() == 0


def test_googlenet_v1_leaves_4_2_and_1_pixels_of_32() -> None:
    net = make("googlenet-v1").eval()
    sizes: dict[str, int] = {}
    for block in googlenet.BLOCKS:
        net.get_submodule(f"inception{block}").register_forward_hook(
            lambda _m, _i, out, block=block: sizes.__setitem__(block, out.shape[-1])
        )
    net(example("googlenet-v1"))
    assert list(sizes.values()) == [4, 4, 2, 2, 2, 2, 2, 1, 1]
    assert [w.out for w in googlenet.BLOCKS.values()] == [256, 480, 512, 512, 512, 528, 832, 832, 1024]


def test_googlenet_v1_cifar_pools_after_3b_and_4e() -> None:
    net = make("googlenet-v1-cifar").eval()
    sizes: list[int] = []
    for block in googlenet.BLOCKS:
        net.get_submodule(f"inception{block}").register_forward_hook(lambda _m, _i, out: sizes.append(out.shape[-1]))
    with torch.no_grad():
        net(example("googlenet-v1-cifar", 1))
    assert sizes == [8, 8, 4, 4, 4, 4, 4, 2, 2]


def test_bn_inception_blocks_at_224() -> None:
    net = make("bn-inception").eval()
    assert isinstance(net, bn_inception.BNInception)
    expected = {"3a": 256, "3b": 320, "3c": 576, "4a": 576, "4b": 576, "4c": 608, "4d": 608, "4e": 1056}
    expected |= {"5a": 1024, "5b": 1024}
    channels, x = 192, torch.rand(1, 192, 28, 28)
    with torch.no_grad():
        for block, widths in bn_inception.BLOCKS.items():
            x = net.block(block, widths, x)
            channels = widths.out(channels)
            assert x.shape[1] == channels == expected[block]
        assert x.shape[2:] == (7, 7)
        assert net.features(torch.rand(1, 3, 224, 224)).shape == (1, 1024)


def test_cifarnet_normalisation_is_tensorflows() -> None:
    net = make("cifarnet")
    x = torch.rand(1, 64, 2, 2) * 20
    slow = torch.empty_like(x)
    for c in range(64):
        window = x[:, max(0, c - 4) : c + 5]
        slow[:, c] = x[:, c] / (1.0 + (0.001 / 9) * window.square().sum(1)) ** 0.75
    torch.testing.assert_close(net.get_submodule("norm")(x), slow)


def test_cifarnet_initial_values() -> None:
    state = make("cifarnet").state_dict()
    # The standard deviation of a normal cut at two sigma is 0.8796 sigma.
    for key, sigma, bias in [
        ("conv1", 0.05, 0.0),
        ("conv2", 0.05, 0.0),
        ("hidden1", 0.04, 0.1),
        ("hidden2", 0.04, 0.1),
        ("fc", 1 / 192, 0.0),
    ]:
        weight = state[f"{key}.weight"]
        assert weight.abs().max() <= 2 * sigma
        assert weight.std().item() == pytest.approx(0.8796 * sigma, rel=0.05)
        assert torch.equal(state[f"{key}.bias"], torch.full_like(state[f"{key}.bias"], bias))


def test_imdb_net_has_caffes_initial_values() -> None:
    net = make("imdb", 2)
    first, last = net.get_submodule("hidden.0"), net.classifier
    assert isinstance(first, nn.Linear)
    for layer, fan_in in ((first, 100), (last, 8)):
        bound = math.sqrt(3 / fan_in)
        assert layer.weight.abs().max() <= bound
        assert layer.weight.abs().max() > 0.6 * bound
        assert layer.bias.abs().sum() == 0
    x = torch.randn(5, 100)
    hidden = (x @ first.weight.T).clamp(min=0)
    torch.testing.assert_close(net(x), hidden @ last.weight.T)


def test_convolutions_are_he_normal() -> None:
    weight = make("resnet18").state_dict()["layer4.1.conv2.weight"]
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (512 * 9)), rel=0.01)
    assert weight.mean().abs() < 1e-4


@pytest.mark.parametrize(
    ("name", "num_classes", "in_features", "dropout", "message"),
    [
        ("resnet57", 10, None, 0.0, "no net is named 'resnet57'; the nearest names are resnet56"),
        ("mlp-", 10, 4, 0.0, "no net is named 'mlp-'"),
        ("mlp-0", 10, 4, 0.0, "no net is named 'mlp-0'"),
        ("mlp-8", 10, None, 0.0, "net 'mlp-8' reads feature vectors and needs in_features"),
        ("linear", 10, 0, 0.0, "needs in_features, not 0"),
        ("resnet20", 10, 64, 0.0, "net 'resnet20' reads RGB images, not vectors of 64 features"),
        ("resnet20", 0, None, 0.0, "num_classes must be 1 or more, not 0"),
        ("resnet20", 10, None, 1.0, "dropout must be at least 0 and below 1, not 1.0"),
    ],
)
def test_refusals(
    name: str,
    num_classes: int,
    in_features: int | None,
    dropout: float,
    message: str,
    generator: torch.Generator,
) -> None:
    with pytest.raises(ValueError, match=message):
        build(name, num_classes, in_features, generator=generator, dropout=dropout)
