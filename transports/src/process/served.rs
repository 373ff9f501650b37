//! A model of this program as a compute process: the other end of the protocol.

use std::io::{BufRead, Write};

use pstrain_compute::evaluation::{ClassFigures, Evaluation, Figures};
use pstrain_compute::source::{GradientSource, Rows};

use super::protocol::{
    Answer, Description, Evaluated, Order, PROCESS_PROTOCOL, ProtocolError, Request, read_line,
    read_rows, read_values, write_message,
};

/// A model with its data.
#[derive(Debug)]
pub struct Served {
    /// The description of model and data.
    pub description: Description,
    /// The parameters to begin with.
    pub initial: Vec<f32>,
    /// Gradients of the examples of its first part.
    pub gradients: Box<dyn GradientSource>,
    /// Evaluations on its first part.
    pub evaluations: Box<dyn GradientSource>,
}

/// The message that refuses a request.
#[derive(serde::Serialize)]
struct Refused {
    id: u64,
    error: String,
}

impl Served {
    /// Answers requests until the goodbye, or the end of the input.
    ///
    /// # Errors
    /// [`ProtocolError`] if the other end breaks the protocol, or its connection fails.
    pub fn serve(
        &mut self,
        from: &mut impl BufRead,
        to: &mut dyn Write,
    ) -> Result<(), ProtocolError> {
        let mut params = vec![0.0; self.initial.len()];
        let mut gradient = params.clone();
        while let Some(request) = read_line::<Request>(from, "a request")? {
            match request {
                Request::Hello(hello) if hello.protocol != PROCESS_PROTOCOL => {
                    let error = format!(
                        "it speaks protocol {PROCESS_PROTOCOL}, and not {}",
                        hello.protocol
                    );
                    write_message(to, &Refused { id: 0, error }, &[], &[])?;
                }
                Request::Hello(_) => write_message(to, &self.description, &[], &[])?,
                Request::Start => {
                    let answer = Answer { values: self.initial.len(), ..Answer::default() };
                    write_message(to, &answer, &self.initial, &[])?;
                }
                Request::Gradient(order) => {
                    let id = order.id;
                    let rows = receive(from, order, &mut params)?.unwrap_or_default();
                    match self.gradient(&rows, &params, &mut gradient) {
                        Ok(loss) => {
                            let values = gradient.len();
                            let loss = Some(f64::from(loss)).filter(|loss| loss.is_finite());
                            let answer = Answer { id: Some(id), loss, values, ..Answer::default() };
                            write_message(to, &answer, &gradient, &[])?;
                        }
                        Err(error) => write_message(to, &Refused { id, error }, &[], &[])?,
                    }
                }
                Request::Evaluate(order) => {
                    let id = order.id;
                    receive(from, order, &mut params)?;
                    match self.evaluations.evaluate(0, &params) {
                        Ok(found) => write_message(to, &evaluated(id, found), &[], &[])?,
                        Err(error) => {
                            let error = error.to_string();
                            write_message(to, &Refused { id, error }, &[], &[])?;
                        }
                    }
                }
                Request::Bye => break,
            }
        }
        Ok(())
    }

    fn gradient(
        &mut self,
        rows: &[u32],
        params: &[f32],
        gradient: &mut [f32],
    ) -> Result<f32, String> {
        let examples = self.gradients.examples(0);
        if let Some(row) = rows.iter().find(|&&row| row as usize >= examples) {
            return Err(format!("there is no row {row}: it has {examples}, counted from 0"));
        }
        let rows = Rows::new(0, rows);
        self.gradients.gradient(rows, params, gradient).map_err(|error| error.to_string())
    }
}

/// Receives parameters and row numbers of an order.
fn receive(
    from: &mut impl BufRead,
    order: Order,
    params: &mut [f32],
) -> Result<Option<Vec<u32>>, ProtocolError> {
    if order.values != params.len() {
        return Err(ProtocolError::Values { given: order.values, wanted: params.len() });
    }
    read_values(from, params)?;
    match order.rows_after {
        0 => Ok(order.rows),
        count => read_rows(from, count).map(Some),
    }
}

fn evaluated(id: u64, found: Evaluation) -> Evaluated {
    let metrics = found.named().into_iter().map(|(name, value)| (name, Some(value))).collect();
    let Evaluation { examples, loss, figures, .. } = found;
    let loss = Some(loss).filter(|loss| loss.is_finite());
    let (recall, f1) = match figures {
        Figures::Classes(ClassFigures { recall, f1, .. }) => (recall, f1),
        _ => (Vec::new(), Vec::new()),
    };
    Evaluated { id: Some(id), examples, loss, metrics, recall, f1, error: None }
}
