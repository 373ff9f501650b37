//! Workers without a server: equal to a server where they must be, and the same parameters at every
//! worker, over every transport, in virtual time and under random faults.

mod closed_forms;
mod equivalence;
mod gossip;
mod pairs;
mod restarts;
mod schedules;
mod status;

use pstrain_compute::optim::OptimizerSpec;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::gossip::Graph;
use pstrain_tests::Toy;

/// The graphs of workers with models of their own.
const GRAPHS: [Graph; 5] =
    [Graph::Ring, Graph::Torus, Graph::Complete, Graph::Exponential, Graph::Regular { degree: 3 }];

/// A job without a server.
fn peers(architecture: Architecture, workers: u32, rows: usize) -> Toy {
    let mut toy = Toy::new(workers, rows);
    toy.job.architecture = architecture;
    toy
}

/// The same with an optimizer that the checker of the lab knows.
fn plain(architecture: Architecture, workers: u32, rows: usize, momentum: bool) -> Toy {
    let mut toy = peers(architecture, workers, rows);
    toy.job.update.weight_decay = 0.0;
    toy.job.update.optimizer = if momentum { OptimizerSpec::MOMENTUM } else { OptimizerSpec::Sgd };
    toy
}
