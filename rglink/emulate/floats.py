"""Floating-point instructions of PTX on f16, bf16, f32 and f64, their packed pairs, and mixed precision.

Semantics: PTX ISA 9.x, "Floating-Point Instructions", "Half Precision Floating-Point Instructions" and "Mixed Precision
Floating-Point Instructions". Round-to-nearest goes through NumPy, whose +, -, *, / and sqrt are IEEE 754's; the other
roundings and fused multiply-adds go through `errorfree` and `softfloat`. NaN results: see `softfloat`; abs and
neg give such a NaN too ("NaN inputs yield an unspecified NaN"; ptxas makes additions of zero of them), copysign
touches the sign bit alone. `.ftz` flushes operands before and results after rounding.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rglink.emulate import errorfree, softfloat
from rglink.emulate.approx import APPROXIMATE
from rglink.emulate.errors import Unsupported
from rglink.emulate.forms import (
    F16,
    F32,
    F64,
    U32,
    U64,
    Bits,
    Builder,
    Modifiers,
    Operation,
    by_parts,
    operations,
    spell,
    take,
)
from rglink.emulate.softfloat import (
    FORMATS,
    NUMBERS,
    ROUNDINGS,
    Format,
    flush,
    from_bf16,
    relu,
    saturate,
    settle,
    to_bf16,
    widen,
)

SCALARS = ("f16", "bf16", "f32", "f64")
PACKED = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}
KINDS = (*SCALARS, *PACKED)


def finish(
    form: Format, operation: Operation, *, ftz: bool = False, sat: bool = False, positive: bool = False
) -> Operation:
    """The operation with .ftz, .sat and .relu around it; itself when none is asked for."""
    if not (ftz or sat or positive):
        return operation

    def finished(*operands: Bits) -> Bits:
        result: Bits = operation(*(flush(form, x) for x in operands) if ftz else operands)
        if ftz:
            result = flush(form, result)
        if sat:
            return saturate(form, result)
        return relu(form, result) if positive else result

    return finished


def on_kind(kind: str, operation: Operation) -> Operation:
    """The operation of the scalar format on operands of the kind, packed or not."""
    if kind not in PACKED:
        return operation
    form = FORMATS[PACKED[kind]]
    return by_parts(operation, form.bits, np.dtype(f"u{2 * form.bits.itemsize}"))


def _nearest(form: Format, ufunc: np.ufunc) -> Operation:
    """A NumPy operation of one or two operands, correctly rounded in the format.

    bf16 takes the detour over f32: its 24 bits are more than twice 8 plus 2, so that the second rounding is innocent.
    """
    if form.name == "bf16":
        return lambda *operands: to_bf16(ufunc(*map(from_bf16, operands)))
    view = NUMBERS[form.name]
    if ufunc.nin == 1:
        return lambda a: settle(form, ufunc(a.view(view)), a)
    return lambda a, b: settle(form, ufunc(a.view(view), b.view(view)), a, b)


def multiply_add(form: Format) -> Operation:
    """a * b + c to nearest, rounded once."""
    if form.name == "f64":
        return lambda a, b, c: _settled64(errorfree.fused64(a, b, c), a, b, c)

    def fma(a: Bits, b: Bits, c: Bits) -> Bits:
        product, addend = widen(form, a) * widen(form, b), widen(form, c)
        if form.name == "f16":
            # 22 bits of product and 11 of addend lie within 53 wherever a tie can be near.
            return settle(form, (product + addend).astype(F16))
        if form.name == "bf16":
            return to_bf16(errorfree.to_odd32(product, addend))
        return settle(form, errorfree.to_nearest32(product, addend))

    return fma


def _settled64(bits: Bits, *operands: Bits) -> Bits:
    return settle(FORMATS["f64"], bits.view(F64), *operands)


def _directed32(name: str, rounding: str) -> Operation:
    """f32 towards zero or an infinity, by way of f64."""
    form = FORMATS["f32"]
    zero = F64.type(0)

    def sum_of(x: Bits, y: Bits) -> Bits:
        numbers = errorfree.directed32(rounding, *errorfree.two_sum(x, y))
        if rounding == "rm":
            # A sum of zero is -0 here unless both addends are +0.
            nothing = (numbers == 0) & (x + y == 0)
            numbers = np.where(nothing & (np.signbit(x) | np.signbit(y)), F32.type(-0.0), numbers)
        return settle(form, numbers)

    def one_number(number: Bits) -> Bits:
        # 53 bits of a product are all; those of a quotient or root fall on no f32 unless it is exact.
        return settle(form, errorfree.directed32(rounding, number, zero))

    table: Mapping[str, Operation] = {
        "add": lambda a, b: sum_of(widen(form, a), widen(form, b)),
        "sub": lambda a, b: sum_of(widen(form, a), -widen(form, b)),
        "mul": lambda a, b: one_number(widen(form, a) * widen(form, b)),
        "div": lambda a, b: one_number(widen(form, a) / widen(form, b)),
        "rcp": lambda a: one_number(1.0 / widen(form, a)),
        "sqrt": lambda a: one_number(np.sqrt(widen(form, a))),
        "fma": lambda a, b, c: sum_of(widen(form, a) * widen(form, b), widen(form, c)),
    }
    return table[name]


def _directed64(name: str, rounding: str) -> Operation:
    form = FORMATS["f64"]
    one, minus = form.bits.type(form.bias << form.fraction), form.bits.type(form.sign)

    def mul(a: Bits, b: Bits) -> Bits:
        # A zero addend of the product's sign leaves a zero product its sign.
        return softfloat.multiply_add(form, rounding, a, b, (a ^ b) & minus)

    table: Mapping[str, Operation] = {
        "add": lambda a, b: softfloat.multiply_add(form, rounding, a, one, b),
        "sub": lambda a, b: softfloat.multiply_add(form, rounding, a, one, _negated(form, b)),
        "mul": mul,
        "div": lambda a, b: softfloat.divide(form, rounding, a, b),
        "rcp": lambda a: softfloat.divide(form, rounding, one, a),
        "sqrt": lambda a: softfloat.square_root(form, rounding, a),
        "fma": lambda a, b, c: softfloat.multiply_add(form, rounding, a, b, c),
    }
    return table[name]


def _negated(form: Format, bits: Bits) -> Bits:
    """The sign flipped, but for NaNs: their payload passes as it is."""
    return np.where(softfloat.is_nan(form, bits), bits, bits ^ form.bits.type(form.sign))


_UFUNCS: Mapping[str, np.ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
}


def _rounded(name: str, form: Format, rounding: str) -> Operation:
    if rounding != "rn":
        return _directed64(name, rounding) if form.name == "f64" else _directed32(name, rounding)
    return multiply_add(form) if name == "fma" else _nearest(form, _UFUNCS[name])


def _arithmetic(name: str) -> Builder:
    """add, sub, mul and fma: .rn where nothing is said (fma must say it)."""

    def build(modifiers: Modifiers) -> Operation:
        sources = [m for m in modifiers if m in KINDS]
        if sources[:1] == ["f32"] and len(sources) == 2:
            return _mixed(name, modifiers)
        fused = name in ("fma", "mad")
        rounding, ftz, sat, positive, kind = take(
            name, modifiers, (*ROUNDINGS, *(() if fused else ("",))), ("", "ftz"), ("", "sat"), ("", "relu"), KINDS
        )
        form = FORMATS[PACKED.get(kind, kind)]
        half = form.width == 16
        if (ftz and form.name in ("bf16", "f64")) or (half and rounding not in ("rn", "")):
            raise Unsupported(f"{spell(name, modifiers)}: no such form")
        if (sat and form.name in ("bf16", "f64")) or (positive and not (half and fused)):
            raise Unsupported(f"{spell(name, modifiers)}: no such form")
        plain = _rounded("fma" if fused else name, form, rounding or "rn")
        return on_kind(kind, finish(form, plain, ftz=bool(ftz), sat=bool(sat), positive=bool(positive)))

    return build


def _mixed(name: str, modifiers: Modifiers) -> Operation:
    """add, sub, fma .f32 with a factor or first term in f16 or bf16."""
    if name not in ("add", "sub", "fma"):
        raise Unsupported(f"{spell(name, modifiers)}: no such form")
    rounding, sat, _result, source = take(
        name, modifiers, (*ROUNDINGS, *(() if name == "fma" else ("",))), ("", "sat"), ("f32",), ("f16", "bf16")
    )
    form, narrow = FORMATS["f32"], FORMATS[source]
    plain = finish(form, _rounded(name, form, rounding or "rn"), sat=bool(sat))

    def widened(bits: Bits) -> Bits:
        return widen(narrow, bits).astype(F32).view(U32)

    if name == "fma":
        return lambda a, b, c: plain(widened(a), widened(b), c)
    return lambda a, c: plain(widened(a), c)


def _dividing(name: str) -> Builder:
    """div, rcp, sqrt, rsqrt: exact roundings here, .approx and .full in `approx`."""

    def build(modifiers: Modifiers) -> Operation:
        mode, ftz, kind = take(name, modifiers, (*ROUNDINGS, "approx", "full"), ("", "ftz"), ("f32", "f64"))
        form = FORMATS[kind]
        if mode in ROUNDINGS and name != "rsqrt" and not (ftz and kind == "f64"):
            return finish(form, _rounded(name, form, mode), ftz=bool(ftz))
        return _approximate(name, modifiers)

    return build


def _approximate(name: str, modifiers: Modifiers) -> Operation:
    mode, ftz, kind = take(name, modifiers, ("approx", "full"), ("", "ftz"), KINDS)
    found = APPROXIMATE.get((name, mode, kind if kind == "f64" else "", ftz if kind == "f64" else ""))
    if found is None or (kind not in ("f32", "f64") and name not in ("ex2", "tanh")) or kind == "f32x2":
        raise Unsupported(f"{spell(name, modifiers)}: no such form")
    if kind == "f64":
        return found
    form = FORMATS[PACKED.get(kind, kind)]
    if (name == "tanh" and ftz) or (name == "ex2" and (form.name == "bf16") != bool(ftz) and form.width == 16):
        raise Unsupported(f"{spell(name, modifiers)}: no such form")

    def evaluate(*operands: Bits) -> Bits:
        numbers = found(*(widen(form, x) for x in operands))
        if form.name == "bf16":
            return softfloat.convert(FORMATS["f64"], form, "rn", numbers.view(U64))
        return settle(form, numbers.astype(NUMBERS[form.name]))

    return on_kind(kind, finish(form, evaluate, ftz=bool(ftz)))


def _transcendental(name: str) -> Builder:
    return lambda modifiers: _approximate(name, modifiers)


def _unless_nan(form: Format, operand: Bits, result: Bits) -> Bits:
    missing = softfloat.is_nan(form, operand)
    return np.where(missing, softfloat.nan_of(form, operand), result) if missing.any() else result


def _sign(name: str) -> Builder:
    def build(modifiers: Modifiers) -> Operation:
        ftz, kind = take(name, modifiers, ("", "ftz"), KINDS[:-1])
        form = FORMATS[PACKED.get(kind, kind)]
        sign = form.bits.type(form.sign)
        if ftz and form.name in ("bf16", "f64"):
            raise Unsupported(f"{spell(name, modifiers)}: .ftz is for f32 and f16")
        change: Operation = (lambda a: a & ~sign) if name == "abs" else (lambda a: a ^ sign)
        return on_kind(kind, finish(form, lambda a: _unless_nan(form, a, change(a)), ftz=bool(ftz)))

    return build


def _copysign(modifiers: Modifiers) -> Operation:
    (kind,) = take("copysign", modifiers, ("f32", "f64"))
    sign = FORMATS[kind].bits.type(FORMATS[kind].sign)
    return lambda a, b: (a & sign) | (b & ~sign)


def _testp(modifiers: Modifiers) -> Operation:
    test, kind = take(
        "testp", modifiers, ("finite", "infinite", "number", "notanumber", "normal", "subnormal"), ("f32", "f64")
    )
    form = FORMATS[kind]
    magnitude, normal, infinity = (form.bits.type(v) for v in (form.sign - 1, 1 << form.fraction, form.infinity or 0))
    zero = form.bits.type(0)
    tests: Mapping[str, Operation] = {
        "finite": lambda m: m < infinity,
        "infinite": lambda m: m == infinity,
        "number": lambda m: m <= infinity,
        "notanumber": lambda m: m > infinity,
        "normal": lambda m: ((m >= normal) & (m < infinity)) | (m == zero),
        "subnormal": lambda m: (m < normal) & (m != zero),
    }
    return lambda a: tests[test](a & magnitude)


def _two_way(form: Format, smaller: bool, strict: bool) -> Operation:
    """min or max of two: -0 < +0; a number beats a NaN, unless `strict` (.NaN)."""
    ufunc, merge = (np.minimum, np.bitwise_or) if smaller else (np.maximum, np.bitwise_and)
    view = NUMBERS.get(form.name)

    def pick(a: Bits, b: Bits) -> Bits:
        x, y = (from_bf16(a), from_bf16(b)) if view is None else (a.view(view), b.view(view))
        numbers = ufunc(x, y)
        bits = to_bf16(numbers) if view is None else numbers.view(form.bits)
        if softfloat.has_nan(numbers):
            # Not by NumPy's fmin: it makes a NaN of a signaling one and a number.
            nan_x, nan_y = x != x, y != y
            either = softfloat.nan_of(form, a, b)
            lone = either if strict else np.where(nan_x, b, a)
            bits = np.where(nan_x & nan_y, either, np.where(nan_x | nan_y, lone, bits))
        # Equal numbers have equal bits, but for the zeros, where the sign decides.
        return np.where(x == y, merge(a, b), bits)

    return pick


def _extremum(name: str) -> Builder:
    def build(modifiers: Modifiers) -> Operation:
        ftz, strict, xorsign, magnitude, kind = take(
            name, modifiers, ("", "ftz"), ("", "NaN"), ("", "xorsign"), ("", "abs"), KINDS[:-1]
        )
        form = FORMATS[PACKED.get(kind, kind)]
        if (form.name == "f64" and (ftz or strict or magnitude)) or (ftz and form.name == "bf16"):
            raise Unsupported(f"{spell(name, modifiers)}: no such form")
        if (xorsign and not magnitude) or (magnitude and not xorsign and kind != "f32"):
            raise Unsupported(f"{spell(name, modifiers)}: .xorsign and .abs go together")
        pick, sign = _two_way(form, name == "min", bool(strict)), form.bits.type(form.sign)

        def extremum(*operands: Bits) -> Bits:
            parts = [x & ~sign for x in operands] if magnitude else list(operands)
            result: Bits = parts[0]
            for part in parts[1:]:
                result = pick(result, part)
            if not xorsign:
                return result
            signs = (operands[0] ^ operands[1]) & sign
            return np.where(softfloat.is_nan(form, result), result, result | signs)

        return on_kind(kind, finish(form, extremum, ftz=bool(ftz)))

    return build


BUILDERS: dict[str, Builder] = {
    **{name: _arithmetic(name) for name in ("add", "sub", "mul", "fma", "mad")},
    **{name: _dividing(name) for name in ("div", "rcp", "sqrt", "rsqrt")},
    **{name: _transcendental(name) for name in ("sin", "cos", "lg2", "ex2", "tanh")},
    "abs": _sign("abs"),
    "neg": _sign("neg"),
    "min": _extremum("min"),
    "max": _extremum("max"),
    "copysign": _copysign,
    "testp": _testp,
}
OPERATIONS = operations(BUILDERS)
