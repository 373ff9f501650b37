//! Exact sums of products, independent of the order of the terms and of their division into parts.
//!
//! Quantities over all keys (the norm of a gradient, the distance of two) are sums over keys.
//! Several servers compute a part each, or one server computes all; for both to obtain the same
//! bits, the sum is exact and is rounded once. A product of two `f32` is a multiple of 2^-298 and
//! below 2^256, so that 640 bits hold the sum of 2^63 of them: a long accumulator (Kulisch,
//! Computer Arithmetic and Validity, 2008). Products of similar size are split at a common bit, so
//! that both halves add up without rounding in `f64` (Rump, Ogita and Oishi, Accurate
//! floating-point summation I, SIAM J. Sci. Comput. 2008). Other products first go to small
//! accumulators, one per exponent (Neal, Fast exact summation using small and large
//! superaccumulators, 2015).

use core::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Bits below the binary point.
const FRACTION: i32 = 298;
const LIMBS: usize = 10;
/// Products per block.
const BLOCK: usize = 512;
/// Independent partial sums in a loop.
const LANES: usize = 8;
/// The largest difference of exponents for which a block takes the fast path of
/// [`ExactSum::add_similar`].
const ALIKE: u64 = 39;
/// Blocks that the small accumulators take before they are emptied. Each of the two sets gets half
/// of the products, of 48 bits each, so that the sum of both fits 63 bits.
const ROOM: usize = 32;
/// Small accumulators per set: more than the 554 exponents of products, so that an exponent modulo
/// this number identifies the accumulator.
const EXPONENTS: usize = 1024;
/// Subtracted from the biased exponent of a product; less than the smallest one, 725.
const LEAST: u64 = 722;
/// The number of leading accumulators that products can reach.
const USED: usize = 560;
/// The biased exponent of NaN and infinities.
const NOT_FINITE: u64 = 0x7ff;

/// A sum of products of `f32` values, without any rounding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExactSum {
    /// The sum in units of 2^-298, in two's complement, the lowest limb first.
    limbs: [u64; LIMBS],
    /// True if a product was infinite or NaN; the sum is then NaN.
    broken: bool,
}

impl ExactSum {
    /// Returns the sum of squares of `values`.
    #[must_use]
    pub fn of_squares(values: &[f32]) -> Self {
        let mut sum = Self::default();
        sum.add_products(values.iter().map(|&value| (value, value)));
        sum
    }

    /// Returns the sum of squared differences, each difference rounded to `f32`.
    #[must_use]
    pub fn of_squared_distance(one: &[f32], other: &[f32]) -> Self {
        let mut sum = Self::default();
        let apart = |(one, other): (&f32, &f32)| (one - other, one - other);
        sum.add_products(one.iter().zip(other).map(apart));
        sum
    }

    /// Adds the product of each pair.
    pub fn add_products(&mut self, mut pairs: impl Iterator<Item = (f32, f32)>) {
        let mut products = [0.0; BLOCK];
        // Two sets, used in turn: reading an accumulator right after writing it is slow.
        let mut sums = [[0_i64; EXPONENTS]; 2];
        let mut room = ROOM;
        loop {
            let mut count = 0;
            for (product, (one, other)) in products.iter_mut().zip(&mut pairs) {
                // 48 of 53 bits: exact, and neither overflow nor underflow is possible.
                *product = f64::from(one) * f64::from(other);
                count += 1;
            }
            if count == BLOCK && self.add_similar(&products) {
                continue;
            }
            let products = &products[..count];
            let (twos, last) = products.as_chunks::<2>();
            for &[one, other] in twos {
                self.broken |= put(&mut sums[0], one) | put(&mut sums[1], other);
            }
            self.broken |= last.iter().any(|&one| put(&mut sums[0], one));
            room -= 1;
            if count < BLOCK || room == 0 {
                self.empty(&mut sums);
                room = ROOM;
            }
            if count < BLOCK {
                return;
            }
        }
    }

