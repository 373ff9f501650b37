//! Encoded gradients and their wire format, in which any key range can be encoded separately.
//!
//! A [`Form`] specifies how to decode the bytes, without state from earlier messages. The bytes
//! hold first the keys that are sent, then their values. [`KeyForm::Gaps`] is a list of LEB128
//! numbers: the number of keys between each key and the preceding one. [`KeyForm::Bitmap`] has one
//! bit per key of the range. [`KeyForm::Span`] takes no bytes. Numbers are little-endian, and bits
//! fill a byte from its lowest bit. State besides the parameters, at the last keys, follows as
//! plain `f32`: filters do not touch it.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use super::bits;
use super::low_rank::Piece;
use super::one_bit::SignBits;
use super::quantize::Multiples;
use crate::float16::Float16;

/// An encoded gradient.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Encoded {
    /// The format of the bytes.
    pub form: Form,
    /// The payload of the push.
    pub bytes: Vec<u8>,
}

/// The format of an encoded gradient.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    /// The format of the keys.
    pub keys: KeyForm,
    /// The format of the values.
    pub values: ValueForm,
    /// The number of keys of state, the last of the range.
    pub state: u32,
}

/// The keys that are sent. The values of other keys are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyForm {
    /// All keys.
    All,
    /// This many keys, given by the gaps between them.
    Gaps(u32),
    /// This many keys, given by a bit for each key.
    Bitmap(u32),
    /// `count` consecutive keys from `first` on.
    Span {
        /// The first key.
        first: u32,
        /// The number of keys.
        count: u32,
    },
}

/// The format of the values. The first block may have begun in an earlier range: `first` is the
/// position of the first value in its block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ValueForm {
    /// `f32`.
    Single,
    /// IEEE 754 half precision.
    Half,
    /// bfloat16.
    Brain,
    /// One scale (`f32`) per block, then the multiples of `bits` bits each, offset so that none is
    /// negative.
    Multiples {
        /// Bits per multiple, 2 to 8.
        bits: u8,
        /// Values per block.
        block: u32,
        /// The position of the first value in its block.
        first: u32,
    },
    /// Two means (`f32`) per block, for negative values and for the others, then one bit per value:
    /// 1 if it is not negative.
    SignBits {
        /// Values per block.
        block: u32,
        /// The position of the first value in its block.
        first: u32,
    },
    /// A sequence of pieces.
    Pieces(Vec<PieceForm>),
}

/// The format of a piece: a matrix or a section of its values as a product, or plain values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PieceForm {
    /// Values of the piece.
    pub values: u32,
    /// Columns of the factors; 0 for plain values. The factor of the rows that the piece touches
    /// comes first, then the factor of all columns, each row by row.
    pub rank: u8,
    /// Columns of the matrix.
    pub columns: u32,
    /// The column of the first value.
    pub first: u32,
}

/// Bytes that do not match their declared form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The output of a filter chain.
#[derive(Clone, Debug)]
pub(super) struct Coded {
    /// The keys that are sent, in ascending order; `None` if all are.
    pub(super) keys: Option<Vec<u32>>,
    /// One value for each of these keys.
    pub(super) values: Values,
    /// The changes of the state, at the keys after all parameters.
    pub(super) state: Vec<f32>,
    /// The number of parameters.
    pub(super) trained: usize,
}

/// Values as a filter has encoded them.
#[derive(Clone, Debug)]
pub(super) enum Values {
    Single(Vec<f32>),
    Half(Vec<u16>),
    Brain(Vec<u16>),
    Multiples(Multiples),
    SignBits(SignBits),
    Pieces(Vec<Piece>),
}

impl Coded {
    /// Unencoded values of `keys`, of a vector of `trained` keys without state.
    pub(super) const fn single(keys: Option<Vec<u32>>, values: Vec<f32>, trained: usize) -> Self {
        Self { keys, values: Values::Single(values), state: Vec::new(), trained }
    }

