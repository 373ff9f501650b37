//! One rank's part of an all-reduce, without messages and time.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use super::precision::{Precision, pack, unpack};
use super::{Collective, Content, Op, Outgoing, Rank, ReductionError};
use pstrain_compute::params::{Coverage, KeyRange};

/// The most values of a piece: 64 KiB of a short vector, 256 KiB of a long one. Larger pieces keep
/// more ranks waiting, smaller ones cost more messages, and a transport copies the beginning of
/// each.
const SHORT_PIECE: usize = 16 * 1024;
const LONG_PIECE: usize = 64 * 1024;

/// The pieces of a vector that is neither short nor long.
const PIECES: usize = 64;

/// The most values that all ranks together have begun to sum and have not summed: 32 MiB. It bounds
/// the bytes that wait at a slow link.
const MOST_BEGUN: usize = 8 * 1024 * 1024;

/// The most of them of one rank: 4 MiB. The copy of a piece is still in the cache when it is sent.
const MOST_BEGUN_HERE: usize = 1024 * 1024;

/// The all-reduce of one vector at one rank.
///
/// Outgoing values are appended to a list; the owner sends them in order. Values may arrive before
/// the rank's own are there.
///
/// Pieces begin in the same order at all ranks, and only so many at a time: the first piece that is
/// not summed everywhere has begun everywhere, so that no rank waits without end.
#[derive(Debug)]
pub struct Reduction {
    /// The rank's own values; none before they are there.
    own: Option<Own>,
    precision: Precision,
    pieces: Vec<Piece>,
    /// Pieces that are not summed yet.
    open: usize,
    /// Pieces that start at this rank and come before this one have begun.
    begun: usize,
    /// The values of pieces that have begun here and are not summed, and the most of them.
    flight: usize,
    most_flight: usize,
    /// Memory of values that were used, for those to send.
    spares: Vec<Arc<Vec<f32>>>,
    /// As many as are needed at a time.
    most_spares: usize,
}

/// The rank's own values.
#[derive(Debug)]
struct Own {
    /// The values, which the sums replace piece by piece.
    values: Vec<f32>,
    /// The factor of each value in the sum.
    factor: f32,
    /// True if the rank has no part in the sum.
    is_absent: bool,
    /// The keys whose values are here; none if all are.
    came: Option<Coverage>,
}

/// A piece of the vector.
#[derive(Debug)]
struct Piece {
    keys: Range<usize>,
    program: Arc<[Op]>,
    /// The index of the next step of the program.
    next: usize,
    /// The value so far; empty if no rank has a part in it.
    value: Arc<Vec<f32>>,
    /// The value in the form in which it is sent, if that is another and has been made.
    packed: Option<Arc<Vec<f32>>>,
    /// Values that have arrived and were not used yet, in their order.
    arrived: Vec<(Rank, Arc<Vec<f32>>)>,
}

