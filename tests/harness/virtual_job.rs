//! A small job in virtual time, ready to run. `dealt` and `stood_by` share it.

use std::sync::atomic::AtomicBool;

use pstrain_compute::model::Model;
use pstrain_compute::rng::Stream;
use pstrain_roles::node::Server;
use pstrain_transports::scenario::Scenario;
use pstrain_transports::simulation::{Host, Outcome, Setup, simulate};

use crate::toy::Toy;

/// The server of a job, its model and its scenario.
pub(crate) struct VirtualJob {
    pub(crate) model: Model,
    scenario: Scenario,
    server: Server,
}

#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
impl VirtualJob {
    /// Builds the job over `link`, with the computation times `compute` and `faults`.
    pub(crate) fn new(toy: &Toy, link: &str, compute: &str, faults: &str) -> Self {
        let scenario = Scenario::parse(link, compute, faults).unwrap();
        scenario.check_servers(toy.job.servers).unwrap();
        let mut job = toy.job.clone();
        job.scenario = scenario.to_text();
        let model = job.build_model().unwrap();
        let seed = job.seed;
        Self { model, scenario, server: Server::new(job, seed).unwrap() }
    }

    /// Runs it to its end.
    pub(crate) fn run(self, host: &mut impl Host) -> Outcome {
        let setup = Setup {
            stream: Stream::new(self.server.job().seed).fork("scenario", 0),
            server: self.server,
            scenario: &self.scenario,
            measured: None,
            weight: None,
            initial: None,
            stop: &AtomicBool::new(false),
        };
        simulate(setup, host).unwrap()
    }
}
