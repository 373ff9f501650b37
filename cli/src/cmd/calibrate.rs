//! `pstrain calibrate`: the time of the reference step on this machine.

use crate::args::CalibrateArgs;
use crate::calibration::{self, Calibration, Times};
use crate::exit::Ending;
use crate::figures::rounded;
use crate::{messages, table};

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<Ending> {
    let found = calibration::measure()?;
    args.form.print(&found, || show(&found))?;
    Ok(Ending::Done)
}

fn show(found: &Calibration) -> String {
    let (product, steps) = (&found.matrix_product, &found.reference_steps);
    let row = |work: String, times: &Times| {
        let ms = |seconds: f64| format!("{:.3} ms", 1e3 * seconds);
        vec![work, ms(times.best_s), ms(times.median_s), times.repetitions.to_string()]
    };
    let size = product.size;
    let rows = vec![
        row(format!("matrix product {size} x {size} x {size}, f32"), &product.times),
        row(
            format!("{} SGD steps of 93-21-5, batch {}", steps.steps, steps.batch_size),
            &steps.times,
        ),
    ];
    let step_us = 1e6 * found.reference_step_s;
    let told = format!(
        "To compare training times of different machines, divide each by its machine's reference \
         step: 1 s of computation here is {} reference steps. Modelled delays are the same \
         everywhere: leave them as they are.",
        rounded(found.in_steps(1.0))
    );
    format!(
        "{}\n\nreference step  {step_us:.2} µs (best time / steps, one thread)\n\n{}",
        table::table(&["work", "best", "median", "repetitions"], 1, rows, messages::width()),
        table::sentence(&told, 0),
    )
}
