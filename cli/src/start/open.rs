//! Opens a plan: the listener, the data, the state folder, the records and the node.

use std::time::Duration;

use anyhow::bail;
use pstrain_roles::node::Replica;
use pstrain_transports::{Address, SocketTransport, allow_more_files};
use pstrain_wire::group::Place;

use super::describe::described;
use super::fresh_run;
use super::host::{
    Follower, Host, JobServer, Life, Machine, ShardServer, Training, new_replica, replica_config,
    shard_config,
};
use super::plan::{
    Begins, JobPlan, Keeps, NO_STANDBY, NewServer, NewState, Plan, Reached, Role, Says,
};
use crate::args::{Durability, Output, quoted};
use crate::durable::{DurableFolder, Identity, ShardFolder, StandbyOf};
use crate::job::Layers;
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::security::{in_words, of_server, security};
use crate::signals::Drain;
use crate::{figures, messages};

/// How long the coordinator may be silent, until the lease of the job is known.
const LEASE: Duration = Duration::from_secs(5);

/// A server that is ready to serve.
pub(crate) struct Opened {
    pub(super) transport: SocketTransport,
    pub(super) server: Host,
}

/// Opens what the plan names.
pub(crate) fn open(Plan { role, reached }: Plan) -> anyhow::Result<Opened> {
    match role {
        Role::Job(plan) => open_job(*plan, &reached),
        Role::Shard { place, coordinator, begins, says } => {
            open_shard((place, begins), (coordinator, says), &reached)
        }
    }
}

/// Opens a server with the job. Listening comes before reading: workers may dial while the data are
/// read, and an address that is taken is reported at once.
fn open_job(plan: JobPlan, reached: &Reached) -> anyhow::Result<Opened> {
    let drain = Drain::default();
    drain.watch()?;
    let read = |layers: &Layers| {
        let training = Training::read(layers, plan.output, plan.says_every)?;
        anyhow::Ok(Training { drain: drain.clone(), ..training })
    };
    let (transport, mut server) = match plan.begins {
        Begins::New(NewServer::Coordinator { job, keeps }) => {
            let (transport, _) = listen_aloud(reached)?;
            let (transport, job) = described(transport, job, &drain)?;
            (transport, read(&job)?.begin(keeps.parts(), None)?)
        }
        Begins::New(NewServer::Standby { job, primary, log }) => {
            let (transport, local) = listen_aloud(reached)?;
            let training = read(&job)?;
            let address = advertised(reached, &local, &primary)?.to_string();
            let of = StandbyOf { primary: primary.to_string(), address };
            (transport, training.begin(log.as_ref().map(|log| (Durability::Log, log)), Some(of))?)
        }
        Begins::Resumed(resumed) => {
            let (folder, layers) = DurableFolder::open(&resumed)?;
            layers.real_time()?;
            let (transport, _) = listen_aloud(reached)?;
            (transport, read(&layers)?.kept(folder)?)
        }
    };
    server.training.command = reached.command();
    let transport = match &server.of {
        Some(of) => transport.with_target(of.primary.parse()?),
        None => transport,
    };
    match (&mut server.life.machine, plan.replicate) {
        (Machine::Replica(replica) | Machine::Logged(replica, _), replicate) => {
            replica.set_replicate(replicate.unwrap_or_default());
        }
        (_, Some(_)) => bail!("--replicate: {NO_STANDBY}"),
        (_, None) => {}
    }
    #[cfg(feature = "metrics")]
    if let Some(address) = &plan.metrics {
        server = publish(server, address, &transport)?;
    }
    Ok(Opened { transport, server: Host::Job(Box::new(server)) })
}

/// Opens a server that does not coordinate.
fn open_shard(
    (place, begins): (Place, Begins<Keeps>),
    (coordinator, says): (Address, Says),
    reached: &Reached,
) -> anyhow::Result<Opened> {
    // Both directions must be secured: workers dial this server, and it dials the coordinator.
    security(&reached.security, &coordinator)?;
    let drain = Drain::default();
    drain.watch()?;
    let (transport, local) = listen(reached)?;
    let transport = transport.with_target(coordinator.clone());
    let address = advertised(reached, &local, &coordinator)?;
    let config = shard_config(place, &address, LEASE);
    let follower = Follower { config, coordinator, says, drain };
    let server = follower.begin(place, &begins)?;
    let secured = in_words(&reached.security, &local);
    messages::say(&format!("{place}, listening on {local}{secured}"));
    Ok(Opened { transport, server: Host::Shard(Box::new(server)) })
}

impl Reached {
    /// The command of a server that is reached like this, as far as one that resumes it needs the
    /// same words.
    fn command(&self) -> String {
        let listen = match &self.listen {
            Address::Tcp(host) => host.clone(),
            unix @ Address::Unix(_) => unix.to_string(),
        };
        format!("pstrain server --listen {}{}", quoted(&listen), self.security.flags())
    }
}

impl Follower {
    /// The server at `place` of the group, new or from its state folder.
    pub(super) fn begin(self, place: Place, begins: &Begins<Keeps>) -> anyhow::Result<ShardServer> {
        let kept = match begins {
            Begins::Resumed(resumed) => Some(ShardFolder::open(&resumed.folder, place)?),
            Begins::New(keeps) => {
                let create = |(durability, state): (Durability, &NewState)| {
                    let kept = (durability, state.checkpoint_every);
                    ShardFolder::create(&state.folder, place, fresh_run(), kept)
                };
                keeps.parts().map(create).transpose()?
            }
        };
        let life = match kept {
            None => {
                let config = replica_config(fresh_run(), None);
                Life::new(Machine::Replica(Replica::primary_shard(config, self.shard())))
            }
            Some((folder, kept)) if kept.durability == Durability::Checkpoint => {
                self.at_rest(folder, kept.checkpoint_every)?
            }
            Some((folder, kept)) => {
                self.at_log_end(folder, &kept, matches!(begins, Begins::Resumed(_)))?
            }
        };
        Ok(ShardServer { follower: self, life })
    }
}

