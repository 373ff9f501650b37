//! The meeting point as the aggregator of in-network aggregation.

use super::Meeting;
use crate::node::{Effect, Outbox};
use pstrain_compute::id::WorkerId;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::in_network::{Aggregator, Answer, Layout, PacketError};
use pstrain_wire::Message;
use pstrain_wire::peers::{Packet, PacketHeader};

impl Meeting {
    /// The aggregator of the group that is formed; none in other architectures.
    pub(super) fn new_aggregator(&self) -> Option<Aggregator> {
        let Architecture::InNetwork { slots, values } = self.job.architecture else { return None };
        let layout = Layout::new(self.parameters as usize, slots, values);
        Some(Aggregator::new(layout, self.group.ranked().count() as u32))
    }

    /// True if a packet adds to a sum. Others are repetitions, which are limited in number.
    pub(super) fn awaits(&self, worker: WorkerId, packet: &PacketHeader) -> bool {
        let PacketHeader { generation, slot, turn, .. } = *packet;
        let rank = self.group.rank(worker, generation);
        let aggregator = self.aggregator.as_ref();
        rank.zip(aggregator).is_some_and(|(rank, aggregator)| aggregator.awaits(rank, slot, turn))
    }

    /// Adds a packet of a member up, and sends the sum once it is complete.
    pub(super) fn on_packet(
        &mut self,
        worker: WorkerId,
        packet: Packet,
        out: &mut Outbox,
    ) -> Result<(), PacketError> {
        let generation = packet.header.generation;
        // A group that is halted, or is no more, needs no sums.
        let Some(rank) = self.group.rank(worker, generation) else { return Ok(()) };
        // Other architectures have no packets.
        let Some(aggregator) = &mut self.aggregator else { return Ok(()) };
        let (sum, to) = match aggregator.take(rank, packet.into_packet())? {
            Answer::Nothing => return Ok(()),
            Answer::All(sum) => (sum, None),
            Answer::Sender(sum) => (sum, Some(worker)),
        };
        let sum = Message::Packet(Packet::new(generation, sum));
        // A member without a connection repeats its packet once it has one.
        let members = self.group.members().filter(|member| to.is_none_or(|to| to == *member));
        let peers = members.filter_map(|member| self.slots[member].peer);
        out.extend(peers.map(|peer| Effect::Send(peer, sum.clone())));
        Ok(())
    }
}
