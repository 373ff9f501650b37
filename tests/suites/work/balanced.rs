//! Mini-batches of a pass have sizes that differ by at most one row, whichever way the work is
//! handed out, and with a server or without.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::collections::BTreeMap;

use pstrain_compute::id::PartId;
use pstrain_compute::local_training::LocalTraining;
use pstrain_compute::task::Task;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::job::{Job, OnLoss, Redundancy, WorkSpec};
use pstrain_roles::node::Event;
use pstrain_tests::{Toy, VirtualRun, partition_of, run_dealt, simulate_toy_peers};

/// Checks the mini-batches of a run, each with its number of examples: the passes over a part are
/// balanced, and all but the last are whole.
fn check(who: &str, toy: &Toy, applied: impl IntoIterator<Item = (Task, u32)>) {
    let rows = |part: PartId| partition_of(&toy.train, toy.job.parts(), part).len() as u64;
    let mut passes: BTreeMap<(PartId, u64), Vec<u64>> = BTreeMap::new();
    for (task, samples) in applied {
        let rows = rows(task.part);
        let in_pass = match task.examples {
            0 => rows.div_ceil(toy.job.batch_size.into()),
            _ => rows,
        };
        passes.entry((task.part, task.batch.0 / in_pass)).or_default().push(samples.into());
    }
    let mut whole = 0;
    for ((part, pass), sizes) in &passes {
        let who = format!("{who}: pass {pass} over part {part}: {sizes:?}");
        assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{who}");
        let is_last = !passes.contains_key(&(*part, pass + 1));
        if sizes.iter().sum::<u64>() == rows(*part) {
            assert_eq!(
                sizes.len() as u64,
                rows(*part).div_ceil(toy.job.batch_size.into()),
                "{who}"
            );
            whole += 1;
        } else {
            assert!(is_last, "{who}");
        }
    }
    assert!(whole >= toy.job.parts() * (toy.job.budget.epochs - 1), "{who}: {passes:?}");
}

/// 3 workers with 68, 68 and 67 rows: in mini-batches of 8 a few would remain.
fn toy() -> Toy {
    let mut toy = Toy::new(3, 203);
    toy.job.budget.epochs = 4;
    toy
}

#[test]
fn each_way_of_handing_out_work_balances_the_mini_batches_of_a_pass() {
    let work = |work| Toy { job: Job { work, ..toy().job }, ..toy() };
    let mut ways = vec![toy(), work(WorkSpec::Speed), work(WorkSpec::Shards { count: 7 })];
    ways.resize(6, toy());
    ways[3].job.membership.on_loss = OnLoss::Reassign;
    ways[4].job.redundancy = Redundancy::Partial { tasks: 2 };
    ways[5].job.local_training = LocalTraining::Sgd { steps: 3, rate: 0.05 };
    for toy in ways {
        let run = run_dealt(&toy, "delay=1ms", "5ms", "none");
        let applied = run.events.iter().filter_map(|(_, event)| match *event {
            Event::Applied { part, batch, examples, samples, .. } => {
                Some((Task { part, batch, examples }, samples))
            }
            _ => None,
        });
        let job = &toy.job;
        let (lost, local) = (job.membership.on_loss, job.local_training);
        check(&format!("{} {lost:?} {} {local}", job.work, job.redundancy), &toy, applied);
    }
}

#[test]
fn workers_without_a_server_balance_the_mini_batches_of_a_pass() {
    let alone = [Architecture::DPsgd, Architecture::AdPsgd];
    for architecture in Architecture::replicated().chain(alone) {
        let mut toy = toy();
        toy.job.architecture = architecture;
        let run = simulate_toy_peers(&VirtualRun::new(&toy, "delay=1ms", "5ms"));
        check(&architecture.to_string(), &toy, run.mini_batches);
    }
}