/// Listens, secured as planned. Returns the address, too.
fn listen(reached: &Reached) -> anyhow::Result<(SocketTransport, Address)> {
    let security = of_server(&reached.security, &reached.listen)?;
    // Raised first, since the limit of unauthenticated connections follows from it.
    let _files = allow_more_files();
    let transport = SocketTransport::listen(&reached.listen)?;
    let transport = transport.secured(security).telling(messages::warn);
    let local = transport.local_address().unwrap_or_else(|| reached.listen.clone());
    Ok((transport, local))
}

/// Listens, and reports the address. Warns if only this machine can reach it, although the name
/// that was given does not show that.
fn listen_aloud(reached: &Reached) -> anyhow::Result<(SocketTransport, Address)> {
    let (transport, local) = listen(reached)?;
    let Reached { listen, security, .. } = reached;
    messages::say(&format!("listening on {local}{}", in_words(security, &local)));
    if local.is_local() && !is_loopback_by_name(listen) {
        messages::warn(&format!(
            "{listen} is {local} here, which only this machine can reach; for others listen on \
             0.0.0.0 or on an address of the network"
        ));
    }
    Ok((transport, local))
}

/// True if the address, as it was typed, shows that only this machine can reach it. Many systems
/// give their own host name an address of the loopback network.
fn is_loopback_by_name(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp(host) => {
            ["127.", "localhost:", "[::1]:"].iter().any(|known| host.starts_with(known))
        }
    }
}

/// The address that the server at `teller` announces to workers for this server, which listens at
/// `local`.
fn advertised(reached: &Reached, local: &Address, teller: &Address) -> anyhow::Result<Address> {
    let Some(address) = &reached.advertise else {
        if local.is_unspecified() {
            bail!(
                "--listen {local}: say with --advertise HOST:PORT where workers reach this server"
            );
        }
        return Ok(local.clone());
    };
    if address.is_unspecified() {
        bail!(
            "--advertise {address}: no machine can dial it; give a name or an address of this \
             machine"
        );
    }
    match address.is_same(teller) {
        Ok(true) => bail!(
            "--advertise {address}: there is the other server already; give the address of this \
             one, or leave it out: it listens at {local}"
        ),
        Ok(false) => {}
        Err(error) => bail!("--advertise {address}: workers will not find it: {error}"),
    }
    // Only a warning: in some networks a host cannot reach its own public address.
    if let Err(error) = address.try_dial() {
        messages::warn(&format!(
            "--advertise {address}: it cannot be reached from here ({error}); if workers cannot \
             either, the run stands still once it needs this server"
        ));
    }
    Ok(address.clone())
}

impl Training {
    /// Reads the data of a job.
    fn read(layers: &Layers, output: Output, says_every: Option<Duration>) -> anyhow::Result<Self> {
        let resolved = layers.resolve_served()?;
        Ok(Self { guests: true, says_every, ..Self::of(layers, resolved, output)? })
    }

    /// The coordinator of a new run, or a new standby `of` a server.
    fn begin(
        self,
        kept: Option<(Durability, &NewState)>,
        of: Option<StandbyOf>,
    ) -> anyhow::Result<JobServer> {
        let number = fresh_run();
        let membership = self.job.membership;
        if of.is_none() && !self.output.quiet {
            messages::say(&format!(
                "waiting for {}, for {} at most",
                figures::counted(membership.needed_to_start().into(), "worker"),
                humantime::format_duration(membership.start_patience())
            ));
        }
        if of.is_some() && !self.job.architecture.has_server() {
            bail!("--standby-of: the workers of this job have no server to stand by for");
        }
        if let Some(kept) = kept {
            return self.keeping(number, kept, of);
        }
        let machine = match self.meeting()? {
            None => Machine::Replica(new_replica(number, of.as_ref(), self.job.clone())?),
            Some(meeting) => meeting,
        };
        let recorder = self.recorder()?;
        self.server(Life::new(machine), recorder, of)
    }
}

impl Training {
    /// A new server of the run `number` that keeps its state, maybe a standby `of` another.
    pub(super) fn keeping(
        self,
        number: u64,
        (durability, NewState { folder, checkpoint_every }): (Durability, &NewState),
        of: Option<StandbyOf>,
    ) -> anyhow::Result<JobServer> {
        let architecture = self.job.architecture;
        if !architecture.has_server() && durability == Durability::Log {
            bail!(
                "--durability log: with architecture = {architecture} the workers have no server \
                 that could keep a log; use checkpoint"
            );
        }
        let (label, out) = ((&self.job, &*self.data), self.output.out.as_deref());
        let identity = Identity::new(number, label, (durability, *checkpoint_every), out, of)?;
        // Locked before earlier results are replaced: it may belong to a run in progress.
        self.kept(DurableFolder::claim(folder, identity)?)
    }
}

/// Serves the metrics of the run of `server` at `address`.
#[cfg(feature = "metrics")]
fn publish(
    server: JobServer,
    address: &str,
    transport: &SocketTransport,
) -> anyhow::Result<JobServer> {
    let metrics = Metrics::new(matches!(server.life.machine, Machine::Logged(..)));
    metrics.count(transport.traffic());
    let place = metrics.serve(address)?;
    let open = if place.ip().is_loopback() { "" } else { " to every machine that can reach it" };
    messages::say(&format!("metrics at http://{place}/metrics{open}"));
    Ok(server.with_metrics(metrics))
}
