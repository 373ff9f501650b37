//! The names in the data set: columns, categories, attacks and classes.

use std::fmt;

/// The five classes, in the order of the labels 0..5.
pub const CLASSES: [&str; 5] = ["Normal", "DoS", "Probe", "R2L", "U2R"];

/// The values of column 2, `protocol_type`, in the order of their one-hot columns.
pub const PROTOCOLS: [&str; 3] = ["icmp", "tcp", "udp"];

/// The values of column 3, `service`, in the order of their one-hot columns.
pub const SERVICES: [&str; 70] = [
    "IRC",
    "X11",
    "Z39_50",
    "aol",
    "auth",
    "bgp",
    "courier",
    "csnet_ns",
    "ctf",
    "daytime",
    "discard",
    "domain",
    "domain_u",
    "echo",
    "eco_i",
    "ecr_i",
    "efs",
    "exec",
    "finger",
    "ftp",
    "ftp_data",
    "gopher",
    "harvest",
    "hostnames",
    "http",
    "http_2784",
    "http_443",
    "http_8001",
    "imap4",
    "iso_tsap",
    "klogin",
    "kshell",
    "ldap",
    "link",
    "login",
    "mtp",
    "name",
    "netbios_dgm",
    "netbios_ns",
    "netbios_ssn",
    "netstat",
    "nnsp",
    "nntp",
    "ntp_u",
    "other",
    "pm_dump",
    "pop_2",
    "pop_3",
    "printer",
    "private",
    "red_i",
    "remote_job",
    "rje",
    "shell",
    "smtp",
    "sql_net",
    "ssh",
    "sunrpc",
    "supdup",
    "systat",
    "telnet",
    "tftp_u",
    "tim_i",
    "time",
    "urh_i",
    "urp_i",
    "uucp",
    "uucp_path",
    "vmnet",
    "whois",
];

/// The values of column 4, `flag`, in the order of their one-hot columns.
pub const FLAGS: [&str; 11] =
    ["OTH", "REJ", "RSTO", "RSTOS0", "RSTR", "S0", "S1", "S2", "S3", "SF", "SH"];

/// The 43 columns of a file, in order.
pub const COLUMN_NAMES: [&str; 43] = [
    "duration",
    "protocol_type",
    "service",
    "flag",
    "src_bytes",
    "dst_bytes",
    "land",
    "wrong_fragment",
    "urgent",
    "hot",
    "num_failed_logins",
    "logged_in",
    "num_compromised",
    "root_shell",
    "su_attempted",
    "num_root",
    "num_file_creations",
    "num_shells",
    "num_access_files",
    "num_outbound_cmds",
    "is_host_login",
    "is_guest_login",
    "count",
    "srv_count",
    "serror_rate",
    "srv_serror_rate",
    "rerror_rate",
    "srv_rerror_rate",
    "same_srv_rate",
    "diff_srv_rate",
    "srv_diff_host_rate",
    "dst_host_count",
    "dst_host_srv_count",
    "dst_host_same_srv_rate",
    "dst_host_diff_srv_rate",
    "dst_host_same_src_port_rate",
    "dst_host_srv_diff_host_rate",
    "dst_host_serror_rate",
    "dst_host_srv_serror_rate",
    "dst_host_rerror_rate",
    "dst_host_srv_rerror_rate",
    "label",
    "difficulty",
];

/// The number of numeric features: all columns except the three symbolic ones, label and
/// difficulty.
pub const NUMERIC: usize = 38;

/// Name and class of normal traffic and of every attack in the training and test files.
const ATTACKS: [(&str, u8); 40] = [
    ("normal", 0),
    ("apache2", 1),
    ("back", 1),
    ("land", 1),
    ("mailbomb", 1),
    ("neptune", 1),
    ("pod", 1),
    ("processtable", 1),
    ("smurf", 1),
    ("teardrop", 1),
    ("udpstorm", 1),
    ("worm", 3),
    ("ipsweep", 2),
    ("mscan", 2),
    ("nmap", 2),
    ("portsweep", 2),
    ("saint", 2),
    ("satan", 2),
    ("ftp_write", 3),
    ("guess_passwd", 3),
    ("httptunnel", 4),
    ("imap", 3),
    ("multihop", 3),
    ("named", 3),
    ("phf", 3),
    ("sendmail", 3),
    ("snmpgetattack", 3),
    ("snmpguess", 3),
    ("spy", 3),
    ("warezclient", 3),
    ("warezmaster", 3),
    ("xlock", 3),
    ("xsnoop", 3),
    ("buffer_overflow", 4),
    ("loadmodule", 4),
    ("perl", 4),
    ("ps", 4),
    ("rootkit", 4),
    ("sqlattack", 4),
    ("xterm", 4),
];

/// An attack, or normal traffic, by its index in the data set's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attack(u8);

impl Attack {
    /// Returns all attacks, normal traffic first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..ATTACKS.len() as u8).map(Self)
    }

    /// Returns the attack with the given name, exactly as the files write it.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        // Most records have one of these two labels, so they are compared first.
        match name {
            b"normal" => Some(Self(0)),
            b"neptune" => Some(NEPTUNE),
            _ => Self::all().find(|attack| attack.name().as_bytes() == name),
        }
    }

    /// Returns the name, as the files write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ATTACKS[self.0 as usize].0
    }

    /// Returns the class, an index into [`CLASSES`].
    #[must_use]
    pub const fn class(self) -> u8 {
        ATTACKS[self.0 as usize].1
    }

    /// Returns the index in the list, from 0.
    #[must_use]
    pub const fn number(self) -> usize {
        self.0 as usize
    }
}

const NEPTUNE: Attack = Attack(5);

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the column of a file (counted from 0) that has numeric feature `numeric`.
pub(super) const fn file_column(numeric: usize) -> usize {
    if numeric == 0 { 0 } else { numeric + 3 }
}

/// Returns the name of numeric feature `numeric`, counted from 0 in the order of the file.
///
/// # Panics
/// If `numeric` is not below [`NUMERIC`].
#[must_use]
pub const fn numeric_name(numeric: usize) -> &'static str {
    assert!(numeric < NUMERIC, "numeric features end at 37");
    COLUMN_NAMES[file_column(numeric)]
}

/// Returns name and values of the three symbolic columns, in the order of the file.
#[must_use]
pub const fn category_groups() -> [(&'static str, &'static [&'static str]); 3] {
    [(COLUMN_NAMES[1], &PROTOCOLS), (COLUMN_NAMES[2], &SERVICES), (COLUMN_NAMES[3], &FLAGS)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_and_attacks_are_found_by_name() {
        // Sorted by bytes: upper case before lower case, like the one-hot columns.
        for (_, values) in category_groups() {
            assert!(values.is_sorted());
        }
        for attack in Attack::all() {
            assert_eq!(Attack::named(attack.name().as_bytes()), Some(attack));
            assert!(usize::from(attack.class()) < CLASSES.len());
        }
        assert_eq!(Attack::named(b"neptune.").map(Attack::name), None);
        assert_eq!(numeric_name(0), "duration");
        assert_eq!(numeric_name(1), "src_bytes");
        assert_eq!(numeric_name(NUMERIC - 1), "dst_host_srv_rerror_rate");
    }
}
