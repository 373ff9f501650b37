//! A server that crashes and begins anew with the inputs that were kept.

use pstrain_core::id::PeerId;
use pstrain_core::node::{Input, Node, Outbox, Server, decode_input, encode_input};

use super::World;
use super::links::End;

impl World<'_> {
    /// Keeps an input that the server is about to be handed, if it may crash.
    pub(super) fn keep(&mut self, input: &Input) {
        if self.settings.crashes == 0 {
            return;
        }
        let mut record = Vec::new();
        let payload = encode_input(self.now, input, &mut record).expect("an input of a server");
        record.extend_from_slice(payload.as_slice());
        self.log.push(record);
    }

    /// Whether the server crashes now.
    pub(super) fn crashes(&mut self) -> bool {
        self.settings.crashes > 0 && !self.calm && self.rng.below(1000) < self.settings.crashes
    }

    /// Puts one in the place of the server that was handed the same inputs, and closes all
    /// connections.
    pub(super) fn begin_anew(&mut self) {
        let mut server = Server::new(self.settings.job.clone(), 1).expect("a valid job");
        let mut out = Outbox::new();
        for record in &self.log {
            let (at, input) = decode_input(record).expect("what was kept");
            server.handle(at, input, &mut out);
            out.clear();
        }
        let same = format!("{server:?}") == format!("{:?}", self.server);
        assert!(same, "the same inputs made another server:\n{server:#?}\n{:#?}", self.server);
        self.server = server;
        self.crashed += 1;
        self.checker.began_anew(self.now);
        for link in 0..self.links.len() {
            let known = self.links[link].is_known(End::Server);
            if self.links[link].is_closed(End::Server) {
                continue;
            }
            self.close(link, End::Server);
            let peer = PeerId(link as u64);
            self.checker.closed(peer);
            self.checker.hung_up(peer);
            if known {
                let why = "the server began anew".to_owned();
                self.server_input(Input::Disconnected { peer, why }, None);
            }
        }
        self.server_input(Input::Overslept, None);
    }
}
