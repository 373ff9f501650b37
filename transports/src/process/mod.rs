//! Gradients from a compute process: a program in any language, next to its worker.
//!
//! The worker sends the numbers of the rows and the parameters, and receives the gradient
//! ([`protocol`]). A process that ends or breaks the protocol is started again with the same
//! request: a gradient is a function of rows and parameters, so nothing is lost and nothing is
//! counted twice. One that has never described itself is not: it would fail in the same way.

mod address;
mod group;
mod left_out;
mod link;
pub mod protocol;
mod served;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pstrain_compute::evaluation::{self, ClassFigures, Evaluation, Figures};
use pstrain_compute::examples::{Shape, Target};
use pstrain_compute::model::{Answers, ExternalTensor, Model, ModelSpec};
use pstrain_compute::params::{Combine, Layout, Role};
use pstrain_compute::source::{GradientSource, Rows, SourceError};
use pstrain_wire::reason::as_reason;

pub use self::address::ProcessAddress;
pub use self::group::kill_all;
use self::left_out::LeftOut;
use self::link::Link;
pub use self::link::wait_for_parent;
use self::protocol::{
    Answer, CombineOf, Description, Evaluated, Hello, Order, PROCESS_PROTOCOL, ProtocolError,
    Reply, Request, StateOf, StateType, TensorOf,
};
pub use self::served::Served;

/// The variable by which numerical libraries learn the number of their threads.
pub const THREADS: &str = "OMP_NUM_THREADS";

/// How a compute process is started and watched.
#[derive(Clone, Debug)]
pub struct ProcessConfig {
    /// Where it is.
    pub address: ProcessAddress,
    /// How often it is started again after a failure, until it has answered a request.
    pub restarts: u32,
    /// How long an answer may take before the user is told, unless one took a quarter of that.
    pub silence: Duration,
    /// How long an answer may take; none for as long as it takes.
    pub timeout: Option<Duration>,
    /// Threads for its numerical libraries, unless the user has set [`THREADS`]; none to let them
    /// choose.
    pub threads: Option<usize>,
    /// Receives a message for the user when the process is started again.
    pub tell: fn(&str),
}

/// The process of one worker, or of a server's evaluations, as a source of gradients.
#[derive(Debug)]
pub struct ProcessSource {
    config: ProcessConfig,
    hello: Hello,
    link: Option<Link>,
    description: Description,
    layout: Layout,
    /// The rows of each part, by the process's numbers.
    parts: Vec<Vec<u32>>,
    /// The held-out rows, empty for rows of the process's own; why it has none.
    held_out: Result<Vec<u32>, SourceError>,
    /// Row numbers of the request in progress.
    rows: Vec<u32>,
    /// The number of the last request.
    id: u64,
    /// The gradient that was begun and not received: the number of its request, or why that could
    /// not be sent.
    begun: Option<Result<u64, Failure>>,
    /// Restarts since the last answer.
    failures: u32,
    /// The longest time that an answer has taken.
    longest: Duration,
    /// The state tensors, by number, whose values the user was told to be wrong.
    told: BTreeSet<usize>,
    left_out: LeftOut,
}

/// Why a request has no answer.
#[derive(Debug)]
enum Failure {
    /// Asking again would not help: the process said so, or it is none.
    Final(String),
    /// The process ended, or broke the protocol.
    Broken(String),
}

impl From<ProtocolError> for Failure {
    fn from(error: ProtocolError) -> Self {
        Self::Broken(error.to_string())
    }
}

impl ProcessSource {
    /// Starts the process and asks for its description. It has no parts yet.
    ///
    /// # Errors
    /// [`SourceError`] if the process cannot be started, or does not describe itself.
    pub fn start(config: ProcessConfig, hello: Hello) -> Result<Self, SourceError> {
        let hello = Hello { protocol: PROCESS_PROTOCOL, ..hello };
        let mut source = Self {
            config,
            hello,
            link: None,
            description: Description::default(),
            layout: Layout::default(),
            parts: Vec::new(),
            held_out: Ok(Vec::new()),
            rows: Vec::new(),
            id: 0,
            begun: None,
            failures: 0,
            longest: Duration::ZERO,
            told: BTreeSet::new(),
            left_out: LeftOut::default(),
        };
        source.attempt(|source| source.link().map(|_open| ()))?;
        Ok(source)
    }

    /// The model and the data of the process. A process that pstrain did not start stays, to be
    /// asked again.
    #[must_use]
    pub fn into_description(self) -> Description {
        self.link.into_iter().for_each(Link::leave);
        self.description
    }

    /// Sets the rows of each part, by the process's numbers.
    #[must_use]
    pub fn with_parts(self, parts: Vec<Vec<u32>>) -> Self {
        Self { parts, ..self }
    }

