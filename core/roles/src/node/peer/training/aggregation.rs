//! Packets to the meeting point, which adds up gradients, and its sums.

use super::{Stage, Training};
use crate::node::peer::{Joined, Peer, joined};
use crate::node::{Effect, NodeError, Outbox};
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::peers::Packet;

impl Peer {
    /// Sends the meeting point the packets that are due, if there is a connection.
    pub(super) fn send_packets(&mut self, now: Time, out: &mut Outbox) {
        let generation = self.links.generation();
        let Some(meeting) = self.meeting() else { return };
        let Joined { training, .. } = joined(&mut self.member);
        let Stage::Stepping(step) = &mut training.stage else { return };
        for packet in step.combining.packets() {
            step.bytes += (packet.values.len() * size_of::<i32>()) as u64;
            self.dialler.sent(now);
            let packet = Message::Packet(Packet::new(generation, packet));
            out.push(Effect::Send(meeting, packet));
        }
    }

    /// The meeting point has added up the packets of all members.
    pub(in crate::node::peer) fn on_sum(&mut self, now: Time, sum: Packet, out: &mut Outbox) {
        if sum.header.generation != self.links.generation() {
            return; // of an earlier group
        }
        let Some(training) = self.training() else { return };
        training.receives((sum.values.len() * size_of::<i32>()) as u64);
        let Stage::Stepping(step) = &mut training.stage else {
            return; // repeated after a reconnect
        };
        match step.combining.receive_sum(&sum.into_packet()) {
            Ok(()) => self.go_on(now, out),
            Err(error) => {
                let what = alloc::format!("a sum: {error}");
                self.finish(Err(NodeError::Protocol(what)), out);
            }
        }
    }

    /// Repeats the packets that were not answered: a connection that breaks loses messages.
    pub(in crate::node::peer) fn repeat_packets(&mut self, now: Time, out: &mut Outbox) {
        if let Some(Training { stage: Stage::Stepping(step), .. }) = self.training() {
            step.combining.repeat();
            self.send_packets(now, out);
        }
    }
}
