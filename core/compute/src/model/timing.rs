//! A model without arithmetic, for studies of time.

use alloc::format;
use alloc::vec;

use super::{MOST_PARAMETERS, ModelError};
use crate::params::Layout;

/// The layout of parameters in tensors of given sizes.
pub(super) fn layout(sizes: &[u32]) -> Result<Layout, ModelError> {
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
    Ok(layout)
}
