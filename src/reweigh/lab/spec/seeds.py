"""Seeds as a user writes them."""

from __future__ import annotations


def read_seeds(text: str) -> tuple[int, ...]:
    """Seeds with commas between them; "a-b" stands for all from a to b, and one that is there twice counts once.

    >>> read_seeds("0-2, 7")
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
            raise ValueError(f"seeds are {text!r}: {part.strip()!r} is none; expected such as 0,1,2 or 0-4")
        seeds += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(seeds))
