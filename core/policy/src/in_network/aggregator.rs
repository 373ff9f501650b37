//! The aggregator: slots in which packets are added up.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::{Exponent, Layout, Packet};
use crate::collective::Rank;

/// The aggregator of a group of workers.
#[derive(Debug)]
pub struct Aggregator {
    layout: Layout,
    ranks: u32,
    slots: Vec<Slot>,
}

/// A slot: its turns with even and with odd numbers.
#[derive(Clone, Debug)]
struct Slot {
    turns: [Turn; 2],
}

/// The last turn with an even, or an odd, number.
#[derive(Clone, Debug, Default)]
struct Turn {
    /// The number; none before the first turn.
    number: Option<u64>,
    /// The ranks whose packets have come, and their number.
    seen: Vec<bool>,
    count: u32,
    sum: Arc<Vec<i32>>,
    next: Exponent,
}

/// Whom a packet is answered to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No worker: packets are missing, or this one has come before.
    Nothing,
    /// The sum is there, for all.
    All(Packet),
    /// The sum was sent before, and its sender has not got it.
    Sender(Packet),
}

/// A packet that a worker had not to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// There is no such slot.
    #[error("it sent a packet for slot {slot}, of {slots}")]
    Slot {
        /// The index of the slot.
        slot: u32,
        /// The number of slots.
        slots: u32,
    },
    /// The packet has other values than its turn.
    #[error("it sent {given} values in turn {turn} of slot {slot}, which has {wanted}")]
    Length {
        /// The index of the slot.
        slot: u32,
        /// The number of the turn.
        turn: u64,
        /// The values that the turn has.
        wanted: usize,
        /// The values that were sent.
        given: usize,
    },
    /// The turn before is not over.
    #[error("it sent a packet of turn {turn} of slot {slot}, whose turn before is not over")]
    Early {
        /// The index of the slot.
        slot: u32,
        /// The number of the turn.
        turn: u64,
    },
}

impl Aggregator {
    /// An aggregator of `ranks` workers, before the first turn.
    #[must_use]
    pub fn new(layout: Layout, ranks: u32) -> Self {
        let turn = Turn { seen: vec![false; ranks as usize], ..Turn::default() };
        let slot = Slot { turns: [turn.clone(), turn] };
        Self { layout, ranks, slots: vec![slot; layout.slots() as usize] }
    }

    /// True if a rank has not sent a packet of a turn yet.
    #[must_use]
    pub fn awaits(&self, from: Rank, slot: u32, turn: u64) -> bool {
        self.slots.get(slot as usize).is_some_and(|slot| {
            let last = &slot.turns[(turn % 2) as usize];
            Some(turn) > last.number || Some(turn) == last.number && !last.seen[from as usize]
        })
    }

    /// Takes a packet of a worker.
    ///
    /// # Errors
    /// [`PacketError`] if the worker had not to send it.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn take(&mut self, from: Rank, packet: Packet) -> Result<Answer, PacketError> {
        let Packet { slot, turn: number, next, values } = packet;
        let slots = self.layout.slots();
        let Some(its) = self.slots.get_mut(slot as usize) else {
            return Err(PacketError::Slot { slot, slots });
        };
        if Some(number) < its.turns[(number % 2) as usize].number {
            return Ok(Answer::Nothing);
        }
        let (wanted, given) = (self.layout.chunk(slot, number).len(), values.len());
        if wanted != given {
            return Err(PacketError::Length { slot, turn: number, wanted, given });
        }
        if !its.begin(number, self.ranks) {
            return Err(PacketError::Early { slot, turn: number });
        }
        let turn = &mut its.turns[(number % 2) as usize];
        let is_known = core::mem::replace(&mut turn.seen[from as usize], true);
        if !is_known {
            turn.add(values, next);
        }
        Ok(match turn.count == self.ranks {
            true if is_known => Answer::Sender(turn.packet(slot, number)),
            true => Answer::All(turn.packet(slot, number)),
            false => Answer::Nothing,
        })
    }
}

impl Slot {
    /// Begins a turn if it is the next one. Returns true if it has begun.
    fn begin(&mut self, number: u64, ranks: u32) -> bool {
        let [even, odd] = &mut self.turns;
        let (turn, other) = if number.is_multiple_of(2) { (even, odd) } else { (odd, even) };
        if turn.number == Some(number) {
            return true;
        }
        // Then all workers have the sum of the turn that is replaced.
        let is_next = other.number == number.checked_sub(1);
        if !is_next || number > 0 && other.count < ranks {
            return false;
        }
        turn.number = Some(number);
        turn.seen.fill(false);
        (turn.count, turn.next) = (0, Exponent::ZERO);
        true
    }
}

impl Turn {
    fn add(&mut self, values: Arc<Vec<i32>>, next: Exponent) {
        self.next = self.next.max(next);
        self.count += 1;
        if self.count == 1 {
            self.sum = values;
            return;
        }
        let sum: &mut Vec<i32> = Arc::make_mut(&mut self.sum);
        for (sum, value) in sum.iter_mut().zip(values.iter()) {
            // The values of a worker in error may exceed their exponent.
            *sum = sum.wrapping_add(*value);
        }
    }

    fn packet(&self, slot: u32, turn: u64) -> Packet {
        Packet { slot, turn, next: self.next, values: Arc::clone(&self.sum) }
    }
}
