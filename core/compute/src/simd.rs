//! What kernels ask of a processor: a few operations on several values at once.
//!
//! [`Portable`] does them with arrays, which the compiler turns into whatever instructions the
//! target always has. Where the standard library is there, [`widest`] finds the widest registers
//! that the processor at hand has. Which of them runs changes no bit of a result: each operation
//! rounds once, as IEEE 754 has it, and the kernels' sums do not depend on how many lanes there
//! are. A product and a sum are therefore never fused into one operation, which not all processors
//! have; where this was tried, it was no quicker.
//!
//! A loop over values that do not depend on each other needs none of these operations: the compiler
//! makes vector instructions of it, and [`widely`] has it made into those of the widest registers.

use bytemuck::Pod;

/// Operations on several values at once.
pub(crate) trait Simd: Copy {
    /// So many values, in a register.
    type V: Pod;
    /// How many.
    const LANES: usize = size_of::<Self::V>() / size_of::<f32>();
    /// Registers there are for them.
    const REGISTERS: usize;

    /// `value` in all lanes.
    fn splat(self, value: f32) -> Self::V;
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `then` where `a < b`, `otherwise` elsewhere, also where there is a NaN.
    fn if_less(self, a: Self::V, b: Self::V, then: Self::V, otherwise: Self::V) -> Self::V;
    /// Two to the power of the integer in the lowest bits of each value's mantissa.
    fn power_of_two(self, bits: Self::V) -> Self::V;
    /// Has `kernel` done as a function of its own, compiled for these registers.
    fn apart<K: Kernel>(self, kernel: K);

    /// `a * b + c`, rounded twice.
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        self.add(self.mul(a, b), c)
    }
}

/// What is worth a function of its own: it is compiled once, wherever it is called from, and what
/// calls it stays small.
pub(crate) trait Kernel {
    /// Does it. To be inlined, as [`Work::run`] is.
    fn run(self);
}

/// What is done with a [`Simd`] that is chosen at run time.
pub(crate) trait Work {
    /// What comes of it.
    type Output;
    /// Does it. To be inlined, with all it calls: only what is inlined is compiled for the
    /// processor chosen.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Has a loop done by the widest registers the processor has. It is inlined, as are the functions
/// it calls if they are marked so; what is not is compiled for any processor.
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

/// No register has more lanes.
pub(crate) const MOST_LANES: usize = 16;

/// Lanes of [`Portable`].
const LANES: usize = 8;

/// Arrays, which the compiler makes vector instructions of if the target has any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Simd for Portable {
    type V = [f32; LANES];
    // Of 16 with 4 lanes each, as SSE2 has them.
    const REGISTERS: usize = 8;

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

/// Has `work` done by the widest registers the processor has.
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

    /// The registers of the processor at hand.
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

    /// A work with the registers that it is done by.
    struct Call<W, S>(W, S);

    impl<W: Work, S: pulp::Simd> NullaryFnOnce for Call<W, S> {
        type Output = W::Output;

        #[inline(always)]
        fn call(self) -> W::Output {
            self.0.run(Wide(self.1))
        }
    }

    /// A kind of registers that the processor at hand has.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Registers {
        Any,
        V3(V3),
        V4(V4),
    }

    impl Registers {
        /// Has `work` done by them.
        pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
            match self {
                Self::Any => work.run(Portable),
                Self::V3(simd) => simd.vectorize(Call(work, simd)),
                Self::V4(simd) => simd.vectorize(Call(work, simd)),
            }
        }
    }

    /// The kinds of registers that the processor has, the narrowest first.
    pub(crate) fn all() -> impl DoubleEndedIterator<Item = Registers> {
        let wide = V3::try_new().map(Registers::V3).into_iter();
        let wider = V4::try_new().map(Registers::V4);
        core::iter::once(Registers::Any).chain(wide).chain(wider)
    }

    /// Has `work` done by the widest registers the processor has.
    pub(crate) fn widest<W: Work>(work: W) -> W::Output {
        all().next_back().unwrap_or(Registers::Any).run(work)
    }
}
