//! The published experiments, as specifications that travel inside the binary.
//!
//! What a specification means is the command line's business; here it is a name and a text.

/// A specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// The name to run it by.
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

/// All specifications, by name.
#[must_use]
pub fn experiments() -> &'static [Shipped] {
    shipped![
        "async-noniid",
        "auto-grid",
        "auto-random",
        "backup-workers",
        "contention-roundrobin",
        "hetero-partition",
        "osdi-delay",
        "osdi-delay-a9a",
        "osdi-failover",
        "osdi-filters",
        "paeleke-fig1",
        "paeleke-fig2",
        "paeleke-outlook",
        "straggler-coding",
        "straggler-partial",
        "validation",
        "validation-policies",
    ]
}
