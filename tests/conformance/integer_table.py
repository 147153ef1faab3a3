"""Operations of integers: kinds are "u" (unsigned), "s" (signed) or both. See tests.conformance.table."""

INTEGER_TABLE = """
add                 | us | T T | T      | a + b
sub                 | us | T T | T      | a - b
mul                 | us | T T | T      | a * b
div                 | us | T T | T      | if b == 0 || a == T::MIN && b == !0 { 7 } else { a / b }
rem                 | us | T T | T      | if b == 0 || a == T::MIN && b == !0 { 7 } else { a % b }
neg                 | s  | T   | T      | -a
not                 | us | T   | T      | !a
and                 | us | T T | T      | a & b
or                  | us | T T | T      | a | b
xor                 | us | T T | T      | a ^ b
shl                 | us | T N | T      | a << (b % BITS)
shr                 | us | T N | T      | a >> (b % BITS)
div_by_7            | us | T   | T      | a / 7
rem_by_10           | us | T   | T      | a % 10
mul_add             | us | T T T | T    | a * b + c
mul_sub             | us | T T T | T    | c - a * b
eq                  | us | T T | bool   | a == b
ne                  | us | T T | bool   | a != b
lt                  | us | T T | bool   | a < b
le                  | us | T T | bool   | a <= b
gt                  | us | T T | bool   | a > b
ge                  | us | T T | bool   | a >= b
cmp                 | us | T T | i8     | a.cmp(&b) as i8
min                 | us | T T | T      | a.min(b)
max                 | us | T T | T      | a.max(b)
clamp               | us | T T T | T    | a.clamp(b.min(c), b.max(c))
midpoint            | us | T T | T      | a.midpoint(b)
abs_diff            | us | T T | U      | a.abs_diff(b)
isqrt               | u  | T   | T      | a.isqrt()
checked_isqrt       | s  | T   | [T; 2] | some!(T, a.checked_isqrt())
ilog2               | us | T   | [u32; 2] | some!(u32, a.checked_ilog2())
ilog10              | us | T   | [u32; 2] | some!(u32, a.checked_ilog10())
ilog                | us | T T | [u32; 2] | some!(u32, a.checked_ilog(b))
pow                 | us | T N | T      | a.wrapping_pow(b % 11)
div_euclid          | us | T T | T      | a.checked_div_euclid(b).unwrap_or(7)
rem_euclid          | us | T T | T      | a.checked_rem_euclid(b).unwrap_or(7)
count_ones          | us | T   | u32    | a.count_ones()
count_zeros         | us | T   | u32    | a.count_zeros()
leading_zeros       | us | T   | u32    | a.leading_zeros()
trailing_zeros      | us | T   | u32    | a.trailing_zeros()
leading_ones        | us | T   | u32    | a.leading_ones()
trailing_ones       | us | T   | u32    | a.trailing_ones()
bit_width           | u  | T   | u32    | a.bit_width()
isolate_highest     | us | T   | T      | a.isolate_highest_one()
isolate_lowest      | us | T   | T      | a.isolate_lowest_one()
highest_one         | us | T   | [u32; 2] | some!(u32, a.highest_one())
lowest_one          | us | T   | [u32; 2] | some!(u32, a.lowest_one())
rotate_left         | us | T N | T      | a.rotate_left(b)
rotate_right        | us | T N | T      | a.rotate_right(b)
rotate_left_3       | us | T   | T      | a.rotate_left(3)
funnel_shl          | u  | T T N | T    | a.funnel_shl(b, c % BITS)
funnel_shr          | u  | T T N | T    | a.funnel_shr(b, c % BITS)
carryless_mul       | u  | T T | T      | a.carryless_mul(b)
extract_bits        | u  | T T | T      | a.extract_bits(b)
deposit_bits        | u  | T T | T      | a.deposit_bits(b)
swap_bytes          | us | T   | T      | a.swap_bytes()
reverse_bits        | us | T   | T      | a.reverse_bits()
to_be               | us | T   | T      | a.to_be()
be_bytes            | us | T   | T      | T::from_le_bytes(a.to_be_bytes())
wrapping_add        | us | T T | T      | a.wrapping_add(b)
wrapping_sub        | us | T T | T      | a.wrapping_sub(b)
wrapping_mul        | us | T T | T      | a.wrapping_mul(b)
wrapping_div        | us | T T | T      | a.wrapping_div(if b == 0 { 3 } else { b })
wrapping_rem        | us | T T | T      | a.wrapping_rem(if b == 0 { 3 } else { b })
wrapping_div_euclid | us | T T | T      | a.wrapping_div_euclid(if b == 0 { 3 } else { b })
wrapping_rem_euclid | us | T T | T      | a.wrapping_rem_euclid(if b == 0 { 3 } else { b })
wrapping_neg        | us | T   | T      | a.wrapping_neg()
wrapping_shl        | us | T N | T      | a.wrapping_shl(b)
wrapping_shr        | us | T N | T      | a.wrapping_shr(b)
wrapping_abs        | s  | T   | T      | a.wrapping_abs()
wrapping_add_signed | u  | T S | T      | a.wrapping_add_signed(b)
wrapping_sub_signed | u  | T S | T      | a.wrapping_sub_signed(b)
wrapping_add_unsigned | s | T U | T     | a.wrapping_add_unsigned(b)
wrapping_sub_unsigned | s | T U | T     | a.wrapping_sub_unsigned(b)
checked_add         | us | T T | [T; 2] | some!(T, a.checked_add(b))
checked_sub         | us | T T | [T; 2] | some!(T, a.checked_sub(b))
checked_mul         | us | T T | [T; 2] | some!(T, a.checked_mul(b))
checked_div         | us | T T | [T; 2] | some!(T, a.checked_div(b))
checked_rem         | us | T T | [T; 2] | some!(T, a.checked_rem(b))
checked_div_euclid  | us | T T | [T; 2] | some!(T, a.checked_div_euclid(b))
checked_rem_euclid  | us | T T | [T; 2] | some!(T, a.checked_rem_euclid(b))
checked_neg         | us | T   | [T; 2] | some!(T, a.checked_neg())
checked_shl         | us | T N | [T; 2] | some!(T, a.checked_shl(b))
checked_shr         | us | T N | [T; 2] | some!(T, a.checked_shr(b))
checked_pow         | us | T N | [T; 2] | some!(T, a.checked_pow(b % 9))
checked_abs         | s  | T   | [T; 2] | some!(T, a.checked_abs())
checked_add_signed  | u  | T S | [T; 2] | some!(T, a.checked_add_signed(b))
checked_sub_signed  | u  | T S | [T; 2] | some!(T, a.checked_sub_signed(b))
checked_add_unsigned | s | T U | [T; 2] | some!(T, a.checked_add_unsigned(b))
checked_sub_unsigned | s | T U | [T; 2] | some!(T, a.checked_sub_unsigned(b))
checked_signed_diff | u  | T T | [S; 2] | some!(S, a.checked_signed_diff(b))
checked_next_power_of_two | u | T | [T; 2] | some!(T, a.checked_next_power_of_two())
checked_next_multiple_of | u | T T | [T; 2] | some!(T, a.checked_next_multiple_of(b))
checked_div_exact   | us | T T | [T; 2] | if b == 0 { [3, 3] } else { some!(T, a.checked_div_exact(b)) }
shl_exact           | us | T N | [T; 2] | some!(T, a.shl_exact(b))
shr_exact           | us | T N | [T; 2] | some!(T, a.shr_exact(b))
unbounded_shl       | us | T N | T      | a.unbounded_shl(b)
unbounded_shr       | us | T N | T      | a.unbounded_shr(b)
overflowing_add     | us | T T | [T; 2] | pair!(T, a.overflowing_add(b))
overflowing_sub     | us | T T | [T; 2] | pair!(T, a.overflowing_sub(b))
overflowing_mul     | us | T T | [T; 2] | pair!(T, a.overflowing_mul(b))
overflowing_div     | us | T T | [T; 2] | pair!(T, a.overflowing_div(if b == 0 { 3 } else { b }))
overflowing_rem     | us | T T | [T; 2] | pair!(T, a.overflowing_rem(if b == 0 { 3 } else { b }))
overflowing_neg     | us | T   | [T; 2] | pair!(T, a.overflowing_neg())
overflowing_shl     | us | T N | [T; 2] | pair!(T, a.overflowing_shl(b))
overflowing_shr     | us | T N | [T; 2] | pair!(T, a.overflowing_shr(b))
overflowing_pow     | us | T N | [T; 2] | pair!(T, a.overflowing_pow(b % 13))
overflowing_abs     | s  | T   | [T; 2] | pair!(T, a.overflowing_abs())
overflowing_add_signed | u | T S | [T; 2] | pair!(T, a.overflowing_add_signed(b))
overflowing_sub_signed | u | T S | [T; 2] | pair!(T, a.overflowing_sub_signed(b))
overflowing_add_unsigned | s | T U | [T; 2] | pair!(T, a.overflowing_add_unsigned(b))
overflowing_sub_unsigned | s | T U | [T; 2] | pair!(T, a.overflowing_sub_unsigned(b))
saturating_add      | us | T T | T      | a.saturating_add(b)
saturating_sub      | us | T T | T      | a.saturating_sub(b)
saturating_mul      | us | T T | T      | a.saturating_mul(b)
saturating_div      | us | T T | T      | a.saturating_div(if b == 0 { 3 } else { b })
saturating_pow      | us | T N | T      | a.saturating_pow(b % 9)
saturating_neg      | s  | T   | T      | a.saturating_neg()
saturating_abs      | s  | T   | T      | a.saturating_abs()
saturating_add_signed | u | T S | T     | a.saturating_add_signed(b)
saturating_sub_signed | u | T S | T     | a.saturating_sub_signed(b)
saturating_add_unsigned | s | T U | T   | a.saturating_add_unsigned(b)
saturating_sub_unsigned | s | T U | T   | a.saturating_sub_unsigned(b)
carrying_add        | us | T T bool | [T; 2] | pair!(T, a.carrying_add(b, c))
borrowing_sub       | us | T T bool | [T; 2] | pair!(T, a.borrowing_sub(b, c))
widening_mul        | u  | T T | [T; 2] | { let (low, high) = a.widening_mul(b); [low, high] }
carrying_mul        | u  | T T T | [T; 2] | { let (low, high) = a.carrying_mul(b, c); [low, high] }
carrying_mul_signed | s  | T T T | [U; 2] | { let (low, high) = a.carrying_mul(b, c); [low, high as U] }
wide_product        | u8 u16 u32 u64 | T T | u128 | u128::from(a) * u128::from(b)
wide_product_signed | i8 i16 i32 i64 | T T | i128 | i128::from(a) * i128::from(b)
high_product        | u64 i64 u32 i32 | T T | T | ((a as i128 * b as i128) >> BITS) as T
abs                 | s  | T   | T      | if a == T::MIN { 7 } else { a.abs() }
unsigned_abs        | s  | T   | U      | a.unsigned_abs()
signum              | s  | T   | T      | a.signum()
is_negative         | s  | T   | bool   | a.is_negative()
is_positive         | s  | T   | bool   | a.is_positive()
cast_unsigned       | s  | T   | U      | a.cast_unsigned()
cast_signed         | u  | T   | S      | a.cast_signed()
is_power_of_two     | u  | T   | bool   | a.is_power_of_two()
wrapping_next_power_of_two | u | T | T  | a.wrapping_next_power_of_two()
next_multiple_of    | u  | T T | T      | if b == 0 { 7 } else { a.checked_next_multiple_of(b).map_or(5, |_| a.next_multiple_of(b)) }
div_ceil            | u  | T T | T      | if b == 0 { 7 } else { a.div_ceil(b) }
div_floor           | s  | T T | T      | if b == 0 || a == T::MIN && b == -1 { 7 } else { a.div_floor(b) }
is_multiple_of      | u  | T T | bool   | a.is_multiple_of(b)
select              | us | T T bool | T | if c { a } else { b }
array_index         | us | T T N | T    | { let t = [a, b, a ^ b, a & b, a | b]; t[c as usize % 5] }
unpacked_bytes      | us | T N | u8     | a.to_ne_bytes()[b as usize % (BITS / 8)]
byte_sum            | us | T   | u32    | a.to_ne_bytes().iter().map(|&x| u32::from(x)).sum()
polynomial          | us | T T | T      | (0..5).fold(a, |x, i| x.wrapping_mul(b).wrapping_add(i))
gcd                 | us | T T | U      | { let (mut x, mut y) = (a.abs_diff(0) % 250, b.abs_diff(0) % 250); while y != 0 { (x, y) = (y, x % y); } x }
match_ranges        | us | T   | u8     | match a { 0 => 1, 1..=9 => 2, 10 | 20 | 30 => 3, 31..=100 => 4, _ => 5 }
"""  # noqa: E501
