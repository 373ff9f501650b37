//! Progress of a server for people: the progress bar and messages about events.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_roles::node::{Departure, Event, Point};
use pstrain_transports::WallClock;
use pstrain_wire::Status;
use pstrain_wire::reason::as_reason;

use crate::messages::{self, Level};
use crate::metric_text;
use crate::pulse::Pulse;
use crate::troubles::EventLimiter;
use crate::{figures, table};

/// Returns a bar of this length, drawn by `template`. It is hidden if quiet, not on a terminal, or
/// if messages are JSON.
pub(crate) fn bar(length: u64, template: &str, quiet: bool) -> ProgressBar {
    let target = if quiet || messages::are_json() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    styled(ProgressBar::with_draw_target(Some(length), target), template)
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// Draws the progress bar and prints the events that matter to a person.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// The fields next to the bar, which it reads when it is drawn.
    fields: Arc<Mutex<Fields>>,
    quiet: bool,
    /// True if workers are started separately; their joining is then worth a message.
    guests: bool,
    clock: WallClock,
    shown: Option<Time>,
    troubles: EventLimiter,
}

/// The state of a run, as the bar shows it.
#[derive(Debug)]
pub(crate) struct Standing<'a> {
    /// The newest evaluation.
    pub(crate) evaluation: Option<&'a Evaluation>,
    /// The share of the workers' time spent waiting.
    pub(crate) wait_share: f64,
    /// The mean staleness of applied gradients.
    pub(crate) mean_staleness: f64,
}

/// Fewest columns of the bar.
const BAR: usize = 8;

impl Standing<'_> {
    /// The fields of the text next to the bar, but the time that is left.
    fn fields(&self, point: &Point) -> Fields {
        let mut fields = vec![(0, format!("epoch {:.1}", point.epoch))];
        if let Some(evaluation) = self.evaluation {
            let main = evaluation.named().into_iter().next();
            fields.extend(main.map(|(name, value)| (0, metric_text::named(&name, value))));
            fields.push((1, format!("loss {:.4}", evaluation.loss)));
        }
        let rate = point.samples as f64 / point.time.as_secs_f64().max(1e-9);
        fields.extend([
            (3, format!("{} samples/s", figures::rounded(rate))),
            (4, format!("wait {:.0} %", 100.0 * self.wait_share)),
            (5, format!("staleness {:.1}", self.mean_staleness)),
        ]);
        fields
    }
}

/// Fields of a line, as [`table::line`] takes them.
type Fields = Vec<(u8, String)>;

/// The text next to the bar, which leaves the bar some columns of `width`; none without fields.
fn line(mut fields: Fields, left: Duration, width: usize) -> String {
    if !fields.is_empty() {
        let left = figures::elapsed(Duration::from_secs(left.as_secs()));
        fields.push((2, format!("{left} left")));
    }
    table::line(&fields, "  ", width.saturating_sub(BAR + 1))
}

/// Steps of the bar in an epoch.
const EPOCH: f64 = 10_000.0;

const BETWEEN: Duration = Duration::from_millis(100);

impl Progress {
    /// A bar over `epochs` passes over the data, drawn only on a terminal. With `guests`, joining
    /// workers and the start of training are reported, too.
    pub(crate) fn new(epochs: u32, quiet: bool, guests: bool) -> Self {
        let length = u64::from(epochs) * EPOCH as u64;
        Self::drawn_by(bar(length, "{wide_bar} {line}", quiet), quiet, guests)
    }

    /// The run makes `epochs` passes over the data.
    pub(crate) fn lengthen(&self, epochs: u32) {
        self.bar.set_length(u64::from(epochs) * EPOCH as u64);
    }

    /// Progress that `bar` shows, in whose template `{line}` stands for the text.
    fn drawn_by(bar: ProgressBar, quiet: bool, guests: bool) -> Self {
        let fields = Arc::<Mutex<Fields>>::default();
        let shown = Arc::clone(&fields);
        bar.set_style(bar.style().with_key(
            "line",
            move |state: &ProgressState, out: &mut dyn Write| {
                let fields = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // A text is no place that fails.
                let _written = out.write_str(&line(fields, state.eta(), messages::log_width()));
            },
        ));
        let (clock, shown, troubles) = (WallClock::start(), None, EventLimiter::new());
        Self { bar, fields, quiet, guests, clock, shown, troubles }
    }

