//! Blocks of keys: each update changes the parameters of one block only.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::KeyRange;
use crate::id::Version;
use crate::rng::Stream;

/// The largest number of blocks.
pub const MOST_BLOCKS: u32 = 65_536;

/// The division of the keys into blocks, and the order in which updates visit them. Blocks are
/// ranges whose lengths differ by at most one key. A pass is one update of each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// The number of blocks.
    pub count: u32,
    /// The order of the blocks in a pass.
    pub order: BlockOrder,
}

/// The order of the blocks in a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockOrder {
    /// A new random order for each pass.
    #[default]
    Random,
    /// Key order.
    Sequence,
}

impl Blocks {
    /// Returns the pass that contains the update of `version`.
    #[must_use]
    pub const fn pass(self, version: Version) -> u64 {
        version.0 / self.count as u64
    }

    /// Returns the block that the update of `version` changes, in the run with root stream `seed`.
    #[must_use]
    pub fn block(self, seed: Stream, version: Version) -> u32 {
        let place = (version.0 % u64::from(self.count)) as u32;
        if self.order == BlockOrder::Sequence {
            return place;
        }
        let mut order: Vec<u32> = (0..self.count).collect();
        seed.fork("blocks", self.pass(version)).rng().shuffle(&mut order);
        order.get(place as usize).copied().unwrap_or(place)
    }

    /// Returns the keys of that block, out of `keys` keys; `None` if there are fewer keys than
    /// blocks.
    #[must_use]
    pub fn keys(self, seed: Stream, version: Version, keys: u64) -> Option<KeyRange> {
        KeyRange::share(keys, self.count, self.block(seed, version))
    }
}

/// The blocks of a model from the perspective of one server, which owns some of the keys.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The division into blocks.
    pub blocks: Blocks,
    /// The root stream of the run.
    pub seed: Stream,
    /// The number of keys of the model.
    pub keys: u64,
    /// The keys of the server.
    pub own: KeyRange,
}

impl Cut {
    /// Returns the server's keys that the update of `version` changes, relative to its first key;
    /// empty if the block contains none of its keys.
    #[must_use]
    pub fn at(&self, version: Version) -> Range<usize> {
        let block = self.blocks.keys(self.seed, version, self.keys);
        block.and_then(|block| block.overlap(self.own)).map_or(0..0, |block| {
            let first = self.own.begin();
            (block.begin() - first) as usize..(block.end() - first) as usize
        })
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.order {
            BlockOrder::Random => write!(f, "{}", self.count),
            BlockOrder::Sequence => write!(f, "{}:sequence", self.count),
        }
    }
}

impl FromStr for Blocks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, order) = match text.split_once(':') {
            None => (text, Some(BlockOrder::Random)),
            Some((count, "random")) => (count, Some(BlockOrder::Random)),
            Some((count, "sequence")) => (count, Some(BlockOrder::Sequence)),
            Some((count, _)) => (count, None),
        };
        match (count.parse(), order) {
            (Ok(count @ 1..=MOST_BLOCKS), Some(order)) => Ok(Self { count, order }),
            _ => Err(alloc::format!(
                "{text:?} says of no blocks: use none or COUNT[:random|:sequence], with 1 to \
                 {MOST_BLOCKS} of them"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_pass_goes_through_each_key_once_on_however_many_servers(
            count in 1_u32..20,
            keys in 20_u64..200,
            servers in 1_u32..5,
            pass in 0_u64..5,
            in_sequence: bool,
        ) {
            let order = if in_sequence { BlockOrder::Sequence } else { BlockOrder::Random };
            let (blocks, seed) = (Blocks { count, order }, Stream::new(3));
            let mut seen = vec![0; keys as usize];
            for place in 0..u64::from(count) {
                let version = Version(pass * u64::from(count) + place);
                prop_assert_eq!(blocks.pass(version), pass);
                for server in 0..servers {
                    let own = KeyRange::share(keys, servers, server).unwrap();
                    let cut = Cut { blocks, seed, keys, own };
                    for key in cut.at(version) {
                        seen[own.begin() as usize + key] += 1;
                    }
                }
            }
            prop_assert_eq!(seen, vec![1; keys as usize]);
        }
    }

    #[test]
    fn a_random_order_is_another_in_each_pass_and_a_sequence_is_none() {
        let pass = |order, pass: u64| -> Vec<u32> {
            let blocks = Blocks { count: 16, order };
            (16 * pass..16 * (pass + 1))
                .map(|version| blocks.block(Stream::new(1), Version(version)))
                .collect()
        };
        assert_eq!(pass(BlockOrder::Sequence, 2), (0..16).collect::<Vec<u32>>());
        assert_ne!(pass(BlockOrder::Random, 0), pass(BlockOrder::Random, 1));
    }

    #[test]
    fn words_are_read() {
        let sequence = Blocks { count: 8, order: BlockOrder::Sequence };
        assert_eq!("8:sequence".parse(), Ok(sequence));
        assert_eq!(sequence.to_string(), "8:sequence");
        assert_eq!("3".parse(), Ok(Blocks { count: 3, order: BlockOrder::Random }));
        for wrong in ["", "0", "65537", "-1", "8:", "8:backwards", "none"] {
            assert!(wrong.parse::<Blocks>().unwrap_err().contains("COUNT"), "{wrong}");
        }
    }
}
