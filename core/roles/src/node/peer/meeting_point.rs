//! A peer's conversation with the meeting point, and its group.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::links::{Due, Links};
use super::pairs::Pairs;
use super::training::Training;
use super::{Data, Joined, Member, Peer, joined};
use crate::node::admission::check_job;
use crate::node::dialler::{self, Unreachable};
use crate::node::{DialFault, Effect, Event, NodeError, Outbox, Prepare, Prepared, Target};
use pstrain_compute::id::{PartId, PeerId, Sequence, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_policy::collective::Rank;
use pstrain_policy::combining::Scheme;
use pstrain_policy::lockstep;
use pstrain_wire::identity::Identity;
use pstrain_wire::peers::{
    Complaint, Connection, Halt, Halted, Meet, Met, RankOf, Ranks, Reachable, Snapshot,
};
use pstrain_wire::reason::as_reason;
use pstrain_wire::worker::{Bye, Heartbeat, Hello, Ready, Resume, Welcome};
use pstrain_wire::{FrameError, Limits, Message, PROTOCOL_VERSION, Refusal, Relayed};

impl Peer {
    pub(super) fn on_dialled(
        &mut self,
        now: Time,
        peer: PeerId,
        identity: Identity,
        out: &mut Outbox,
    ) {
        self.welcome = false;
        self.dialler.connected(now, peer);
        if !identity.may_serve() {
            let why = alloc::format!("who answers there is {identity}, which is no server");
            return match self.member {
                Some(_) => self.redial(now, why, out),
                None => self.finish(Err(NodeError::Protocol(why)), out),
            };
        }
        // The meeting point may send a state right after the welcome of a member. It may arrive in
        // one piece with the welcome, and is judged before that is handled.
        let member = self.member.as_ref();
        let limits = member
            .map_or(Limits::DIALER, |it| Limits::of_meeting(it.job.summed_values(it.parameters)));
        out.push(Effect::Limit(peer, limits));
        let hello = Hello {
            resume: self.member.as_ref().map(|member| Resume {
                worker: member.worker,
                incarnation: member.incarnation,
                run: member.run,
                allowed: Sequence(0),
                decided: Sequence(0),
            }),
            ..Hello::new(self.config.name.clone(), self.config.worker)
        };
        self.dialler.sent(now);
        out.push(Effect::Send(peer, Message::Hello(hello)));
    }

    /// The dial of the meeting point, or of a member of the group, has failed.
    pub(super) fn on_dial_failed(
        &mut self,
        now: Time,
        why: String,
        fault: DialFault,
        out: &mut Outbox,
    ) {
        if self.dialler.release() {
            let lease = self.lease();
            return self.links.dial_failed(now, why, lease);
        }
        let is_new = self.member.is_none();
        match fault {
            DialFault::Permanent if is_new => {
                let Unreachable { attempts, tried, .. } = self.dialler.give_up(now);
                self.finish(Err(NodeError::Unreachable { why, attempts, tried }), out);
            }
            DialFault::Mismatch if is_new => match self.damage.mismatched(why) {
                Ok(why) => self.redial(now, why, out),
                Err(error) => self.finish(Err(error), out),
            },
            _ => self.redial(now, why, out),
        }
    }

    /// Disconnects from the meeting point and dials it again after a pause, or gives up. Training
    /// continues meanwhile.
    pub(super) fn redial(&mut self, now: Time, why: String, out: &mut Outbox) {
        self.welcome = false;
        // Messages of other members that were on their way over this connection are lost.
        let relayed = self.links.relayed().next();
        if let Some(rank) = relayed {
            let why = "their values went over a connection to the meeting point that broke";
            self.give_up_on(now, rank, why, out);
        }
        if let Err(Unreachable { why, attempts, tried }) =
            self.dialler.redial(now, why, self.lease(), out)
        {
            self.finish(Err(NodeError::Unreachable { why, attempts, tried }), out);
        }
    }

    pub(super) fn on_wake(&mut self, now: Time, out: &mut Outbox) {
        let lease = self.lease();
        match self.dialler.wake(now, lease, out) {
            dialler::Due::Nothing => {}
            dialler::Due::Silence(silent) => {
                let why = alloc::format!("it has been silent for {silent:?}");
                return self.redial(now, why, out);
            }
            dialler::Due::Beat => {
                let incarnation = self.incarnation();
                let peer = self.dialler.peer();
                let beat = Message::Heartbeat(Heartbeat::of(incarnation));
                out.extend(peer.map(|peer| Effect::Send(peer, beat)));
            }
        }
        self.see_to_links(now, out);
        self.see_to_partial(now, out);
    }

    /// Dials members, sends heartbeats to them, and gives the group up if one is silent.
    fn see_to_links(&mut self, now: Time, out: &mut Outbox) {
        let may_dial = !self.dialler.is_dialling(); // one dial at a time
        match self.links.wake(now, self.lease(), may_dial, out) {
            Due::Nothing => {}
            Due::Dial(address) => self.dialler.dial_other(Target::Worker(address), out),
            Due::Lost(rank, why) => self.give_up_on(now, rank, why, out),
            Due::Unreached(rank, connection, why) => {
                self.halt_because_of(now, (rank, connection), &why, out);
            }
        }
    }

    /// Sends the meeting point all that waits for a connection.
    pub(super) fn send_unsent(&mut self, now: Time, out: &mut Outbox) {
        let (Some(peer), Some(member)) = (self.dialler.peer(), &mut self.member) else { return };
        if !self.welcome || member.unsent.is_empty() {
            return;
        }
        self.dialler.sent(now);
        out.extend(member.unsent.drain(..).map(|message| Effect::Send(peer, message)));
    }

    pub(super) fn on_meeting_point(&mut self, now: Time, message: Message, out: &mut Outbox) {
        match message {
            Message::Heartbeat(_) => {}
            Message::Refused(Refusal::Frame { what }) => self.on_damage(now, &what, false, out),
            Message::Refused(why) if why.is_permanent() => {
                self.finish(Err(NodeError::Refused(why)), out);
            }
            Message::Refused(why) => self.redial(now, why.to_string(), out),
            Message::End(end) => self.leave(now, Ok(end.reason), out),
            Message::Welcome(welcome) => self.on_welcome(now, *welcome, out),
            Message::Ranks(ranks) => self.on_ranks(now, ranks, out),
            Message::Halt(Halt { generation }) if generation == self.links.generation() => {
                self.halt(now, out);
            }
            Message::Halt(_) => {}
            Message::Save(save) => self.on_save(now, save, out),
            Message::Allow(allow) => self.on_allow(now, allow, out),
            Message::Rest(rest) => self.on_rest(now, rest, out),
            Message::Show(show) => self.on_show(now, show, out),
            Message::Snapshot(initial) => self.on_initial(initial),
            Message::EvaluationPart(part) => self.on_evaluation_part(now, part, out),
            Message::Inherit(part) => self.on_kept_state(&part, out),
            Message::Packet(sum) => self.on_sum(now, sum, out),
            Message::Relayed(relayed) => self.on_relayed(now, relayed, out),
            other => {
                let what = alloc::format!("it sent a {:?} message to a worker", other.kind());
                self.finish(Err(NodeError::Protocol(what)), out);
            }
        }
    }

    fn on_welcome(&mut self, now: Time, welcome: Welcome, out: &mut Outbox) {
        if let Err(error) = check_job(&welcome) {
            return self.finish(Err(error), out);
        }
        let Welcome { worker, resumed, incarnation, run, job, holders, .. } = welcome;
        if job.architecture.has_server() {
            let cure = "the job has a server: leave --listen out";
            let error = NodeError::Architecture { architecture: job.architecture, cure };
            let why = Some(as_reason(&error.to_string()));
            let bye = Message::Bye(Bye { incarnation, why });
            out.extend(self.dialler.peer().map(|peer| Effect::Send(peer, bye)));
            return self.finish(Err(error), out);
        }
        self.dialler.welcomed();
        self.welcome = true;
        // A run that is resumed sends the state of training.
        let parameters = holders.map.shares().iter().map(|(_, keys)| keys.len()).sum::<u64>();
        let parameters = usize::try_from(parameters).unwrap_or(usize::MAX);
        let limits = Limits::of_meeting(job.summed_values(parameters));
        out.extend(self.dialler.peer().map(|peer| Effect::Limit(peer, limits)));
        let job = Box::new(job);
        out.push(Effect::Report(Event::Welcomed { worker, resumed, job: job.clone() }));
        if !resumed {
            self.links.close(out);
            self.links = Links::default();
            let prepare = Prepare { job: (*job).clone(), worker, examples: None };
            let (unsent, data) = (Vec::new(), Data::Preparing);
            // The residual of an earlier membership is lost with its training.
            let carried = self.training().map_or(0.0, |training| training.carried());
            if carried > 0.0 {
                out.push(Effect::Report(Event::Forgot { carried }));
            }
            self.member = Some(Member { worker, incarnation, run, job, parameters, unsent, data });
            self.preparations += 1;
            out.push(Effect::Prepare(Box::new(prepare)));
        }
        self.send_unsent(now, out);
        if resumed {
            self.repeat(now, out);
        }
    }

    /// Repeats the last reports to the meeting point: a connection that breaks loses the messages
    /// on their way.
    fn repeat(&mut self, now: Time, out: &mut Outbox) {
        if self.links.generation() == 0 {
            return self.tell_ready(now, out);
        }
        let Joined { training, .. } = joined(&mut self.member);
        let reports = training.reports();
        reports.into_iter().for_each(|message| self.tell(now, message, out));
        if self.links.group().is_none() {
            return self.tell_halted(now, out);
        }
        self.repeat_packets(now, out);
    }

    pub(super) fn on_prepared(
        &mut self,
        now: Time,
        prepared: Result<Prepared, String>,
        out: &mut Outbox,
    ) {
        self.preparations = self.preparations.saturating_sub(1);
        // The data of an earlier membership are of no use in this one.
        let Some(member) = self.member.as_mut().filter(|_| self.preparations == 0) else { return };
        let Prepared { rows, train, initial, .. } = match prepared {
            Ok(prepared) => prepared,
            Err(what) => return self.leave(now, Err(NodeError::Data(what)), out),
        };
        let (job, worker) = (&member.job, member.worker);
        let training = Scheme::of(job).ok_or("it has servers with parameters").map(|scheme| {
            let model = job.build_model().map_err(|error| error.to_string())?;
            let training = Training::new(job, &model, worker, scheme);
            let mut training = training.map_err(|error| error.to_string())?;
            initial.into_iter().for_each(|initial| training.begin_with(initial));
            Ok(training)
        });
        let training: Training = match training {
            Ok(Ok(training)) => training,
            Ok(Err(why)) => return self.finish(Err(NodeError::Protocol(why)), out),
            Err(why) => return self.finish(Err(NodeError::Protocol(why.into())), out),
        };
        let parts: Vec<PartId> = job.parts_of(worker);
        let ready = Ready { rows: parts.into_iter().zip(rows).collect(), train };
        member.data = Data::Ready { training: Box::new(training), ready };
        self.tell_ready(now, out);
    }

    /// The initial parameters, which are not from the seed, before the first group.
    fn on_initial(&mut self, Snapshot { values, .. }: Snapshot) {
        if self.links.generation() > 0 {
            return; // repeated
        }
        if let Some(training) = self.training() {
            training.begin_with(values);
        }
    }

    /// Tells the meeting point that the data are here, and where other workers reach this one.
    fn tell_ready(&mut self, now: Time, out: &mut Outbox) {
        let Some(Member { data: Data::Ready { ready, .. }, .. }) = &self.member else {
            return; // they are being prepared
        };
        let ready = ready.clone();
        let address = self.config.address.clone();
        self.tell(now, Message::Reachable(Reachable { address }), out);
        self.tell(now, Message::Ready(ready), out);
    }

    /// Stops reducing in the group, and tells the meeting point.
    fn halt(&mut self, now: Time, out: &mut Outbox) {
        // Another member may have halted the group, for the same reason perhaps.
        for (rank, why) in self.links.failed() {
            self.complain(rank, Connection::Outgoing, &why);
        }
        self.links.halt(out);
        let Some(training) = self.training() else { return };
        training.halt();
        self.tell_halted(now, out);
    }

    /// Halts the group, which cannot go on with a member.
    pub(super) fn halt_because_of(
        &mut self,
        now: Time,
        (rank, connection): (Rank, Connection),
        why: &str,
        out: &mut Outbox,
    ) {
        self.complain(rank, connection, why);
        self.halt(now, out);
    }

    /// Notes a member with which the group cannot go on.
    fn complain(&mut self, rank: Rank, connection: Connection, why: &str) {
        let about = self.links.member(rank).worker;
        self.complaints.push(Complaint { about, connection, why: as_reason(why) });
    }

    /// Tells the meeting point which version this member has halted at.
    fn tell_halted(&mut self, now: Time, out: &mut Outbox) {
        let (generation, complaints) = (self.links.generation(), self.complaints.clone());
        let Joined { training, .. } = joined(&mut self.member);
        let version = training.version();
        let awaits = training.pairs.as_ref().and_then(Pairs::awaits);
        let halted = Halted { generation, version, complaints, awaits };
        self.tell(now, Message::Halted(halted), out);
    }

    /// Joins the group that the meeting point has formed.
    fn on_ranks(&mut self, now: Time, ranks: Ranks, out: &mut Outbox) {
        let Ranks { generation, version, ref members, .. } = ranks;
        // A meeting point forms groups of workers that are ready.
        let Some(member) = &mut self.member else { return };
        let (worker, incarnation) = (member.worker, member.incarnation);
        let Some(training) = member.training() else { return };
        if generation <= self.links.generation() {
            return; // repeated after a reconnect
        }
        let Some(rank) = members.iter().position(|member| member.worker == worker) else {
            return self.finish(Err(NodeError::Refused(Refusal::Fenced { incarnation })), out);
        };
        let (own, scheme) = (training.version(), training.scheme().clone());
        let rank = rank as Rank;
        let is_behind = needs(&scheme, members, rank);
        let is_near = own == version || own.next() == version || scheme.is_gossip();
        let is_ahead = own > version && !scheme.is_asynchronous();
        if is_ahead || !is_near && !members[rank as usize].joins {
            let what = alloc::format!(
                "its group goes on from version {version}, and this worker has {}",
                training.version()
            );
            return self.finish(Err(NodeError::Protocol(what)), out);
        }
        let workers: Vec<WorkerId> = members.iter().map(|member| member.worker).collect();
        let place = scheme.place(rank, &workers, training.parameters());
        let updating = updating(&scheme, members, rank);
        let neighbors = place.neighbors().into_iter().chain(updating.iter().copied());
        let neighbors: Vec<Rank> = neighbors.chain(Pairs::partners(members, rank)).collect();
        let of_step =
            |member: &RankOf| lockstep::Member { worker: member.worker, rows: member.rows };
        let is_own = |member: &&RankOf| !scheme.is_asynchronous() || member.worker == worker;
        let steps = members.iter().filter(is_own).map(of_step).collect();
        let together = if scheme.is_asynchronous() { Version(0) } else { version };
        training.regroup(place, steps, together, is_behind);
        if let Some(pairs) = &mut training.pairs {
            pairs.regroup(members, rank, &training.parameters);
            if !is_behind && own < members[rank as usize].version {
                // The run is resumed.
                training.lockstep.resume_alone(worker, members[rank as usize].version);
            }
        }
        if source(&scheme, members) == Some(rank) {
            training.hand_over(updating.iter().map(|rank| &members[*rank as usize]));
        }
        let is_shown = (rank == 0 || scheme.is_gossip()) && generation > 1;
        let is_shown = is_shown && version.0 > 0 && own == version && !scheme.is_asynchronous();
        let snapshot = is_shown.then(|| training.snapshot(version));
        self.complaints.clear();
        self.links.join(now, (rank, ranks), neighbors, out);
        if let Some(snapshot) = snapshot {
            self.tell(now, snapshot, out);
        }
        self.admit(now, out);
        for rank in self.links.relayed().collect::<Vec<_>>() {
            self.attached(now, rank, out);
        }
        self.see_to_links(now, out);
        self.begin(now, out);
    }

    /// A dialled member has answered.
    pub(super) fn on_peer_dialled(
        &mut self,
        now: Time,
        peer: PeerId,
        identity: Identity,
        out: &mut Outbox,
    ) {
        let Some(rank) = self.links.dialled() else {
            return out.push(Effect::Close(peer)); // of an earlier group
        };
        let to = self.links.member(rank).worker;
        if identity.claim(Some(to)).is_err() {
            out.push(Effect::Close(peer));
            let why = alloc::format!("{identity} answers at its address");
            return self.halt_because_of(now, (rank, Connection::Outgoing), &why, out);
        }
        let Joined { run, job, training, .. } = joined(&mut self.member);
        let (worker, generation) = (training.worker, self.links.generation());
        let values = job.summed_values(training.parameters());
        out.push(Effect::Limit(peer, Limits::of_peer(values)));
        let meet = Meet { protocol: PROTOCOL_VERSION, run, generation, worker, to };
        out.push(Effect::Send(peer, Message::Meet(meet)));
        self.links.introduced(now, rank, peer, out);
        self.see_to_links(now, out);
    }

    /// Takes connections of members that were early into the group.
    fn admit(&mut self, now: Time, out: &mut Outbox) {
        let generation = self.links.generation();
        let admitted = self.links.admit(now, out);
        // A member answers over a connection once it has this: values come after it.
        let met = |(_, peer): &(_, PeerId)| Effect::Send(*peer, Message::Met(Met { generation }));
        out.extend(admitted.iter().map(met));
        for (rank, _) in admitted {
            self.attached(now, rank, out);
        }
    }

    /// The connection to a member is there: sends it the updates that it has missed, and the values
    /// that wait for it.
    fn attached(&mut self, now: Time, rank: Rank, out: &mut Outbox) {
        let Some(group) = self.links.group() else { unreachable!("a rank without a group") };
        let Joined { training, .. } = joined(&mut self.member);
        let updates = source(training.scheme(), &group.members) == Some(group.rank)
            && needs(training.scheme(), &group.members, rank);
        let missed = updates.then(|| training.missed(&group.members[rank as usize]));
        if let Some(missed) = missed
            && let Some(way) = self.links.sends(now, rank, self.meeting())
        {
            out.extend(missed.into_iter().map(|message| way.send(message)));
        }
        self.go_on(now, out);
    }

    /// Handles a message of another peer.
    pub(super) fn on_peer(&mut self, now: Time, from: PeerId, message: Message, out: &mut Outbox) {
        if let Some(identity) = self.links.stranger(from) {
            return self.on_stranger(now, from, identity, &message, out);
        }
        if let Message::Met(_) = message {
            if let Some(rank) = self.links.answered(now, from) {
                self.attached(now, rank, out);
            }
            return;
        }
        let Some(rank) = self.links.heard(now, from) else {
            return; // of a connection that was closed, with the group or before
        };
        self.on_member(now, rank, message, out);
    }

    /// Handles a message of another member that has come by way of the meeting point.
    fn on_relayed(&mut self, now: Time, relayed: Relayed, out: &mut Outbox) {
        let Relayed { generation, other, message } = relayed;
        if generation != self.links.generation() {
            return; // of an earlier group
        }
        let rank = self.links.rank_of(other);
        let relayed = self.links.relayed().find(|it| Some(*it) == rank);
        if let Some(rank) = relayed {
            self.on_member(now, rank, message.into(), out);
        }
    }

    /// Handles a message of another member of the group.
    fn on_member(&mut self, now: Time, rank: Rank, message: Message, out: &mut Outbox) {
        match message {
            Message::Heartbeat(_) => {}
            Message::Piece(piece) => self.on_piece(now, rank, piece, out),
            Message::EncodedPiece(piece) => self.on_encoded_piece(now, rank, piece, out),
            Message::Activate(activate) => self.on_activate(now, rank, activate, out),
            // The introduction, or values.
            Message::Refused(Refusal::Frame { what }) => {
                if !self.links.dial_again(now, rank, &what, self.lease(), out) {
                    self.give_up_on(now, rank, &what, out);
                }
            }
            Message::Missed(missed) => self.on_missed(now, rank, &missed, out),
            Message::Inherit(part) => self.on_inherit(now, rank, &part, out),
            Message::Refused(why) => self.give_up_on(now, rank, &why.to_string(), out),
            other => {
                let why = alloc::format!("it sent a {:?} message to a worker", other.kind());
                self.give_up_on(now, rank, &why, out);
            }
        }
    }

    /// Bytes of another peer are not a message. One that introduces itself is told so, and dials
    /// again, as this one does if the answer to its own introduction was damaged.
    pub(super) fn on_damaged_link(
        &mut self,
        now: Time,
        peer: PeerId,
        error: FrameError,
        out: &mut Outbox,
    ) {
        let why = error.to_string();
        if let Some(rank) = self.links.introduced_to(peer)
            && self.links.dial_again(now, rank, &why, self.lease(), out)
        {
            return;
        }
        if self.links.stranger(peer).is_some() {
            out.push(Effect::Send(peer, Message::Refused(error.into())));
        }
        out.push(Effect::Close(peer));
        self.lose_link(now, peer, &why, out);
    }

    /// The first message of a connection that another peer has opened.
    fn on_stranger(
        &mut self,
        now: Time,
        peer: PeerId,
        identity: Identity,
        message: &Message,
        out: &mut Outbox,
    ) {
        let member = self.member.as_mut();
        let known = member.and_then(|member| {
            let (run, own) = (member.run, member.worker);
            let values = member.job.summed_values(member.parameters);
            member.training().map(|_training| (run, own, values))
        });
        let refusal = match (message, known) {
            (Message::Meet(Meet { to, .. }), Some((_, own, _))) if *to != own => {
                alloc::format!("worker {own} answers at the address of worker {to}")
            }
            (Message::Meet(meet), _) if identity.claim(Some(meet.worker)).is_err() => {
                alloc::format!("{identity} says that it is worker {}", meet.worker)
            }
            (Message::Meet(meet), Some((run, _, values)))
                if meet.protocol == PROTOCOL_VERSION && meet.run == run =>
            {
                out.push(Effect::Limit(peer, Limits::of_peer(values)));
                self.links.meet(peer, *meet);
                return self.admit(now, out);
            }
            (Message::Meet(_), _) => String::from("the worker is not of this run"),
            _ => String::from("a worker introduces itself first"),
        };
        let refusal = Refusal::Unexpected { what: refusal };
        let _unknown = self.links.lost(now, peer);
        out.push(Effect::Send(peer, Message::Refused(refusal)));
        out.push(Effect::Close(peer));
    }
}

/// True if a member has missed updates of its group.
fn is_behind(scheme: &Scheme, members: &[RankOf], member: &RankOf) -> bool {
    members.iter().any(|other| match scheme.is_asynchronous() {
        true => member.joins && !other.joins,
        false => other.version > member.version,
    })
}

/// True if a rank needs what it has missed from another one. Workers with models of their own do
/// not, unless they join.
fn needs(scheme: &Scheme, members: &[RankOf], rank: Rank) -> bool {
    let member = members.get(rank as usize);
    member.is_some_and(|it| is_behind(scheme, members, it) && (it.joins || !scheme.is_gossip()))
}

/// The rank that sends the others what they have missed.
fn source(scheme: &Scheme, members: &[RankOf]) -> Option<Rank> {
    let place = members.iter().position(|member| !is_behind(scheme, members, member))?;
    Some(place as Rank)
}

/// The ranks between which and `rank` missed updates travel.
fn updating(scheme: &Scheme, members: &[RankOf], rank: Rank) -> Vec<Rank> {
    let ranks = 0..members.len() as Rank;
    let behind: Vec<Rank> = ranks.filter(|rank| needs(scheme, members, *rank)).collect();
    match source(scheme, members) {
        Some(source) if source == rank => behind,
        Some(source) if behind.contains(&rank) => Vec::from([source]),
        _ => Vec::new(),
    }
}