impl Reduction {
    /// The part of `rank` in the reduction of vectors of `len` values by `ranks` ranks.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn new(
        collective: Collective,
        precision: Precision,
        rank: Rank,
        ranks: u32,
        len: usize,
    ) -> Self {
        let (mut pieces, most) = (Vec::new(), most_of_piece(len));
        if ranks > 1 {
            let cut = |(chunk, keys): (u32, Range<usize>)| {
                let program: Arc<[Op]> = collective.program(rank, ranks, chunk).into();
                let piece = move |start: usize| {
                    let keys = start..keys.end.min(start + most);
                    Piece::new(keys, Arc::clone(&program))
                };
                keys.step_by(most).map(piece)
            };
            let chunks = (0..).zip(collective.chunks(ranks, len));
            let mut chunks: Vec<_> = chunks.map(cut).collect();
            // One of each chunk in turn, so that all ranks have work from the beginning.
            loop {
                let before = pieces.len();
                pieces.extend(chunks.iter_mut().filter_map(Iterator::next));
                if pieces.len() == before {
                    break;
                }
            }
        }
        let most_flight = most_begun(ranks);
        Self {
            own: None,
            precision,
            open: pieces.len(),
            begun: 0,
            flight: 0,
            most_flight,
            spares: Vec::new(),
            most_spares: most_flight.div_ceil(most).min(pieces.len()),
            pieces,
        }
    }

    /// Lends memory for values to send.
    pub fn lend(&mut self, spares: Vec<Arc<Vec<f32>>>) {
        self.spares.extend(spares);
    }

    /// Sums the last keys first, those from `trained` on at the end: the order in which the layers
    /// of a gradient are computed. All ranks must do so.
    #[must_use]
    pub fn by_layers(mut self, trained: usize) -> Self {
        self.pieces.sort_by_key(|piece| (piece.keys.end > trained, Reverse(piece.keys.start)));
        self
    }

    /// Begins with the rank's own values, which are summed `factor` times. Values that were
    /// [given](Self::give) before are not given again.
    ///
    /// # Panics
    /// If it has begun already, or the number of values is another.
    pub fn begin(&mut self, own: Vec<f32>, factor: f32, out: &mut Vec<Outgoing>) {
        let len = self.pieces.iter().map(|piece| piece.keys.end).max();
        assert!(len.is_none_or(|len| len == own.len()), "{} values, of {len:?}", own.len());
        let gaps: Vec<KeyRange> = match (&self.own, KeyRange::new(0, own.len() as u64)) {
            (Some(Own { came: Some(came), .. }), Ok(all)) => came.gaps(all).collect(),
            _ => {
                let own = Own { values: own, factor, is_absent: false, came: None };
                return self.begin_with(own, out);
            }
        };
        for keys in gaps {
            self.take(keys, &own[keys.indices()], factor, own.len());
        }
        self.own.iter_mut().for_each(|own| own.came = None);
        self.advance_all(out);
    }

    /// Takes some of the rank's own values, of `len`, before the others are there, unless some of
    /// them were given before.
    pub fn give(
        &mut self,
        keys: KeyRange,
        values: &[f32],
        (factor, len): (f32, usize),
        out: &mut Vec<Outgoing>,
    ) {
        if self.pieces.is_empty() {
            return; // the only rank
        }
        self.take(keys, values, factor, len);
        self.advance_all(out);
    }

    fn take(&mut self, keys: KeyRange, values: &[f32], factor: f32, len: usize) {
        let own = self.own.get_or_insert_with(|| {
            let came = Some(Coverage::default());
            Own { values: vec![0.0; len], factor, is_absent: false, came }
        });
        if !own.came.as_mut().is_some_and(|came| came.add(keys)) {
            return; // of a computation that was ordered twice, or late
        }
        let place = &mut own.values[keys.indices()];
        place.copy_from_slice(values);
        if let Precision::Sixteen(format) = self.precision {
            place
                .iter_mut()
                .for_each(|value| *value = format.decode(format.encode(*value * factor)));
            own.factor = 1.0;
        }
    }

    /// Begins without values of the rank's own: it passes on the values of others, and nothing
    /// where there are none.
    ///
    /// # Panics
    /// If it has begun already.
    pub fn begin_without(&mut self, len: usize, out: &mut Vec<Outgoing>) {
        let own = Own { values: vec![0.0; len], factor: 1.0, is_absent: true, came: None };
        self.begin_with(own, out);
    }

    fn begin_with(&mut self, mut own: Own, out: &mut Vec<Outgoing>) {
        assert!(self.own.is_none(), "the reduction has begun");
        let factor = own.factor;
        if self.pieces.is_empty() {
            own.values.iter_mut().for_each(|value| *value *= factor); // the only rank
        } else if let Precision::Sixteen(format) = self.precision {
            // In some programs a rank sends its own values before it adds them.
            let round = |value: &mut f32| *value = format.decode(format.encode(*value * factor));
            own.values.iter_mut().for_each(round);
            own.factor = 1.0;
        }
        self.own = Some(own);
        self.advance_all(out);
    }

    /// Goes on with all pieces that own values have let go on.
    fn advance_all(&mut self, out: &mut Vec<Outgoing>) {
        // Others may have sent values of pieces that they begin.
        for piece in 0..self.pieces.len() {
            if !self.pieces[piece].starts_here() {
                self.advance(piece, out);
            }
        }
        self.begin_pieces(out);
    }

    /// Begins as many pieces as may be in flight.
    fn begin_pieces(&mut self, out: &mut Vec<Outgoing>) {
        while let Some(piece) = self.pieces.get(self.begun) {
            let index = self.begun;
            if piece.starts_here() {
                if !self.own.as_ref().is_some_and(|own| own.has(&piece.keys)) {
                    return; // all ranks begin pieces in this order
                }
                // One at least, even if it is larger.
                if self.flight > 0 && self.flight + piece.keys.len() > self.most_flight {
                    return;
                }
                self.flight += piece.keys.len();
            }
            self.begun += 1;
            self.advance(index, out);
        }
    }

    /// Receives values.
    ///
    /// # Errors
    /// [`ReductionError`] if the sender had not to send them.
    pub fn receive(
        &mut self,
        from: Rank,
        piece: u32,
        values: Arc<Vec<f32>>,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), ReductionError> {
        let pieces = self.pieces.len();
        let index = piece as usize;
        let Some(it) = self.pieces.get_mut(index) else {
            return Err(ReductionError::Piece { piece, pieces });
        };
        let (wanted, given) = (self.precision.words(it.keys.len()), values.len());
        if given != 0 && given != wanted {
            return Err(ReductionError::Length { piece, wanted, given });
        }
        let is_from = |op: &&Op| matches!(op, Op::Take(rank) | Op::Add(rank) if *rank == from);
        let due = it.program[it.next..].iter().filter(is_from).count();
        let here = it.arrived.iter().filter(|(rank, _)| *rank == from).count();
        if here >= due {
            return Err(ReductionError::Unexpected { piece });
        }
        it.arrived.push((from, values));
        self.advance(index, out);
        if self.own.is_some() {
            self.begin_pieces(out);
        }
        Ok(())
    }

    /// The ranks whose values it still waits for, in order.
    #[must_use]
    pub fn awaited(&self) -> BTreeSet<Rank> {
        self.pieces.iter().flat_map(Piece::awaited).collect()
    }

    /// True if all sums are here.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.open == 0 && self.own.is_some()
    }

    /// True if some of the rank's own values are here, and others are awaited.
    #[must_use]
    pub fn is_given_in_part(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.came.is_some())
    }

    /// The sums, and memory to [lend](Self::lend) to the next reduction. The rank's own values if
    /// the sums are not all here.
    #[must_use]
    pub fn into_parts(self) -> (Vec<f32>, Vec<Arc<Vec<f32>>>) {
        (self.own.map(|own| own.values).unwrap_or_default(), self.spares)
    }

    /// Memory that the reduction does not need: of values that were received and used.
    pub fn excess(&mut self) -> impl Iterator<Item = Arc<Vec<f32>>> + '_ {
        self.spares.drain(self.most_spares.min(self.spares.len())..)
    }

    /// Runs the program of a piece as far as possible.
    fn advance(&mut self, piece: usize, out: &mut Vec<Outgoing>) {
        let Self { own: Some(own), precision, pieces, open, begun, flight, spares, .. } = self
        else {
            return; // values of others wait for the own ones
        };
        let (index, it) = (piece as u32, &mut pieces[piece]);
        if it.starts_here() && piece >= *begun {
            return;
        }
        while let Some(op) = it.program.get(it.next) {
            match *op {
                Op::Own | Op::AddOwn if !own.has(&it.keys) => return, // being computed
                Op::Own => it.value = own.piece(it.keys.clone(), spares),
                Op::AddOwn if own.is_absent => {}
                Op::AddOwn if it.value.is_empty() => {
                    it.value = own.piece(it.keys.clone(), spares);
                }
                Op::AddOwn => {
                    let keys = it.keys.clone();
                    own.add_to(it.changed(spares), keys);
                }
                Op::Send(to) => {
                    let values = it.outgoing(*precision, spares);
                    let content = Content::Values(values);
                    out.push(Outgoing { to, piece: index, content });
                }
                Op::Take(from) | Op::Add(from) => {
                    let Some(place) = it.arrived.iter().position(|(rank, _)| *rank == from) else {
                        return; // on its way
                    };
                    let (_, values) = it.arrived.remove(place);
                    let used = match op {
                        Op::Add(_) if values.is_empty() => values,
                        Op::Add(_) if !it.value.is_empty() => {
                            it.add(*precision, &values, spares);
                            values
                        }
                        _ => it.replace(*precision, values, spares),
                    };
                    keep(spares, used);
                }
            }
            it.next += 1;
            if it.next == it.program.len() {
                if let Precision::Sixteen(_) = precision {
                    // A rank that has sent the sum has rounded it; so do the others.
                    let _sent = it.outgoing(*precision, spares);
                    keep(spares, it.packed.take().unwrap_or_default());
                }
                let sum = &mut own.values[it.keys.clone()];
                match it.value.is_empty() {
                    true => sum.fill(0.0),
                    false => sum.copy_from_slice(&it.value),
                }
                keep(spares, core::mem::take(&mut it.value));
                *open -= 1;
                if it.starts_here() {
                    *flight -= it.keys.len();
                }
            }
        }
    }
}

