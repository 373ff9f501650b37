//! Services of the roles: perform every effect that does not move messages.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pstrain_compute::examples::Examples;
use pstrain_compute::id::PartId;
use pstrain_compute::time::Time;
use pstrain_policy::job::Exchange;
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{Effect, Event, Input, Prepare};
use pstrain_wire::Status;
use pstrain_wire::worker::EXAMPLES_CHUNK_BYTES;
use pstrain_wire::worker::{ExampleRows, ExamplesChunk};

use crate::clock::WallClock;
use crate::compute::Computer;
use crate::driver::{Handle, Services};
use crate::evaluate::Evaluator;
use crate::loaded::{Loaded, Loader, prepare_trainer};
use crate::paced::Pacing;
use crate::punctuality::Punctuality;
use crate::threads::Threads;

type Report = Box<dyn FnMut(Time, Event) + Send>;
type Look = Box<dyn FnMut(Option<Status>) + Send>;

/// Services of a worker: loading data and computing gradients.
pub struct WorkerServices {
    loading: Loading,
    /// Threads that compute a gradient.
    threads: usize,
    computer: Option<Computer>,
    report: Report,
    punctuality: Arc<Mutex<Punctuality>>,
}

/// Services of a server that is not the coordinator: reports only.
pub struct ShardServices {
    report: Report,
}

impl fmt::Debug for ShardServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardServices").finish_non_exhaustive()
    }
}

impl ShardServices {
    /// Returns services that pass events to `report`.
    #[must_use]
    pub fn new(report: impl FnMut(Time, Event) + Send + 'static) -> Self {
        Self { report: Box::new(report) }
    }
}

impl Services for ShardServices {
    fn report(&mut self, now: Time, event: Event) {
        (self.report)(now, event);
    }

    fn work(&mut self, _effect: Effect, _handle: &Handle) -> Option<Input> {
        None // a shard requests no work
    }

    fn examples(&mut self, _part: PartId, _from: u64) -> Option<ExamplesChunk> {
        None
    }
}

/// Loader of partitions; answers orders in sequence.
enum Loading {
    /// Not started; the thread starts with the first order.
    Idle(Option<Loader<'static>>),
    Begun {
        orders: Sender<(Box<Prepare>, Handle, WallClock)>,
        loaded: Receiver<Ready>,
    },
}

/// A trainer with its partition, and the duration model of its gradients.
struct Ready {
    trainer: Trainer,
    short: Duration,
    pacing: Option<Pacing>,
}

impl fmt::Debug for WorkerServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerServices").field("computer", &self.computer).finish_non_exhaustive()
    }
}

impl WorkerServices {
    /// Returns services that load the data of [`Prepare::parts`] with `loader`, which may be slow.
    #[must_use]
    pub fn new<L: Into<Loaded>>(
        loader: impl Fn(&Prepare) -> Result<L, String> + Send + 'static,
        report: impl FnMut(Time, Event) + Send + 'static,
    ) -> Self {
        let loader = move |order: &Prepare| loader(order).map(Into::into);
        Self {
            loading: Loading::Idle(Some(Box::new(loader))),
            threads: 1,
            computer: None,
            report: Box::new(report),
            punctuality: Arc::default(),
        }
    }

    /// The same, where so many threads compute a gradient. Their number changes no bit.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Returns how closely gradients kept to the modelled times.
    #[must_use]
    pub fn punctuality(&self) -> Punctuality {
        self.punctuality.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Loads on a separate thread, since a slow disk must not cost the worker its lease. Orders are
    /// answered in sequence.
    fn prepare(&mut self, order: Box<Prepare>, handle: &Handle) {
        if let Loading::Idle(loader) = &mut self.loading
            && let Some(loader) = loader.take()
        {
            self.loading = Loading::begin(loader, self.threads, Arc::clone(&self.punctuality));
        }
        if let Loading::Begun { orders, .. } = &self.loading {
            // The thread lives as long as this sender. The order comes with the welcome, so the
            // scenario's time begins here.
            let _sent = orders.send((order, handle.clone(), WallClock::start()));
        }
    }

    /// Takes over the trainer that was loaded last.
    fn take_loaded(&mut self, handle: &Handle) {
        if let Loading::Begun { loaded, .. } = &self.loading
            && let Some(Ready { trainer, short, pacing }) = loaded.try_iter().last()
        {
            self.computer = Some(match pacing {
                Some(pacing) => Computer::paced(trainer, pacing, handle),
                None => Computer::new(trainer, short, handle),
            });
        }
    }
}

impl Loading {
    fn begin(
        loader: Loader<'static>,
        threads: usize,
        punctuality: Arc<Mutex<Punctuality>>,
    ) -> Self {
        let (orders, inbox) = channel::<(Box<Prepare>, Handle, WallClock)>();
        let (sender, loaded) = channel();
        std::thread::spawn(move || {
            for (mut order, handle, clock) in inbox {
                let pacing = Pacing::of(&order.job, order.worker, clock, &punctuality);
                let prepared = pacing.and_then(|pacing| {
                    let (mut trainer, prepared) = prepare_trainer(&loader, &mut order)?;
                    if threads > 1 {
                        trainer.work_with(Arc::new(Threads::new(threads)));
                    }
                    // In the driver's loop no range could leave before the gradient is whole.
                    let short = match order.job.exchange {
                        Exchange::Layers => Duration::ZERO,
                        _ => order.job.membership.heartbeat() / 10,
                    };
                    let _gone = sender.send(Ready { trainer, short, pacing });
                    Ok(prepared)
                });
                handle.post(Input::Prepared(prepared));
            }
        });
        Self::Begun { orders, loaded }
    }
}

impl Services for WorkerServices {
    fn report(&mut self, now: Time, event: Event) {
        (self.report)(now, event);
    }

