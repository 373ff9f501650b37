//! Fencing: a new primary finds the deposed one and stops it; a primary that has long lost its
//! standby asks the standby whether it leads.
//!
//! Both send the term in which they lead ([`Deposed`]). A server that leads in a later term of the
//! same run answers with its own.

use alloc::string::{String, ToString};

use super::dials::Caller;
use super::follower::{Follower, Link};
use super::primary::Primary;
use super::{ReplicaConfig, fail};
use crate::node::dialler::{Dialler, Due};
use crate::node::{Effect, Input, NodeError, Outbox, Target};
use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_wire::identity::Identity;
use pstrain_wire::replica::Deposed;
use pstrain_wire::{Limits, Message};

impl Primary {
    /// Starts to look for the deposed primary.
    pub(super) fn depose(&mut self, dialler: Dialler) {
        self.other = Some(dialler);
    }

    /// Looks for the standby, if it has been gone for a lease: workers that know the leader no
    /// longer connect here, and the standby may have given up dialling this primary.
    pub(super) fn seek_follower(&mut self, now: Time, config: &ReplicaConfig, out: &mut Outbox) {
        let lease = self.lease();
        let Some(Follower { link: Link::Down { since, .. }, address, .. }) = &self.follower else {
            return;
        };
        if self.other.is_some() || now < *since + lease {
            return;
        }
        let mut dialler = Dialler::new(config.stream);
        dialler.turn_to(Target::Address(address.clone()));
        let mut dials = Outbox::new();
        dialler.start(now, &mut dials);
        self.other = Some(dialler);
        self.dial_other(dials, out);
    }

    /// True if the primary wants an answer from the other server, and not only to notify it.
    fn is_seeking(&self) -> bool {
        let is_at_standby = self.other.as_ref().is_some_and(Dialler::is_elsewhere);
        is_at_standby && self.is_paired() && self.follower_peer().is_none()
    }

    fn dial_other(&mut self, dials: Outbox, out: &mut Outbox) {
        for effect in dials {
            if let Effect::Dial(target) = effect {
                self.dials.dial(Caller::Seeker, target, out);
            }
        }
    }

    pub(super) fn is_other(&self, peer: PeerId) -> bool {
        self.other.as_ref().is_some_and(|dialler| dialler.peer() == Some(peer))
    }

    /// Dials the other server if it is time to, and drops a silent connection.
    pub(super) fn look_for_other(&mut self, now: Time, out: &mut Outbox) {
        let lease = self.lease();
        let Some(dialler) = &mut self.other else { return };
        let mut dials = Outbox::new();
        match dialler.wake(now, lease, &mut dials) {
            Due::Nothing => self.dial_other(dials, out),
            // No heartbeats: the primary has sent all it has to say.
            Due::Beat => {}
            Due::Silence(silent) => {
                self.look_again(now, alloc::format!("it has been silent for {silent:?}"), out);
            }
        }
    }

    /// Handles an input of the search for the other server.
    pub(super) fn on_other(&mut self, now: Time, input: Input, out: &mut Outbox) {
        let (run, term) = (self.copy.server.run(), self.term);
        let seeks = self.is_seeking();
        let Some(dialler) = &mut self.other else {
            if let Input::Dialled(peer, _) = input {
                out.push(Effect::Close(peer));
            }
            return;
        };
        let why = match input {
            Input::Dialled(peer, Identity::Anyone | Identity::Server) => {
                if seeks {
                    dialler.connected(now, peer);
                    out.push(Effect::Limit(peer, Limits::DIALER));
                }
                out.push(Effect::Send(peer, Message::Deposed(Deposed { run, term })));
                if !seeks {
                    out.push(Effect::Close(peer));
                    self.other = None;
                }
                return;
            }
            Input::Dialled(peer, _) => {
                out.push(Effect::Close(peer));
                String::from("it is no server")
            }
            Input::DialFailed { why, .. } => why,
            Input::Message(_, Message::Deposed(deposed)) => {
                self.end_if_deposed(deposed, out);
                String::from("it leads in no later term")
            }
            Input::Message(..) => String::from("it does not lead"),
            Input::Garbage(_, error) => error.to_string(),
            Input::Disconnected { peer, why } => {
                dialler.lost(peer);
                why
            }
            _ => return,
        };
        self.look_again(now, why, out);
    }

    /// Dials the other server again after a pause, unless nothing is left to tell or ask it.
    fn look_again(&mut self, now: Time, why: String, out: &mut Outbox) {
        let (lease, is_up) = (self.lease(), self.other.as_ref().and_then(Dialler::peer));
        let done = is_up.is_some() && !self.is_seeking();
        let Some(dialler) = &mut self.other else { unreachable!("the other server is looked for") };
        let mut effects = Outbox::new();
        if dialler.redial(now, why, lease, &mut effects).is_err() || done {
            self.other = None;
        }
        // The search is not reported as an event.
        out.extend(effects.into_iter().filter(|effect| matches!(effect, Effect::Close(_))));
    }

    /// Handles the term in which another server leads.
    pub(super) fn on_deposed(&self, peer: PeerId, deposed: Deposed, out: &mut Outbox) {
        if !self.is_from_server(peer) {
            return;
        }
        let (run, term) = (self.copy.server.run(), self.term);
        if deposed.run == run && deposed.term < term {
            return out.push(Effect::Send(peer, Message::Deposed(Deposed { run, term })));
        }
        self.end_if_deposed(deposed, out);
    }

    /// Ends this primary if another server leads in a later term.
    fn end_if_deposed(&self, deposed: Deposed, out: &mut Outbox) {
        // Only a paired standby can lead without this primary.
        let may = self.is_paired() && deposed.run == self.copy.server.run();
        if may && deposed.term > self.term {
            out.extend(self.outer_of(self.copy.server.worker_peers()).map(Effect::Close));
            fail(NodeError::Deposed { term: deposed.term }, out);
        }
    }
}
