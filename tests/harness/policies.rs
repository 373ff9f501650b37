//! Random consistency policies and rules: every kind, with numbers that fit the job. Random
//! schedules draw their modes here.

use pstrain_compute::rng::Random;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::mode::Mode;

/// Draws a policy for `workers` workers.
pub(crate) fn draw_policy(rng: &mut Random, workers: u32) -> ConsistencySpec {
    use ConsistencySpec as C;
    let some = 1 + rng.below(workers.into()) as u32;
    let (small, most) = (rng.below(5), 1 + rng.below(12) as u32);
    match rng.below(20) {
        0 | 1 => C::Bsp,
        2 | 3 => C::Ssp { slack: small },
        4 | 5 => C::Asp,
        6 => C::Delay { bound: Some(small) },
        7 => C::Delay { bound: if small == 0 { None } else { Some(small) } },
        8 | 9 => C::Dssp { low: small, high: small + rng.below(6) },
        10 => C::KSync { workers: some },
        11 => C::Backup { workers: some - 1 },
        12 | 13 => C::KBatchSync { gradients: most },
        14 => C::KAsync { workers: some },
        15 => C::Buffered { gradients: most },
        16 => C::Malenia { gradients: most },
        17 => C::Ringmaster { staleness: small + 1 },
        18 => C::Ringleader,
        _ => C::RoundRobin,
    }
}

/// Draws a policy to which a job of `workers` workers may be switched; sometimes `auto`.
pub(crate) fn draw_next(rng: &mut Random, workers: u32) -> ConsistencySpec {
    if rng.below(8) == 0 { ConsistencySpec::Auto } else { draw_policy(rng, workers) }
}

/// Draws staleness and participation rules; `mode` stays as it is if they do not fit together.
pub(crate) fn draw_rules(rng: &mut Random, mode: Mode) -> Mode {
    let staleness = pick(rng, &STALENESS);
    let participation = pick(rng, &PARTICIPATION);
    let changed =
        mode.set("staleness", staleness).and_then(|m| m.set("participation", participation));
    changed.unwrap_or(mode)
}

/// Draws a setting of the mode and a value for it, most of them valid.
pub(crate) fn draw_control(rng: &mut Random, workers: u32) -> (String, String) {
    let (key, value) = match rng.below(12) {
        0..5 => ("consistency", draw_next(rng, workers).to_string()),
        5 => ("in-flight", pick(rng, &["1", "2", "4", "auto", "0"]).into()),
        6 | 7 => ("staleness", pick(rng, &STALENESS).into()),
        8 => ("max-staleness", pick(rng, &["0", "1", "3", "none"]).into()),
        9 | 10 => ("participation", pick(rng, &PARTICIPATION).into()),
        _ => (pick(rng, &["lease", "", "consistency", "staleness"]), "nonsense".into()),
    };
    (key.into(), value)
}

const STALENESS: [&str; 8] = [
    "plain",
    "plain",
    "inverse",
    "polynomial:0.5",
    "dynsgd",
    "dc:0.04",
    "dc-adaptive",
    "gap-aware",
];
const PARTICIPATION: [&str; 3] = ["plain", "share", "incremental"];

fn pick(rng: &mut Random, words: &[&'static str]) -> &'static str {
    words[rng.below(words.len() as u64) as usize]
}

/// Returns the name of the policy, without its number.
#[must_use]
pub fn kind_of_policy(policy: ConsistencySpec) -> String {
    let text = policy.to_string();
    text.split(':').next().unwrap_or_default().into()
}

/// Every kind of policy that is drawn.
pub const POLICIES: [&str; 14] = [
    "asp",
    "backup",
    "bsp",
    "buffered",
    "delay",
    "dssp",
    "k-async",
    "k-batch-sync",
    "k-sync",
    "malenia",
    "ringleader",
    "ringmaster",
    "round-robin",
    "ssp",
];

/// Most gradients that a single worker may have to give before there is an update.
pub(crate) fn most_gradients(policy: ConsistencySpec) -> u32 {
    use ConsistencySpec as C;
    match policy {
        C::KBatchSync { gradients } | C::Buffered { gradients } | C::Malenia { gradients } => {
            gradients
        }
        _ => 1,
    }
}
