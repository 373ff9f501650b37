//! Vector operations for kernels, with the widest registers of the processor.
//!
//! [`Portable`] implements them on arrays, which the compiler turns into the vector instructions
//! that the target always has. With the standard library, [`widest`] detects the processor's widest
//! registers at run time. The choice changes no bit of a result: each operation rounds once, as
//! IEEE 754 specifies, and the kernels' sums do not depend on the number of lanes. A product and a
//! sum are always fused into one operation, which rounds once. Processors without that instruction
//! compute the same bits from several others, and are slow: x86-64 before AVX2, ARM before VFPv4,
//! and builds without the standard library.
//!
//! A loop over independent values needs none of these operations: the compiler vectorises it, and
//! [`widely`] compiles it for the widest registers.

use bytemuck::Pod;

/// Operations on the lanes of a vector register.
pub(crate) trait Simd: Copy + Send + Sync {
    /// The vector type.
    type V: Pod + Send + Sync;
    /// Lanes per vector.
    const LANES: usize = size_of::<Self::V>() / size_of::<f32>();
    /// The number of vectors that fit the registers.
    const REGISTERS: usize;

    /// Returns a vector with `value` in all lanes.
    fn splat(self, value: f32) -> Self::V;
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, with one rounding.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `then` in lanes with `a < b`, `otherwise` in other lanes, including lanes with a NaN.
    fn if_less(self, a: Self::V, b: Self::V, then: Self::V, otherwise: Self::V) -> Self::V;
    /// Two to the power of the integer in the lowest bits of each value's mantissa.
    fn power_of_two(self, bits: Self::V) -> Self::V;
    /// Runs `kernel` as a separate function, compiled for these registers.
    fn apart<K: Kernel>(self, kernel: K);
}

/// Code that deserves its own function: it is compiled once for all call sites, and the callers
/// stay small.
pub(crate) trait Kernel {
    /// Runs the kernel. Must be inlined, as [`Work::run`].
    fn run(self);
}

/// A computation that is generic over the [`Simd`] selected at run time.
pub(crate) trait Work {
    /// The result of the computation.
    type Output;
    /// Runs the computation. Must be inlined, with all functions that it calls: only inlined code
    /// is compiled for the selected processor.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Runs a loop with the processor's widest registers. The closure is inlined, and so are its
/// callees if they are marked inline; other callees are compiled for the baseline processor.
pub(crate) fn widely<T>(values: impl FnOnce() -> T) -> T {
    widest(Loop(values))
}

struct Loop<F>(F);

impl<T, F: FnOnce() -> T> Work for Loop<F> {
    type Output = T;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> T {
        self.0()
    }
}

/// The largest number of lanes of any register.
pub(crate) const MOST_LANES: usize = 16;

/// Lanes of [`Portable`].
const LANES: usize = 8;

/// Vectors as arrays, which the compiler vectorises if the target has vector instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Simd for Portable {
    type V = [f32; LANES];
    // SSE2 has 16 registers of 4 lanes: 8 vectors of 8 lanes. NEON has twice as many.
    const REGISTERS: usize = if cfg!(target_arch = "aarch64") { 16 } else { 8 };

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [value; LANES]
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        let mut out = a;
        for lane in 0..LANES {
            out[lane] += b[lane];
        }
        out
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        let mut out = a;
        for lane in 0..LANES {
            out[lane] -= b[lane];
        }
        out
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        let mut out = a;
        for lane in 0..LANES {
            out[lane] *= b[lane];
        }
        out
    }

    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        let mut out = c;
        for lane in 0..LANES {
            out[lane] = fused(a[lane], b[lane], c[lane]);
        }
        out
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        let mut out = a;
        for lane in 0..LANES {
            out[lane] /= b[lane];
        }
        out
    }

    #[inline(always)]
    fn if_less(self, a: Self::V, b: Self::V, then: Self::V, otherwise: Self::V) -> Self::V {
        let mut out = otherwise;
        for lane in 0..LANES {
            out[lane] = if a[lane] < b[lane] { then[lane] } else { otherwise[lane] };
        }
        out
    }

    #[inline(always)]
    fn power_of_two(self, bits: Self::V) -> Self::V {
        let mut out = bits;
        for value in &mut out {
            let exponent = (value.to_bits() << 23).wrapping_add(1.0_f32.to_bits());
            *value = f32::from_bits(exponent);
        }
        out
    }

    #[inline(never)]
    fn apart<K: Kernel>(self, kernel: K) {
        kernel.run();
    }
}

/// `a * b + c`, with one rounding.
#[cfg(feature = "std")]
#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    // The build for 32-bit ARM says by `--cfg vfp4` that its processors have the instruction.
    if cfg!(any(target_arch = "aarch64", target_arch = "riscv64", target_feature = "fma", vfp4)) {
        a.mul_add(b, c)
    } else {
        fused_by_parts(a, b, c)
    }
}

#[cfg(not(feature = "std"))]
use self::fused_by_parts as fused;