    /// Adds the products if they are of similar size; returns true if it did.
    fn add_similar(&mut self, products: &[f64; BLOCK]) -> bool {
        let (least, most) = range(products);
        if most == 0.0 {
            // `range` ignores NaN, so exclude it here.
            return products.iter().all(|&product| product == 0.0);
        }
        let (lowest, highest) = (least.to_bits() >> 52, most.to_bits() >> 52);
        if highest == NOT_FINITE || highest > lowest + ALIKE {
            return false;
        }
        // Adding and subtracting `cut` rounds to 42 bits from the largest exponent down, so that
        // the sum of 512 heads has 51 bits. The sum of the tails needs at most 53 bits if exponents
        // differ by at most `ALIKE`.
        let cut = f64::from_bits(((highest + 11) << 52) | (1 << 51));
        let (mut heads, mut tails) = ([0.0; LANES], [0.0; LANES]);
        for products in products.as_chunks::<LANES>().0 {
            for lane in 0..LANES {
                let head = (products[lane] + cut) - cut;
                heads[lane] += head;
                tails[lane] += products[lane] - head;
            }
        }
        let sums = [heads, tails].map(|lanes| lanes.into_iter().sum::<f64>());
        // A NaN among the products makes a sum NaN; the slow path records it.
        if !sums.iter().all(|sum| sum.is_finite()) {
            return false;
        }
        sums.into_iter().for_each(|sum| self.add_number(sum));
        true
    }

    /// Adds an exact sum of products.
    fn add_number(&mut self, number: f64) {
        let (sign, exponent, digits) = parts(number);
        let digits = (digits as i64 ^ sign) - sign;
        self.add_digits(digits, exponent as i32 - 1023 - 52 + FRACTION);
    }

    /// Adds `digits` at `shift` bits above the lowest bit. With a negative shift the digits below
    /// the unit are 0, because every term is a multiple of the unit.
    fn add_digits(&mut self, digits: i64, shift: i32) {
        match u32::try_from(shift) {
            Ok(shift) => self.add(digits, shift),
            Err(_negative) => self.add(digits >> shift.unsigned_abs().min(63), 0),
        }
    }

    /// Moves the content of the small accumulators to the long one.
    fn empty(&mut self, [ones, others]: &mut [[i64; EXPONENTS]; 2]) {
        for (place, (one, other)) in ones.iter_mut().zip(others).enumerate().take(USED) {
            let sum = core::mem::take(one) + core::mem::take(other);
            if sum == 0 {
                continue;
            }
            // The 5 lowest of a product's 53 bits are 0; `put` has shifted them out.
            self.add_digits(sum, (place as u64 + LEAST) as i32 - 1023 - 52 + 5 + FRACTION);
        }
    }

    /// Adds `value` times 2^`shift` units, with sign extension.
    fn add(&mut self, value: i64, shift: u32) {
        let wide = i128::from(value) << (shift % 64);
        let rest = if wide < 0 { u64::MAX } else { 0 };
        let parts = [wide as u64, (wide >> 64) as u64].into_iter().chain(core::iter::repeat(rest));
        let limbs = self.limbs.iter_mut().skip(shift as usize / 64);
        add_limbs(limbs.zip(parts));
    }

    /// Returns the sum, rounded once to the nearest number, ties to even; NaN if a product was NaN
    /// or infinite.
    #[must_use]
    pub fn value(&self) -> f64 {
        if self.broken {
            return f64::NAN;
        }
        let negative = self.limbs[LIMBS - 1] >> 63 == 1;
        let mut limbs = self.limbs;
        if negative {
            // Two's complement negation: invert and add one.
            limbs = limbs.map(|limb| !limb);
            add_limbs(limbs.iter_mut().zip(core::iter::once(1).chain(core::iter::repeat(0))));
        }
        let Some(top) = limbs.iter().rposition(|&limb| limb != 0) else { return 0.0 };
        let shift = limbs[top].leading_zeros();
        let below = top.checked_sub(1).map_or(0, |below| limbs[below]);
        let lost = below.checked_shl(shift).unwrap_or(0) != 0
            || limbs[..top.saturating_sub(1)].iter().any(|&limb| limb != 0);
        let wide = (u128::from(limbs[top]) << 64 | u128::from(below)) << shift;
        // Sticky bit. `head` has eleven bits more than an `f64`, so any non-zero bit below it
        // affects the rounding like a one in its lowest bit.
        let head = (wide >> 64) as u64 | u64::from(lost);
        let exponent = 64 * top as i32 - shift as i32 - FRACTION;
        let power = f64::from_bits(((1023 + exponent) as u64) << 52);
        let size = head as f64 * power;
        if negative { -size } else { size }
    }

    /// Returns the square root of the sum: for a sum of squares, the L2 norm.
    #[must_use]
    pub fn root(&self) -> f64 {
        libm::sqrt(self.value())
    }
}

