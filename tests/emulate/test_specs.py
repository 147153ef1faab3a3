"""`--arg` specs: what they make, and what is said of those that make nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rglink.diagnostics import InputError, UsageError
from rglink.emulate.specs import Prepared, parse_specs, prepare, shown, values_of, with_saves


def made(text: str, seed: int = 0) -> Prepared:
    return prepare(parse_specs([text]), seed)[0]


@pytest.mark.parametrize(
    ("text", "dtype", "values"),
    [
        ("f32[3]", "f4", [0, 0, 0]),
        ("u8[2]=ones", "u1", [1, 1]),
        ("bool[2]=ones", "?", [True, True]),
        ("i16[3]=arange", "i2", [0, 1, 2]),
        ("i64[3]=arange:5", "i8", [5, 6, 7]),
        ("f64[3]=arange:1:-0.5", "f8", [1, 0.5, 0]),
        ("f16[2]=1.5", "f2", [1.5, 1.5]),
        ("u32[3]=1,0x10,1_000", "u4", [1, 16, 1000]),
        ("usize[2,2]=1,2,3,4", "u8", [[1, 2], [3, 4]]),
        ("isize[2x1]=-1,2", "i8", [[-1], [2]]),
        ("f32[2]=inf,nan", "f4", [np.inf, np.nan]),
        ("u64[1]=18446744073709551615", "u8", [2**64 - 1]),
        ("i8[2]=-128,127", "i1", [-128, 127]),
        ("bool[2]=true,false", "?", [True, False]),
        ("f32[0]", "f4", []),
    ],
)
def test_arrays(text: str, dtype: str, values: Any) -> None:
    found = made(text)
    assert found.array is not None
    assert found.array.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found.array, np.array(values, dtype))
    assert found.value is found.array
    assert found.size == 8


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("f32=1.5", np.float32(1.5)),
        ("u64=1024", np.uint64(1024)),
        ("i32=-0x10", np.int32(-16)),
        ("usize=7", np.uint64(7)),
        ("bool=true", np.bool_(True)),
        ("i128=-1", b"\xff" * 16),
        ("u128=258", bytes([2, 1] + 14 * [0])),
        ("hex=00ff10", b"\x00\xff\x10"),
    ],
)
def test_numbers_and_bytes(text: str, value: Any) -> None:
    found = made(text)
    assert (type(found.value), found.value) == (type(value), value)
    assert found.size == (len(value) if isinstance(value, bytes) else value.nbytes)


def test_a_slice_is_an_array_and_its_length() -> None:
    found = made("slice:u32[2,3]=arange")
    assert isinstance(found.value, tuple)
    assert found.value[0] is found.array
    assert found.value[1] == 6
    assert (found.size, found.type) == (16, "slice:u32[2,3]")


def test_prefixes_name_and_mark() -> None:
    spec = parse_specs(["u8=1", "total:out:slice:f32[4]", "y.npy:f32[4]"])
    assert [(s.number, s.name, s.out, s.sliced, s.save) for s in spec] == [
        (1, "arg1", False, False, ""),
        (2, "total", True, True, ""),
        (3, "arg3", True, False, "y.npy"),
    ]


def test_random_data_repeats_with_its_seed_and_differs_by_argument() -> None:
    specs = parse_specs(["f32[64]=random", "f32[64]=random", "u8[512]=random", "i32[64]=random:-3:3"])
    first, again, other = prepare(specs, 1), prepare(specs, 1), prepare(specs, 2)
    arrays = [argument.array for argument in first]
    for array, same, different in zip(arrays, again, other, strict=True):
        assert array is not None
        np.testing.assert_array_equal(array, same.array)
        assert (array != different.array).any()
    one, two, octets, small = arrays
    assert one is not None
    assert two is not None
    assert octets is not None
    assert small is not None
    assert (one != two).any()
    assert -1 <= one.min() < 0 < one.max() < 1
    assert len(np.unique(octets)) > 128
    assert set(small.tolist()) == {-3, -2, -1, 0, 1, 2}


def test_files_come_in_and_go_out(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.int16).reshape(2, 3))
    whole = made(f"@{tmp_path}/x.npy")
    assert whole.array is not None
    assert (whole.type, whole.array.tolist()) == ("i16[2,3]", [[0, 1, 2], [3, 4, 5]])
    shaped = made(f"slice:i16[6]=@{tmp_path}/x.npy")
    assert shaped.array is not None
    assert shaped.array.tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(InputError, match=r"x\.npy: holds i16\[6\], --arg f32\[6\]=@"):
        made(f"f32[6]=@{tmp_path}/x.npy")


def test_an_output_without_values_holds_nothing_yet() -> None:
    texts = ["out:f32[4]", "y.npy:f32[4]", "out:a:f32[4]=zeros", "f32[4]", "u64=1"]
    assert [spec.unwritten for spec in parse_specs(texts)] == [True, True, False, False, False]


def test_a_change_is_seen_by_bytes() -> None:
    found = made("f32[2]=0")
    assert not found.changed
    assert found.array is not None
    found.array[1] = -0.0
    assert found.changed


def test_saves_go_by_index_or_name() -> None:
    specs = parse_specs(["u64=1", "x:f32[4]", "@in.npy"])
    saved = with_saves(specs, ["2=a.npy", "arg3=b.npy"])
    assert [(spec.save, spec.out) for spec in saved] == [("", False), ("a.npy", True), ("b.npy", True)]
    assert with_saves(specs, ["x=c.npy"])[1].save == "c.npy"
    for text, message in {
        "x": "--save x: wanted INDEX=FILE or NAME=FILE",
        "x=": "--save x=: wanted INDEX=FILE or NAME=FILE",
        "9=a.npy": "--save 9=a.npy: no argument 9; the arguments are arg1, x, arg3",
        "1=a.npy": "--save 1=a.npy: argument 1 (u64=1) is no array",
    }.items():
        with pytest.raises(UsageError) as caught:
            with_saves(specs, [text])
        assert str(caught.value) == message


EXAMPLE = "wanted for example f32[1024]=random, out:f32[1024], slice:u32[8]=arange, u64=1024 or @x.npy"
KNOWN = "bool, f16, f32, f64, i16, i32, i64, i8, isize, u16, u32, u64, u8, usize"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"--arg : is no argument, {EXAMPLE}"),
        ("f32", f"--arg f32: is no argument, {EXAMPLE}"),
        ("f32=", f"--arg f32=: is no argument, {EXAMPLE}"),
        ("@", f"--arg @: is no argument, {EXAMPLE}"),
        ("a b:f32[2]", f"--arg a b:f32[2]: 'a b' before the colon means nothing, {EXAMPLE}"),
        ("f32:f32[2]", f"--arg f32:f32[2]: 'f32' before the colon means nothing, {EXAMPLE}"),
        ("x:y:f32[2]", f"--arg x:y:f32[2]: 'y' before the colon means nothing, {EXAMPLE}"),
        ("f33[2]", f"--arg f33[2]: unknown type f33, known are {KNOWN}"),
        ("str=a", f"--arg str=a: unknown type str, known are {KNOWN}"),
        ("u128[2]", f"--arg u128[2]: unknown type u128, known are {KNOWN}"),
        ("f32[a]", "--arg f32[a]: [a] is no shape, wanted for example [1024] or [32,32]"),
        ("f32[]", "--arg f32[]: [] is no shape, wanted for example [1024] or [32,32]"),
        ("f32[-1]", "--arg f32[-1]: [-1] has a negative extent"),
        ("f32[99999999999]", "--arg f32[99999999999]: 399999999996 bytes, an array may have 1073741824"),
        ("out:u32=1", "--arg out:u32=1: a number cannot be an output, an array can"),
        ("slice:u32=1", "--arg slice:u32=1: a number cannot be a slice, an array can"),
        ("u32=1.5", f"--arg u32=1.5: '1.5' is not an integer, {EXAMPLE}"),
        ("u32=-1", "--arg u32=-1: -1 does not fit into u32"),
        ("bool=2", "--arg bool=2: 2 does not fit into bool"),
        ("u128=-1", "--arg u128=-1: -1 does not fit into u128"),
        ("hex=abc", "--arg hex=abc: wanted pairs of hexadecimal digits"),
        ("f32[2]=abc", f"--arg f32[2]=abc: 'abc' is not a number, {EXAMPLE}"),
        ("f32[2]=1,2,3", "--arg f32[2]=1,2,3: 3 values for 2 elements"),
        ("u8[2]=1,256", "--arg u8[2]=1,256: 256 does not fit into u8"),
        ("u8[2]=random:0:300", "--arg u8[2]=random:0:300: 0 to 300 is no range of u8"),
        ("u8[2]=random:1", f"--arg u8[2]=random:1: 'random:1' is not an integer, {EXAMPLE}"),
    ],
)
def test_what_is_no_argument_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(text)
    assert str(caught.value) == message


def test_two_arguments_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--arg x:u8=1: two arguments are called x"):
        parse_specs(["x:u8=1", "x:u8[2]"])


def test_files_that_are_no_arrays_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.npy").write_text("text")
    (tmp_path / "e.npy").write_bytes(b"")
    np.save(tmp_path / "c.npy", np.zeros(2, np.complex64))
    np.savez(tmp_path / "z.npz", a=np.zeros(2))
    whole = np.lib.format.magic(1, 0)
    (tmp_path / "h.npy").write_bytes(whole)
    np.save(tmp_path / "o.npy", np.array([object()]), allow_pickle=True)
    for name in ("t.npy", "e.npy", "c.npy", "z.npz", "h.npy", "o.npy", "missing.npy"):
        with pytest.raises(InputError) as caught:
            made(f"@{tmp_path}/{name}")
        assert str(caught.value).startswith(f"{tmp_path}/{name}: ")


def test_arrays_are_shown_short_and_listed_whole() -> None:
    assert shown(np.arange(1000, dtype=np.uint32)) == "[  0   1   2   3 ... 996 997 998 999]"
    assert shown(np.array([1.5, -0.0], np.float32)) == "[ 1.5 -0. ]"
    assert values_of(np.array([[1.5, np.nan], [np.inf, -np.inf]])) == [[1.5, "nan"], ["inf", "-inf"]]
    assert values_of(np.array([1, 2], np.uint8)) == [1, 2]