    pub(crate) fn note<'a>(&mut self, event: &Event, standing: impl FnOnce() -> Standing<'a>) {
        let expected = !self.guests
            && matches!(event, Event::Joined { resumed: false, .. } | Event::Started { .. });
        if !expected
            && (!self.quiet || is_urgent(event))
            && let Some(words) = user_message(event)
            && let Some(message) = self.troubles.say(self.clock.now(), event, words)
        {
            self.bar.suspend(|| messages::tell(level(event), &message, event));
        }
        // The bar is throttled by real time: the time of the run may be virtual.
        if !self.bar.is_hidden()
            && let Event::Updated { point, .. } = event
            && let now = self.clock.now()
            && self.shown.is_none_or(|at| now - at >= BETWEEN)
        {
            self.shown = Some(now);
            *self.fields.lock().unwrap_or_else(PoisonError::into_inner) = standing().fields(point);
            // Draws the bar with its text.
            let position = (point.epoch * EPOCH) as u64;
            self.bar.set_position(position.min(self.bar.length().unwrap_or(u64::MAX)));
        }
    }

    pub(crate) fn finish(&mut self) {
        self.bar.finish_and_clear();
        let suppressed = self.troubles.suppressed().into_iter().filter(|_| !self.quiet);
        suppressed.for_each(|line| messages::say(&line));
    }

    /// Prints a summary of the run's state, if it is known.
    pub(crate) fn say(&self, status: Option<&Status>) {
        self.bar.suspend(|| match status.map(Pulse::of) {
            Some(pulse) => messages::tell(Level::Info, &pulse.in_words(), &pulse),
            None => messages::say("stands by, and has nothing of the server's state yet"),
        });
    }
}

/// Returns a report of the events that `user_message` describes, for a process without a bar.
pub(crate) fn teller(
    quiet: bool,
    user_message: fn(&Event) -> Option<String>,
) -> impl FnMut(Time, Event) {
    let mut troubles = EventLimiter::new();
    move |now, event| {
        if !quiet
            && let Some(words) = user_message(&event)
            && let Some(message) = troubles.say(now, &event, words)
        {
            messages::tell(level(&event), &message, &event);
        }
    }
}

fn behind(worker: WorkerId) -> String {
    format!(
        "worker {worker} was answered what the log here does not have: the end of the log is lost \
         (a disk that does not keep what it confirms, a copy that was restored, or damage), and \
         what was acknowledged since with it; the worker joins as a new incarnation"
    )
}

/// Names of metrics are text of a compute process: a few are shown, and short.
fn target_unknown(metric: &str, metrics: &[String]) -> String {
    let known = ["loss"].into_iter().chain(metrics.iter().map(String::as_str)).take(MOST_METRICS);
    let known = known.map(|name| figures::shortened(name, MOST_METRIC_NAME));
    as_reason(&format!(
        "evaluations have no {}, which target names: it cannot be reached, and patience does not \
         count; they have {}",
        figures::shortened(metric, MOST_METRIC_NAME),
        known.collect::<Vec<_>>().join(", ")
    ))
}

/// Most metrics that a message names, and most characters of each.
const MOST_METRICS: usize = 10;
const MOST_METRIC_NAME: usize = 24;

fn from_update(version: Option<Version>) -> String {
    version.map_or_else(String::new, |version| format!(" from update {version} on"))
}

/// True for an event that is told even with `quiet`: acknowledged work is lost, a worker does not
/// take part because of an error, or the job asks for a metric that there is not.
const fn is_urgent(event: &Event) -> bool {
    matches!(
        event,
        Event::Behind { .. }
            | Event::Departed { how: Departure::Left, why: Some(_), .. }
            | Event::Refused { worker: Some(_), .. }
            | Event::TargetUnknown { .. }
    )
}

/// Returns the severity of an event that [`user_message`] describes.
const fn level(event: &Event) -> Level {
    match event {
        Event::CutOff { .. }
        | Event::Behind { .. }
        | Event::Departed { .. }
        | Event::TargetUnknown { .. }
        | Event::Refused { .. }
        | Event::Paused { .. }
        | Event::Unevaluated { .. }
        | Event::ServerCutOff { .. }
        | Event::StandbyLost { .. }
        | Event::TookOver { .. }
        | Event::Redialling { .. } => Level::Warning,
        _ => Level::Info,
    }
}

