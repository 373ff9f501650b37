//! A worker's part: it sends its chunks and receives their sums.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Exponent, Layout, Packet, PacketError};

/// One worker's part in the sum of vectors of all workers.
///
/// The only worker of a group sends nothing.
#[derive(Debug)]
pub struct Streaming {
    layout: Layout,
    ranks: u32,
    /// Turns of each slot begin at this number of vectors before.
    vectors: u64,
    /// The worker's own values, which the sums replace chunk by chunk.
    values: Option<Vec<f32>>,
    slots: Vec<Slot>,
    /// Packets to send.
    outgoing: VecDeque<Packet>,
}

/// A slot, as a worker sees it.
#[derive(Clone, Debug)]
struct Slot {
    /// The packet whose sum the worker awaits; none before the first one and after the last.
    awaited: Option<Packet>,
    /// The exponent of the chunk in that packet.
    exponent: Exponent,
}

impl Streaming {
    /// The part of a worker of `ranks`, which have added up `vectors` vectors before.
    #[must_use]
    pub fn new(layout: Layout, ranks: u32, vectors: u64) -> Self {
        let slots = if ranks > 1 { layout.slots() as usize } else { 0 };
        let slot = Slot { awaited: None, exponent: Exponent::ZERO };
        let slots = alloc::vec![slot; slots];
        Self { layout, ranks, vectors, values: None, slots, outgoing: VecDeque::new() }
    }

    /// Begins with the worker's own values, which are summed `factor` times.
    ///
    /// # Panics
    /// If it has begun already, or the number of values is another.
    pub fn begin(&mut self, mut values: Vec<f32>, factor: f32) {
        assert!(self.values.is_none(), "the aggregation has begun");
        assert_eq!(values.len(), self.layout.vector_len(), "values of the layout");
        values.iter_mut().for_each(|value| *value *= factor);
        for (slot, its) in (0..).zip(&mut self.slots) {
            let turn = self.layout.turns(slot) * self.vectors;
            let next = Exponent::of(&values[self.layout.chunk(slot, turn + 1)]);
            let packet = Packet { slot, turn, next, values: Arc::default() };
            its.awaited = Some(packet.clone());
            self.outgoing.push_back(packet);
        }
        self.values = Some(values);
    }

    /// Receives a sum. One that has come before is ignored.
    ///
    /// # Errors
    /// [`PacketError`] if its number of values is not the one of its turn.
    pub fn receive(&mut self, sum: &Packet) -> Result<(), PacketError> {
        let (layout, ranks) = (self.layout, self.ranks);
        let Packet { slot, turn, next, values: sums } = sum;
        let (slot, turn) = (*slot, *turn);
        let its = self.slots.get_mut(slot as usize);
        let its = its.filter(|it| it.awaited.as_ref().is_some_and(|it| it.turn == turn));
        let (Some(its), Some(values)) = (its, &mut self.values) else { return Ok(()) };
        let chunk = layout.chunk(slot, turn);
        let (wanted, given) = (chunk.len(), sums.len());
        if wanted != given {
            return Err(PacketError::Length { slot, turn, wanted, given });
        }
        for (value, sum) in values[chunk].iter_mut().zip(its.exponent.to_values(sums, ranks)) {
            *value = sum;
        }
        let turn = turn + 1;
        let chunk = layout.chunk(slot, turn);
        if chunk.is_empty() {
            its.awaited = None; // the next vector begins
            return Ok(());
        }
        its.exponent = *next;
        let integers = Arc::new(its.exponent.to_integers(&values[chunk], ranks));
        let next = Exponent::of(&values[layout.chunk(slot, turn + 1)]);
        let packet = Packet { slot, turn, next, values: integers };
        its.awaited = Some(packet.clone());
        self.outgoing.push_back(packet);
        Ok(())
    }

    /// The packets to send now.
    pub fn packets(&mut self) -> impl Iterator<Item = Packet> + '_ {
        self.outgoing.drain(..)
    }

    /// Repeats all packets whose sums have not come: a connection has broken.
    pub fn repeat(&mut self) {
        self.outgoing = self.slots.iter().filter_map(|slot| slot.awaited.clone()).collect();
    }

    /// True if all sums are here.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.values.is_some() && self.slots.iter().all(|slot| slot.awaited.is_none())
    }

    /// The sums; the worker's own values where they are not here.
    #[must_use]
    pub fn into_values(self) -> Vec<f32> {
        self.values.unwrap_or_default()
    }
}