impl Piece {
    fn new(keys: Range<usize>, program: Arc<[Op]>) -> Self {
        let (value, packed) = (Arc::default(), None);
        Self { keys, program, next: 0, value, packed, arrived: Vec::new() }
    }

    /// The value, which is about to change.
    fn changed(&mut self, spares: &mut Vec<Arc<Vec<f32>>>) -> &mut Vec<f32> {
        keep(spares, self.packed.take().unwrap_or_default());
        Arc::make_mut(&mut self.value)
    }

    /// The value as it is sent; it is rounded to that.
    fn outgoing(&mut self, precision: Precision, spares: &mut Vec<Arc<Vec<f32>>>) -> Arc<Vec<f32>> {
        let Self { value, packed, .. } = self;
        let format = match precision {
            Precision::Sixteen(format) if !value.is_empty() => format,
            _ => return Arc::clone(value),
        };
        Arc::clone(packed.get_or_insert_with(|| {
            let mut words = unshared(spares);
            let value: &mut Vec<f32> = Arc::make_mut(value);
            pack(format, value, Arc::make_mut(&mut words));
            words
        }))
    }

    /// Adds received values.
    fn add(&mut self, precision: Precision, values: &[f32], spares: &mut Vec<Arc<Vec<f32>>>) {
        let sum = self.changed(spares);
        match precision {
            Precision::Single => add(sum, values),
            Precision::Sixteen(format) => unpack(format, values, sum, |sum, value| *sum += value),
        }
    }

