"""Fewer bytes on the way: tensors are cast before a reduction, and back behind it."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf


class Compressor:
    """What a compression does; a program may have its own."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """What is reduced instead of `tensor`, and what `decompress` has to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        """What a reduced tensor means; `context` is what `compress` has returned."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        """The tensor itself."""
        del context
        return tensor


class _CastCompressor(Compressor):
    """Casts floating point of more than two bytes. Reductions of two bytes are rounded once, at their end."""

    dtype: tf.DType

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """The tensor as this type, and its own type."""
        dtype = tensor.dtype
        wide = dtype.is_floating and dtype.size > cls.dtype.size
        return (tf.cast(tensor, cls.dtype), dtype) if wide else (tensor, None)

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        """The tensor as its own type."""
        return tensor if context is None else tf.cast(tensor, context)


class FP16Compressor(_CastCompressor):
    """float16: 11 bits, up to 65504."""

    dtype = tf.float16


class BF16Compressor(_CastCompressor):
    """bfloat16: 8 bits, as far as float32."""

    dtype = tf.bfloat16


class Compression:
    """What `compression=` takes."""

    none: Final = NoneCompressor
    fp16: Final = FP16Compressor
    bf16: Final = BF16Compressor
