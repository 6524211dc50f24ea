"""Words and their bits: eight cells compared at a time, the outcome a byte of bits; the first bit of a word.

LLVM turns the bits of a vector comparison into one move where the processor has one, and into a few instructions elsewhere;
from a loop over cells it does not find that by itself.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic

LANES = 8


def _primitive(build: Any) -> Any:
    """numba's intrinsic, without a type: kernels call it with the arguments that follow `typing`."""
    return intrinsic(build)


def _vector(builder: Any, scalar: Any, kind: Any) -> Any:
    """The scalar in every lane."""
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, scalar, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


def _loaded(context: Any, builder: Any, array_type: Any, array: Any, index: Any, kind: Any) -> Any:
    """Eight elements of the array from the index on; nothing checks that they are all there."""
    data = context.make_array(array_type)(context, builder, array).data
    vector = builder.load(builder.bitcast(builder.gep(data, [index]), ir.PointerType(kind)))
    vector.align = 8
    return vector


def _bits(builder: Any, outcome: Any) -> Any:
    return builder.zext(builder.bitcast(outcome, ir.IntType(LANES)), ir.IntType(64))


@_primitive
def eight_at_most(typing: Any, array: Any, index: Any, limit: Any) -> Any:
    """Bit i says whether array[index + i] <= limit, for i = 0..7. All eight must lie in the array's memory."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.VectorType(ir.IntType(64), LANES)
        cells = _loaded(context, builder, signature.args[0], args[0], args[1], kind)
        return _bits(builder, builder.icmp_signed("<=", cells, _vector(builder, args[2], kind)))

    return types.uint64(array, types.int64, types.int64), generate


@_primitive
def eight_sums_at_most(typing: Any, array: Any, index: Any, other: Any, limit: Any) -> Any:
    """Bit i says whether array[index + i] + array[other + i] <= limit, for i = 0..7. All of them must lie in memory."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.VectorType(ir.IntType(64), LANES)
        one = _loaded(context, builder, signature.args[0], args[0], args[1], kind)
        two = _loaded(context, builder, signature.args[0], args[0], args[2], kind)
        return _bits(builder, builder.icmp_signed("<=", builder.add(one, two), _vector(builder, args[3], kind)))

    return types.uint64(array, types.int64, types.int64, types.int64), generate


@_primitive
def eight_equal(typing: Any, array: Any, index: Any, other: Any, other_index: Any) -> Any:
    """Bit i says whether array[index + i] == other[other_index + i], for i = 0..7. All of them must lie in memory."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.VectorType(ir.IntType(64), LANES)
        one = _loaded(context, builder, signature.args[0], args[0], args[1], kind)
        two = _loaded(context, builder, signature.args[2], args[2], args[3], kind)
        return _bits(builder, builder.icmp_signed("==", one, two))

    return types.uint64(array, types.int64, other, types.int64), generate


@_primitive
def eight_touched(typing: Any, array: Any, index: Any, word: Any) -> Any:
    """Bit i says whether array[index + i] & word != 0, for i = 0..7. All eight must lie in the array's memory."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.VectorType(ir.IntType(64), LANES)
        cells = _loaded(context, builder, signature.args[0], args[0], args[1], kind)
        met = builder.and_(cells, _vector(builder, args[2], kind))
        return _bits(builder, builder.icmp_signed("!=", met, ir.Constant(kind, [0] * LANES)))

    return types.uint64(array, types.int64, types.uint64), generate


@_primitive
def first_bit(typing: Any, word: Any) -> Any:
    """The index of the lowest bit that is set; the word must not be 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate
