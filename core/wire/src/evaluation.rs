//! Messages with which a worker evaluates parameters for a server that cannot.
//!
//! The server sends the parameters part by part, each part only when the worker has the one before:
//! a whole model in one frame would delay the parameters that the worker trains on.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::name::is_presentable;
use crate::payload::{Content, Parts, Payload};
use crate::range::RangePart;
use crate::received::Received;
use pstrain_compute::codec::{self, Malformed};
use pstrain_compute::evaluation::{ClassFigures, Evaluation, Figures, MOST_CONFUSED};
use pstrain_compute::id::{Incarnation, Version};

/// Maximum number of metrics that a model names.
pub const MOST_METRICS: usize = 64;
/// Maximum number of classes with figures of their own.
pub const MOST_CLASSES: usize = 65_536;

/// Server to worker: a part of the parameters of a version, which the worker is to evaluate on the
/// held-out examples once it has all parts.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationPart {
    /// The version of the parameters.
    pub version: Version,
    /// The values of some keys: the first part has the first key of the model.
    pub part: RangePart,
}

impl Parts for EvaluationPart {
    const CONTENT: Option<Content> = RangePart::CONTENT;

    fn append_control(&self, bytes: &mut Vec<u8>) {
        codec::append(&(self.version, self.part.keys, &self.part.encoded.form), bytes);
    }

    fn payload(&self) -> Payload<'_> {
        self.part.payload()
    }

    fn of_parts(control: &[u8], payload: Received, _: usize) -> Result<Self, Malformed> {
        let (version, keys, form) = codec::read(control)?;
        Ok(Self { version, part: RangePart::of_received(keys, form, payload) })
    }
}

/// Worker to server: the answer to an [`EvaluationPart`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationAnswer {
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// The version of the parameters.
    pub version: Version,
    /// The answer.
    pub answer: EvaluationStep,
}

/// The progress of an evaluation by a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum EvaluationStep {
    /// The worker has all parts before this key, and requests the next one.
    PartDue(u64),
    /// The evaluation.
    Evaluated(Evaluation),
    /// The worker cannot evaluate; why, in words.
    Unable(String),
}

/// Checks an evaluation of a model with `parameters` parameters: it must count examples, its
/// figures must be possible, and names of metrics must be few and presentable.
///
/// # Errors
/// The first violation, in words.
pub fn check_evaluation(evaluation: &Evaluation, parameters: u64) -> Result<(), String> {
    let Evaluation { examples, non_zeros, ref figures, .. } = *evaluation;
    if examples == 0 {
        return Err("it evaluates no examples".into());
    }
    if non_zeros > parameters {
        return Err(format!("it counts {non_zeros} of {parameters} parameters"));
    }
    match figures {
        Figures::Classes(figures) => check_classes(figures, examples),
        Figures::Value(_) => Ok(()),
        Figures::Named(metrics) if metrics.len() > MOST_METRICS => {
            Err(format!("it names {} metrics, and {MOST_METRICS} are allowed", metrics.len()))
        }
        Figures::Named(metrics) => metrics.iter().try_for_each(|(name, value)| {
            if name.is_empty() || !is_presentable(name) {
                let begin: String = name.chars().take(40).collect();
                return Err(format!("{begin:?} cannot be the name of a metric"));
            }
            if value.is_finite() { Ok(()) } else { Err(format!("its {name} is {value}")) }
        }),
    }
}

fn check_classes(figures: &ClassFigures, examples: u64) -> Result<(), String> {
    let ClassFigures { correct, recall, f1, auc, confusion } = figures;
    let classes = recall.len();
    if *correct > examples {
        return Err(format!("{correct} of its {examples} examples are classified correctly"));
    }
    if classes.max(f1.len()) > MOST_CLASSES {
        return Err(format!("it has figures of {} classes", classes.max(f1.len())));
    }
    let is_matrix = classes <= MOST_CONFUSED && confusion.len() == classes * classes;
    if !confusion.is_empty() && !is_matrix {
        return Err(format!("its confusion matrix has {} counts", confusion.len()));
    }
    let mut shares = recall.iter().chain(f1).flatten().chain(auc);
    match shares.find(|share| !(0.0..=1.0).contains(*share)) {
        Some(share) => Err(format!("a share is {share}, and must be from 0 to 1")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(figures: Figures) -> Evaluation {
        Evaluation { examples: 10, non_zeros: 3, figures, ..Evaluation::default() }
    }

    fn named(metrics: impl IntoIterator<Item = (String, f64)>) -> Evaluation {
        of(Figures::Named(metrics.into_iter().collect()))
    }

    #[test]
    fn possible_figures_pass() {
        let recall = alloc::vec![Some(0.5), None];
        let (f1, confusion) = (recall.clone(), alloc::vec![5, 0, 5, 0]);
        let classes = ClassFigures { correct: 10, recall, f1, auc: Some(1.0), confusion };
        for evaluation in [
            of(Figures::Classes(classes)),
            named([("rmse".into(), 3.0)]),
            named((0..MOST_METRICS).map(|number| (format!("m{number}"), -1.0))),
            Evaluation { loss: f64::NAN, l1: f64::INFINITY, ..named([]) },
        ] {
            assert_eq!(check_evaluation(&evaluation, 3), Ok(()), "{evaluation:?}");
        }
    }

    #[test]
    fn impossible_figures_are_named() {
        let classes = |change: fn(&mut ClassFigures)| {
            let mut figures = ClassFigures::default();
            change(&mut figures);
            of(Figures::Classes(figures))
        };
        let long = "x".repeat(1000);
        for (evaluation, wanted) in [
            (Evaluation { examples: 0, ..named([]) }, "no examples"),
            (Evaluation { non_zeros: 4, ..named([]) }, "4 of 3 parameters"),
            (named((0..=MOST_METRICS).map(|number| (format!("{number}"), 0.0))), "65 metrics"),
            (named([("a\nb".into(), 0.0)]), "cannot be the name"),
            (named([(String::new(), 0.0)]), "cannot be the name"),
            (named([(long, 0.0)]), "cannot be the name"),
            (named([("rmse".into(), f64::NAN)]), "its rmse is NaN"),
            (classes(|it| it.correct = 11), "11 of its 10"),
            (classes(|it| it.recall = alloc::vec![Some(f64::NAN)]), "a share is NaN"),
            (classes(|it| it.auc = Some(1.5)), "a share is 1.5"),
            (classes(|it| it.f1 = alloc::vec![None; MOST_CLASSES + 1]), "65537 classes"),
            (classes(|it| it.confusion = alloc::vec![1; 3]), "3 counts"),
        ] {
            let why = check_evaluation(&evaluation, 3).unwrap_err();
            assert!(why.contains(wanted) && why.len() < 100, "{why}");
        }
    }
}
