//! Register-sized loads and additions at the end of a row, where the next values may belong to
//! another row or tensor.
//!
//! The code avoids iterators and slices of arrays: with these the compiler keeps values in memory,
//! or emits calls, where the kernels need registers.

use bytemuck::{bytes_of, cast_slice, pod_read_unaligned};

use crate::simd::{MOST_LANES, Simd};

/// Loads the first values of `from`; zeros in lanes past its end.
#[inline(always)]
pub(in crate::model) fn load<S: Simd>(from: &[f32]) -> S::V {
    match from.get(..S::LANES) {
        Some(from) => pod_read_unaligned(cast_slice(from)),
        None => load_some::<S>(from),
    }
}

#[cold]
#[inline(never)]
fn load_some<S: Simd>(from: &[f32]) -> S::V {
    let mut lanes = [0.0; MOST_LANES];
    lanes[..from.len()].copy_from_slice(from);
    pod_read_unaligned(cast_slice(&lanes[..S::LANES]))
}

/// Adds `more` to `values`, up to the length of `values`.
#[inline(always)]
pub(super) fn add<S: Simd, const G: usize>(simd: S, values: &mut [f32], more: &[S::V; G]) {
    put(simd, values, more, false);
}

/// Adds `more` to `values`, up to the length of `values`; replaces them if `more` is the first.
#[inline(always)]
pub(in crate::model) fn put<S: Simd, const G: usize>(
    simd: S,
    values: &mut [f32],
    more: &[S::V; G],
    is_first: bool,
) {
    let mut at = 0;
    for more in more {
        match values.get_mut(at..at + S::LANES) {
            Some(values) => {
                let sum = if is_first { *more } else { simd.add(load::<S>(values), *more) };
                values.copy_from_slice(cast_slice(bytes_of(&sum)));
            }
            None => put_some(&mut values[at..], cast_slice(bytes_of(more)), is_first),
        }
        at += S::LANES;
    }
}

/// Puts less than a register of values, in pieces of constant length: each compiles to one or two
/// instructions.
#[inline(always)]
fn put_some(values: &mut [f32], more: &[f32], is_first: bool) {
    let (length, mut at) = (values.len(), 0);
    if length & 8 != 0 {
        put_few::<8>(values, more, is_first);
        at = 8;
    }
    if length & 4 != 0 {
        put_few::<4>(&mut values[at..], &more[at..], is_first);
        at += 4;
    }
    if length & 2 != 0 {
        put_few::<2>(&mut values[at..], &more[at..], is_first);
        at += 2;
    }
    if length & 1 != 0 {
        put_few::<1>(&mut values[at..], &more[at..], is_first);
    }
}

#[inline(always)]
fn put_few<const N: usize>(values: &mut [f32], more: &[f32], is_first: bool) {
    if let (Some(values), Some(more)) = (values.first_chunk_mut::<N>(), more.first_chunk::<N>()) {
        for lane in 0..N {
            values[lane] = if is_first { more[lane] } else { values[lane] + more[lane] };
        }
    }
}
