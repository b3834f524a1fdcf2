"""Downloads from the official addresses; the only module that uses the network.

Sizes are those that the servers announce, digests those that the authors or torchvision publish; without them the
loader's own checks (CIFAR-N's clean labels against CIFAR's) apply.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reweigh.errors import DataError
from reweigh.lab.data.source.archive import extract
from reweigh.lab.data.source.download import Progress, Remote, fetch


@dataclass(frozen=True)
class Source:
    """The origin of a data set.

    Args:
        files: the downloads, by file name in the data folder; archives are unpacked there.
        gives: the resulting entries of the data folder; if all exist, nothing is downloaded.
        licence: the terms, in a sentence.
        by_hand: instructions for a data set that cannot be downloaded.
        also: other entries that the loader accepts instead.
        holds: for a data set whose parts are unpacked one by one, its contents: one name of each tuple must exist.
    """

    files: Mapping[str, Remote]
    gives: tuple[str, ...]
    licence: str
    by_hand: str = ""
    also: tuple[str, ...] = ()
    holds: tuple[tuple[str, ...], ...] = ()

    def is_in(self, root: Path) -> bool:
        """Return whether the data folder holds the data set, or is the data set itself."""
        complete = all(self.is_at(root / name) for name in self.gives)
        itself = root.name in (*self.gives, *self.also) and self.is_at(root)
        return complete or any(self.is_at(root / name) for name in self.also) or itself

    def is_at(self, path: Path) -> bool:
        """Return whether the path exists, with all its parts."""
        return path.exists() and all(any((path / name).exists() for name in part) for part in self.holds)


_TORONTO = "https://www.cs.toronto.edu/~kriz"
_CIFAR_N = "https://github.com/UCSC-REAL/cifar-10-100n/raw/main/data"

_CIFAR10 = Remote(f"{_TORONTO}/cifar-10-python.tar.gz", 170498071, "c58f30108f718f92721af3b95e74349a")
_CIFAR100 = Remote(f"{_TORONTO}/cifar-100-python.tar.gz", 169001437, "eb9058c3a382ffc7106e4002c42a8d85")
_IMDB = Remote(
    "http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    84125825,
    "7c2ac02c03563afcf9b574c7e56c153a",
)
_KRIZHEVSKY = "No licence is stated; cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009."
_CIFAR100_SOURCE = Source(
    {"cifar-100-python.tar.gz": _CIFAR100}, ("cifar-100-python",), _KRIZHEVSKY, also=("cifar-100-binary",)
)

SOURCES: Mapping[str, Source] = {
    "cifar10": Source(
        {"cifar-10-python.tar.gz": _CIFAR10}, ("cifar-10-batches-py",), _KRIZHEVSKY, also=("cifar-10-batches-bin",)
    ),
    "cifar100": _CIFAR100_SOURCE,
    "vehicles10": _CIFAR100_SOURCE,
    "cifar-n": Source(
        {name: Remote(f"{_CIFAR_N}/{name}") for name in ("CIFAR-10_human.pt", "CIFAR-100_human.pt")},
        ("CIFAR-10_human.pt", "CIFAR-100_human.pt"),
        "See LICENSE in github.com/UCSC-REAL/cifar-10-100n; cite Wei et al., ICLR 2022.",
    ),
    "imdb": Source(
        {"aclImdb_v1.tar.gz": _IMDB},
        ("aclImdb",),
        "No licence is stated; cite Maas et al., Learning Word Vectors for Sentiment Analysis, ACL 2011.",
    ),
    "clothing1m": Source(
        {},
        ("clothing1M",),
        "By agreement with the authors; cite Xiao et al., CVPR 2015.",
        "Ask the authors of Clothing1M (Xiao et al., CVPR 2015; github.com/Cysu/noisy_label) for access, then "
        "unpack the images and the text files",
        holds=(("category_names_eng.txt", "annotations/category_names_eng.txt"), ("images", "0")),
    ),
    "mars": Source(
        {},
        ("MARS",),
        "See the authors' page; cite Zheng et al., MARS, ECCV 2016.",
        "Download bbox_train.zip and bbox_test.zip from the page of MARS (zheng-lab.cecs.anu.edu.au/Project/"
        "project_mars.html) and info/ from github.com/liangzheng06/MARS-evaluation, then unpack them",
        also=("mars", "mini_mars"),
    ),
    "tin100": Source(
        {},
        ("tin100.npz",),
        "ImageNet's terms: for research that is not commercial.",
        "Make it from Tiny-ImageNet (its first 100 classes, 500 + 50 pictures each, reduced to 32 x 32) as uint8 "
        "x_train, x_test and int64 y_train, y_test",
    ),
    "digits": Source({}, (), "Part of scikit-learn (BSD); cite Alpaydin and Kaynak, UCI, 1998."),
}


def get(
    name: str,
    root: str | os.PathLike[str],
    progress: Progress | None = None,
    sources: Mapping[str, Source] = SOURCES,
) -> tuple[Path, ...]:
    """Download the data set `name` into the folder `root`, and return its paths.

    An archive is downloaded (as `.part` until its size and digest are verified; see
    `reweigh.lab.data.source.download.fetch`), unpacked and kept. An archive put there by hand is used too. For a data
    set that is only available on request, the DataError says what to do.

    Args:
        name: a key of `sources`.
        root: the data folder (the command line: REWEIGH_DATA).
        progress: called with (bytes so far, total bytes or None).
        sources: the known data sets.
    """
    if name not in sources:
        close = difflib.get_close_matches(name, sources, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"name must be one of {', '.join(sorted(sources))}, not {name!r}{hint}")
    source = sources[name]
    folder = Path(root)
    results = tuple(folder / given for given in source.gives)
    if all(source.is_at(path) for path in results):
        return results
    if not source.files:
        wanted = ", ".join(map(str, results))
        raise DataError(f"{name} cannot be downloaded from here. {source.by_hand}, as {wanted}")
    for file, remote in source.files.items():
        downloaded = fetch(remote, folder / file, progress)
        if file.endswith((".tar.gz", ".tar", ".zip")):
            extract(downloaded, folder)
    missing = [str(path) for path in results if not path.exists()]
    if missing:
        raise DataError(f"{name}: the download does not contain {', '.join(missing)}")
    return results
