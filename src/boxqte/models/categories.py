"""Categories that a model knows by their hash alone: what CatBoost keeps of the texts it was trained on.

CatBoost reads a category as text and keeps the low 32 bits of its CityHash64 (version 1, by Pike and Alakuijala). From a
value to its hash there is one way, so the values of a space can be looked up; there is no way back, so such a model
cannot say which values it knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MASK = 2**64 - 1
K0, K1, K2, K3 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F, 0xC949D7C7509E6557
MIX = 0x9DDFEA08EB382D69


class HashedCategories(tuple[int, ...]):
    """The hashes of the categories that a model knows, in code order; every other value has the code behind them.

    `texts` remembers a text for each code that was looked up: that is what the model's library is given in a replay.

    Examples
    --------
    >>> known = HashedCategories([text_hash("red"), text_hash("blue")])
    >>> known.code_of("blue"), known.code_of("green"), known.texts
    (1, 2, {1: 'blue', 2: 'green'})
    """

    texts: dict[int, str]
    codes: dict[int, int]

    def __new__(cls, hashes: Iterable[int]) -> HashedCategories:
        made = super().__new__(cls, hashes)
        made.texts, made.codes = {}, {known: code for code, known in enumerate(made)}
        return made

    def code_of(self, value: Any) -> int:
        """The code of a value of the user's."""
        text = str(value)
        code = self.codes.get(text_hash(text), len(self))
        self.texts[code] = text
        return code


def text_hash(text: str) -> int:
    """CatBoost's hash of a category."""
    return city_hash(text.encode()) & 0xFFFFFFFF


def city_hash(data: bytes) -> int:
    """CityHash64, version 1.

    Examples
    --------
    >>> city_hash(b"red") & 0xFFFFFFFF
    3052168893
    """
    n = len(data)
    if n <= 16:
        return _short(data, n)
    if n <= 32:
        a, b = _word(data, 0) * K1 & MASK, _word(data, 8)
        c, d = _word(data, n - 8) * K2 & MASK, _word(data, n - 16) * K0
        return _mixed(_turned(a - b, 43) + _turned(c, 30) + d, a + _turned(b ^ K3, 20) - c + n)
    return _medium(data, n) if n <= 64 else _long(data, n)


def _short(data: bytes, n: int) -> int:
    if n > 8:
        a, b = _word(data, 0), _word(data, n - 8)
        return _mixed(a, _turned(b + n, n)) ^ b
    if n >= 4:
        return _mixed(n + (_half(data, 0) << 3), _half(data, n - 4))
    if n == 0:
        return K2
    y, z = data[0] + (data[n >> 1] << 8), n + (data[n - 1] << 2)
    return _folded((y * K2 ^ z * K3) & MASK) * K2 & MASK


def _medium(data: bytes, n: int) -> int:
    def half(a: int, z: int, second: int, third: int) -> tuple[int, int]:
        b, c = _turned(a + z, 52), _turned(a, 37)
        a += second
        c += _turned(a, 7)
        a += third
        return a + z, b + _turned(a, 31) + c

    first = _word(data, 0) + (n + _word(data, n - 16)) * K0
    v = half(first, _word(data, 24), _word(data, 8), _word(data, 16))
    w = half(_word(data, 16) + _word(data, n - 32), _word(data, n - 8), _word(data, n - 24), _word(data, n - 16))
    r = _folded(((v[0] + w[1]) * K2 + (w[0] + v[1]) * K0) & MASK)
    return _folded((r * K0 + v[1]) & MASK) * K2 & MASK


def _long(data: bytes, n: int) -> int:
    x, y, z = _word(data, 0), _word(data, n - 16) ^ K1, _word(data, n - 56) ^ K0
    v, w = _weak(data, n - 64, n, y), _weak(data, n - 32, n * K1, K0)
    z = (z + _folded(v[1]) * K1) & MASK
    x, y = _turned(z + x, 39) * K1, _turned(y, 33) * K1
    for at in range(0, (n - 1) & ~63, 64):
        x = (_turned(x + y + v[0] + _word(data, at + 16), 37) * K1 & MASK) ^ w[1]
        y = (_turned(y + v[1] + _word(data, at + 48), 42) * K1 & MASK) ^ v[0]
        z = _turned(z ^ w[0], 33)
        v, w = _weak(data, at, v[1] * K1, x + w[0]), _weak(data, at + 32, z + w[1], y)
        z, x = x, z
    return _mixed(_mixed(v[0], w[0]) + _folded(y & MASK) * K1 + z, _mixed(v[1], w[1]) + x)


def _weak(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_word(data, at + 8 * i) for i in range(4))
    a += w
    b = _turned(b + a + z, 21)
    c = a
    a += x + y
    b += _turned(a, 44)
    return (a + z) & MASK, (b + c) & MASK


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _half(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _turned(value: int, by: int) -> int:
    value &= MASK
    return (value >> by | value << (64 - by)) & MASK


def _folded(value: int) -> int:
    return value ^ (value >> 47)


def _mixed(low: int, high: int) -> int:
    """Two words as one."""
    low, high = low & MASK, high & MASK
    a = _folded((low ^ high) * MIX & MASK)
    return _folded((high ^ a) * MIX & MASK) * MIX & MASK
