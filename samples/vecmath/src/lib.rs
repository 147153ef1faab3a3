//! Numeric building blocks: generic over the precision, free of device code, tested on the host.

#![cfg_attr(not(test), no_std)]

use core::ops::{Add, Div, Mul, Sub};

/// A real number as the kernels use it: `f32` or `f64`.
pub trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;

    /// The value of this precision nearest to `x`.
    fn from_f64(x: f64) -> Self;
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn from_f64(x: f64) -> Self {
        x as f32
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn from_f64(x: f64) -> Self {
        x
    }
}

/// Evaluates a polynomial; `coefficients[0]` belongs to the highest power.
#[inline(never)]
pub fn horner<T: Real>(coefficients: &[T], x: T) -> T {
    coefficients.iter().fold(T::ZERO, |sum, &c| sum * x + c)
}

/// The point `t` of the way from `a` to `b`.
pub fn lerp<T: Real>(a: T, b: T, t: T) -> T {
    a * (T::ONE - t) + b * t
}

/// Brings an angle in radians into one turn and keeps its sign, as `fmod` does.
#[inline(never)]
pub fn wrap_angle(radians: f32) -> f32 {
    radians % core::f32::consts::TAU
}

/// The logistic curve by its rational approximation; good to 0.16.
pub fn soft_step<T: Real>(x: T) -> T {
    let half = T::from_f64(0.5);
    let magnitude = if x < T::ZERO { T::ZERO - x } else { x };
    half + half * x / (T::from_f64(2.0) + magnitude)
}

/// Mixes two words into one; the high and low halves of the full product are folded.
#[inline(never)]
pub fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
    (product >> 64) as u64 ^ product as u64
}

/// Walks over a sequence in steps, as the threads of a grid share their work.
pub trait Strided {
    type Item;

    /// Folds the items `start`, `start + stride`, `start + 2 * stride`, ...; `stride` must not be 0.
    fn strided_fold<A, F>(&self, start: usize, stride: usize, init: A, f: F) -> A
    where
        F: FnMut(A, &Self::Item) -> A;

    /// The number of items of such a walk that `wanted` picks.
    fn strided_count<F>(&self, start: usize, stride: usize, mut wanted: F) -> u32
    where
        F: FnMut(&Self::Item) -> bool,
    {
        self.strided_fold(start, stride, 0, |count, item| {
            count + u32::from(wanted(item))
        })
    }
}

impl<T> Strided for [T] {
    type Item = T;

    fn strided_fold<A, F>(&self, start: usize, stride: usize, init: A, mut f: F) -> A
    where
        F: FnMut(A, &T) -> A,
    {
        let mut sum = init;
        let mut at = start;
        while let Some(item) = self.get(at) {
            sum = f(sum, item);
            at += stride;
        }
        sum
    }
}

/// A checksum of `words` that no kernel of this workspace asks for: the link drops it.
#[unsafe(no_mangle)]
pub fn vecmath_checksum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, &word| mix(sum, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn horner_starts_at_the_highest_power() {
        assert_eq!(horner(&[2.0, 3.0, 4.0], 10.0_f32), 234.0);
        assert_eq!(horner::<f64>(&[], 10.0), 0.0);
    }

    #[test]
    fn lerp_meets_both_ends() {
        assert_eq!(lerp(3.0_f64, 7.0, 0.0), 3.0);
        assert_eq!(lerp(3.0_f64, 7.0, 1.0), 7.0);
    }

    #[test]
    fn a_wrapped_angle_keeps_its_sign() {
        assert!((wrap_angle(7.0) - (7.0 - core::f32::consts::TAU)).abs() < 1e-6);
        assert!(wrap_angle(-7.0) < 0.0);
    }

    #[test]
    fn soft_step_stays_near_the_logistic_curve() {
        for tenths in -60..=60 {
            let x = f64::from(tenths) / 10.0;
            assert!(
                (soft_step(x) - 1.0 / (1.0 + (-x).exp())).abs() < 0.16,
                "at {x}"
            );
        }
    }

    #[test]
    fn strided_walks_share_all_items_once() {
        let items = [1_u32, 2, 3, 4, 5, 6, 7];
        let shares = (0..3).map(|t| items.strided_fold(t, 3, 0, |sum, &x| sum + x));
        assert_eq!(shares.sum::<u32>(), 28);
        assert_eq!(items.strided_count(1, 2, |&x| x > 3), 2);
    }

    #[test]
    fn mix_depends_on_both_words() {
        assert_ne!(mix(1, 2), mix(1, 3));
        assert_ne!(mix(1, 2), mix(2, 2));
    }
}