/// Returns the sign (0 or -1), the biased exponent and the significand as an integer. `number` is 0
/// or normal.
const fn parts(number: f64) -> (i64, u64, u64) {
    let bits = number.to_bits();
    let exponent = (bits >> 52) & NOT_FINITE;
    let digits = (bits & ((1 << 52) - 1)) | (((exponent != 0) as u64) << 52);
    (bits as i64 >> 63, exponent, digits)
}

/// Returns a lower bound of the non-zero magnitudes, at most one step below the smallest, and the
/// largest magnitude. Ignores NaN.
fn range(products: &[f64; BLOCK]) -> (f64, f64) {
    let (mut least, mut most) = ([f64::INFINITY; LANES], [0.0_f64; LANES]);
    for products in products.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            let size = products[lane].abs();
            most[lane] = if size > most[lane] { size } else { most[lane] };
            // One step less. For 0 the result is a NaN, which compares as less than nothing.
            let less = f64::from_bits(size.to_bits().wrapping_sub(1) & (u64::MAX >> 1));
            least[lane] = if less < least[lane] { less } else { least[lane] };
        }
    }
    let (least, most) = (least.into_iter(), most.into_iter());
    (least.fold(f64::INFINITY, f64::min), most.fold(0.0, f64::max))
}

/// Adds a product to the small accumulator of its exponent; returns true if it is NaN or infinite.
fn put(sums: &mut [i64; EXPONENTS], product: f64) -> bool {
    let (sign, exponent, digits) = parts(product);
    // Zeros and non-finite products fall into arbitrary bins: the former add 0, the latter void the
    // sum.
    let place = exponent.wrapping_sub(LEAST) as usize % EXPONENTS;
    sums[place] += ((digits >> 5) as i64 ^ sign) - sign;
    exponent == NOT_FINITE
}

/// Adds a part to each limb, with carry from limb to limb.
fn add_limbs<'l>(limbs: impl Iterator<Item = (&'l mut u64, u64)>) {
    let mut carry = false;
    for (limb, part) in limbs {
        let (sum, over) = limb.overflowing_add(part);
        let (sum, more) = sum.overflowing_add(u64::from(carry));
        (*limb, carry) = (sum, over | more);
    }
}

impl AddAssign<&Self> for ExactSum {
    fn add_assign(&mut self, other: &Self) {
        add_limbs(self.limbs.iter_mut().zip(other.limbs));
        if other.broken {
            self.broken = true;
        }
    }
}

