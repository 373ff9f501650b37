//! Properties of a correct compute process: each probe asks for gradients and compares them.

use pstrain_compute::rng::{Random, Stream};
use pstrain_compute::source::{GradientSource, Rows};
use pstrain_transports::process::ProcessSource;
use pstrain_transports::process::protocol::{CombineOf, StateType};

use crate::figures::counted;
use crate::metric_text;

/// Coordinates of which the gradient is compared with finite differences.
const COORDINATES: usize = 20;
/// Step of a finite difference, relative to the parameter if that is above 1: large enough for
/// losses in single precision.
const STEP: f32 = 1e-2;
/// Largest error of a derivative, relative to itself and to the largest derivative. The second
/// derivative and single precision cost less; a wrong factor or a wrong sign costs more.
const TOLERANCE: (f64, f64) = (0.1, 0.02);
/// Share of coordinates that may be wrong: a difference across a kink (ReLU) is.
const KINKS: usize = 10;
/// The amount by which state is raised to see that the process uses it.
const SHIFT: f32 = 8.0;
/// Largest relative error of a sum in another order.
const ROUNDING: f64 = 1e-3;

/// The outcome of a probe; an error, in words, if the process is wrong.
pub(super) type Outcome = Result<Finding, String>;

/// The result of a probe that finds no error, in words.
pub(super) enum Finding {
    Right(String),
    /// The probe says nothing about such a process.
    Nothing(&'static str),
}

impl Finding {
    fn right(says: impl Into<String>) -> Outcome {
        Ok(Self::Right(says.into()))
    }
}

/// A process need not say its loss.
const NO_LOSS: Finding = Finding::Nothing("it says no finite loss to compare");

/// A process, and the rows and parameters of its probes.
#[derive(Debug)]
pub(super) struct Probe {
    source: ProcessSource,
    params: Vec<f32>,
    rows: Vec<u32>,
    rng: Random,
}

/// A gradient with its loss.
#[derive(Clone, Debug)]
struct Found {
    /// The loss, if the process says one; one that is not finite counts as none.
    loss: Option<f64>,
    gradient: Vec<f32>,
}

impl Found {
    /// The values of the gradient whose bits differ: NaN equals itself.
    fn differing(&self, other: &Self) -> usize {
        let pairs = self.gradient.iter().zip(&other.gradient);
        pairs.filter(|(a, b)| a.to_bits() != b.to_bits()).count()
    }
}

impl Probe {
    /// The probes of `source` on `batch` random rows, at its initial parameters.
    pub(super) fn new(source: ProcessSource, batch: u32, seed: u64) -> Self {
        let examples = source.description().examples;
        let mut rng = Stream::new(seed).fork("check", 0).rng();
        let rows = (0..batch).map(|_| rng.below(examples.into()) as u32).collect();
        let source = source.with_parts(vec![(0..examples).collect()]);
        let params = vec![0.0; source.parameters()];
        Self { source, params, rows, rng }
    }

    fn at(&mut self, params: &[f32], rows: &[u32]) -> Result<Found, String> {
        let mut gradient = vec![f32::NAN; params.len()];
        let asked = Rows::new(0, rows);
        let loss = self.source.gradient(asked, params, &mut gradient);
        let loss = loss.map_err(|error| error.to_string())?;
        let loss = Some(f64::from(loss)).filter(|loss| loss.is_finite());
        Ok(Found { loss, gradient })
    }

    fn of(&mut self, rows: &[u32]) -> Result<Found, String> {
        let params = std::mem::take(&mut self.params);
        let found = self.at(&params, rows);
        self.params = params;
        found
    }

    /// The initial parameters are finite, and become those of all later probes.
    pub(super) fn initial(&mut self) -> Outcome {
        let initial = self.source.initial().map_err(|error| error.to_string())?;
        let initial = initial.unwrap_or_default();
        if let Some(key) = initial.iter().position(|value| !value.is_finite()) {
            return Err(format!("value {key} is {}", initial[key]));
        }
        let norm = norm(&initial);
        self.params = initial;
        let values = counted(self.params.len() as u64, "value");
        Finding::right(format!("{values}, L2 norm {norm:.4}"))
    }

    /// The gradient of a mini-batch is finite.
    pub(super) fn gradient(&mut self) -> Outcome {
        let found = self.of(&self.rows.clone())?;
        self.finite(&found)?;
        let norm = norm(&found.gradient);
        if norm == 0.0 {
            return Err("the gradient is zero at the initial parameters: nothing can train".into());
        }
        Finding::right(format!("{}, L2 norm {norm:.6}", named(found.loss)))
    }

    /// Names the first value that is not finite, if there is one.
    fn finite(&self, found: &Found) -> Result<(), String> {
        let Some(key) = found.gradient.iter().position(|value| !value.is_finite()) else {
            return Ok(());
        };
        let of = match key < self.source.layout().trained() {
            true => "gradient",
            false => "parameters and the state",
        };
        Err(format!("value {key} of the {of} is {}, and not finite", found.gradient[key]))
    }

