//! The environment of the nodes: addresses, effects that take time, restarts, observers.

use pstrain_compute::id::{PartId, PeerId};
use pstrain_compute::time::Time;
use pstrain_roles::node::{Effect, Input, NodeError, Target};
use pstrain_wire::Message;
use pstrain_wire::worker::{EndReason, ExamplesChunk};

use super::ProcessId;
use crate::scenario::Fault;

/// Consequences of a node that has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The process exits, and its connections close.
    Process,
    /// The run has ended: no node receives anything any more.
    Run,
}

/// The roles of the nodes of a simulation, as far as the simulation depends on them.
///
/// Each method has a default, for nodes that do not need it. Messages, connections, deadlines and
/// [`Effect::SendStatus`] are the simulation's own.
pub trait Environment<N> {
    /// The process at an address that `from` dials; none if there is no such address.
    fn resolve(&mut self, _from: ProcessId, _node: &N, _target: &Target) -> Option<ProcessId> {
        None
    }

    /// Carries out an effect that concerns no connection. Returns the inputs that answer it, and
    /// when each reaches the node.
    fn perform(&mut self, _now: Time, _process: ProcessId, _effect: Effect) -> Vec<(Time, Input)> {
        Vec::new()
    }

    /// Rows of a part of the data from row `from` on; none closes the connection that asked.
    fn examples(
        &mut self,
        _process: ProcessId,
        _part: PartId,
        _from: u64,
    ) -> Option<ExamplesChunk> {
        None
    }

    /// A node has finished.
    fn finished(&mut self, _process: ProcessId, _result: Result<EndReason, NodeError>) -> Ending {
        Ending::Process
    }

    /// The node of a process that starts after a crash; none if nothing starts. `life` counts the
    /// restarts of the process, this one included.
    fn restart(&mut self, _process: ProcessId, _life: u32) -> Option<N> {
        None
    }

    /// A restart has replaced a node.
    fn replaced(&mut self, _process: ProcessId, _old: N) {}

    /// A fault takes effect on a process now.
    fn struck(&mut self, _now: Time, _process: ProcessId, _node: &N, _fault: Fault) {}

    /// A node is about to handle an input.
    fn before(&mut self, _now: Time, _process: ProcessId, _node: &N, _input: &Input) {}

    /// A node has handled an input, and its effects have been carried out.
    fn after(&mut self, _now: Time, _process: ProcessId, _node: &N) {}

    /// A node sends a message.
    fn sends(&mut self, _now: Time, _process: ProcessId, _peer: PeerId, _message: &Message) {}

    /// A message from `from` is about to reach the node of `to`. True breaks the connection right
    /// after, which loses the answer.
    fn delivers(
        &mut self,
        _from: ProcessId,
        _to: ProcessId,
        _receiver: &N,
        _message: &Message,
    ) -> bool {
        false
    }

    /// A process has closed a connection, or learnt that it is closed.
    fn closed(&mut self, _process: ProcessId, _peer: PeerId) {}
}
