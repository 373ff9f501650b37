//! Working sets of workers: the keys that a worker's vectors have values for, in a sparse model.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::WorkerId;
use pstrain_compute::params::{KeyList, KeyRange};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_wire::keys::KeysHeader;

/// Working sets that workers have sent, by worker.
#[derive(Debug, Default)]
pub(super) struct Lists(BTreeMap<WorkerId, Listed>);

#[derive(Debug)]
pub(super) struct Listed {
    pub(super) header: KeysHeader,
    /// Counted from the first key of the store.
    pub(super) list: KeyList,
}

/// The saved form of the lists without their keys.
#[derive(Default, Serialize, Deserialize)]
struct Headers(BTreeMap<WorkerId, KeysHeader>);

impl Lists {
    pub(super) fn of(&self, worker: WorkerId) -> Option<&Listed> {
        self.0.get(&worker)
    }

    /// Stores a worker's list in place of its previous one; `keys` are the keys of the store.
    pub(super) fn learn(
        &mut self,
        worker: WorkerId,
        header: KeysHeader,
        list: KeyList,
        keys: KeyRange,
    ) -> Result<(), String> {
        if let Some(&last) = list.keys().last().filter(|&&last| u64::from(last) >= keys.len()) {
            return Err(alloc::format!(
                "its list has key {} of {}, which this server has not",
                keys.begin() + u64::from(last),
                keys
            ));
        }
        self.0.insert(worker, Listed { header, list });
        Ok(())
    }

    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let mut headers =
            Headers(self.0.iter().map(|(worker, listed)| (*worker, listed.header)).collect());
        archive.small(&mut headers)?;
        for (worker, header) in headers.0 {
            let mut keys: Vec<u32> =
                self.0.get(&worker).map_or_else(Vec::new, |listed| listed.list.keys().to_vec());
            archive.own_u32("working-set", &mut keys, header.place.len() as usize)?;
            let list = self.0.get(&worker).map(|listed| &listed.list);
            let mut bounds = list.and_then(KeyList::curvature).unwrap_or_default().to_vec();
            if header.curved {
                archive.own_of("curvature", &mut bounds, header.place.len() as usize)?;
            }
            if archive.restores() {
                let mut list = KeyList::new(keys).ok_or(SavedError::Missing)?;
                if header.curved {
                    list = list.with_curvature(bounds).ok_or(SavedError::Missing)?;
                }
                self.0.insert(worker, Listed { header, list });
            }
        }
        Ok(())
    }
}
