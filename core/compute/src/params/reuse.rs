//! Buffer reuse of shared vectors.

use alloc::sync::Arc;
use alloc::vec::Vec;

/// Returns the vector, empty, for refilling. Reuses its allocation if unshared; otherwise
/// allocates, and the other owners keep the old contents.
pub fn cleared(vector: &mut Arc<Vec<f32>>) -> &mut Vec<f32> {
    if Arc::get_mut(vector).is_none() {
        *vector = Arc::default();
    }
    let own: &mut Vec<f32> = Arc::make_mut(vector);
    own.clear();
    own
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn what_nobody_else_has_is_filled_anew_and_what_somebody_has_stays_what_it_is() {
        let mut vector = Arc::new(vec![1.0, 2.0]);
        let place = vector.as_ptr();
        cleared(&mut vector).push(3.0);
        assert_eq!((vector.as_ptr(), &vector[..]), (place, &[3.0][..]));
        let other = Arc::clone(&vector);
        cleared(&mut vector).extend([4.0, 5.0]);
        assert_eq!((&other[..], &vector[..]), (&[3.0][..], &[4.0, 5.0][..]));
    }
}
