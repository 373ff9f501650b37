//! Worker ids from the environment variables of the engine that started the process. Does not read
//! the process's environment itself: the caller passes a lookup function.

use std::fmt;

use clap::ValueEnum;
use pstrain_compute::counted::counted;
use pstrain_compute::id::WorkerId;

/// The engine whose environment variables give a worker's rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RankOf {
    /// First of the engines below whose variables are set: the innermost, if engines start each
    /// other
    Auto,
    /// RANK and WORLD_SIZE, of torchrun and compatible launchers
    Torchrun,
    /// OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE, of Open MPI's mpirun
    Openmpi,
    /// PMI_RANK and PMI_SIZE, of MPICH's and Intel's mpiexec
    Pmi,
    /// PMIX_RANK, of PRRTE and other PMIx launchers; says no size
    Pmix,
    /// SLURM_PROCID and SLURM_STEP_NUM_TASKS, of srun
    Slurm,
    /// JOB_COMPLETION_INDEX, of an Indexed Job of Kubernetes; says no size
    Kubernetes,
}

/// The names of an engine's variables. A process that lacks one of them was not started by that
/// engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variables {
    rank: &'static str,
    size: Option<&'static str>,
}

/// The engines, innermost first: mpirun may be started within a job of Slurm, torchrun by srun or
/// mpirun, all of them in a pod, and never the other way round. A launcher passes its own inherited
/// variables on, so variables of an outer engine may belong to another process.
const ENGINES: [RankOf; 6] = [
    RankOf::Torchrun,
    RankOf::Openmpi,
    RankOf::Pmi,
    RankOf::Pmix,
    RankOf::Slurm,
    RankOf::Kubernetes,
];

impl RankOf {
    /// Returns the engines to try, in order.
    fn engines(self) -> Vec<Self> {
        if self == Self::Auto { ENGINES.to_vec() } else { vec![self] }
    }

    /// Returns the engine's variables; None for `Auto`.
    const fn variables(self) -> Option<Variables> {
        let (rank, size) = match self {
            Self::Auto => return None,
            // From <https://docs.pytorch.org/docs/stable/elastic/run.html>.
            Self::Torchrun => ("RANK", Some("WORLD_SIZE")),
            // From <https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html>.
            Self::Openmpi => ("OMPI_COMM_WORLD_RANK", Some("OMPI_COMM_WORLD_SIZE")),
            Self::Pmi => ("PMI_RANK", Some("PMI_SIZE")),
            Self::Pmix => ("PMIX_RANK", None),
            // From srun(1). A batch script has SLURM_PROCID, too, but only a step has
            // SLURM_STEP_NUM_TASKS.
            Self::Slurm => ("SLURM_PROCID", Some("SLURM_STEP_NUM_TASKS")),
            // From <https://kubernetes.io/docs/concepts/workloads/controllers/job/>.
            Self::Kubernetes => ("JOB_COMPLETION_INDEX", None),
        };
        Some(Variables { rank, size })
    }
}

impl fmt::Display for RankOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

impl Variables {
    /// Describes the missing variable if exactly one of the two is set.
    fn half(&self, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
        let size = self.size?;
        match (variable(self.rank), variable(size)) {
            (Some(rank), None) => Some(format!(" ({}={rank} is, but not {size})", self.rank)),
            (None, Some(count)) => Some(format!(" ({size}={count} is, but not {})", self.rank)),
            _ => None,
        }
    }
}

impl fmt::Display for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            Some(size) => write!(f, "{} and {size}", self.rank),
            None => f.write_str(self.rank),
        }
    }
}

/// A process's rank in its job, from the engine that started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rank {
    /// Starts at 0.
    rank: u32,
    /// Number of processes that the engine started, if it says so; greater than `rank`.
    size: Option<u32>,
    variables: Variables,
    /// Differing ranks from engines further out, as `NAME=VALUE`.
    others: Vec<String>,
}

