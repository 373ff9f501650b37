//! `pstrain top`: the state of a run, drawn live in a terminal.
//!
//! The server is polled on a thread of its own, so that keys work however slow its answers are. The
//! terminal is restored on every exit; the result of the run then prints below the command.

mod curve;
mod draw;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, bail};
use pstrain_transports::WallClock;
use pstrain_wire::{Moment, Phase, Status};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::rows::Sort;
use crate::args::TopArgs;
use crate::exit::Ending;
use crate::figures::{count, counted, elapsed};
use crate::why::ConnectionFlags;
use crate::{cmd, messages, metric_text, table};

/// Points kept of a curve: more than the width of any terminal.
const MOST_POINTS: usize = 1000;
/// Interval at which keys are polled.
const GLANCE: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<Ending> {
    if !std::io::stdout().is_terminal() {
        bail!(
            "top draws on a terminal, and stdout is none; `pstrain why {} --json` says the same to \
             programs",
            args.server.address
        );
    }
    // Before the terminal is touched: without a server the error prints as for any other
    // command.
    let first = cmd::status::of_leader(args.server.way(), args.timeout)?;
    let mut top = Top::new(
        ConnectionFlags::new(args.server.address.to_string(), &args.server.security),
        first,
    );
    let answers = ask_again_and_again(args)?;
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let done = live(&mut terminal, &mut top, &answers);
    // Also after a failure: its message must print on a restored terminal.
    ratatui::restore();
    done?;
    let lines: Vec<String> = top.result().iter().map(|line| table::sentence(line, 0)).collect();
    messages::result(&lines.join("\n"))?;
    Ok(Ending::Done)
}

/// The observed state of a run, and the part of it that is in view.
#[derive(Debug)]
struct Top {
    way: ConnectionFlags,
    status: Status,
    /// Why the last request for a status failed.
    trouble: Option<String>,
    /// How long the server has not answered.
    silent: Duration,
    /// Uptime of the server in seconds and mean loss of mini-batches, the latest last.
    losses: VecDeque<(f64, f64)>,
    /// Uptime and value of the main metric on the held-out data, the latest last.
    metrics: VecDeque<(f64, f64)>,
    /// Updates and examples per second.
    rate: Option<(f64, f64)>,
    sort: Sort,
    /// True if the order of [`Top::sort`] is reversed.
    is_reversed: bool,
    /// The first worker in view, in the sorted order.
    first: usize,
    /// Workers that the last drawing had space for.
    page: usize,
}

impl Top {
    fn new(way: ConnectionFlags, status: Status) -> Self {
        let (losses, metrics) = (VecDeque::new(), VecDeque::new());
        let mut top = Self {
            way,
            status,
            trouble: None,
            silent: Duration::ZERO,
            losses,
            metrics,
            rate: None,
            sort: Sort::Worker,
            is_reversed: false,
            first: 0,
            page: 1,
        };
        for Moment { at, loss, metric } in std::mem::take(&mut top.status.history) {
            push(&mut top.losses, at.as_secs_f64(), loss);
            push(&mut top.metrics, at.as_secs_f64(), metric);
        }
        top.note_curve();
        top
    }

    /// Notes why there is no newer status, and for how long there was none.
    fn missed(&mut self, trouble: String, silent: Duration) {
        (self.trouble, self.silent) = (Some(trouble), silent);
    }

    /// Stores a newer status.
    fn update(&mut self, status: Status) {
        let seconds = status.uptime.saturating_sub(self.status.uptime).as_secs_f64();
        let updates = status.version.since(self.status.version) as f64;
        let samples = status.samples.saturating_sub(self.status.samples) as f64;
        self.rate = (seconds > 0.0).then(|| (updates / seconds, samples / seconds));
        (self.trouble, self.silent) = (None, Duration::ZERO);
        self.status = status;
        self.note_curve();
    }

    fn note_curve(&mut self) {
        let at = self.status.uptime.as_secs_f64();
        push(&mut self.losses, at, self.status.loss);
        let main = metric_text::main_of(self.status.evaluated.as_ref());
        push(&mut self.metrics, at, main.map(|(_, value)| value));
    }

    /// True if the server is gone because its run has ended: it was about to end when it last
    /// answered, or has had the time to reach its budget since.
    fn has_ended(&self) -> bool {
        let left = self.status.samples_wanted.saturating_sub(self.status.samples) as f64;
        let made = self.rate.map_or(0.0, |(_, samples)| samples * self.silent.as_secs_f64());
        let was_ending = matches!(self.status.phase, Phase::Draining | Phase::Ending);
        self.trouble.is_some() && (was_ending || left <= made)
    }

    /// True if there is nothing more to see: the run has ended, or its server has been away for a
    /// lease, after which its workers and its standby have given it up, too.
    fn is_over(&self) -> bool {
        self.has_ended() || self.silent >= self.status.lease
    }

