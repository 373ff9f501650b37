//! The outcome of a simulated cluster.

use std::sync::Arc;

use pstrain_compute::id::Version;
use pstrain_compute::time::Time;
use pstrain_roles::node::{NodeError, Trained};
use pstrain_wire::worker::EndReason;

use super::role::Role;
use super::{Cluster, Counted, FIRST};
use crate::simulation::topology::SiteTraffic;
use crate::simulation::{
    Failover, LinkId, LinkUsage, ProcessId, Remains, Simulation, SimulationError,
};

/// A cluster after its end.
#[derive(Debug)]
pub struct Outcome {
    /// Why the run ended; none if its servers were gone before.
    pub reason: Option<EndReason>,
    /// The result of the run; if no server leads at the end, the state that it had come to.
    pub trained: Trained,
    /// How each worker's last process ended; none if it crashed, or still runs.
    pub workers: Vec<Option<Result<EndReason, NodeError>>>,
    /// When the server had finished, in virtual time.
    pub ended: Time,
    /// SHA-256 over all events and the final parameters.
    pub trace: [u8; 32],
    /// Events: messages that arrived, gradients done, wake-ups, faults.
    pub events: u64,
    /// The use of the coordinator's access link, to it; none if it has no rate.
    pub shared_up: Option<LinkUsage>,
    /// And from it.
    pub shared_down: Option<LinkUsage>,
    /// Bytes over the links of sites, if there are sites.
    pub sites: Vec<SiteTraffic>,
    /// Faults and failovers of the servers, if there is a standby or such a fault.
    pub failover: Option<Failover>,
}

/// The outcome of a simulation that has ended.
pub(super) fn outcome(
    simulation: Simulation<Role, Cluster<'_>>,
    counted: &Counted,
) -> Result<Outcome, SimulationError> {
    let at = simulation.now();
    let leader = simulation.environment().leader;
    let survives =
        simulation.has_ended() || (simulation.node(leader).leads() && simulation.runs(leader));
    let last = last_server(&simulation, survives);
    let mut remains = simulation.finish();
    let node = remains.nodes.swap_remove(last.0 as usize);
    let replaced = remains.environment.remains.take();
    let server = node.into_server().or(replaced).ok_or(SimulationError::Stuck { at })?;
    let [shared_up, shared_down] = remains.network.usage(FIRST);
    let sites = counted.sites.traffic(&remains.network);
    let version = survives.then(|| server.version());
    let failover = failover(&mut remains, version, counted.standby);
    let machines = std::mem::take(&mut remains.environment.machines);
    let (trained, parameters) = (server.trained(), Arc::clone(server.parameters()));
    remains.environment.host.ended(server);
    Ok(Outcome {
        reason: remains.environment.reason,
        events: remains.events(),
        trace: remains.trace(&parameters),
        trained,
        workers: machines.into_iter().map(|machine| machine.ended).collect(),
        ended: at,
        shared_up,
        shared_down,
        sites,
        failover,
    })
}

fn failover(
    remains: &mut Remains<Role, Cluster<'_>>,
    version: Option<Version>,
    standby_link: Option<LinkId>,
) -> Option<Failover> {
    let history = remains.environment.history.take()?;
    let carried = standby_link.map(|link| remains.network.counted(link));
    Some(history.finish(version, carried.unwrap_or_default()))
}

/// The process with the server that the run has come to.
fn last_server(simulation: &Simulation<Role, Cluster<'_>>, survives: bool) -> ProcessId {
    let Cluster { leader, replicas, history, .. } = simulation.environment();
    let other = ProcessId((replicas - 1).saturating_sub(leader.0));
    let is_whole = history.as_ref().is_some_and(|it| it.is_whole(other.0 as usize));
    let has_all = is_whole && simulation.node(other).server().is_some();
    if survives || !has_all { *leader } else { other }
}
