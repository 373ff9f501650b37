//! The published experiments, as specifications inside the binary.
//!
//! The command line interprets a specification; in this crate it is a name and a text.

/// The specification of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// The name of the experiment.
    pub name: &'static str,
    /// The specification, in TOML.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(Shipped {
            name: $name,
            text: include_str!(concat!("../experiments/", $name, ".toml")),
        }),+]
    };
}

/// Returns all specifications, sorted by name.
#[must_use]
pub fn experiments() -> &'static [Shipped] {
    shipped![
        "async-noniid",
        "auto-grid",
        "auto-random",
        "backup-workers",
        "contention-roundrobin",
        "hetero-partition",
        "jia-fig10",
        "jia-fig11",
        "jia-fig7",
        "jia-fig8",
        "jia-fig9",
        "jia-table2",
        "osdi-delay",
        "osdi-delay-a9a",
        "osdi-failover",
        "osdi-filters",
        "overlap",
        "paeleke-fig1",
        "paeleke-fig2",
        "paeleke-outlook",
        "slow-link",
        "straggler-coding",
        "straggler-partial",
        "survey-architectures",
        "survey-sparse",
        "swarm",
        "validation",
        "validation-policies",
    ]
}