/// `a * b + c`, with one rounding, for processors that have no such instruction.
///
/// The product is exact in `f64`, and the sum is rounded to odd, so that rounding it once more is
/// rounding once (Boldo and Melquiond, Emulation of FMA and correctly rounded sums: proved
/// algorithms using rounding to odd, IEEE Trans. Computers 2008).
#[inline(always)]
fn fused_by_parts(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // The part that rounding took, exactly (Knuth's two-sum). NaN if the sum is not finite.
    let part = sum - product;
    let lost = (product - (sum - part)) + (c - part);
    // Of the two neighbours of the exact sum, the odd one: away from zero if that much was lost.
    let is_even = sum.to_bits() & 1 == 0;
    let step = if (lost > 0.0) == (sum > 0.0) { 1 } else { u64::MAX };
    let step = if is_even && lost != 0.0 && lost.is_finite() { step } else { 0 };
    f64::from_bits(sum.to_bits().wrapping_add(step)) as f32
}

/// Runs `work` with the widest registers: without run-time detection these are [`Portable`]'s.
#[cfg(not(all(feature = "std", target_arch = "x86_64")))]
pub(crate) fn widest<W: Work>(work: W) -> W::Output {
    work.run(Portable)
}

#[cfg(all(feature = "std", target_arch = "x86_64", test))]
pub(crate) use self::wide::all;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
pub(crate) use self::wide::widest;

#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod wide {
    use pulp::x86::{V3, V4};
    use pulp::{NullaryFnOnce, WithSimd};

    use super::{Kernel, Portable, Simd, Work};

    /// The registers of an instruction set, by way of `pulp`.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Wide<S>(S);

    impl<S: pulp::Simd> Simd for Wide<S> {
        type V = S::f32s;
        const REGISTERS: usize = S::REGISTER_COUNT;

        #[inline(always)]
        fn splat(self, value: f32) -> Self::V {
            self.0.splat_f32s(value)
        }

        #[inline(always)]
        fn add(self, a: Self::V, b: Self::V) -> Self::V {
            self.0.add_f32s(a, b)
        }

        #[inline(always)]
        fn sub(self, a: Self::V, b: Self::V) -> Self::V {
            self.0.sub_f32s(a, b)
        }

        #[inline(always)]
        fn mul(self, a: Self::V, b: Self::V) -> Self::V {
            self.0.mul_f32s(a, b)
        }

        #[inline(always)]
        fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            self.0.mul_add_f32s(a, b, c)
        }

        #[inline(always)]
        fn div(self, a: Self::V, b: Self::V) -> Self::V {
            self.0.div_f32s(a, b)
        }

        #[inline(always)]
        fn if_less(self, a: Self::V, b: Self::V, then: Self::V, otherwise: Self::V) -> Self::V {
            self.0.select_f32s(self.0.less_than_f32s(a, b), then, otherwise)
        }

        #[inline(always)]
        fn power_of_two(self, bits: Self::V) -> Self::V {
            let simd = self.0;
            let bits = simd.transmute_u32s_f32s(bits);
            let exponent = simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(23));
            simd.transmute_f32s_u32s(simd.add_u32s(exponent, simd.splat_u32s(1.0_f32.to_bits())))
        }

        #[inline(always)]
        fn apart<K: Kernel>(self, kernel: K) {
            self.0.vectorize(Apart(kernel));
        }
    }

    struct Apart<K>(K);

    impl<K: Kernel> WithSimd for Apart<K> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, _: S) {
            self.0.run();
        }
    }

    /// A computation with the registers that run it.
    struct Call<W, S>(W, S);

    impl<W: Work, S: pulp::Simd> NullaryFnOnce for Call<W, S> {
        type Output = W::Output;

        #[inline(always)]
        fn call(self) -> W::Output {
            self.0.run(Wide(self.1))
        }
    }

    /// A kind of registers that the current processor has.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Registers {
        Any,
        V3(V3),
        V4(V4),
    }

    impl Registers {
        /// Runs `work` with these registers.
        pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
            match self {
                Self::Any => work.run(Portable),
                Self::V3(simd) => simd.vectorize(Call(work, simd)),
                Self::V4(simd) => simd.vectorize(Call(work, simd)),
            }
        }
    }

    /// Returns the kinds of registers of the current processor, the narrowest first.
    pub(crate) fn all() -> impl DoubleEndedIterator<Item = Registers> {
        let wide = V3::try_new().map(Registers::V3).into_iter();
        let wider = V4::try_new().map(Registers::V4);
        core::iter::once(Registers::Any).chain(wide).chain(wider)
    }

    /// Runs `work` with the processor's widest registers.
    pub(crate) fn widest<W: Work>(work: W) -> W::Output {
        all().next_back().unwrap_or(Registers::Any).run(work)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::fused_by_parts;

    proptest! {
        #[test]
        fn a_product_and_a_sum_by_parts_round_once(a: u32, b: u32, c: u32, near: i8) {
            let [a, b, c] = [a, b, c].map(f32::from_bits);
            // Sums that cancel, and sums whose rounding is decided far below the last digit.
            let product = f64::from(a) * f64::from(b);
            let close = (-product as f32).to_bits().wrapping_add_signed(near.into());
            let half = (product * f64::powi(2.0, near.into())) as f32;
            for c in [c, f32::from_bits(close), half, 0.0, -0.0, f32::INFINITY] {
                let (found, right) = (fused_by_parts(a, b, c), libm::fmaf(a, b, c));
                let same = found.to_bits() == right.to_bits() || found.is_nan() && right.is_nan();
                prop_assert!(same, "{a:e} * {b:e} + {c:e}: {found:e}, not {right:e}");
            }
        }
    }
}
