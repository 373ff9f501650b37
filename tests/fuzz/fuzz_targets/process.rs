//! Fuzz target of the protocol of compute processes: arbitrary bytes from either end. Nothing
//! panics, no memory is taken for values that do not come, and an error says what was wrong.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::examples::Shape;
use pstrain_compute::model::Model;
use pstrain_compute::source::{GradientSource, Rows, SourceError};
use pstrain_transports::process::Served;
use pstrain_transports::process::protocol::{
    Answer, Description, Evaluated, read_line, read_values,
};

const PARAMETERS: usize = 5;

/// A source that computes nothing.
#[derive(Debug)]
struct Nothing;

impl GradientSource for Nothing {
    fn parameters(&self) -> usize {
        PARAMETERS
    }

    fn parts(&self) -> usize {
        1
    }

    fn examples(&self, _: usize) -> usize {
        100
    }

    fn gradient(&mut self, _: Rows<'_>, _: &[f32], _: &mut [f32]) -> Result<f32, SourceError> {
        Ok(1.0)
    }

    fn evaluate(&mut self, _: usize, params: &[f32]) -> Result<Evaluation, SourceError> {
        Ok(Evaluation::absent(params))
    }
}

/// Reads what a process may have written.
fn answers(mut bytes: &[u8]) {
    let from = &mut bytes;
    match read_line::<Description>(from, "a description") {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(found) => {
            if let Some(Err(error)) = found.map(|it| Model::new(&it.model(), Shape::default())) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
    while let Ok(Some(answer)) = read_line::<Answer>(from, "an answer") {
        if answer.values == PARAMETERS && read_values(from, &mut [0.0; PARAMETERS]).is_err() {
            return;
        }
    }
    let _evaluated = read_line::<Evaluated>(from, "an evaluation");
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    if first % 2 == 0 {
        return answers(bytes);
    }
    let mut served = Served {
        description: Description { examples: 100, ..Description::default() },
        initial: vec![0.5; PARAMETERS],
        gradients: Box::new(Nothing),
        evaluations: Box::new(Nothing),
    };
    let mut written = Vec::new();
    if let Err(error) = served.serve(&mut &bytes[..], &mut written) {
        assert!(!error.to_string().is_empty());
    }
});