    /// Takes received values in place of the value; returns the memory of the old one.
    fn replace(
        &mut self,
        precision: Precision,
        values: Arc<Vec<f32>>,
        spares: &mut Vec<Arc<Vec<f32>>>,
    ) -> Arc<Vec<f32>> {
        let format = match precision {
            Precision::Sixteen(format) if !values.is_empty() => format,
            _ => return core::mem::replace(&mut self.value, values),
        };
        let len = self.keys.len();
        let place = self.changed(spares);
        place.resize(len, 0.0);
        unpack(format, &values, place, |place, value| *place = value);
        self.packed.replace(values).unwrap_or_default()
    }

    /// The ranks that send it values, which have not arrived.
    fn awaited(&self) -> impl Iterator<Item = Rank> + '_ {
        let has_arrived = |from: &Rank| self.arrived.iter().any(|(rank, _)| rank == from);
        let due = self.program[self.next..].iter().filter_map(|op| match op {
            Op::Take(from) | Op::Add(from) => Some(*from),
            Op::Own | Op::AddOwn | Op::Send(_) => None,
        });
        due.filter(move |from| !has_arrived(from))
    }

    /// True if the rank does not wait for another one before it sends.
    fn starts_here(&self) -> bool {
        matches!(self.program.first(), Some(Op::Own))
    }
}

impl Own {
    /// True if the values of `keys` are here.
    fn has(&self, keys: &Range<usize>) -> bool {
        let Some(came) = &self.came else { return true };
        let keys = KeyRange::new(keys.start as u64, keys.end as u64);
        keys.is_ok_and(|keys| came.gaps(keys).next().is_none())
    }

    /// The values of a piece, to be summed; nothing if the rank has no part in the sum.
    fn piece(&self, keys: Range<usize>, spares: &mut Vec<Arc<Vec<f32>>>) -> Arc<Vec<f32>> {
        if self.is_absent {
            return Arc::default();
        }
        let mut piece = unshared(spares);
        let factor = self.factor;
        let values: &mut Vec<f32> = Arc::make_mut(&mut piece);
        values.clear();
        values.extend(self.values[keys].iter().map(|value| value * factor));
        piece
    }

    /// Adds the values of a piece to `sum`.
    fn add_to(&self, sum: &mut [f32], keys: Range<usize>) {
        for (sum, value) in sum.iter_mut().zip(&self.values[keys]) {
            *sum += self.factor * value;
        }
    }
}

/// The most values that one of `ranks` has begun to sum and has not summed.
pub(super) fn most_begun(ranks: u32) -> usize {
    MOST_BEGUN_HERE.min(MOST_BEGUN / ranks.max(1) as usize)
}

/// The most values of a piece of a vector of `len` values.
pub(crate) fn most_of_piece(len: usize) -> usize {
    (len / PIECES).clamp(SHORT_PIECE, LONG_PIECE)
}

/// Memory that is not being sent any more.
fn unshared(spares: &mut Vec<Arc<Vec<f32>>>) -> Arc<Vec<f32>> {
    let mut spare = spares.pop().unwrap_or_default();
    if Arc::get_mut(&mut spare).is_none() {
        spare = Arc::default();
    }
    spare
}

fn keep(spares: &mut Vec<Arc<Vec<f32>>>, used: Arc<Vec<f32>>) {
    if used.capacity() > 0 {
        spares.push(used);
    }
}

pub(super) fn add(sum: &mut [f32], values: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += value;
    }
}