    /// Encodes the part in `range`, with keys relative to its start.
    pub(super) fn encode(&self, range: Range<usize>) -> Encoded {
        let [begin, end] = [range.start, range.end].map(|key| key.saturating_sub(self.trained));
        let state = self.state.get(begin..end).unwrap_or_default();
        let range = range.start.min(self.trained)..range.end.min(self.trained);
        let mut bytes = Vec::new();
        let (keys, places) = match &self.keys {
            None => (KeyForm::All, range),
            Some(keys) => {
                let place = |key: usize| keys.partition_point(|&other| (other as usize) < key);
                let places = place(range.start)..place(range.end);
                let those = &keys[places.clone()];
                let form =
                    span_of(those, &range).unwrap_or_else(|| write_keys(those, &range, &mut bytes));
                (form, places)
            }
        };
        let values = self.values.write(places, &mut bytes);
        write_all(&mut bytes, state.iter().map(|value| value.to_le_bytes()));
        Encoded { form: Form { keys, values, state: state.len() as u32 }, bytes }
    }
}

impl Encoded {
    /// Encodes the non-zero values with their keys. -0 counts as non-zero, so that nothing is lost.
    #[must_use]
    pub fn of_non_zeros(values: &[f32]) -> Self {
        let pairs = (0..).zip(values).filter(|(_, value)| value.to_bits() != 0);
        let (keys, non_zeros) = pairs.map(|(key, value): (u32, &f32)| (key, *value)).unzip();
        Coded::single(Some(keys), non_zeros, values.len()).encode(0..values.len())
    }

    /// Encodes the values without loss: all of them, or the non-zero values with their keys,
    /// whichever is shorter.
    #[must_use]
    pub fn of_values(values: &[f32]) -> Self {
        let sparse = Self::of_non_zeros(values);
        if sparse.bytes.len() < size_of_val(values) { sparse } else { Self::of_all(values) }
    }

    /// Encodes these values, all of them.
    #[must_use]
    pub fn of_all(values: &[f32]) -> Self {
        Coded::single(None, values.to_vec(), values.len()).encode(0..values.len())
    }

    /// Encodes no values: each is 0.
    #[must_use]
    pub const fn of_none() -> Self {
        let form = Form { keys: KeyForm::Gaps(0), values: ValueForm::Single, state: 0 };
        Self { form, bytes: Vec::new() }
    }

    /// Overwrites the values of `onto` at the keys that are sent.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes do not match the form or the length of `onto`, which is then
    /// unchanged.
    pub fn patch(&self, onto: &mut [f32]) -> Result<(), Malformed> {
        self.merge(onto, |place, value| *place = value)
    }

    /// Adds the values, each times `factor`, to `sum`.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes do not match the form or the length of `sum`, which is then
    /// unchanged.
    pub fn add_to(&self, sum: &mut [f32], factor: f32) -> Result<(), Malformed> {
        self.merge(sum, |place, value| *place += factor * value)
    }

    /// Merges the values at the keys that are sent into `onto`, which has no state.
    fn merge(&self, onto: &mut [f32], merge: impl Fn(&mut f32, f32)) -> Result<(), Malformed> {
        let Form { keys, values, state } = &self.form;
        if *state > 0 {
            return Err(Malformed);
        }
        let (chosen, rest) = read_chosen(*keys, &self.bytes, onto.len())?;
        let Some(chosen) = chosen else {
            let values = values.read(rest, onto.len())?;
            onto.iter_mut().zip(values).for_each(|(place, value)| merge(place, value));
            return Ok(());
        };
        let values = values.read(rest, chosen.len())?;
        for (key, value) in chosen.into_iter().zip(values) {
            merge(&mut onto[key as usize], value);
        }
        Ok(())
    }

    /// Decodes the gradient, of `keys` values.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes do not match the form.
    pub fn decode(&self, keys: usize) -> Result<Vec<f32>, Malformed> {
        decode(&self.form, &self.bytes, keys)
    }
}

/// Decodes a gradient of `keys` values. Allocates that many values, and otherwise no more than in
/// proportion to `bytes`.
///
/// # Errors
/// [`Malformed`] if the bytes do not match the form.
pub fn decode(form: &Form, bytes: &[u8], keys: usize) -> Result<Vec<f32>, Malformed> {
    let state = form.state as usize;
    let trained = keys.checked_sub(state).ok_or(Malformed)?;
    let plain = state.checked_mul(size_of::<f32>()).and_then(|of| bytes.len().checked_sub(of));
    let (bytes, state) = bytes.split_at(plain.ok_or(Malformed)?);
    let (chosen, rest) = read_chosen(form.keys, bytes, trained)?;
    let mut gradient = match chosen {
        None => form.values.read(rest, trained)?,
        Some(chosen) => {
            let values = form.values.read(rest, chosen.len())?;
            let mut gradient = vec![0.0; trained];
            for (key, value) in chosen.into_iter().zip(values) {
                gradient[key as usize] = value;
            }
            gradient
        }
    };
    gradient.extend(state.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value)));
    Ok(gradient)
}