/// Adds the sums of other keys to the corresponding `sums`; `None` if their numbers differ.
#[must_use]
pub fn add_all(sums: &mut [ExactSum], others: &[ExactSum]) -> Option<()> {
    (sums.len() == others.len())
        .then(|| sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Numbers of all magnitudes, optionally with terms that nearly cancel them.
    fn numbers() -> impl Strategy<Value = Vec<(f32, f32)>> {
        let finite = any::<f32>().prop_filter("finite", |value| value.is_finite());
        let usual = -2.0_f32..2.0;
        let power = (-149_i32..128).prop_map(|power| libm::ldexpf(1.0, power));
        let zero = prop_oneof![Just(0.0_f32), Just(-0.0)];
        let one = prop_oneof![finite, usual, power, zero];
        let pair = (one.clone(), one);
        (prop::collection::vec(pair, 0..700), any::<bool>()).prop_map(|(mut pairs, cancels)| {
            if cancels {
                let back: Vec<_> =
                    pairs.iter().skip(1).map(|&(one, other)| (-one, other)).collect();
                pairs.extend(back);
            }
            pairs
        })
    }

    fn sum(pairs: &[(f32, f32)]) -> ExactSum {
        let mut sum = ExactSum::default();
        sum.add_products(pairs.iter().copied());
        sum
    }

    /// The sum rounded once, computed bit by bit: slow, and unlike the code under test.
    fn reference(pairs: &[(f32, f32)]) -> f64 {
        // One counter per bit, so that none overflows; separate counters for positive and negative
        // terms.
        let mut bits = [[0_i64; 700]; 2];
        for (one, other) in pairs {
            let ((one, low), (other, high)) = (whole(*one), whole(*other));
            let product = i128::from(one) * i128::from(other);
            let side = usize::from(product < 0);
            for bit in (0..96).filter(|bit| product.unsigned_abs() >> bit & 1 == 1) {
                bits[side][bit + low + high] += 1;
            }
        }
        let mut whole: Vec<i64> = (0..700).map(|bit| bits[0][bit] - bits[1][bit]).collect();
        let mut sign = 1.0;
        if carried(&mut whole.clone()) < 0 {
            whole.iter_mut().for_each(|bit| *bit = -*bit);
            sign = -1.0;
        }
        let _positive = carried(&mut whole);
        let Some(top) = whole.iter().rposition(|&bit| bit == 1) else { return 0.0 };
        let from = top.saturating_sub(52);
        let digits = (from..=top).rev().fold(0_u64, |digits, bit| 2 * digits + whole[bit] as u64);
        let half = from > 0 && whole[from - 1] == 1;
        let more = from > 1 && whole[..from - 1].contains(&1);
        let up = half && (more || digits % 2 == 1);
        sign * libm::ldexp((digits + u64::from(up)) as f64, from as i32 - 298)
    }

    /// Normalises each bit to 0 or 1; returns the carry out of the last.
    fn carried(bits: &mut [i64]) -> i64 {
        bits.iter_mut().fold(0, |carry, bit| {
            let all = *bit + carry;
            *bit = all.rem_euclid(2);
            all.div_euclid(2)
        })
    }

    /// Returns `(m, e)` with `value = m * 2^(e - 149)`.
    fn whole(value: f32) -> (i64, usize) {
        let exponent = (value.to_bits() >> 23 & 0xff) as usize;
        let digits = i64::from(value.to_bits() & 0x7f_ffff);
        let digits = if exponent == 0 { digits } else { digits | 0x80_0000 };
        (if value < 0.0 { -digits } else { digits }, exponent.max(1) - 1)
    }

    proptest! {
        #[test]
        fn it_is_the_sum_rounded_once(pairs in numbers()) {
            let (value, wanted) = (sum(&pairs).value(), reference(&pairs));
            prop_assert_eq!(value.to_bits(), wanted.to_bits(), "{} {}", value, wanted);
        }

        #[test]
        fn neither_the_order_nor_cuts_matter(
            pairs in numbers().prop_shuffle(),
            cuts in prop::collection::vec(0..1400_usize, 0..5),
        ) {
            let mut ordered = pairs.clone();
            ordered.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            let mut parts = ExactSum::default();
            let mut rest = &pairs[..];
            for cut in cuts {
                let (part, left) = rest.split_at(cut % (rest.len() + 1));
                parts += &sum(part);
                rest = left;
            }
            parts += &sum(rest);
            prop_assert_eq!(&parts, &sum(&ordered));
        }

        #[test]
        fn numbers_of_about_one_size_are_added_up_no_less_exactly(
            all in prop::collection::vec((-1.0_f32..1.0, 0..30_i32), 1300),
            scale in -100..100_i32,
            (spread, zeros) in (1..30_i32, 0..3_usize),
        ) {
            let number = |(place, &(value, power)): (usize, &(f32, i32))| {
                let zero = zeros > 0 && place % (3 * zeros) == 0;
                if zero { 0.0 } else { libm::ldexpf(value, scale - power % spread) }
            };
            let all: Vec<f32> = all.iter().enumerate().map(number).collect();
            let pairs: Vec<_> = all.iter().zip(all.iter().skip(1)).map(|(a, b)| (*a, *b)).collect();
            let (value, wanted) = (sum(&pairs).value(), reference(&pairs));
            prop_assert_eq!(value.to_bits(), wanted.to_bits(), "{} {}", value, wanted);
        }
    }

    #[test]
    fn as_many_of_the_greatest_as_there_are_fit() {
        let greatest = alloc::vec![f32::MAX; 1_000_000];
        let sum = ExactSum::of_squares(&greatest);
        let one = f64::from(f32::MAX) * f64::from(f32::MAX);
        assert!((sum.value() / one - 1e6).abs() < 1e-3, "{}", sum.value());
        assert_eq!(ExactSum::of_squares(&greatest[..4]).root(), 2.0 * f64::from(f32::MAX));
    }

    #[test]
    fn what_is_no_number_makes_the_sum_none() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut all = ExactSum::of_squares(&[1.0, value, 2.0]);
            assert!(all.value().is_nan());
            all += &ExactSum::of_squares(&[3.0]);
            assert!(all.root().is_nan());
        }
        assert!(ExactSum::of_squared_distance(&[f32::MAX], &[f32::MIN]).value().is_nan());
    }
}