    /// The tensors of the process.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Sets the held-out rows, by the process's numbers; none for rows of its own, an error if it
    /// does not have them.
    #[must_use]
    pub fn with_held_out(self, held_out: Result<Vec<u32>, SourceError>) -> Self {
        Self { held_out, ..self }
    }

    /// Asks for an evaluation on `rows`; if there are none, on rows of the process's own.
    fn evaluate_rows(&mut self, rows: &[u32], params: &[f32]) -> Result<Evaluation, SourceError> {
        let rows = Some(rows).filter(|rows| !rows.is_empty());
        self.forget_begun();
        let found = self.attempt(|source| {
            let id = source.send(Request::Evaluate, rows, params)?;
            Ok(source.receive::<Evaluated>(id, &mut [])?.0)
        })?;
        if let Some(Some(accuracy)) = found.metrics.get("accuracy")
            && (*accuracy < 0.0 || *accuracy > 1.0)
        {
            let why = format!("its accuracy {accuracy} is no share of the rows, from 0 to 1");
            return Err(self.error(&why));
        }
        let (examples, loss) = (found.examples, found.loss.unwrap_or(f64::NAN));
        let figures = found.figures();
        Ok(Evaluation { examples, loss, figures, ..Evaluation::absent(params) })
    }

    /// The model and the data of the process.
    #[must_use]
    pub const fn description(&self) -> &Description {
        &self.description
    }

    /// The open connection: connects first if there is none.
    fn link(&mut self) -> Result<&mut Link, Failure> {
        if self.link.is_none() {
            let (link, found) = self.greet()?;
            let found = described(found).map_err(Failure::Final)?;
            if !self.layout.is_empty() && found != self.description {
                let what = "after its restart it has another model or other data than before";
                return Err(Failure::Final(what.into()));
            }
            self.layout = found.layout().map_err(Failure::Final)?;
            self.description = found;
            self.link = Some(link);
        }
        self.link.as_mut().ok_or_else(|| Failure::Broken("it is not connected".into()))
    }

    /// Connects, says hello and receives the answer. The first time, only an answer that is late
    /// may come after a restart.
    fn greet(&self) -> Result<(Link, serde_json::Value), Failure> {
        let failure = match self.layout.is_empty() {
            true => Failure::Final,
            false => Failure::Broken,
        };
        let mut link = Link::open(&self.config)
            .map_err(|error| failure(format!("it cannot be started: {error}")))?;
        let hello = Request::Hello(self.hello.clone());
        let answer = link.ask(&hello, &[], &[]).and_then(|()| {
            let found = link.message(|found: &serde_json::Value| found.check(0, 0), None)?;
            link.take(&mut [])?;
            found.ok_or(ProtocolError::Ended)
        });
        match answer {
            Ok(answer) => Ok((link, answer)),
            Err(error @ ProtocolError::Late) => Err(error.into()),
            Err(error @ ProtocolError::Ended) => {
                let how = ended_or(&mut link, &error);
                Err(failure(format!("{how}, before it answered hello")))
            }
            Err(error) => Err(failure(error.to_string())),
        }
    }