impl Rank {
    /// Finds the rank in an environment; `variable` returns the value of a variable, if it is set.
    ///
    /// # Errors
    ///
    /// A message, if no engine's variables are set, or the rank is not a number or not below the
    /// size.
    pub(crate) fn find(
        of: RankOf,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let known: Vec<Variables> =
            of.engines().into_iter().filter_map(RankOf::variables).collect();
        // An empty variable counts as unset. Other values are escaped, so that messages can show
        // them.
        let variable = |name: &str| {
            let value = variable(name).filter(|value| !value.is_empty())?;
            Some(value.escape_debug().to_string())
        };
        let mut found = known.iter().filter_map(|&variables| {
            let rank = variable(variables.rank)?;
            match variables.size {
                Some(size) => Some((variables, rank, Some(variable(size)?))),
                None => Some((variables, rank, None)),
            }
        });
        let Some((variables, rank, size)) = found.next() else {
            let halves: String = known.iter().filter_map(|it| it.half(variable)).collect();
            let known: Vec<String> = known.iter().map(Variables::to_string).collect();
            return Err(format!(
                "--rank {of}: {} not set here{halves}; start the worker by such an engine (srun, mpirun, \
                 ...), or say which it is with --id",
                known.join("; ")
            ));
        };
        let others = found
            .filter(|(_, other, _)| *other != rank)
            .map(|(variables, other, _)| format!("{}={other}", variables.rank))
            .collect();
        let number = |name: &str, text: &str| {
            // Digits only: `parse` would accept a sign, which no engine writes.
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| digits);
            number.ok_or_else(|| {
                let engine = match of {
                    RankOf::Auto => "name the engine (--rank slurm, ...), or ",
                    _ => "",
                };
                format!(
                    "--rank {of}: {name}={text} is no whole number up to {}; if that is not the engine's, \
                     {engine}say which worker it is with --id",
                    u32::MAX
                )
            })
        };
        let rank = number(variables.rank, &rank)?;
        let size = match (variables.size, size) {
            (Some(name), Some(text)) => Some((name, number(name, &text)?)),
            _ => None,
        };
        if let Some((name, size)) = size.filter(|&(_, size)| rank >= size) {
            return Err(format!(
                "--rank {of}: {}={rank} is not below {name}={size}; ranks are 0 to {name} - 1",
                variables.rank
            ));
        }
        Ok(Self { rank, size: size.map(|(_, size)| size), variables, others })
    }

    /// Returns the worker id of this rank: the first worker is rank 0.
    pub(crate) const fn worker(&self) -> WorkerId {
        WorkerId(self.rank)
    }

    /// Returns the number of processes that the engine started, if it says so.
    pub(crate) const fn size(&self) -> Option<u32> {
        self.size
    }

    /// Describes the conflict with a job of `workers` workers, and its remedy.
    pub(crate) fn misfit(&self, workers: u32) -> String {
        let started = match (self.variables.size, self.size) {
            (Some(name), Some(size)) => format!("{name}={size}"),
            _ => format!("{}={}", self.variables.rank, self.rank),
        };
        format!(
            "{started}, but the job has {0}; have the engine start {0}, or the server with \
             --workers as many as it starts",
            counted(workers, "worker")
        )
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} by {}={}", self.worker(), self.variables.rank, self.rank)?;
        if let (Some(name), Some(size)) = (self.variables.size, self.size) {
            write!(f, " of {name}={size}")?;
        }
        match self.others.as_slice() {
            [] => Ok(()),
            others => write!(f, " (further out: {})", others.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(of: RankOf, environment: &[(&str, &str)]) -> Result<Rank, String> {
        let value = |name: &str| {
            let at = environment.iter().find(|(known, _)| *known == name);
            at.map(|(_, value)| (*value).to_owned())
        };
        Rank::find(of, value)
    }

    /// Worker number and size.
    fn place(environment: &[(&str, &str)]) -> (u64, Option<u32>) {
        let rank = find(RankOf::Auto, environment).unwrap();
        (rank.worker().number(), rank.size())
    }

    const SLURM: [(&str, &str); 2] = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
    const OPENMPI: [(&str, &str); 3] =
        [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "3")];
    const TORCHRUN: [(&str, &str); 2] = [("RANK", "5"), ("WORLD_SIZE", "6")];

    #[test]
    fn each_engine_says_which_worker_it_is_and_most_of_how_many() {
        assert_eq!(place(&SLURM), (2, Some(2)));
        assert_eq!(place(&OPENMPI), (4, Some(4)));
        assert_eq!(place(&TORCHRUN), (6, Some(6)));
        assert_eq!(place(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), (1, Some(1)));
        assert_eq!(place(&[("PMIX_RANK", "7")]), (8, None));
        assert_eq!(place(&[("JOB_COMPLETION_INDEX", "2")]), (3, None));
    }

    #[test]
    fn of_engines_that_start_each_other_the_innermost_counts() {
        let pod = [("JOB_COMPLETION_INDEX", "9")];
        assert_eq!(place(&[&pod[..], &SLURM].concat()), (2, Some(2)));
        assert_eq!(place(&[&SLURM[..], &OPENMPI, &pod].concat()), (4, Some(4)));
        let all = [&pod[..], &SLURM, &OPENMPI, &TORCHRUN].concat();
        assert_eq!(place(&all), (6, Some(6)));
        let said = find(RankOf::Auto, &all).unwrap().to_string();
        assert_eq!(
            said,
            "worker 6 by RANK=5 of WORLD_SIZE=6 (further out: OMPI_COMM_WORLD_RANK=3, PMIX_RANK=3, \
             SLURM_PROCID=1, JOB_COMPLETION_INDEX=9)"
        );
        // Outer engines that agree are not mentioned.
        let said = find(RankOf::Auto, &OPENMPI).unwrap().to_string();
        assert_eq!(said, "worker 4 by OMPI_COMM_WORLD_RANK=3 of OMPI_COMM_WORLD_SIZE=4");
    }

    #[test]
    fn an_engine_that_is_named_counts_whatever_the_others_say() {
        let all = [&SLURM[..], &OPENMPI, &TORCHRUN].concat();
        for (of, worker) in [(RankOf::Slurm, 2), (RankOf::Openmpi, 4), (RankOf::Torchrun, 6)] {
            assert_eq!(find(of, &all).unwrap().worker().number(), worker);
        }
        let error = find(RankOf::Kubernetes, &all).unwrap_err();
        assert!(error.contains("--rank kubernetes: JOB_COMPLETION_INDEX not set"), "{error}");
    }

    #[test]
    fn half_of_an_engines_variables_are_not_that_engines() {
        // A batch script of Slurm is not a step; programs other than torchrun set RANK, too.
        for lonely in [[("SLURM_PROCID", "0")], [("RANK", "captain")], [("PMI_SIZE", "2")]] {
            let error = find(RankOf::Auto, &lonely).unwrap_err();
            assert!(error.contains("SLURM_PROCID and SLURM_STEP_NUM_TASKS"), "{error}");
            assert!(error.contains("--id"), "{error}");
        }
        let error = find(RankOf::Slurm, &[("SLURM_PROCID", "0")]).unwrap_err();
        let half = "not set here (SLURM_PROCID=0 is, but not SLURM_STEP_NUM_TASKS); start";
        assert!(error.contains(half), "{error}");
        let error = find(RankOf::Auto, &[("RANK", ""), ("PMI_SIZE", "2")]).unwrap_err();
        assert!(error.contains("not set here (PMI_SIZE=2 is, but not PMI_RANK); start"), "{error}");
        assert_eq!(
            place(&[&[("RANK", ""), ("WORLD_SIZE", "")][..], &SLURM].concat()),
            (2, Some(2))
        );
        assert_eq!(place(&[&[("RANK", "captain")][..], &SLURM].concat()), (2, Some(2)));
    }

    #[test]
    fn numbers_that_are_none_are_refused_by_name_and_value() {
        let refused = |environment: &[(&str, &str)], words: &[&str]| {
            let error = find(RankOf::Auto, environment).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        };
        refused(&[("RANK", "one"), ("WORLD_SIZE", "2")], &["RANK=one", "whole number"]);
        refused(&[("RANK", "-1"), ("WORLD_SIZE", "2")], &["RANK=-1"]);
        refused(&[("RANK", "+1"), ("WORLD_SIZE", "2")], &["RANK=+1", "--rank slurm"]);
        refused(&[("RANK", "0"), ("WORLD_SIZE", " 2")], &["WORLD_SIZE= 2 is no"]);
        refused(&[("PMIX_RANK", "4294967296")], &["PMIX_RANK=4294967296", "up to 4294967295"]);
        refused(&[("PMIX_RANK", "\u{1b}[31m1")], &[r"PMIX_RANK=\u{1b}[31m1 is no"]);
        let error = find(RankOf::Slurm, &[("SLURM_PROCID", "x"), SLURM[1]]).unwrap_err();
        assert!(error.contains("the engine's, say which worker"), "{error}");
        refused(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")], &["PMI_RANK=2", "PMI_SIZE=2", "0 to"]);
    }

    #[test]
    fn a_job_of_another_size_is_refused_by_the_variable_that_says_it() {
        let misfit = find(RankOf::Auto, &SLURM).unwrap().misfit(3);
        assert!(misfit.contains("SLURM_STEP_NUM_TASKS=2, but the job has 3 workers"), "{misfit}");
    }
}
