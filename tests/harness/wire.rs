//! Checker of links: messages arrive whole, in order, and all of them before the hang-up. Used by
//! `simulated`.

use std::collections::BTreeMap;

use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_wire::Message;

/// Compares what reaches the server with what the workers sent.
///
/// Every method panics if a check fails.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// Messages that each worker sent, by connection in order; each connection begins with a hello.
    sent: BTreeMap<WorkerId, Vec<Vec<Message>>>,
    heard: BTreeMap<PeerId, Heard>,
}

/// The messages that came over a connection.
#[derive(Debug)]
struct Heard {
    worker: WorkerId,
    /// The worker's connections that this one may be: a hello that the server did not take leaves
    /// no trace.
    candidates: Vec<usize>,
    messages: usize,
}

impl Wire {
    /// A worker sent a message.
    pub(crate) fn sent(&mut self, worker: WorkerId, message: &Message) {
        let connections = self.sent.entry(worker).or_default();
        if matches!(message, Message::Hello(_)) {
            connections.push(Vec::new());
        }
        let connection = connections.last_mut();
        connection
            .unwrap_or_else(|| panic!("{worker} begins with {message:?}"))
            .push(message.clone());
    }

    /// A message reached the server.
    pub(crate) fn arrived(&mut self, peer: PeerId, message: &Message) {
        let heard = match (self.heard.get_mut(&peer), message) {
            (Some(heard), _) => heard,
            (None, Message::Hello(hello)) => {
                let worker = hello.worker.unwrap_or_else(|| panic!("{hello:?} has no number"));
                let others = self.heard.values().filter(|heard| heard.worker == worker);
                let first = others.filter_map(|heard| heard.candidates.first()).max();
                let first = first.map_or(0, |other| other + 1);
                let candidates = (first..self.sent[&worker].len()).collect();
                let heard = Heard { worker, candidates, messages: 0 };
                self.heard.entry(peer).or_insert(heard)
            }
            (None, message) => panic!("a stranger begins with {message:?}"),
        };
        let sent = &self.sent[&heard.worker];
        let place = heard.messages;
        heard.candidates.retain(|&candidate| sent[candidate].get(place) == Some(message));
        heard.messages += 1;
        let worker = heard.worker;
        assert!(
            !heard.candidates.is_empty(),
            "{worker} did not send this, or not now: {message:?}"
        );
    }

    /// The server learned that a connection is gone.
    pub(crate) fn hung_up(&self, peer: PeerId, why: &str) {
        let Some(heard) = self.heard.get(&peer) else { return };
        if why == "connection reset" {
            return; // messages under way are lost
        }
        let sent = &self.sent[&heard.worker];
        let all = heard.candidates.iter().any(|&candidate| sent[candidate].len() == heard.messages);
        assert!(all, "{} hung up, but not all that it had sent came", heard.worker);
    }
}
