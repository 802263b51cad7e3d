"""What the benchmarks move: numbers of bytes and lists of tensors, by name. Needs neither TensorFlow nor MPI."""

from __future__ import annotations

import re
from typing import NamedTuple

UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# Of a float's mantissa, without the leading one that is not stored.
MANTISSA_BITS = {"float32": 23, "float16": 10, "bfloat16": 7}


class Case(NamedTuple):
    """Tensors that are moved in one step."""

    name: str
    dtype: str
    shapes: list[tuple[int, ...]]

    @property
    def elements(self) -> int:
        """Of all tensors together."""
        return sum(elements_of(shape) for shape in self.shapes)

    @property
    def bytes(self) -> int:
        """Of all tensors together, on one rank."""
        return self.elements * ITEM_BYTES[self.dtype]


def elements_of(shape: tuple[int, ...]) -> int:
    """How many elements a tensor of this shape has."""
    product = 1
    for extent in shape:
        product *= extent
    return product


def parse_size(text: str) -> int:
    """Bytes: `4`, `1KiB`, `64MiB`.

    Raises:
        ValueError: it is no such thing.
    """
    found = re.fullmatch(r"(\d+)([KMG]iB)?", text)
    if not found:
        raise ValueError(f"{text} is no size: 4, 1KiB and 64MiB are")
    return int(found[1]) * UNITS[found[2] or ""]


def size_text(size: int) -> str:
    """Bytes as `parse_size` reads them, in the largest unit that fits."""
    for unit in ("GiB", "MiB", "KiB"):
        if size >= UNITS[unit] and size % UNITS[unit] == 0:
            return f"{size // UNITS[unit]}{unit}"
    return str(size)


def equal_tensors(count: int, size: int, dtype: str) -> Case:
    """`count` vectors of `size` bytes each, rounded up to whole elements."""
    item = ITEM_BYTES[dtype]
    return Case(f"{count}x{size_text(size)}", dtype, [((size + item - 1) // item,)] * count)


def resnet50_shapes() -> list[tuple[int, ...]]:
    """ResNet-50's weights: of convolutions and of the layer at the end, and two vectors for each normalisation."""
    shapes: list[tuple[int, ...]] = []

    def convolution(edge: int, inputs: int, outputs: int) -> None:
        shapes.extend([(edge, edge, inputs, outputs), (outputs,), (outputs,)])

    convolution(7, 3, 64)
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolution(1, channels, width)
            convolution(3, width, width)
            convolution(1, width, 4 * width)
            if block == 0:  # the shortcut changes its width too
                convolution(1, channels, 4 * width)
            channels = 4 * width
    return [*shapes, (channels, 1000), (1000,)]


def parse_case(text: str, dtype: str) -> Case:
    """A case by its name: `resnet50`, or `1000x1KiB`: number and size of equal tensors; `:float16` overrides the type.

    Raises:
        ValueError: it is no such thing.
    """
    name, _, own = text.partition(":")
    dtype = own or dtype
    if dtype not in ITEM_BYTES:
        raise ValueError(f"{dtype} is none of {', '.join(ITEM_BYTES)}")
    if name == "resnet50":
        return Case(name, dtype, resnet50_shapes())
    count, _, size = name.partition("x")
    if not count.isdigit() or not int(count):
        raise ValueError(f"{name} is no case: resnet50 and 1000x1KiB are")
    return equal_tensors(int(count), parse_size(size), dtype)


def parse_cases(names: str, sizes: str, counts: str, types: str) -> list[Case]:
    """The cases that are named, and `counts` tensors of each of `sizes`; all of them in each of `types`, each once.

    Raises:
        ValueError: one of them is not understood.
    """
    products = [f"{count}x{size}" for count in counts.split(",") for size in words(sizes)]
    cases: dict[tuple[str, str], Case] = {}
    for dtype in words(types):
        for name in [*words(names), *products]:
            case = parse_case(name, dtype)
            cases.setdefault((case.name, case.dtype), case)
    return list(cases.values())


def words(text: str) -> list[str]:
    """What stands between commas; nothing for an empty text."""
    return [word for word in text.split(",") if word]