    /// The same request has the same answer: replay and standbys rely on it.
    pub(super) fn determinism(&mut self) -> Outcome {
        let rows = self.rows.clone();
        let (one, other) = (self.of(&rows)?, self.of(&rows)?);
        let differing = one.differing(&other);
        if differing == 0 && one.loss == other.loss {
            let same = "the same request twice has the same bits";
            return Finding::right(match self.finite(&one) {
                Ok(()) => same.into(),
                Err(why) => format!("{same}, but {why}"),
            });
        }
        Err(format!(
            "the same request twice differs: {} and {}, {differing} values of the gradient; turn \
             dropout and other randomness off, or draw it from the rows",
            named(one.loss),
            named(other.loss)
        ))
    }

    /// The gradient is the derivative of the loss.
    pub(super) fn derivative(&mut self) -> Outcome {
        let rows = self.rows.clone();
        let found = self.of(&rows)?;
        // No difference is larger than NaN: each derivative would pass.
        self.finite(&found)?;
        let mut gradient = found.gradient;
        gradient.truncate(self.source.layout().trained());
        let largest = gradient.iter().fold(0.0_f64, |most, it| most.max(f64::from(it.abs())));
        let mut wrong = Vec::new();
        for key in self.coordinates(&gradient) {
            let mut params = self.params.clone();
            let step = STEP * params[key].abs().max(1.0);
            params[key] = self.params[key] + step;
            let (above, up) = (self.at(&params, &rows)?.loss, params[key]);
            params[key] = self.params[key] - step;
            let (below, down) = (self.at(&params, &rows)?.loss, params[key]);
            let Some((above, below)) = above.zip(below) else { return Ok(NO_LOSS) };
            let slope = (above - below) / f64::from(up - down);
            let claimed = f64::from(gradient[key]);
            let most = TOLERANCE.0 * slope.abs().max(claimed.abs()) + TOLERANCE.1 * largest;
            if (slope - claimed).abs() > most {
                wrong.push((key, claimed, slope));
            }
        }
        let count = COORDINATES.min(gradient.len());
        match wrong.first() {
            Some((key, claimed, slope)) if wrong.len() * KINKS > count => Err(format!(
                "{} of {count} derivatives are wrong: that of parameter {key} is {claimed:.6}, but \
                 the loss changes by {slope:.6}; is it the gradient of the mean loss of the rows?",
                wrong.len()
            )),
            _ => Finding::right(format!("{count} derivatives agree with differences of the loss")),
        }
    }

    /// Keys to compare: those with the largest derivatives, and random others.
    fn coordinates(&mut self, gradient: &[f32]) -> Vec<usize> {
        let mut keys: Vec<usize> = (0..gradient.len()).collect();
        keys.sort_by(|a, b| gradient[*b].abs().total_cmp(&gradient[*a].abs()));
        let mut chosen: Vec<usize> = keys.drain(..keys.len().min(COORDINATES / 2)).collect();
        while chosen.len() < COORDINATES && !keys.is_empty() {
            let place = self.rng.below(keys.len() as u64) as usize;
            chosen.push(keys.swap_remove(place));
        }
        chosen
    }

    /// The gradient of rows is the mean of the gradients of each, so that every row counts, and
    /// counts once.
    pub(super) fn mean(&mut self) -> Outcome {
        let rows = self.rows.clone();
        let whole = self.of(&rows)?;
        let mut sum = vec![0.0_f64; whole.gradient.len()];
        let mut loss = Some(0.0);
        for row in &rows {
            let own = self.of(std::slice::from_ref(row))?;
            sum.iter_mut().zip(&own.gradient).for_each(|(sum, it)| *sum += f64::from(*it));
            loss = loss.zip(own.loss).map(|(sum, own)| sum + own);
        }
        let count = rows.len() as f64;
        let mean: Vec<f32> = sum.iter().map(|sum| (sum / count) as f32).collect();
        let loss = loss.map(|sum| sum / count);
        same(&whole, &Found { loss, gradient: mean }, "the mean of its rows")?;
        Finding::right(format!("the gradient of {count} rows is the mean of theirs"))
    }

    /// A row that occurs twice counts twice.
    pub(super) fn repeated(&mut self) -> Outcome {
        let (one, two) = (self.rows[0], self.rows[1]);
        let (first, second) = (self.of(&[one])?, self.of(&[two])?);
        let found = self.of(&[one, two, one])?;
        let mix = |a: f64, b: f64| (2.0 * a + b) / 3.0;
        let pairs = first.gradient.iter().zip(&second.gradient);
        let gradient = pairs.map(|(a, b)| mix((*a).into(), (*b).into()) as f32).collect();
        let loss = first.loss.zip(second.loss).map(|(one, two)| mix(one, two));
        let wanted = Found { loss, gradient };
        same(&found, &wanted, "two thirds of the first row")?;
        Finding::right("a row that occurs twice counts twice")
    }