    /// Asks until the process answers: starts it again if it fails.
    fn attempt<T>(
        &mut self,
        mut ask: impl FnMut(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, SourceError> {
        loop {
            let why = match ask(self) {
                Ok(answer) => {
                    self.failures = 0;
                    return Ok(answer);
                }
                Err(Failure::Final(why)) => return Err(self.error(&why)),
                Err(Failure::Broken(why)) => why,
            };
            self.link = None;
            // The parent is the only process of its kind.
            let is_last = self.failures >= self.config.restarts
                || self.config.address == ProcessAddress::Parent;
            if is_last {
                return Err(self.error(&why));
            }
            self.failures += 1;
            (self.config.tell)(&format!(
                "{}; starting it again ({} of {})",
                self.error(&why),
                self.failures,
                self.config.restarts
            ));
        }
    }

    /// The error of a request. `why` may have words of the process.
    fn error(&self, why: &str) -> SourceError {
        let (address, why) = (&self.config.address, as_reason(why));
        SourceError(format!("the compute process ({address}) failed: {why}"))
    }

    /// Sends a request with parameters, and returns the number of the request.
    fn send(
        &mut self,
        request: fn(Order) -> Request,
        rows: Option<&[u32]>,
        params: &[f32],
    ) -> Result<u64, Failure> {
        self.id += 1;
        let id = self.id;
        let (order, after) = Order::of(id, (rows, self.description.rows), params.len());
        let link = self.link()?;
        say(link, &request(order), params, after)?;
        Ok(id)
    }

    /// Sets the rows of the next request to examples of a part.
    fn name_rows(&mut self, part: usize, numbers: &[u32]) {
        let rows = &self.parts[part];
        self.rows.clear();
        self.rows.extend(numbers.iter().map(|&number| rows[number as usize]));
    }

    /// Sends the request for a gradient of [`Self::rows`].
    fn send_rows(&mut self, params: &[f32]) -> Result<u64, Failure> {
        let rows = std::mem::take(&mut self.rows);
        let sent = self.send(Request::Gradient, Some(&rows), params);
        self.rows = rows;
        sent
    }

    /// Receives and discards the gradient that was begun: its answer comes before any other.
    fn forget_begun(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        let mut gradient = vec![0.0; self.layout.len()];
        let found = begun.and_then(|id| self.receive::<Answer>(id, &mut gradient));
        if let Err(Failure::Broken(_)) = found {
            self.link = None;
        }
    }

    /// Receives the answer to request `id`, 0 for the start, and its values. Returns true with the
    /// answer if all of them are finite.
    fn receive<M: Reply>(&mut self, id: u64, values: &mut [f32]) -> Result<(M, bool), Failure> {
        let (wanted, patience) = (values.len(), self.config.silence.max(4 * self.longest));
        let check = move |answer: &M| answer.check(id, wanted);
        let link = self.link()?;
        let mut heard = link.message(check, Some(patience.saturating_sub(link.waited())));
        if matches!(heard, Ok(None)) {
            self.tell_of_silence(patience);
            heard = self.link()?.message(check, None);
        }
        let link = self.link()?;
        let waited = link.waited();
        let answer = heard.and_then(|answer| {
            let answer = answer.ok_or(ProtocolError::Ended)?;
            let is_finite = link.take(if answer.values().is_some() { values } else { &mut [] })?;
            Ok((answer, is_finite))
        });
        let (answer, is_finite) =
            answer.map_err(|error| Failure::Broken(ended_or(link, &error)))?;
        self.longest = self.longest.max(waited);
        match answer.error() {
            Some(why) => Err(Failure::Final(why.into())),
            None => Ok((answer, is_finite)),
        }
    }

    /// Tells the user that an answer takes long, once for each request.
    fn tell_of_silence(&self, waited: Duration) {
        (self.config.tell)(&format!(
            "the compute process ({}) has not answered for {} s: it computes, or it was stopped, \
             or it waits for something",
            self.config.address,
            waited.as_secs_f32()
        ));
    }
}

/// Sends a request, with parameters and row numbers after it.
fn say(link: &mut Link, request: &Request, values: &[f32], rows: &[u32]) -> Result<(), Failure> {
    let sent = link.ask(request, values, rows);
    sent.map_err(|error| Failure::Broken(ended_or(link, &error)))
}

/// The description in the answer to a hello.
fn described(answer: serde_json::Value) -> Result<Description, String> {
    if let Some(why) = answer.get("error").and_then(serde_json::Value::as_str) {
        return Err(why.into());
    }
    serde_json::from_value(answer).map_err(|error| format!("its description is wrong: {error}"))
}

/// How the process ended if it has, or else the error.
fn ended_or(link: &mut Link, error: &ProtocolError) -> String {
    match error {
        ProtocolError::Ended => link.ended().unwrap_or_else(|| error.to_string()),
        _ => error.to_string(),
    }
}

impl Description {
    /// The model: its tensors, without state that is local.
    #[must_use]
    pub fn model(&self) -> ModelSpec {
        let parameters = self.tensors.iter().map(|TensorOf { name, shape }| ExternalTensor {
            name: name.clone(),
            shape: shape.clone(),
            role: Role::Parameter,
        });
        let state = self.state.iter().filter_map(|StateOf { name, shape, combine, kind }| {
            let combine = match combine {
                CombineOf::Local => return None,
                CombineOf::Mean => Combine::Mean,
                CombineOf::First => Combine::First,
            };
            let role = Role::State { combine, whole: *kind == StateType::I64 };
            Some(ExternalTensor { name: name.clone(), shape: shape.clone(), role })
        });
        ModelSpec::External { tensors: parameters.chain(state).collect(), answers: self.answers }
    }

    /// The layout of the values in messages.
    fn layout(&self) -> Result<Layout, String> {
        let mixed = self
            .state
            .iter()
            .find(|state| state.combine == CombineOf::Mean && state.kind == StateType::I64);
        if let Some(StateOf { name, .. }) = mixed {
            return Err(format!(
                "state {name:?}: the mean of whole numbers is none; combine first or local"
            ));
        }
        // The model has neither shape nor loss.
        let model = Model::new(&self.model(), Shape::default());
        model.map(|model| model.layout().clone()).map_err(|error| error.to_string())
    }
}

/// Turns an answer at `params` into a gradient: of the parameters, and the change of the state.
fn into_gradient(layout: &Layout, answers: Answers, params: &[f32], answer: &mut [f32]) {
    let (parameters, state) = answer.split_at_mut(layout.trained());
    if answers == Answers::Difference {
        parameters.iter_mut().for_each(|value| *value = -*value);
    }
    let before = params.iter().skip(layout.trained());
    state.iter_mut().zip(before).for_each(|(value, before)| *value -= before);
}

impl GradientSource for ProcessSource {
    fn parameters(&self) -> usize {
        self.layout.len()
    }

    fn initial(&mut self) -> Result<Option<Vec<f32>>, SourceError> {
        let mut initial = vec![0.0; self.layout.len()];
        self.forget_begun();
        self.attempt(|source| {
            say(source.link()?, &Request::Start, &[], &[])?;
            // The answer has no number.
            source.receive::<Answer>(0, &mut initial)
        })?;
        if let Some((_, problem)) = state::problems(&self.layout, &initial).next() {
            return Err(self.error(&format!("at the start, {problem}")));
        }
        Ok(Some(initial))
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn examples(&self, part: usize) -> usize {
        self.parts[part].len()
    }

    fn gradient(
        &mut self,
        Rows { part, numbers, .. }: Rows<'_>,
        params: &[f32],
        gradient: &mut [f32],
    ) -> Result<f32, SourceError> {
        let mut begun = self.begun.take();
        if begun.is_none() {
            self.name_rows(part, numbers);
        }
        debug_assert_eq!(self.rows.len(), numbers.len(), "the gradient that was begun");
        let (answer, is_finite) = self.attempt(|source| {
            let id = begun.take().unwrap_or_else(|| source.send_rows(params))?;
            source.receive::<Answer>(id, gradient)
        })?;
        if let Some(why) = &answer.skip {
            gradient.fill(f32::NAN);
            self.left_out.note(&self.rows, Some(why), &self.config);
            return Ok(f32::NAN);
        }
        let loss = answer.loss.unwrap_or(f64::NAN);
        let mut is_explained = false;
        for (tensor, problem) in state::problems(&self.layout, gradient) {
            is_explained = true;
            // The server judges the gradient, and names no tensor.
            if self.told.insert(tensor) {
                (self.config.tell)(&format!(
                    "the compute process ({}): {problem}",
                    self.config.address
                ));
            }
        }
        match is_finite {
            true => self.left_out.finite(&self.rows),
            false if is_explained => {}
            false => self.left_out.note(&self.rows, None, &self.config),
        }
        into_gradient(&self.layout, self.description.answers, params, gradient);
        Ok(loss as f32)
    }

    fn begin(&mut self, Rows { part, numbers, .. }: Rows<'_>, params: &[f32]) {
        // A process that is to be started again is so when its answer is needed.
        if self.link.is_some() && self.begun.is_none() {
            self.name_rows(part, numbers);
            self.begun = Some(self.send_rows(params));
        }
    }

    fn is_answered(&mut self, within: Duration) -> bool {
        match (&self.begun, &mut self.link) {
            (Some(Ok(id)), Some(link)) => {
                // A wrong answer, like none, is for a caller that may wait for a restart.
                let check = |answer: &Answer| answer.check(*id, self.layout.len());
                matches!(link.message(check, Some(within)), Ok(Some(_)))
            }
            // It is to be started again.
            (Some(Err(_)), _) | (_, None) => false,
            (None, Some(_)) => true,
        }
    }

    fn evaluate(&mut self, part: usize, params: &[f32]) -> Result<Evaluation, SourceError> {
        let rows = self.parts.get(part).cloned().unwrap_or_default();
        self.evaluate_rows(&rows, params)
    }

    fn evaluate_held_out(&mut self, params: &[f32]) -> Result<Evaluation, SourceError> {
        let rows = self.held_out.clone()?;
        self.evaluate_rows(&rows, params)
    }
}

impl Evaluated {
    /// The figures: of classes if the process named an accuracy and no metric that classes do not
    /// have, or else its metrics by name.
    fn figures(self) -> Figures {
        let Self { examples, metrics, recall, f1, .. } = self;
        let finite = |(name, value): (String, Option<f64>)| {
            Some((name, value.filter(|value| value.is_finite())?))
        };
        let mut metrics: BTreeMap<String, f64> = metrics.into_iter().filter_map(finite).collect();
        let of_classes = ClassFigures { recall, f1, ..ClassFigures::default() };
        let known = evaluation::metrics(Target::Classes(2));
        let are_known = metrics.keys().all(|name| known.clone().any(|metric| metric.name == *name));
        if let Some(accuracy) = metrics.get("accuracy")
            && are_known
        {
            let correct = (accuracy * examples as f64).round() as u64;
            let auc = metrics.get("auc").copied();
            return Figures::Classes(ClassFigures { correct, auc, ..of_classes });
        }
        let macro_f1 = of_classes.macro_f1();
        if macro_f1.is_finite() {
            metrics.entry("macro_f1".into()).or_insert(macro_f1);
        }
        Figures::Named(metrics)
    }
}
