//! The standby's side of the stream: receives it entry by entry and applies it.
//!
//! Some entries count only as a group: a push without values needs the update that it became part
//! of. The standby applies none of a group before its last entry arrives; if it loses its primary
//! before that, it has none of them.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::fail;
use super::standby::Standby;
use crate::node::{Effect, Event, Input, NodeError, Outbox, decode_input};
use pstrain_compute::filter::Encoded;
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::replica::{Combined, Entry, EntryKind, Shape};
use pstrain_wire::worker::Push;

/// A group of entries that count only together, as far as received.
#[derive(Debug, Default)]
pub(super) struct EntryGroup {
    entries: Vec<Entry>,
    combined: VecDeque<Combined>,
    /// A vector of zeros in place of the values of bare pushes, kept while their size is the same.
    zeros: Arc<Vec<f32>>,
}

impl EntryGroup {
    /// True if no received entry waits for the rest of its group.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.combined.is_empty()
    }
}

impl Standby {
    pub(super) fn on_combined(&mut self, combined: Combined) {
        self.together.combined.push_back(combined);
    }

    pub(super) fn on_entry(&mut self, now: Time, entry: Entry, out: &mut Outbox) {
        let header = &entry.header;
        let entries = self.copy.as_ref().map(|copy| copy.entries);
        let next = entries.map(|entries| entries + self.together.entries.len() as u64);
        if next.is_none_or(|next| header.number > next) {
            return self.redial(now, String::from("something is missing in its stream"), out);
        }
        if header.term < self.latest {
            // Sent before the primary knew which term this standby has asked for.
            return self.redial(now, String::from("it leads in an earlier term"), out);
        }
        self.latest = header.term;
        self.found_again(out);
        let (number, settled, is_last) =
            (header.number, header.settled, header.last <= header.number);
        // An earlier entry is a repetition after a reconnect.
        if Some(number) == next {
            self.together.entries.push(entry);
            if !is_last {
                return;
            }
            if let Err(what) = self.follow_all(now, out) {
                return fail(NodeError::Protocol(what), out);
            }
        }
        // Of the lists that both have, only the last counts.
        while self.electorates.get(1).is_some_and(|(number, _)| *number < settled) {
            self.electorates.pop_front();
        }
        self.owed_since.get_or_insert(now);
    }

    /// The primary leads: cancels the election and refuses the waiting workers.
    fn found_again(&mut self, out: &mut Outbox) {
        self.dialler.welcomed();
        self.damage.progressed();
        if self.lost.take().is_none() {
            return;
        }
        self.election = None;
        let refusal = self.not_leading();
        for (peer, _) in core::mem::take(&mut self.attending) {
            out.push(Effect::Send(peer, Message::Refused(refusal.clone())));
            out.push(Effect::Close(peer));
        }
    }

    /// Applies the complete group of entries.
    fn follow_all(&mut self, now: Time, out: &mut Outbox) -> Result<(), String> {
        let EntryGroup { entries, combined, mut zeros } = core::mem::take(&mut self.together);
        if let Some(copy) = &mut self.copy {
            copy.server.apply_combined(combined);
        }
        for Entry { header, input } in entries {
            self.term = header.term;
            match header.kind {
                EntryKind::Input => self.follow(now, header.sent, decoded(&input)?, out),
                EntryKind::Bare(shape) => {
                    let (at, mut input) = decoded(&input)?;
                    if let Input::Message(_, Message::Push(push)) = &mut input {
                        self.fill(push, shape, &mut zeros)?;
                    }
                    self.follow(now, header.sent, (at, input), out);
                }
                EntryKind::Electorate(electorate) => {
                    self.electorates.push_back((header.number, electorate));
                }
                EntryKind::Paired(electorate) => {
                    self.electorates = [(header.number, electorate)].into();
                    self.paired = true;
                    let address = self.config.address.clone();
                    out.push(Effect::Report(Event::StandbyJoined { address }));
                }
            }
            self.copy.iter_mut().for_each(|copy| copy.entries += 1);
        }
        self.together.zeros = zeros;
        let left = self.copy.as_mut().map_or(0, |copy| copy.server.left());
        if left > 0 {
            let what = "it combined gradients of updates that are not made here";
            return Err(String::from(what));
        }
        Ok(())
    }

    /// Fills a bare push with zeros: the primary has validated the push, and its values are not
    /// needed, since the combined gradient was sent or the push was dropped.
    fn fill(
        &self,
        push: &mut Push,
        shape: Option<Shape>,
        zeros: &mut Arc<Vec<f32>>,
    ) -> Result<(), String> {
        let keys = usize::try_from(push.header.keys.len()).unwrap_or(usize::MAX);
        let bytes = shape.as_ref().map_or(0, |shape| shape.bytes);
        let most = self.parameters;
        if !self.is_coordinator() {
            return Err(String::from("it sent a push without values to a server that needs them"));
        }
        if keys > most || bytes > (most * size_of::<f32>()) as u64 {
            return Err(String::from("it sent a push of more values than there are parameters"));
        }
        if zeros.len() != keys {
            *zeros = Arc::new(vec![0.0; keys]);
        }
        push.gradient = Arc::clone(zeros);
        push.encoded = shape.map(|Shape { form, bytes }| {
            Arc::new(Encoded { form, bytes: vec![0; bytes as usize] })
        });
        Ok(())
    }

    /// Applies an input of the primary, which sent it at the stream's time `sent`.
    fn follow(&mut self, now: Time, sent: Time, (at, input): (Time, Input), out: &mut Outbox) {
        let Some(copy) = &mut self.copy else { unreachable!("entries follow a state") };
        copy.clock = (now, at);
        let mut effects = Outbox::new();
        copy.server.handle(at, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Report(mut event) => {
                    event.is_told_later(sent.since(at));
                    event.translate(|_| None);
                    out.push(Effect::Report(event));
                }
                Effect::Done(Ok(reason)) => self.over = Some((now, reason)),
                Effect::Pause => out.push(Effect::Pause),
                // The primary executes the effect; effects still unanswered are repeated once this
                // standby leads.
                _ => {}
            }
        }
    }
}

fn decoded(input: &[u8]) -> Result<(Time, Input), String> {
    decode_input(input).map_err(|error| error.to_string())
}