    /// A difference leads to a smaller loss of its rows.
    pub(super) fn difference(&mut self) -> Outcome {
        let rows = self.rows.clone();
        let found = self.of(&rows)?;
        let trained = self.source.layout().trained();
        let mut params = self.params.clone();
        // The source makes a gradient of the difference: its negative.
        let changes = params.iter_mut().zip(&found.gradient).take(trained);
        changes.for_each(|(param, negative)| *param -= negative);
        let losses = found.loss.zip(self.at(&params, &rows)?.loss);
        let Some((before, after)) = losses else { return Ok(NO_LOSS) };
        let falls = format!("the loss of its rows is {before:.6}, and {after:.6} with it added");
        if after < before {
            return Finding::right(falls);
        }
        Err(format!("{falls}: is it the parameters after training minus those it was sent?"))
    }

    /// State is sent back as values after the mini-batch, and whole where it counts.
    pub(super) fn state(&mut self) -> Outcome {
        let (rows, trained) = (self.rows.clone(), self.source.layout().trained());
        // The source makes changes of the values that the process answers with.
        let changes = self.of(&rows)?.gradient.split_off(trained);
        let mut key = trained;
        let state = &self.source.description().state;
        for tensor in state.iter().filter(|it| it.combine != CombineOf::Local) {
            let values: usize = tensor.shape.iter().map(|&side| side as usize).product();
            let own = &changes[key - trained..key - trained + values];
            if tensor.kind == StateType::I64 && own.iter().any(|change| change.fract() != 0.0) {
                return Err(format!("{} has the type i64, and is not whole", tensor.name));
            }
            key += values;
        }
        let mut shifted = self.params.clone();
        shifted[trained..].iter_mut().for_each(|value| *value += SHIFT);
        let again = self.at(&shifted, &rows)?.gradient.split_off(trained);
        // A change is relative to the values sent: values of the process alone change by less.
        let ignored = changes.iter().zip(&again).all(|(one, other)| {
            let less = f64::from(one - other);
            (less - f64::from(SHIFT)).abs() <= ROUNDING * f64::from(SHIFT)
        });
        if ignored {
            return Err("the state does not depend on the state that was sent: does the process \
                        answer with changes, or keep state of its own (combine local)?"
                .into());
        }
        let values = counted(changes.len() as u64, "value");
        Finding::right(format!("follows the state that was sent: {values}"))
    }

    /// The first and the last row have gradients.
    pub(super) fn ends(&mut self) -> Outcome {
        let last = self.source.description().examples - 1;
        let has_state = !self.source.description().state.is_empty();
        for row in [0, last] {
            // Batch normalisation needs more than one row.
            let rows: &[u32] = if has_state { &[row, last / 2] } else { &[row] };
            self.of(rows).map_err(|error| {
                format!(
                    "no gradient of row {row} of 0 to {last}: {error}; are rows counted from 1?"
                )
            })?;
        }
        Finding::right(format!("rows 0 and {last} have gradients"))
    }

    /// An evaluation, if there is one.
    pub(super) fn evaluation(&mut self) -> Outcome {
        let params = self.params.clone();
        let whole = self.source.parts();
        // A part that does not exist stands for the process's own rows.
        let found = self.source.evaluate(whole, &params).map_err(|error| error.to_string())?;
        let metrics: String = found
            .named()
            .iter()
            .map(|(name, value)| format!(", {}", metric_text::named(name, *value)))
            .collect();
        let loss = named(Some(found.loss).filter(|loss| loss.is_finite()));
        Finding::right(format!("{}, {loss}{metrics}", counted(found.examples, "example")))
    }

    /// Computes the gradient of the mini-batch once.
    pub(super) fn step(&mut self) -> Result<(), String> {
        self.of(&self.rows.clone()).map(|_found| ())
    }
}

/// Compares two gradients up to rounding; `of` names the second.
fn same(one: &Found, other: &Found, of: &str) -> Result<(), String> {
    let scale = norm(&one.gradient).max(norm(&other.gradient));
    let pairs = one.gradient.iter().zip(&other.gradient);
    let distance: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let are_losses_same = match (one.loss, other.loss) {
        (Some(one), Some(other)) => (one - other).abs() <= ROUNDING * one.abs().max(1.0),
        (one, other) => one == other,
    };
    if distance.sqrt() <= ROUNDING * scale && are_losses_same {
        return Ok(());
    }
    Err(format!(
        "the gradient of rows (L2 norm {:.6}, {}) is not {of} ({:.6}, {}): does every row count \
         once, and do rows of a batch depend on each other (batch normalisation)?",
        norm(&one.gradient),
        named(one.loss),
        norm(&other.gradient),
        named(other.loss)
    ))
}

/// A loss in words.
fn named(loss: Option<f64>) -> String {
    loss.map_or_else(|| "no loss".into(), |loss| format!("loss {loss:.6}"))
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}