    /// The result of the run as far as it is known, and its progress: what stays on the terminal.
    fn result(&self) -> [String; 2] {
        let status = &self.status;
        let state = match self.trouble {
            None => status.phase.to_string(),
            Some(_) if self.has_ended() => "the run is over".to_owned(),
            Some(_) => "the server is gone; as it answered last".to_owned(),
        };
        let quality = metric_text::standing(status).unwrap_or_else(|| "not evaluated yet".into());
        let progress = format!(
            "{state}: {}, {} of {} samples, epoch {:.2}, {}",
            counted(status.version.0, "update"),
            count(status.samples),
            count(status.samples_wanted),
            status.epoch,
            elapsed(status.uptime)
        );
        [format!("{}: {quality}", status.job), progress]
    }

    /// Scrolls or sorts; true if the key does so.
    fn press(&mut self, key: KeyCode) -> bool {
        let last = self.status.members.len().saturating_sub(self.page);
        self.first = match key {
            KeyCode::Up | KeyCode::Char('k') => self.first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.first.saturating_add(1),
            KeyCode::PageUp => self.first.saturating_sub(self.page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.first.saturating_add(self.page),
            KeyCode::Home => 0,
            KeyCode::End => last,
            KeyCode::Char('s') => {
                (self.sort, self.is_reversed) = (self.sort.next(), false);
                0
            }
            KeyCode::Char('r') => {
                self.is_reversed = !self.is_reversed;
                0
            }
            _ => return false,
        };
        self.first = self.first.min(last);
        true
    }
}

fn push(curve: &mut VecDeque<(f64, f64)>, at: f64, point: Option<f64>) {
    let Some(point) = point.filter(|point| point.is_finite()) else { return };
    if curve.len() == MOST_POINTS {
        curve.pop_front();
    }
    curve.push_back((at, point));
}

type Answers = Receiver<Result<Status, String>>;

fn ask_again_and_again(args: &TopArgs) -> anyhow::Result<Answers> {
    let (sender, answers) = channel();
    let (server, timeout) = (args.server.clone(), args.timeout);
    let interval: Duration = args.interval.into();
    std::thread::Builder::new().name("ask".into()).spawn(move || {
        let mut known: Option<Status> = None;
        let mut pause = interval;
        loop {
            std::thread::sleep(pause);
            let answer =
                cmd::status::of_leader(server.way(), timeout).map_err(|error| format!("{error:#}"));
            if let Ok(status) = &answer {
                pause = interval.min(until_next(known.as_ref(), status));
                known = Some(status.clone());
            }
            if sender.send(answer).is_err() {
                return; // the display has ended
            }
        }
    })?;
    Ok(answers)
}

/// Longest pause before the next request that does not miss the end of the run: its last
/// evaluation is known for a moment only.
fn until_next(before: Option<&Status>, now: &Status) -> Duration {
    let Some(before) = before else { return Duration::MAX };
    let seconds = now.uptime.saturating_sub(before.uptime).as_secs_f64();
    let made = now.samples.saturating_sub(before.samples) as f64;
    let left = now.samples_wanted.saturating_sub(now.samples) as f64;
    let left = if left > 0.0 { left * seconds / made } else { 0.0 };
    Duration::try_from_secs_f64(left / 4.0).unwrap_or(Duration::MAX).max(GLANCE)
}

/// Draws until a key or the end of the run ends it.
fn live(terminal: &mut DefaultTerminal, top: &mut Top, answers: &Answers) -> anyhow::Result<()> {
    let clock = WallClock::start();
    let (mut is_stale, mut heard) = (true, clock.now());
    loop {
        while let Ok(answer) = answers.try_recv() {
            match answer {
                Ok(status) => {
                    heard = clock.now();
                    top.update(status);
                }
                Err(trouble) => top.missed(trouble, clock.now() - heard),
            }
            if top.is_over() {
                return Ok(());
            }
            is_stale = true;
        }
        if std::mem::take(&mut is_stale) {
            terminal.draw(|frame| draw::draw(top, frame)).context("cannot draw")?;
        }
        if !event::poll(GLANCE).context("cannot read keys")? {
            continue;
        }
        match event::read().context("cannot read keys")? {
            Event::Key(KeyEvent { kind: KeyEventKind::Release, .. }) => {}
            Event::Key(key) if ends(key.code, key.modifiers) => return Ok(()),
            Event::Key(key) => is_stale = top.press(key.code),
            Event::Resize(..) => is_stale = true,
            _ => {}
        }
    }
}

/// True if a key ends the display.
fn ends(key: KeyCode, with: KeyModifiers) -> bool {
    let interrupts = key == KeyCode::Char('c') && with.contains(KeyModifiers::CONTROL);
    interrupts || matches!(key, KeyCode::Char('q' | 'Q') | KeyCode::Esc)
}
