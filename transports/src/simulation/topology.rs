//! The links between the workers' machines and the switch at which the server is.

use std::collections::BTreeMap;

use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::Stream;

use super::network::LinkId;
use super::{Network, SimulationError};
use crate::scenario::Links;

/// Adds the links of a scenario to a network. Returns the links of each worker, in order, up to the
/// switch at which the server is: its own, and the one of its site if it is in one.
///
/// # Errors
/// [`SimulationError`] names the first worker without a link.
pub(super) fn add_links(
    network: &mut Network,
    links: &Links,
    workers: u32,
    stream: Stream,
) -> Result<Vec<Vec<LinkId>>, SimulationError> {
    let mut sites = BTreeMap::new();
    let way_up = |worker: WorkerId| {
        let own = links.of(worker).ok_or(SimulationError::Link(worker))?;
        let mut route = vec![network.add(own, worker.0, stream)];
        if let Some(site) = links.site_of(worker) {
            let new = || network.add(links.site(site), site, stream.fork("site", 0));
            route.push(*sites.entry(site).or_insert_with(new));
        }
        Ok(route)
    };
    (0..workers).map(WorkerId).map(way_up).collect()
}
