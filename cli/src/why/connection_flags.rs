//! The connection to a server, as flags for a worker or server that is started.

use pstrain_compute::id::WorkerId;
use pstrain_data::DataSpec;
use pstrain_policy::job::DataFrom;
use pstrain_wire::Status;

use super::architecture;
use super::process::has_processes;
use crate::args::SecurityArgs;

/// Address of a server and security of connections to it.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionFlags {
    address: String,
    /// Security flags that are the same for all processes.
    flags: String,
    /// True if each process has certificates of its own.
    has_certificates: bool,
}

impl ConnectionFlags {
    pub(crate) fn new(address: String, security: &SecurityArgs) -> Self {
        let flags = security.shared_flags();
        Self { address, flags, has_certificates: security.tls.is_some() }
    }

    #[cfg(feature = "top")]
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the address, and the security flags that are the same for all processes.
    pub(super) fn in_flags(&self) -> String {
        format!("{}{}", self.address, self.flags)
    }

    /// Returns the command that starts these workers, followed by the parts of it that differ
    /// between them.
    pub(super) fn worker(&self, status: &Status, workers: &[WorkerId]) -> String {
        let (id, whose) = match workers {
            [worker] => (format!(" --id {worker}"), format!("the --tls folder of worker {worker}")),
            _ => (String::new(), "a --tls folder for each".to_owned()),
        };
        let spec: Option<DataSpec> = serde_json::from_str(&status.recipe).ok();
        let files = spec.filter(|spec| spec.generated.is_none()).map(|spec| spec.source);
        let has_processes = has_processes(status);
        let mut besides = Vec::new();
        if self.has_certificates {
            besides.push(whose);
        }
        if has_processes {
            besides.push("--process and its compute process".to_owned());
        }
        let rows = match (status.data_from, files) {
            (DataFrom::Worker, Some(_)) => " --data server",
            (DataFrom::Own, Some(files)) => {
                besides.push(format!("--data and the path of its own copy of {files}"));
                ""
            }
            _ => "",
        };
        let besides = if besides.is_empty() {
            String::new()
        } else {
            format!(" with {}", besides.join(", and "))
        };
        // Workers without a server reach each other.
        let listens = match (architecture::has_server(status), self.address.starts_with("unix:")) {
            (true, _) => "",
            (false, true) => " --listen unix:PATH",
            (false, false) => " --listen 0.0.0.0:PORT",
        };
        format!("`pstrain worker --server {}{id}{listens}{rows}`{besides}", self.in_flags())
    }
}
