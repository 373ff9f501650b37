//! A journal whose commits are timed.

use pstrain_compute::time::Time;
use pstrain_roles::node::{Checkpoint, Durable, Input};
use pstrain_transports::{Journal, JournalError, WallClock};

use prometheus_client::metrics::histogram::Histogram;

/// Wraps a journal; records the time of its commits in a histogram, if there is one.
pub(crate) struct TimedJournal<'a> {
    inner: &'a mut dyn Journal,
    seconds: Option<Histogram>,
    clock: WallClock,
    /// True if inputs were appended since the last commit: empty commits are not timed.
    is_open: bool,
}

impl<'a> TimedJournal<'a> {
    pub(crate) fn new(inner: &'a mut dyn Journal, seconds: Option<Histogram>) -> Self {
        Self { inner, seconds, clock: WallClock::start(), is_open: false }
    }
}

impl Journal for TimedJournal<'_> {
    fn keeps(&self) -> bool {
        self.inner.keeps()
    }

    fn append(&mut self, now: Time, input: &Input) {
        self.is_open = true;
        self.inner.append(now, input);
    }

    fn pause(&mut self) {
        self.inner.pause();
    }

    fn commit(&mut self) -> Result<(), JournalError> {
        let before = self.clock.now();
        self.inner.commit()?;
        if std::mem::take(&mut self.is_open)
            && let Some(seconds) = &self.seconds
        {
            seconds.observe((self.clock.now() - before).as_secs_f64());
        }
        Ok(())
    }

    fn rest(&mut self, now: Time, node: &mut dyn Durable) -> Option<Input> {
        self.inner.rest(now, node)
    }

    fn take(&mut self, now: Time, checkpoint: Checkpoint) {
        self.inner.take(now, checkpoint);
    }

    fn write(&mut self, now: Time) {
        self.inner.write(now);
    }

    fn end(&mut self, now: Time, node: &mut dyn Durable) {
        self.inner.end(now, node);
    }
}
