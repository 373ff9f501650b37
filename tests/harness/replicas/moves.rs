//! Servers that join and leave while each may have a standby.

use pstrain_roles::node::Input;

use super::{Happening, Lab, SERVERS};

/// Most servers of a lab over the whole run.
const MOST_SERVERS: u32 = 6;

impl Lab {
    /// From now on servers join and leave.
    pub(super) fn begin_moves(&mut self) {
        let lease = self.job().membership.lease;
        for happening in [Happening::Join, Happening::Leave] {
            let span = self.span(lease * 4);
            self.after(span, happening);
        }
    }

    /// The address of the coordinator's leader, or of its first process.
    pub(super) fn coordinator(&self) -> String {
        let leader = self.replicas_of(0).find(|&it| self.leads(it));
        format!("{SERVERS}{}", leader.unwrap_or_default())
    }

    /// Starts one more server.
    pub(super) fn join(&mut self) {
        if !self.goes_on_moving(Happening::Join) || self.servers == MOST_SERVERS {
            return;
        }
        let server = self.servers;
        self.servers += 1;
        self.spawn_server(server, String::new());
    }

    /// Tells a server that holds keys to leave, once.
    pub(super) fn leave(&mut self) {
        if !self.goes_on_moving(Happening::Leave) || self.holders.is_empty() {
            return;
        }
        let any = self.rng.below(self.holders.len() as u64) as usize;
        let Some(&server) = self.holders.iter().nth(any) else { return };
        let leader = self.replicas_of(server).find(|&it| self.leads(it));
        if let Some(leader) = leader
            && self.holders.remove(&server)
        {
            self.input(leader, Input::Drain);
        }
    }

    fn goes_on_moving(&mut self, next: Happening) -> bool {
        let goes_on = !self.calm && !self.ended();
        if goes_on {
            let span = self.span(self.job().membership.lease * 8);
            self.after(span, next);
        }
        goes_on
    }
}