/// Describes an event if it is worth a message.
pub(crate) fn user_message(event: &Event) -> Option<String> {
    Some(match event {
        Event::Joined { worker, name, resumed: true, .. } => {
            format!("worker {worker} ({name}) is back")
        }
        Event::Joined { worker, name, .. } => format!("worker {worker} is {name}"),
        Event::Started { workers } => {
            format!("training begins with {}", figures::counted((*workers).into(), "worker"))
        }
        Event::CutOff { worker, why } => format!("worker {worker} was cut off: {why}"),
        Event::Departed { worker, how: Departure::Lost, .. } => {
            format!("worker {worker} is lost: it was silent for a whole lease")
        }
        Event::Departed { worker, how: Departure::Left, why: Some(why), .. } => {
            format!("worker {worker} has left: {why}")
        }
        Event::Refused { worker, from, who, why, .. } => {
            let who = worker.map(|worker| format!("worker {worker}")).or_else(|| who.clone());
            match (who, from) {
                (Some(who), Some(from)) => format!("{who} at {from} was refused: {why}"),
                (Some(who), None) => format!("{who} was refused: {why}"),
                (None, Some(from)) => format!("a connection from {from} was refused: {why}"),
                (None, None) => format!("a connection was refused: {why}"),
            }
        }
        Event::Behind { worker, .. } => behind(*worker),
        Event::TargetUnknown { metric, metrics } => target_unknown(metric, metrics),
        Event::ServerJoined { server } => format!("server {server} is there"),
        Event::ServerCutOff { server, why } => {
            format!("server {server} was cut off: {why}; the run waits for it")
        }
        Event::Paused { present, needed } => {
            format!("paused until more workers come: {needed} needed, {present} there")
        }
        Event::Unpaused => "going on".into(),
        Event::Unevaluated { version, why } => {
            format!("the parameters of update {version} are not evaluated: {why}")
        }
        Event::StandbyJoined { address } => {
            format!("the server at {address} stands by: it has all that is acknowledged")
        }
        Event::StandbyLost { stood, why, .. } => format!(
            "the standby is gone ({why}); continuing alone after {:.2} s, as was promised",
            stood.as_secs_f64()
        ),
        Event::Redialling { attempt, pause, why } => format!(
            "no connection to the server: {why}; try {attempt} in {:.1} s",
            pause.as_secs_f64()
        ),
        Event::Following { version } => format!("following the server{}", from_update(*version)),
        Event::TookOver { version, stood, why, .. } => format!(
            "leading{}, {:.2} s after the server was gone ({why}), as was promised",
            from_update(*version),
            stood.as_secs_f64()
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use indicatif::TermLike;
    use pstrain_compute::evaluation::Figures;
    use pstrain_policy::rules::Closing;

    use super::*;

    /// A terminal that counts how often it is written to.
    #[derive(Clone, Debug, Default)]
    struct Counting {
        lines: Arc<Mutex<Vec<String>>>,
        flushed: Arc<AtomicUsize>,
    }

    impl TermLike for Counting {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.lines.lock().unwrap().push(text.to_owned());
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            self.flushed.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn a_refresh_of_the_bar_writes_it_once() {
        let terminal = Counting::default();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let bar = ProgressBar::with_draw_target(Some(2 * EPOCH as u64), target);
        let mut progress = Progress::drawn_by(styled(bar, "{wide_bar} {line}"), false, false);
        let point = Point { version: Version(1), samples: 64, epoch: 0.5, time: Duration::ZERO };
        let update = Event::Updated { point, closing: Closing::Everything };
        let standing = || Standing { evaluation: None, wait_share: 0.5, mean_staleness: 0.0 };
        progress.note(&update, standing);
        assert_eq!(terminal.flushed.load(Ordering::Relaxed), 1);
        // Later ones are throttled.
        progress.note(&update, standing);
        assert_eq!(terminal.flushed.load(Ordering::Relaxed), 1);
        let lines = terminal.lines.lock().unwrap();
        let with_text = lines.iter().filter(|line| line.contains("epoch 0.5"));
        assert_eq!(with_text.count(), 1, "{lines:?}");
    }

    #[test]
    fn the_bar_of_a_large_run_fits_a_narrow_terminal() {
        let figures = Figures::Named([("accuracy".to_owned(), 0.912)].into());
        let evaluation = Evaluation { loss: 0.3, figures, ..Evaluation::default() };
        let standing =
            Standing { evaluation: Some(&evaluation), wait_share: 0.5, mean_staleness: 12_345.6 };
        let point = Point {
            version: Version(10_000_000),
            samples: 640_000_000,
            epoch: 1234.5,
            time: Duration::from_secs(100),
        };
        let line = |width| line(standing.fields(&point), Duration::from_secs(4_000), width);
        let narrow = "epoch 1234.5  accuracy 91.20 %  loss 0.3000  wait 50 %  1h 06m left";
        assert_eq!(line(80), narrow);
        assert_eq!(line(40), "epoch 1234.5  accuracy 91.20 %");
        let wide = "epoch 1234.5  accuracy 91.20 %  loss 0.3000  6,400,000 samples/s  wait 50 %  \
                    staleness 12345.6  1h 06m left";
        assert_eq!(line(200), wide);
    }
}
