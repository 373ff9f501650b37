//! Evaluations by workers in virtual time.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::sync::atomic::AtomicBool;

use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{PartId, Version};
use pstrain_compute::rng::Stream;
use pstrain_compute::source::{GradientSource, Local, Rows, SourceError};
use pstrain_compute::time::Time;
use pstrain_roles::node::{Event, Prepare, Server};
use pstrain_tests::{Toy, partition_of, parts_of};
use pstrain_transports::scenario::Scenario;
use pstrain_transports::simulation::{Origin, Setup, TrainingHost, simulate};
use pstrain_transports::{Loaded, Parts};

/// Training examples, and examples that are held out; or neither, on a server without an evaluator.
#[derive(Debug)]
struct Source {
    train: Local,
    held_out: Option<Local>,
}

impl GradientSource for Source {
    fn parameters(&self) -> usize {
        self.train.parameters()
    }

    fn parts(&self) -> usize {
        self.train.parts()
    }

    fn examples(&self, part: usize) -> usize {
        self.train.examples(part)
    }

    fn gradient(
        &mut self,
        rows: Rows<'_>,
        params: &[f32],
        gradient: &mut [f32],
    ) -> Result<f32, SourceError> {
        self.train.gradient(rows, params, gradient)
    }

    fn evaluate(&mut self, _: usize, _: &[f32]) -> Result<Evaluation, SourceError> {
        Err(SourceError("it evaluates elsewhere".into()))
    }

    fn evaluate_held_out(&mut self, params: &[f32]) -> Result<Evaluation, SourceError> {
        match &mut self.held_out {
            Some(held_out) => held_out.evaluate(0, params),
            None => Err(SourceError("it has no examples to evaluate on".into())),
        }
    }
}

/// Runs a job whose server evaluates, or workers with examples that are held out. Returns the
/// evaluations, the end of the run and the parameters.
fn run(servers: u32, by_server: bool) -> (Vec<(Version, Evaluation)>, Time, Vec<f32>) {
    let mut toy = Toy::new(3, 90);
    toy.job.servers = servers;
    let scenario = Scenario::parse("all.delay=5ms", "3ms", "none").unwrap();
    toy.job.scenario = scenario.to_text();
    let (model, held_out) = (toy.job.build_model().unwrap(), Toy::new(3, 40).train);
    let (train, parts) = (&toy.train, toy.job.parts());
    let load = |order: &Prepare| {
        let local = Local::new(model.clone(), parts_of(train, parts, order));
        // The first worker cannot evaluate.
        let has_them = order.worker.0 > 0;
        let held_out = has_them.then(|| Local::new(model.clone(), [held_out.clone()]));
        let source = Box::new(Source { train: local, held_out });
        let train = Some(toy.job.data.train.clone());
        Ok(Loaded { parts: Parts::Source(source), train })
    };
    let held_out = Local::new(model.clone(), [held_out.clone()]);
    let nothing = Local::new(model.clone(), [train.clone()]);
    let evaluator: Box<dyn GradientSource> = match by_server {
        true => Box::new(held_out),
        false => Box::new(Source { train: nothing, held_out: None }),
    };
    let (mut found, mut end) = (Vec::new(), Time::ZERO);
    let report = |now: Time, _: Origin, event: Event| match event {
        Event::Evaluated { point, evaluation } => found.push((point.version, evaluation)),
        Event::Ended { .. } => end = now,
        Event::Unevaluated { why, .. } => panic!("{why}"),
        _ => {}
    };
    let partition = |part: PartId| partition_of(train, parts, part);
    let mut host = TrainingHost::new(load, evaluator, partition, report);
    let server = Server::new(toy.job.clone(), 1).unwrap();
    let setup = Setup {
        stream: Stream::new(1),
        server,
        scenario: &scenario,
        measured: None,
        weight: None,
        initial: None,
        stop: &AtomicBool::new(false),
    };
    let outcome = simulate(setup, &mut host).unwrap();
    drop(host);
    (found, end, outcome.trained.parameters.unwrap().to_vec())
}

#[test]
fn workers_evaluate_to_the_same_numbers_at_the_same_time() {
    for servers in [1, 2] {
        let wanted = run(servers, true);
        assert_eq!(wanted.0.len(), 4, "the first parameters and three epochs");
        assert_eq!(run(servers, false), wanted);
    }
}
