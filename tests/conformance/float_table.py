"""Operations of floats. See tests.conformance.table.

`math` stands for core's module of float functions. What Rust leaves open (the result of algebraic operations) is not
in the table.
"""

# Operations that keep a NaN's sign and payload, or decide by them.
SAME_NAN = frozenset("neg abs copysign copy select clamp_id from_bits swapped next_up next_down".split())
# Rust lets these return either zero when both arguments are zeros.
FREE_ZERO = frozenset("min max min_of_three".split())

FLOAT_TABLE = """
add           | f | T T | T    | a + b
sub           | f | T T | T    | a - b
mul           | f | T T | T    | a * b
div           | f | T T | T    | a / b
rem           | f | T T | T    | a % b
neg           | f | T   | T    | -a
copy          | f | T   | T    | a
select        | f | T T bool | T | if c { a } else { b }
add_mul       | f | T T T | T  | a * b + c
mul_sub       | f | T T T | T  | a * b - c
sub_mul       | f | T T T | T  | c - a * b
sum_of_squares | f | T T | T   | a * a + b * b
sum_of_three  | f | T T T | T  | a + b + c
horner        | f | T T | T    | [b, 2.0, b, 3.0, 0.5].iter().fold(0.0, |sum, &x| sum * a + x)
dot           | f | T T T | T  | [a, b, c].iter().zip([c, a, b].iter()).map(|(x, y)| x * y).sum()
reciprocal    | f | T   | T    | 1.0 / a
by_three      | f | T   | T    | a / 3.0
plus_zero     | f | T   | T    | a + 0.0
minus_zero    | f | T   | T    | a - 0.0
zero_minus    | f | T   | T    | 0.0 - a
times_zero    | f | T   | T    | a * 0.0
doubled       | f | T   | T    | a * 2.0
self_minus    | f | T   | T    | a - a
self_divided  | f | T   | T    | a / a
rem_by_tau    | f | T   | T    | a % 6.2831855
rem_by_one    | f | T   | T    | a % 1.0
eq            | f | T T | bool | a == b
ne            | f | T T | bool | a != b
lt            | f | T T | bool | a < b
le            | f | T T | bool | a <= b
gt            | f | T T | bool | a > b
ge            | f | T T | bool | a >= b
not_less      | f | T T | bool | !(a < b)
partial_cmp   | f | T T | i8   | a.partial_cmp(&b).map_or(7, |order| order as i8)
total_cmp     | f | T T | i8   | a.total_cmp(&b) as i8
min           | f | T T | T    | a.min(b)
max           | f | T T | T    | a.max(b)
min_of_three  | f | T T T | T  | a.min(b).min(c)
minimum       | f | T T | T    | a.minimum(b)
maximum       | f | T T | T    | a.maximum(b)
by_hand_min   | f | T T | T    | if a < b { a } else { b }
clamp         | f | T   | T    | a.clamp(-1.5, 2.0)
clamp_to      | f | T T | T    | a.clamp(if b <= 0.0 { b } else { 0.0 }, 5.0)
abs           | f | T   | T    | a.abs()
signum        | f | T   | T    | a.signum()
copysign      | f | T T | T    | a.copysign(b)
recip         | f | T   | T    | a.recip()
to_degrees    | f | T   | T    | a.to_degrees()
to_radians    | f | T   | T    | a.to_radians()
midpoint      | f | T T | T    | a.midpoint(b)
next_up       | f | T   | T    | a.next_up()
next_down     | f | T   | T    | a.next_down()
to_bits       | f | T   | U    | a.to_bits()
from_bits     | f | U   | T    | T::from_bits(a)
be_bytes      | f | T   | T    | T::from_be_bytes(a.to_le_bytes())
classify      | f | T   | u8   | a.classify() as u8
is_nan        | f | T   | bool | a.is_nan()
is_infinite   | f | T   | bool | a.is_infinite()
is_finite     | f | T   | bool | a.is_finite()
is_subnormal  | f | T   | bool | a.is_subnormal()
is_normal     | f | T   | bool | a.is_normal()
sign_positive | f | T   | bool | a.is_sign_positive()
sign_negative | f | T   | bool | a.is_sign_negative()
floor         | f | T   | T    | math::floor(a)
ceil          | f | T   | T    | math::ceil(a)
round         | f | T   | T    | math::round(a)
round_even    | f | T   | T    | math::round_ties_even(a)
trunc         | f | T   | T    | math::trunc(a)
fract         | f | T   | T    | math::fract(a)
mul_add       | f | T T T | T  | math::mul_add(a, b, c)
div_euclid    | f | T T | T    | math::div_euclid(a, b)
rem_euclid    | f | T T | T    | math::rem_euclid(a, b)
powi          | f | T N | T    | math::powi(a, b as i32 % 12 - 5)
sqrt          | f | T   | T    | math::sqrt(a)
abs_sub       | f32 f64 | T T | T | math::abs_sub(a, b)
cbrt          | f | T   | T    | math::cbrt(a)
round_trip_64 | f | T   | T    | (a as f64) as T
round_trip_32 | f | T   | T    | (a as f32) as T
floor_to_int  | f | T   | i32  | math::floor(a) as i32
round_to_int  | f | T   | i64  | math::round(a) as i64
to_int_unchecked | f | T | i32 | if a > -1000.0 && a < 1000.0 { unsafe { a.to_int_unchecked() } } else { 7 }
lerp          | f | T T T | T  | a * (1.0 - c) + b * c
hypot_by_hand | f | T T | T    | math::sqrt(a * a + b * b)
newton        | f | T   | T    | { let mut x = a; for _ in 0..4 { x = 0.5 * (x + a / x); } x }
geometric     | f | T N | T    | { let mut sum = 0.0; let mut x = 1.0; for _ in 0..b % 12 { sum += x; x *= a; } sum }
max_of_array  | f | T T T | T  | [a, b, c].iter().fold(T::NEG_INFINITY, |x, &y| if y > x { y } else { x })
float_and_int | f | T N | T    | a * (b as T)
"""
