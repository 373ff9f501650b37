//! What goes into a link comes out of it: whole, in order, and all of it before the hang-up.

use std::collections::BTreeMap;

use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_wire::Message;

/// Holds what reaches the server against what the workers sent.
///
/// Every method panics if something is not as it must be.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// What each worker sent over one connection after another; each begins with a hello.
    sent: BTreeMap<WorkerId, Vec<Vec<Message>>>,
    heard: BTreeMap<PeerId, Heard>,
}

/// What came over a connection.
#[derive(Debug)]
struct Heard {
    worker: WorkerId,
    /// The connections as which their worker may know this one: a server that did not take a
    /// hello leaves no trace of it.
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

    /// The server heard that a connection is gone.
    pub(crate) fn hung_up(&self, peer: PeerId, why: &str) {
        let Some(heard) = self.heard.get(&peer) else { return };
        if why == "connection reset" {
            return; // what was under way is lost
        }
        let sent = &self.sent[&heard.worker];
        let all = heard.candidates.iter().any(|&candidate| sent[candidate].len() == heard.messages);
        assert!(all, "{} hung up, but not all that it had sent came", heard.worker);
    }
}
