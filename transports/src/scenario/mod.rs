//! Scenarios: a model of the network and the machines.
//!
//! Three settings describe a scenario, each a text of items separated by spaces: [`Links`] (delay,
//! rate, loss, ... of each worker's link and direction), [`ComputeTimes`] (duration of a
//! mini-batch) and [`FaultPlan`] (times of crashes and cuts). The same values shape real messages
//! and drive virtual time: [`LinkModel`], [`Bottleneck`] and [`StragglerModel`] map the time at
//! which a message or a computation begins to the time at which it ends. [`PowerModel`] turns times
//! and bytes into energy; no run depends on it. Nothing here has a clock or a thread, and all
//! randomness comes from the given stream.

mod compute_times;
mod faults;
mod item;
mod link_model;
mod links;
mod outage;
mod power;
mod quantity;
mod straggler_model;
mod tcp;

pub use compute_times::{ComputeSpec, ComputeTimes, Slowdown, TimeModel};
pub use faults::{Fault, FaultPlan, Victim};
pub use item::ScenarioError;
pub use link_model::{Bottleneck, LinkModel};
pub use links::{Distribution, LinkSpec, Links, ServerLink, WorkerLink};
pub use outage::Outage;
pub use power::{Device, Energy, Power, PowerModel};
pub use quantity::{Loss, Rate};
pub use straggler_model::StragglerModel;

use pstrain_compute::rng::Stream;
use serde::{Deserialize, Serialize};

/// Model of the network and the machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Links of the workers, and of a standby, to the server.
    pub links: Links,
    /// Durations of mini-batches.
    pub compute: ComputeTimes,
    /// Faults and their times.
    pub faults: FaultPlan,
}

impl Scenario {
    /// Parses the three settings.
    ///
    /// # Errors
    /// [`ScenarioError`] names the item, what is wrong with it and what is allowed.
    pub fn parse(link: &str, compute: &str, faults: &str) -> Result<Self, ScenarioError> {
        Ok(Self { links: link.parse()?, compute: compute.parse()?, faults: faults.parse()? })
    }

    /// Returns the random stream of a run with this seed.
    #[must_use]
    pub fn stream(seed: u64) -> Stream {
        Stream::new(seed).fork("scenario", 0)
    }

    /// True if nothing is modelled.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.links.is_none() && self.compute.is_none() && self.faults.is_none()
    }

    /// Rejects items about workers that a job with `workers` workers does not have.
    ///
    /// # Errors
    /// [`ScenarioError`] names the item.
    pub fn check(&self, workers: u32) -> Result<(), ScenarioError> {
        self.links.check(workers)?;
        self.compute.check(workers)?;
        self.faults.check(workers)
    }

    /// Rejects standbys, and faults of servers, that a job with `servers` servers does not have.
    ///
    /// # Errors
    /// [`ScenarioError`] names the item.
    pub fn check_servers(&self, servers: u32) -> Result<(), ScenarioError> {
        let standby = self.links.standby().is_some();
        if standby && servers > 1 {
            let problem = "only a job with one server has a standby in virtual time".into();
            return Err(ScenarioError::new("link", "standby", problem));
        }
        self.faults.check_servers(servers, standby)
    }

    /// Rejects standbys and faults of a server, for a job whose workers have none.
    ///
    /// # Errors
    /// [`ScenarioError`] names the item.
    pub fn check_meeting(&self) -> Result<(), ScenarioError> {
        if self.links.standby().is_some() {
            let problem = "without a server there is no standby".into();
            return Err(ScenarioError::new("link", "standby", problem));
        }
        self.faults.check_meeting()
    }

    /// Encodes the scenario as one text, as part of a job: empty if nothing is modelled.
    #[must_use]
    pub fn to_text(&self) -> String {
        if self.is_none() {
            return String::new();
        }
        // Three strings always serialise.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Decodes the text of [`Self::to_text`].
    ///
    /// # Errors
    /// [`ScenarioError`] if the text is anything else.
    pub fn from_text(text: &str) -> Result<Self, ScenarioError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_str(text)
            .map_err(|error| ScenarioError::new("scenario", "text of the job", error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_carried_as_one_text() {
        let scenario =
            Scenario::parse("1.delay=1ms 2.delay=100ms", "4.5ms 2.factor=4", "1.crash@10s")
                .unwrap();
        assert_eq!(Scenario::from_text(&scenario.to_text()), Ok(scenario.clone()));
        assert_eq!(
            scenario.to_text(),
            concat!(
                r#"{"links":"1.up.delay=1ms 2.up.delay=100ms","#,
                r#""compute":"all.time=4.5ms 2.factor=4","faults":"1.crash@10s"}"#
            )
        );
        let none = Scenario::parse("none", "", "none").unwrap();
        assert!(none.is_none());
        assert_eq!(none.to_text(), "");
        assert_eq!(Scenario::from_text(""), Ok(none));
        let error = Scenario::from_text("{}").unwrap_err().to_string();
        assert!(error.contains("links"), "{error}");
    }

    #[test]
    fn servers_that_the_job_lacks_are_refused() {
        let told = |link: &str, faults: &str, servers| {
            let scenario = Scenario::parse(link, "", faults).unwrap();
            scenario.check_servers(servers).map_err(|error| error.to_string())
        };
        let faults = "server.crash@1s server.restart@2s standby.cut@3s standby.heal@4s";
        assert_eq!(told("standby.delay=1ms", faults, 1), Ok(()));
        assert_eq!(told("", "server.crash@1s", 1), Ok(()));
        for (link, faults, servers, wanted) in [
            ("", "server.restart@1s", 1, "faults: server.restart@1s: there is no standby; say"),
            ("", "standby.cut@1s", 1, "faults: standby.cut@1s: there is no standby; say"),
            ("", "server.crash@1s", 2, "faults: server.crash@1s: faults are those of workers"),
            ("standby.delay=1ms", "", 2, "link: standby: only a job with one server has"),
        ] {
            let error = told(link, faults, servers).unwrap_err();
            assert!(error.starts_with(wanted), "{error}");
        }
    }

    #[test]
    fn workers_that_the_job_lacks_are_refused() {
        for (link, compute, faults, told) in [
            ("9.delay=1ms", "", "", "link: 9.up.delay=1ms: the job has no such worker"),
            ("", "9.time=1ms", "", "compute: 9.time=1ms: the job has no such worker"),
            ("", "", "9.cut@1s", "faults: 9.cut@1s: the job has no such worker"),
        ] {
            let scenario = Scenario::parse(link, compute, faults).unwrap();
            assert_eq!(scenario.check(9), Ok(()));
            let error = scenario.check(2).unwrap_err().to_string();
            assert!(error.starts_with(told), "{error}");
            assert!(error.ends_with("numbered 1 to 2"), "{error}");
        }
    }
}
