//! The links between the workers' machines and the switch at which the server is.

use std::collections::BTreeMap;

use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::Stream;

use super::network::LinkId;
use super::{Network, SimulationError};
use crate::scenario::Links;

/// The links of the workers and of their sites.
#[derive(Debug)]
pub(super) struct Topology {
    /// The links of each worker, in order, up to the switch at which the server is: its own, and
    /// the one of its site if it is in one.
    pub(super) routes: Vec<Vec<LinkId>>,
    pub(super) sites: SiteLinks,
}

/// The links of sites, by the number of the site.
#[derive(Debug)]
pub(super) struct SiteLinks(BTreeMap<u32, LinkId>);

/// Bytes over the link of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteTraffic {
    /// The number of the site, from 0 on.
    pub site: u32,
    /// Bytes from the site, with frames and headers.
    pub up_bytes: u64,
    /// Bytes to the site.
    pub down_bytes: u64,
}

impl Topology {
    /// Adds the links of a scenario to a network.
    ///
    /// # Errors
    /// [`SimulationError`] names the first worker without a link.
    pub(super) fn add(
        network: &mut Network,
        links: &Links,
        workers: u32,
        stream: Stream,
    ) -> Result<Self, SimulationError> {
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
        let routes = (0..workers).map(WorkerId).map(way_up).collect::<Result<_, _>>()?;
        sites.values().for_each(|link| network.count(*link));
        Ok(Self { routes, sites: SiteLinks(sites) })
    }
}

impl SiteLinks {
    /// Bytes over the links.
    pub(super) fn traffic(&self, network: &Network) -> Vec<SiteTraffic> {
        let of = |(site, link): (&u32, &LinkId)| {
            let [up_bytes, down_bytes] = network.counted(*link);
            SiteTraffic { site: *site, up_bytes, down_bytes }
        };
        self.0.iter().map(of).collect()
    }
}