/// Returns the span of consecutive keys; `None` if there are gaps.
fn span_of(keys: &[u32], range: &Range<usize>) -> Option<KeyForm> {
    let (first, last) = (*keys.first()?, *keys.last()?);
    let count = keys.len() as u32;
    let form = KeyForm::Span { first: first - range.start as u32, count };
    (last - first == count - 1).then_some(form)
}

/// Appends the keys of a range as gaps or as a bitmap, whichever is shorter.
pub fn write_keys(keys: &[u32], range: &Range<usize>, bytes: &mut Vec<u8>) -> KeyForm {
    let most = range.len().div_ceil(8);
    let mut next = range.start as u32;
    for &key in keys {
        let mut gap = key - next;
        next = key + 1;
        while gap >= 0x80 {
            bytes.push(gap as u8 | 0x80);
            gap >>= 7;
        }
        bytes.push(gap as u8);
        // Longer than the bitmap: replace the gaps written so far.
        if bytes.len() > most {
            bytes.clear();
            bytes.resize(most, 0);
            for key in keys.iter().map(|&key| key as usize - range.start) {
                bytes[key / 8] |= 1 << (key % 8);
            }
            return KeyForm::Bitmap(keys.len() as u32);
        }
    }
    KeyForm::Gaps(keys.len() as u32)
}

/// Decodes the keys at the start of `bytes` and returns the remaining bytes; `None` means all keys.
fn read_chosen(
    form: KeyForm,
    bytes: &[u8],
    keys: usize,
) -> Result<(Option<Vec<u32>>, &[u8]), Malformed> {
    let (chosen, rest) = match form {
        KeyForm::All => return Ok((None, bytes)),
        KeyForm::Gaps(count) => read_gaps(bytes, count as usize, keys)?,
        KeyForm::Bitmap(count) => read_bitmap(bytes, count as usize, keys)?,
        KeyForm::Span { first, count } => {
            let end = first.checked_add(count).ok_or(Malformed)?;
            if end as usize > keys {
                return Err(Malformed);
            }
            ((first..end).collect(), bytes)
        }
    };
    Ok((Some(chosen), rest))
}

/// Decodes `bytes` as a list of ascending keys; `None` if they are not exactly such a list.
pub fn read_keys(form: KeyForm, bytes: &[u8]) -> Option<Vec<u32>> {
    let most = match form {
        KeyForm::Bitmap(_) => 8 * bytes.len(),
        // The count of a span is not backed by bytes, so that it could cause any allocation.
        KeyForm::Span { .. } => return None,
        _ => u32::MAX as usize,
    };
    let (keys, rest) = read_chosen(form, bytes, most).ok()?;
    keys.filter(|_| rest.is_empty())
}

fn read_gaps(bytes: &[u8], count: usize, keys: usize) -> Result<(Vec<u32>, &[u8]), Malformed> {
    if count > keys || count > bytes.len() {
        return Err(Malformed);
    }
    let mut chosen = Vec::with_capacity(count);
    let (mut rest, mut next) = (bytes, 0_u64);
    for _ in 0..count {
        let mut gap = 0_u64;
        for shift in (0..).step_by(7) {
            let (&byte, after) = rest.split_first().ok_or(Malformed)?;
            rest = after;
            gap |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
            if shift >= 28 {
                return Err(Malformed);
            }
        }
        let key = next + gap;
        if key >= keys as u64 {
            return Err(Malformed);
        }
        chosen.push(key as u32);
        next = key + 1;
    }
    Ok((chosen, rest))
}

fn read_bitmap(bytes: &[u8], count: usize, keys: usize) -> Result<(Vec<u32>, &[u8]), Malformed> {
    let (map, rest) = bytes.split_at_checked(keys.div_ceil(8)).ok_or(Malformed)?;
    let ones: usize = map.iter().map(|byte| byte.count_ones() as usize).sum();
    if ones != count {
        return Err(Malformed);
    }
    let mut chosen = Vec::with_capacity(count);
    for (place, &byte) in map.iter().enumerate() {
        let bits = (0..8).filter(|bit| byte >> bit & 1 == 1);
        chosen.extend(bits.map(|bit| (place * 8 + bit) as u32));
    }
    if chosen.last().is_some_and(|&key| key as usize >= keys) {
        return Err(Malformed);
    }
    Ok((chosen, rest))
}

