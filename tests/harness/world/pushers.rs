//! Clients of a world that push values for a key range, most of them correctly.

use pstrain_compute::id::PeerId;
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::Stream;
use pstrain_roles::node::{Event, Input};
use pstrain_wire::Message;
use pstrain_wire::range::{PartDue, PushRange, PushRule, RangePart};

use super::World;
use super::links::{End, Item};
use crate::toy::all_keys;

impl World<'_> {
    /// Starts a client that pushes values for some keys, which may exceed the model's.
    pub(super) fn push_some(&mut self) {
        let all = all_keys(self.server.job()).len();
        let begin = self.rng.below(all + 1);
        let end = begin + 1 + self.rng.below(all);
        let end = if self.percent(95) { end.min(all) } else { end };
        let keys = KeyRange::new(begin, end).ok().filter(|_| self.percent(60));
        let how = if self.percent(50) { PushRule::Add } else { PushRule::Set };
        self.push(keys, how);
    }

    fn push(&mut self, keys: Option<KeyRange>, how: PushRule) {
        let push = PushRange { protocol_max: 1, keys, how };
        self.connect(None, None);
        self.send(self.links.len() - 1, End::Server, Item::Message(Message::PushRange(push)));
    }

    /// Starts a client once the version after which one is to push has been made.
    pub(super) fn push_if_due(&mut self, events: &[Event]) {
        let Some((after, how)) = self.settings.push else { return };
        let is_due =
            |event: &Event| matches!(event, Event::Updated { point, .. } if point.version == after);
        if events.iter().any(is_due) {
            self.push(None, how);
        }
    }

    /// Lets a client handle a message of the server.
    pub(super) fn client_heard(&mut self, link: usize, item: Item) {
        let Item::Message(Message::PartDue(due)) = item else { return };
        let orderly = self.settings.push.is_some();
        match if orderly { 99 } else { self.rng.below(100) } {
            0..5 => self.close(link, End::Worker),
            // The client falls silent.
            5..10 => {}
            chance => {
                let part = self.part(due, chance);
                self.send(link, End::Server, Item::Message(Message::RangePart(part)));
            }
        }
    }

    /// Returns the values of a part; a few are invalid.
    fn part(&self, due: PartDue, chance: u64) -> RangePart {
        let PartDue { part, .. } = due;
        let mut rng = Stream::new(self.settings.network).fork("pushed", chance).rng();
        let mut values: Vec<f32> = (0..part.len())
            .map(|_| if rng.below(2) == 0 { 0.0 } else { rng.below(33) as f32 / 8.0 - 2.0 })
            .collect();
        match chance {
            10..13 => values[0] = [f32::NAN, f32::INFINITY][chance as usize % 2],
            13..16 => {
                let other = KeyRange::new(part.begin() + 1, part.end() + 1);
                return RangePart::new(other.unwrap_or(part), &values);
            }
            _ => {}
        }
        RangePart::new(part, &values)
    }

    /// Tells the checker what clients that push send to the server.
    pub(super) fn note_pushes(&mut self, input: &Input) {
        match input {
            Input::Message(peer, Message::PushRange(_)) => self.checker.pushes(self.now, *peer),
            Input::Message(peer, Message::RangePart(_)) => self.checker.pushed(*peer),
            _ => {}
        }
    }

    /// Checks the results that clients received against the events of the same step.
    pub(super) fn check_pushed(&mut self, events: &[Event], told: &[(PeerId, Message)]) {
        for (peer, message) in told {
            if let Message::RangePushed(result) = message {
                self.checker.told(events, *peer, result);
            }
        }
    }
}
