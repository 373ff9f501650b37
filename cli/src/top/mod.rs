//! `pstrain top`: the state of a run, drawn live in a terminal.
//!
//! The server is polled on a thread of its own, so that keys work however slow its answers are. The
//! terminal is restored on every exit.

mod draw;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, bail};
use pstrain_wire::Status;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use crate::args::TopArgs;
use crate::cmd;
use crate::exit::Ending;
use crate::metric_text;
use crate::why::Way;

/// Points kept of a curve: more than the width of any terminal.
const MOST_POINTS: usize = 1000;
/// Interval at which keys are polled.
const GLANCE: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<Ending> {
    if !std::io::stdout().is_terminal() {
        bail!(
            "top draws on a terminal, and stdout is none; `pstrain why {} --json` says the same to \
             programs",
            args.address
        );
    }
    // Before the terminal is touched: without a server the error prints as for any other
    // command.
    let first = cmd::status::of_leader((&args.address, &args.security), args.timeout)?;
    let mut top = Top::new(Way::new(args.address.to_string(), &args.security), first);
    let answers = ask_again_and_again(args)?;
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let done = live(&mut terminal, &mut top, &answers);
    // Also after a failure: its message must print on a restored terminal.
    ratatui::restore();
    done
}

/// The observed state of a run.
#[derive(Debug)]
struct Top {
    way: Way,
    status: Status,
    /// Why the last request for a status failed.
    trouble: Option<String>,
    /// Mean losses of mini-batches, the latest last.
    losses: VecDeque<f64>,
    /// Values of the main metric on the held-out data, the latest last.
    metrics: VecDeque<f64>,
    /// Updates per second.
    rate: Option<f64>,
}

impl Top {
    fn new(way: Way, status: Status) -> Self {
        let (losses, metrics) = (VecDeque::new(), VecDeque::new());
        let mut top = Self { way, status, trouble: None, losses, metrics, rate: None };
        top.note_curve();
        top
    }

    /// Stores a newer status, or the reason why there is none.
    fn update(&mut self, answer: Result<Status, String>) {
        let status = match answer {
            Ok(status) => status,
            Err(trouble) => {
                self.trouble = Some(trouble);
                return;
            }
        };
        let seconds = status.uptime.saturating_sub(self.status.uptime).as_secs_f64();
        let updates = status.version.since(self.status.version) as f64;
        self.rate = (seconds > 0.0).then(|| updates / seconds);
        self.trouble = None;
        self.status = status;
        self.note_curve();
    }

    fn note_curve(&mut self) {
        push(&mut self.losses, self.status.loss);
        let main = metric_text::main_of(self.status.evaluated.as_ref());
        push(&mut self.metrics, main.map(|(_, value)| value));
    }
}

fn push(curve: &mut VecDeque<f64>, point: Option<f64>) {
    let Some(point) = point.filter(|point| point.is_finite()) else { return };
    if curve.len() == MOST_POINTS {
        curve.pop_front();
    }
    curve.push_back(point);
}

type Answers = Receiver<Result<Status, String>>;

fn ask_again_and_again(args: &TopArgs) -> anyhow::Result<Answers> {
    let (sender, answers) = channel();
    let (address, security, timeout) = (args.address.clone(), args.security.clone(), args.timeout);
    let interval: Duration = args.interval.into();
    std::thread::Builder::new().name("ask".into()).spawn(move || {
        loop {
            std::thread::sleep(interval);
            let answer = cmd::status::of_leader((&address, &security), timeout)
                .map_err(|error| format!("{error:#}"));
            if sender.send(answer).is_err() {
                return; // the display has ended
            }
        }
    })?;
    Ok(answers)
}

fn live(
    terminal: &mut DefaultTerminal,
    top: &mut Top,
    answers: &Answers,
) -> anyhow::Result<Ending> {
    let mut is_stale = true;
    loop {
        while let Ok(answer) = answers.try_recv() {
            top.update(answer);
            is_stale = true;
        }
        if std::mem::take(&mut is_stale) {
            terminal.draw(|frame| draw::draw(top, frame)).context("cannot draw")?;
        }
        if !event::poll(GLANCE).context("cannot read keys")? {
            continue;
        }
        match event::read().context("cannot read keys")? {
            Event::Key(key) if ends(key.code, key.modifiers) => return Ok(Ending::Done),
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