impl Values {
    /// Appends the values at `places` and returns their format.
    fn write(&self, places: Range<usize>, bytes: &mut Vec<u8>) -> ValueForm {
        match self {
            Self::Single(values) => {
                write_all(bytes, values[places].iter().map(|value| value.to_le_bytes()));
                ValueForm::Single
            }
            Self::Half(values) => {
                write_all(bytes, values[places].iter().map(|value| value.to_le_bytes()));
                ValueForm::Half
            }
            Self::Brain(values) => {
                write_all(bytes, values[places].iter().map(|value| value.to_le_bytes()));
                ValueForm::Brain
            }
            Self::Multiples(Multiples { block, bits, scales, multiples }) => {
                let (blocks, first) = blocks_of(&places, *block);
                write_all(bytes, scales[blocks].iter().map(|scale| scale.to_le_bytes()));
                let offset = offset_of(*bits);
                let codes = multiples[places].iter().map(|&it| (i32::from(it) + offset) as u8);
                bits::write(bytes, *bits, codes);
                ValueForm::Multiples { bits: *bits, block: *block, first }
            }
            Self::SignBits(SignBits { block, means, signs }) => {
                let (blocks, first) = blocks_of(&places, *block);
                let means = means[blocks].iter().flatten();
                write_all(bytes, means.map(|mean| mean.to_le_bytes()));
                bits::write(bytes, 1, signs[places].iter().map(|&sign| u8::from(sign)));
                ValueForm::SignBits { block: *block, first }
            }
            Self::Pieces(pieces) => ValueForm::Pieces(write_pieces(pieces, places, bytes)),
        }
    }
}

fn write_all<const N: usize>(bytes: &mut Vec<u8>, values: impl Iterator<Item = [u8; N]>) {
    values.for_each(|value| bytes.extend_from_slice(&value));
}

/// Returns the blocks that contain `places`, and the position of the first place in its block.
fn blocks_of(places: &Range<usize>, block: u32) -> (Range<usize>, u32) {
    let size = block as usize;
    if places.is_empty() {
        return (0..0, 0);
    }
    (places.start / size..places.end.div_ceil(size), (places.start % size) as u32)
}

/// The offset that makes multiples of this many bits non-negative.
const fn offset_of(bits: u8) -> i32 {
    (1 << (bits - 1)) - 1
}

fn write_pieces(pieces: &[Piece], places: Range<usize>, bytes: &mut Vec<u8>) -> Vec<PieceForm> {
    let (mut forms, mut begin) = (Vec::new(), 0);
    for piece in pieces {
        let end = begin + piece.len();
        let here = places.start.max(begin)..places.end.min(end);
        if here.start < here.end {
            let (from, to) = (here.start - begin, here.end - begin);
            let values = (to - from) as u32;
            let float = |value: &f32| value.to_le_bytes();
            forms.push(match piece {
                Piece::Plain(all) => {
                    write_all(bytes, all[from..to].iter().map(float));
                    PieceForm { values, rank: 0, columns: 0, first: 0 }
                }
                Piece::Product { columns, rank, left, right } => {
                    let rows = from / columns..to.div_ceil(*columns);
                    let rows = &left[rows.start * rank..rows.end * rank];
                    write_all(bytes, rows.iter().chain(right).map(float));
                    let (rank, first) = (*rank as u8, (from % columns) as u32);
                    PieceForm { values, rank, columns: *columns as u32, first }
                }
            });
        }
        begin = end;
    }
    forms
}

