//! A model without arithmetic, for studies of time.

use alloc::format;
use alloc::vec;
use core::ops::Range;

use super::{MOST_PARAMETERS, ModelError, Objective, Workspace};
use crate::examples::Examples;
use crate::params::Layout;

/// Parameters in tensors of given sizes. Gradients are zeros, and evaluations are empty.
#[derive(Debug)]
pub(super) struct Timing {
    layout: Layout,
}

impl Timing {
    pub(super) fn new(sizes: &[u32]) -> Result<Self, ModelError> {
        let mut layout = Layout::new();
        let mut parameters = 0;
        for (layer, &size) in sizes.iter().enumerate() {
            parameters += u64::from(size);
            if parameters > MOST_PARAMETERS {
                return Err(ModelError::TooManyParameters { layer, parameters });
            }
            if layout.push(format!("{layer}"), vec![size as usize]).is_none() {
                return Err(ModelError::NoUnits { layer });
            }
        }
        if layout.is_empty() {
            return Err(ModelError::NoUnits { layer: 0 });
        }
        Ok(Self { layout })
    }
}

impl Objective for Timing {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn add_gradient(
        &self,
        _: Range<usize>,
        _: &[f32],
        _: (&Examples, &[u32]),
        _: &mut [f32],
        _: &mut Workspace,
    ) -> f64 {
        0.0
    }

    fn predict(&self, _: &[f32], _: (&Examples, Range<usize>), _: &mut [f32], _: &mut Workspace) {}

    fn computes(&self) -> bool {
        false
    }
}
