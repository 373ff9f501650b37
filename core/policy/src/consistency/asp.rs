//! Asynchronous parallel.

use super::Consistency;
use pstrain_compute::named::Word;

pub(super) const WORD: Word = Word::new("asp", &[], "no worker waits");

/// ASP: every gradient is an update of its own, applied on arrival; no worker waits.
///
/// Invariant: the version is the number of gradients accepted. With N always-busy workers the mean
/// staleness tends to N - 1, independent of their speeds.
///
/// Recht et al., NIPS 2011 (Hogwild!); Dean et al., NIPS 2012 (Downpour SGD).
#[derive(Clone, Copy, Debug, Default)]
pub struct Asp;

impl Consistency for Asp {}