impl ValueForm {
    /// Decodes `bytes` as `count` values.
    fn read(&self, bytes: &[u8], count: usize) -> Result<Vec<f32>, Malformed> {
        match self {
            Self::Single => read_all(bytes, count, f32::from_le_bytes),
            Self::Half => read_all(bytes, count, |it| Float16::Half.decode(u16::from_le_bytes(it))),
            Self::Brain => {
                read_all(bytes, count, |it| Float16::Brain.decode(u16::from_le_bytes(it)))
            }
            &Self::Multiples { bits, block, first } => {
                if !(2..=8).contains(&bits) {
                    return Err(Malformed);
                }
                let (scales, codes) = split::<4>(bytes, count, block, first, bits)?;
                let (offset, greatest) = (offset_of(bits), 2 * offset_of(bits));
                let mut values = Vec::with_capacity(count);
                for (place, code) in (first as usize..).zip(bits::read(codes, bits, count)) {
                    if i32::from(code) > greatest {
                        return Err(Malformed);
                    }
                    let scale = f32::from_le_bytes(scales[place / block as usize]);
                    values.push(scale * (i32::from(code) - offset) as f32);
                }
                Ok(values)
            }
            &Self::SignBits { block, first } => {
                let (means, codes) = split::<8>(bytes, count, block, first, 1)?;
                let signs = (first as usize..).zip(bits::read(codes, 1, count));
                let value = |(place, sign): (usize, u8)| {
                    let [a, b, c, d, e, f, g, h] = means[place / block as usize];
                    f32::from_le_bytes(if sign == 0 { [a, b, c, d] } else { [e, f, g, h] })
                };
                Ok(signs.map(value).collect())
            }
            Self::Pieces(pieces) => read_pieces(pieces, bytes, count),
        }
    }
}

fn read_all<const N: usize>(
    bytes: &[u8],
    count: usize,
    read: impl Fn([u8; N]) -> f32,
) -> Result<Vec<f32>, Malformed> {
    let (values, rest) = bytes.as_chunks::<N>();
    if values.len() != count || !rest.is_empty() {
        return Err(Malformed);
    }
    Ok(values.iter().map(|&value| read(value)).collect())
}

/// Splits `bytes` into the headers of the blocks, `N` bytes each, and the codes of `count` values.
fn split<const N: usize>(
    bytes: &[u8],
    count: usize,
    block: u32,
    first: u32,
    bits: u8,
) -> Result<(&[[u8; N]], &[u8]), Malformed> {
    if block == 0 || first >= block {
        return Err(Malformed);
    }
    let blocks = match count {
        0 => 0,
        _ => count.checked_add(first as usize).ok_or(Malformed)?.div_ceil(block as usize),
    };
    let (about, codes) =
        blocks.checked_mul(N).and_then(|end| bytes.split_at_checked(end)).ok_or(Malformed)?;
    if !bits::fill(codes, bits, count) {
        return Err(Malformed);
    }
    Ok((about.as_chunks().0, codes))
}

fn read_pieces(pieces: &[PieceForm], bytes: &[u8], count: usize) -> Result<Vec<f32>, Malformed> {
    // All lengths are checked first, since the values can be more than the bytes.
    let all = pieces.iter().try_fold(0_usize, |all, piece| all.checked_add(piece.values as usize));
    if all != Some(count) {
        return Err(Malformed);
    }
    let mut values = Vec::with_capacity(count);
    let mut rest = bytes;
    for &PieceForm { values: length, rank, columns, first } in pieces {
        let (length, rank) = (length as usize, usize::from(rank));
        let (columns, first) = (columns as usize, first as usize);
        let mut take = |values: usize| {
            let end = values.checked_mul(size_of::<f32>()).ok_or(Malformed)?;
            let (floats, after) = rest.split_at_checked(end).ok_or(Malformed)?;
            rest = after;
            Ok(floats.as_chunks::<4>().0)
        };
        if rank == 0 {
            values.extend(take(length)?.iter().map(|&value| f32::from_le_bytes(value)));
            continue;
        }
        if first >= columns || length == 0 {
            return Err(Malformed);
        }
        let end = first.checked_add(length).ok_or(Malformed)?;
        let rows = end.div_ceil(columns);
        let left = take(rows.checked_mul(rank).ok_or(Malformed)?)?;
        let right = take(columns.checked_mul(rank).ok_or(Malformed)?)?;
        values.extend((first..end).map(|place| {
            let (row, column) = (place / columns * rank, place % columns * rank);
            let factors = left[row..row + rank].iter().zip(&right[column..column + rank]);
            let product =
                |(&a, &b): (&[u8; 4], &[u8; 4])| f32::from_le_bytes(a) * f32::from_le_bytes(b);
            factors.map(product).fold(0.0, |sum: f32, term| sum + term)
        }));
    }
    if rest.is_empty() { Ok(values) } else { Err(Malformed) }
}
