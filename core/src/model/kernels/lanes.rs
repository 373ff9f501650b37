//! Registers' worth of values where the next ones may be somebody else's.
//!
//! Written without iterators, and without arrays that slices are taken of: what is not plain enough
//! stays in memory, or in calls, where the kernels need registers.

use bytemuck::{bytes_of, cast_slice, pod_read_unaligned};

use super::simd::{MOST_LANES, Simd};

/// The first values of `from`; zeros where there are not so many.
#[inline(always)]
pub(super) fn load<S: Simd>(from: &[f32]) -> S::V {
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

/// Adds as many of `more` to `values` as there are.
#[inline(always)]
pub(super) fn add<S: Simd, const G: usize>(simd: S, values: &mut [f32], more: &[S::V; G]) {
    let mut at = 0;
    for more in more {
        match values.get_mut(at..at + S::LANES) {
            Some(values) => {
                let sum = simd.add(load::<S>(values), *more);
                values.copy_from_slice(cast_slice(bytes_of(&sum)));
            }
            None => add_some(&mut values[at..], cast_slice(bytes_of(more))),
        }
        at += S::LANES;
    }
}

/// With a known length, these are an instruction or two.
#[inline(always)]
fn add_some(values: &mut [f32], more: &[f32]) {
    match values.len() {
        0 => (),
        1 => add_few::<1>(values, more),
        2 => add_few::<2>(values, more),
        3 => add_few::<3>(values, more),
        4 => add_few::<4>(values, more),
        5 => add_few::<5>(values, more),
        6 => add_few::<6>(values, more),
        7 => add_few::<7>(values, more),
        8 => add_few::<8>(values, more),
        _ => {
            add_few::<8>(values, more);
            add_rest(&mut values[8..], &more[8..]);
        }
    }
}

/// What is beyond eight.
#[inline(always)]
fn add_rest(values: &mut [f32], more: &[f32]) {
    match values.len() {
        1 => add_few::<1>(values, more),
        2 => add_few::<2>(values, more),
        3 => add_few::<3>(values, more),
        4 => add_few::<4>(values, more),
        5 => add_few::<5>(values, more),
        6 => add_few::<6>(values, more),
        _ => add_few::<7>(values, more),
    }
}

#[inline(always)]
fn add_few<const N: usize>(values: &mut [f32], more: &[f32]) {
    if let (Some(values), Some(more)) = (values.first_chunk_mut::<N>(), more.first_chunk::<N>()) {
        for lane in 0..N {
            values[lane] += more[lane];
        }
    }
}
