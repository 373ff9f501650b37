//! A server that crashes and begins anew with what was kept: its state at some time, and its inputs
//! since.

use std::time::Duration;

use pstrain_core::id::PeerId;
use pstrain_core::node::{Effect, Input, Node, Outbox, Server, decode_input, encode_input};
use pstrain_core::saved::Saved;

use super::links::End;
use super::{Entry, World};
use crate::checkers::Checker;

/// What is kept of a server.
#[derive(Debug, Default)]
pub(super) struct Kept {
    saved: Option<Saved>,
    inputs: Vec<Vec<u8>>,
    /// How often it was saved.
    pub(super) saves: u64,
    /// What had been seen of the server when it was saved last, if that is all that remains.
    seen: Option<(Checker, usize)>,
}

impl World<'_> {
    /// Keeps an input that the server is about to be handed, if it may crash.
    pub(super) fn keep(&mut self, input: &Input) {
        if self.settings.crashes == 0 {
            return;
        }
        let mut record = Vec::new();
        let payload = encode_input(self.now, input, &mut record).expect("an input of a server");
        record.extend_from_slice(payload.as_slice());
        self.kept.inputs.push(record);
    }

    /// Now and then, saves the server and puts the one restored in its place.
    pub(super) fn save(&mut self) {
        if !self.is_time_to_save() {
            return;
        }
        let before = format!("{:?}", self.server);
        let saved = self.server.save();
        assert_eq!(format!("{:?}", self.server), before, "saving changed the server");
        let again = Server::restore(self.settings.job.clone(), &saved);
        self.server = again.expect("what was saved can be restored");
        let after = format!("{:?}", self.server);
        assert!(after == before, "what was restored is another server:\n{after}\n{before}");
        self.kept.saves += 1;
        self.kept.saved = Some(saved);
        if self.settings.forgets {
            self.kept.seen = Some((self.checker.clone(), self.events.len()));
        }
        self.kept.inputs.clear();
    }

    /// Whether whoever has just been handed an input is saved.
    pub(super) fn is_time_to_save(&mut self) -> bool {
        self.settings.saves > 0 && self.rng.below(1000) < self.settings.saves
    }

    /// Whether the server crashes now.
    pub(super) fn crashes(&mut self) -> bool {
        let can = !self.calm && (!self.settings.forgets || self.kept.seen.is_some());
        can && self.settings.crashes > 0 && self.rng.below(1000) < self.settings.crashes
    }

    /// Puts one in the place of the server that was handed the same inputs, and closes all
    /// connections.
    pub(super) fn begin_anew(&mut self) {
        if self.settings.forgets {
            return self.begin_lineage();
        }
        let job = self.settings.job.clone();
        let mut server = match &self.kept.saved {
            None => Server::new(job, 1).expect("a valid job"),
            Some(saved) => Server::restore(job, saved).expect("what was saved can be restored"),
        };
        let mut out = Outbox::new();
        for record in &self.kept.inputs {
            let (at, input) = decode_input(record).expect("what was kept");
            server.handle(at, input, &mut out);
            out.clear();
        }
        let same = format!("{server:?}") == format!("{:?}", self.server);
        assert!(same, "the same inputs made another server:\n{server:#?}\n{:#?}", self.server);
        self.check_peers(&server);
        self.server = server;
        self.crashed += 1;
        self.checker.began_anew(self.now);
        // All are gone at once: what it says of one is not heard on another.
        let is_open = |link: &usize| !self.links[*link].is_closed(End::Server);
        let open: Vec<usize> = (0..self.links.len()).filter(is_open).collect();
        open.iter().for_each(|link| self.close(*link, End::Server));
        for link in open {
            let known = self.links[link].is_known(End::Server);
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

    /// Puts one in the place of the server that is as that was when it was saved, and another run.
    /// What anybody has seen since has not happened; what the workers know since must do no harm.
    fn begin_lineage(&mut self) {
        let (Some(saved), Some((checker, events))) = (&self.kept.saved, &self.kept.seen) else {
            return;
        };
        let restored = Server::restore(self.settings.job.clone(), saved);
        self.server = restored.expect("what was saved can be restored");
        self.crashed += 1;
        self.server.begin_lineage(self.run());
        self.checker = checker.clone();
        self.events.truncate(*events);
        self.checker.began_anew(self.now);
        for entry in self.entries.values_mut() {
            if matches!(entry, Entry::ToServer(Input::Evaluated(_))) {
                *entry = Entry::WakeServer;
            }
        }
        for effect in self.server.unanswered() {
            if let Effect::Evaluate(order) = effect {
                self.evaluate(&order);
            }
        }
        for link in 0..self.links.len() {
            if !self.links[link].is_closed(End::Server) {
                self.close(link, End::Server);
            }
        }
        for peer in self.server.peers() {
            self.checker.closed(peer);
            self.checker.hung_up(peer);
            let why = "the server began anew".to_owned();
            self.server_input(Input::Disconnected { peer, why }, None);
        }
        self.server_input(Input::Overslept, None);
        self.after(Duration::ZERO, Entry::WakeServer);
    }

    /// The server's run.
    fn run(&self) -> u64 {
        1 + if self.settings.forgets { self.crashed } else { 0 }
    }

    /// Whether what a worker does in `run` is part of what has happened.
    pub(super) fn is_of_this_lineage(&self, run: u64) -> bool {
        run == self.run()
    }

    /// Whether the server may hear what is said to it on a connection.
    pub(super) fn is_heard(&self, peer: PeerId) -> bool {
        !self.settings.forgets || !self.links[peer.0 as usize].is_closed(End::Server)
    }

    /// Whoever restores a server has nothing but its word for which connections it had.
    fn check_peers(&self, server: &Server) {
        let told = server.peers();
        for (number, link) in (0..).zip(&self.links) {
            let is_up = link.is_known(End::Server) && !link.is_closed(End::Server);
            let is_up = is_up && link.callee.is_none();
            assert!(!is_up || told.contains(&PeerId(number)), "it forgot connection {number}");
        }
    }
}