    fn foresee(&mut self, effect: &Effect) {
        if let (Effect::Compute(order), Some(computer)) = (effect, &mut self.computer) {
            computer.begin(order);
        }
    }

    fn work(&mut self, effect: Effect, handle: &Handle) -> Option<Input> {
        match effect {
            Effect::Prepare(order) => {
                self.prepare(order, handle);
                None
            }
            Effect::Compute(order) => {
                self.take_loaded(handle);
                self.computer.as_mut()?.compute(order, handle)
            }
            Effect::EvaluateHere(order) => {
                self.take_loaded(handle);
                match &mut self.computer {
                    Some(computer) => {
                        computer.evaluate(order, handle);
                        None
                    }
                    None => {
                        let why = "its data are not ready".into();
                        Some(Input::EvaluatedHere(order.ticket, Err(why)))
                    }
                }
            }
            _ => None,
        }
    }

    fn examples(&mut self, _part: PartId, _from: u64) -> Option<ExamplesChunk> {
        None
    }
}

/// Serves partitions in chunks to workers without their own data.
pub(crate) struct Partitions<'a> {
    make: Box<dyn Fn(PartId) -> Option<Examples> + Send + 'a>,
    /// Partitions that are being sent.
    sending: BTreeMap<PartId, Examples>,
}

impl<'a> Partitions<'a> {
    pub(crate) fn new(make: impl Fn(PartId) -> Option<Examples> + Send + 'a) -> Self {
        Self { make: Box::new(make), sending: BTreeMap::new() }
    }

    /// Returns rows of a part from row `from` on; `None` if no rows are left or the part does not
    /// exist.
    pub(crate) fn chunk(&mut self, part: PartId, from: u64) -> Option<ExamplesChunk> {
        let examples = match self.sending.entry(part) {
            Entry::Occupied(sending) => sending.into_mut(),
            Entry::Vacant(free) => free.insert((self.make)(part)?),
        };
        let total = examples.len();
        let begin = usize::try_from(from).ok().filter(|&begin| begin < total)?;
        let end = begin + examples.packed_rows(begin, EXAMPLES_CHUNK_BYTES as usize);
        let mut packed = Vec::new();
        examples.pack(begin..end, &mut packed);
        if end == total {
            self.sending.remove(&part);
        }
        Some(ExamplesChunk { rows: ExampleRows { from, total: total as u64 }, packed })
    }
}

/// Services of a coordinator: evaluations, and examples for workers that have none.
pub struct ServerServices {
    evaluator: Evaluator,
    partitions: Partitions<'static>,
    report: Report,
    watch: Option<Watch>,
}

/// Periodic report of the job's status.
struct Watch {
    every: Duration,
    next: Time,
    look: Look,
}

impl fmt::Debug for ServerServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerServices").field("evaluator", &self.evaluator).finish_non_exhaustive()
    }
}

impl ServerServices {
    /// Returns services that evaluate with `evaluator` and make partitions with `partition`. If
    /// `partition` returns `None`, the worker that requested the part is disconnected.
    #[must_use]
    pub fn new(
        evaluator: Evaluator,
        partition: impl Fn(PartId) -> Option<Examples> + Send + 'static,
        report: impl FnMut(Time, Event) + Send + 'static,
    ) -> Self {
        let (partitions, report) = (Partitions::new(partition), Box::new(report));
        Self { evaluator, partitions, report, watch: None }
    }

    /// Adds a periodic report: passes the job's status to `look` at each `every` after `from`.
    #[must_use]
    pub fn watched(
        mut self,
        from: Time,
        every: Duration,
        look: impl FnMut(Option<Status>) + Send + 'static,
    ) -> Self {
        self.watch = Some(Watch { every, next: from + every, look: Box::new(look) });
        self
    }
}

impl Services for ServerServices {
    fn report(&mut self, now: Time, event: Event) {
        (self.report)(now, event);
    }

    fn work(&mut self, effect: Effect, handle: &Handle) -> Option<Input> {
        if let Effect::Evaluate(order) = effect {
            self.evaluator.evaluate(order, handle);
        }
        None
    }

    fn examples(&mut self, part: PartId, from: u64) -> Option<ExamplesChunk> {
        self.partitions.chunk(part, from)
    }

    fn looks_at(&self) -> Option<Time> {
        self.watch.as_ref().map(|watch| watch.next)
    }

    fn look(&mut self, now: Time, status: Option<Status>) {
        if let Some(watch) = &mut self.watch {
            watch.next = now + watch.every;
            (watch.look)(status);
        }
    }
}
