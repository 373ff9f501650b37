//! Servers with a log: after a crash a server resumes from its saved state and its inputs since.

use pstrain_compute::id::PeerId;
use pstrain_compute::saved::Saved;
use pstrain_roles::node::{Input, Node, Outbox, Server, decode_input, encode_input};

use super::World;
use super::links::End;

/// The durable state of a server.
#[derive(Debug, Default)]
pub(super) struct Kept {
    saved: Option<Saved>,
    inputs: Vec<Vec<u8>>,
    /// Number of times that a server was saved.
    pub(super) saves: u64,
}

impl World<'_> {
    /// Logs an input before the server handles it, if the server may crash.
    pub(super) fn keep(&mut self, input: &Input) {
        if self.settings.crashes == 0 || self.settings.forgets {
            return;
        }
        let mut record = Vec::new();
        let tail = encode_input(self.now, input, &mut record).expect("an input of a server");
        tail.append_to(&mut record);
        self.kept.inputs.push(record);
    }

    /// Saves the server now and then, and replaces it by the restored one.
    pub(super) fn save(&mut self) {
        if self.settings.forgets || !self.is_time_to_save() {
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
        self.kept.inputs.clear();
    }

    /// True if the node that has just handled an input is to be saved.
    pub(super) fn is_time_to_save(&mut self) -> bool {
        self.settings.saves > 0 && self.rng.below(1000) < self.settings.saves
    }

    /// True if a server crashes now.
    pub(super) fn crashes(&mut self) -> bool {
        !self.calm && self.settings.crashes > 0 && self.rng.below(1000) < self.settings.crashes
    }

    /// Replaces the server by one that handled the same inputs, and closes all connections.
    pub(super) fn restart_cohort(&mut self) {
        if self.settings.forgets {
            return self.server_loses_all();
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
        self.hand_in_initial();
        // Close all of them first: what the server sends about one is not received on another.
        let is_open = |link: &usize| !self.links[*link].is_closed(End::Server);
        let open: Vec<usize> = (0..self.links.len()).filter(is_open).collect();
        open.iter().for_each(|link| self.close(*link, End::Server));
        for link in open {
            let known = self.links[link].is_known(End::Server);
            let peer = PeerId(link as u64);
            self.checker.closed(peer);
            self.checker.hung_up(peer);
            if known {
                let why = "the server started a new run".to_owned();
                self.server_input(Input::Disconnected { peer, why }, None);
            }
        }
        self.server_input(Input::Overslept, None);
    }

    /// Checks that the restored server lists all open connections: a driver that restores a server
    /// has no other source.
    fn check_peers(&self, server: &Server) {
        let told = server.peers();
        for (number, link) in (0..).zip(&self.links) {
            let is_up = link.is_known(End::Server) && !link.is_closed(End::Server);
            let is_up = is_up && link.callee.is_none();
            assert!(!is_up || told.contains(&PeerId(number)), "it forgot connection {number}");
        }
    }
}
