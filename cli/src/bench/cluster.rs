//! Servers and workers as in a run, but without records: the total cost of a push.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use pstrain_compute::examples::Examples;
use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::Stream;
use pstrain_compute::source::Local;
use pstrain_compute::time::Time;
use pstrain_data::Prepared;
use pstrain_policy::job::Job;
use pstrain_roles::node::{Event, Prepare, Server, Worker, WorkerConfig};
use pstrain_transports::{Evaluator, Mailbox, ServerServices, Transport, WorkerServices, drive};

use crate::job::{Layers, Resolved};

/// Long enough that no worker is declared lost, and that no heartbeats are sent.
const LEASE: Duration = Duration::from_secs(3600);

/// Pushes before the timed ones: they allocate all buffers, as bare sockets do before they are
/// timed.
const WARM_UP: u64 = 3;

/// Fewest training rows of a job.
const LEAST_ROWS: u32 = 300;

/// A job that pushes gradients without computing any.
pub(super) struct Pushes {
    resolved: Resolved,
}

impl Pushes {
    /// A job of `workers` asynchronous workers that together push `count` gradients of `parameters`
    /// values each.
    pub(super) fn new(workers: u32, parameters: u32, count: u32) -> anyhow::Result<Self> {
        // Whole epochs, with mini-batches as small as the smallest data set allows. Three quarters
        // of the rows are training rows.
        let epoch = count.min(3000 * workers.div_ceil(1000));
        let batch = LEAST_ROWS.div_ceil(epoch);
        let settings = [
            ("data", format!("synthetic:{}", (epoch * batch * 4).div_ceil(3))),
            ("model", format!("timing:{parameters}")),
            ("workers", workers.to_string()),
            ("consistency", "asp".into()),
            ("batch-size", batch.to_string()),
            ("epochs", count.div_ceil(epoch).to_string()),
            ("lease", humantime::format_duration(LEASE).to_string()),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value));
        let layers = Layers::of("bench", &BTreeMap::from(settings))?;
        Ok(Self { resolved: layers.resolve()? })
    }

    /// The job and its data.
    pub(super) fn parts(self) -> (Job, Prepared) {
        (self.resolved.job, self.resolved.data)
    }

    /// Trains over `transport`, with workers whose transports `dial` makes; returns the seconds per
    /// push.
    pub(super) fn run<W: Transport + 'static>(
        self,
        transport: impl Transport,
        dial: impl Fn() -> anyhow::Result<W>,
    ) -> anyhow::Result<f64> {
        let Resolved { job, data, .. } = self.resolved;
        let workers = job.membership.workers;
        let data = Arc::new(data);
        let threads: Vec<JoinHandle<anyhow::Result<()>>> = (0..workers)
            .map(|worker| Ok(work(WorkerId(worker), dial()?, Arc::clone(&data))))
            .collect::<anyhow::Result<_>>()?;
        let mailbox = Mailbox::new(&transport);
        let seconds = serve(job, transport, data.evaluation.clone(), &mailbox, |_, _| ())?;
        for thread in threads {
            thread.join().ok().context("a worker broke down")??;
        }
        Ok(seconds)
    }
}

/// Serves the job to its end and passes each event to `report`; returns the seconds per push.
pub(super) fn serve(
    job: Job,
    mut transport: impl Transport,
    evaluation: Arc<Examples>,
    mailbox: &Mailbox,
    mut report: impl FnMut(Time, Event) + Send + 'static,
) -> anyhow::Result<f64> {
    let model = job.build_model()?;
    let mut server = Server::new(job, 1)?;
    let evaluator = Evaluator::new(Box::new(Local::new(model, [evaluation])));
    let warm = Arc::new(OnceLock::new());
    let becomes_warm = Arc::clone(&warm);
    let report = move |now, event| {
        if let Event::Updated { point, .. } = &event
            && point.version.0 >= WARM_UP
        {
            becomes_warm.get_or_init(|| *point);
        }
        report(now, event);
    };
    let mut services = ServerServices::new(evaluator, |_| None, report);
    drive(&mut server, &mut transport, &mut services, mailbox)??;
    let (begin, end) = (warm.get().context("it was over before it was warm")?, server.point());
    Ok((end.time - begin.time).as_secs_f64() / (end.version.0 - begin.version.0) as f64)
}

fn work(
    worker: WorkerId,
    mut transport: impl Transport + 'static,
    data: Arc<Prepared>,
) -> JoinHandle<anyhow::Result<()>> {
    std::thread::spawn(move || {
        let config = WorkerConfig {
            name: format!("bench-{worker}"),
            worker: Some(worker),
            wants_examples: false,
            lease: LEASE,
            stream: Stream::new(worker.0.into()),
        };
        let load =
            move |order: &Prepare| Ok((data.partitions(&order.parts()), data.fingerprint.clone()));
        let mut services = WorkerServices::new(load, |_, _| ());
        let mut node = Worker::new(config);
        let mailbox = Mailbox::new(&transport);
        drive(&mut node, &mut transport, &mut services, &mailbox)??;
        Ok(())
    })
}
