//! The types of numbers in binary files.

use pstrain_compute::float16::Float16;

/// The type of an array's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Kind {
    form: Form,
    /// Bytes of a value: 1, 2, 4 or 8.
    size: usize,
    /// True if the first byte of a value is the most significant one.
    is_big: bool,
}

/// How the bytes of a value are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Float,
    Signed,
    Unsigned,
}

impl Kind {
    /// Unsigned bytes.
    pub(in super::super) const BYTES: Self = Self { form: Form::Unsigned, size: 1, is_big: false };

    /// The type of IDX files with this number.
    pub(in super::super) const fn of_idx(number: u8) -> Option<Self> {
        let (form, size) = match number {
            8 => return Some(Self::BYTES),
            9 => (Form::Signed, 1),
            11 => (Form::Signed, 2),
            12 => (Form::Signed, 4),
            13 => (Form::Float, 4),
            14 => (Form::Float, 8),
            _ => return None,
        };
        Some(Self { form, size, is_big: true })
    }

    /// Reads NumPy's name of a type, such as `<f4`.
    ///
    /// # Errors
    /// The problem of a type that is none of numbers, with the call of NumPy that helps.
    pub(in super::super) fn of_numpy(name: &str) -> Result<Self, String> {
        let (order, kind) = name.split_at_checked(1).unwrap_or_default();
        let (form, size) = match kind {
            "f2" => (Form::Float, 2),
            "f4" => (Form::Float, 4),
            "f8" => (Form::Float, 8),
            "i1" => (Form::Signed, 1),
            "i2" => (Form::Signed, 2),
            "i4" => (Form::Signed, 4),
            "i8" => (Form::Signed, 8),
            "u1" | "b1" => (Form::Unsigned, 1),
            "u2" => (Form::Unsigned, 2),
            "u4" => (Form::Unsigned, 4),
            "u8" => (Form::Unsigned, 8),
            _ => {
                return Err(format!(
                    "its values have type {name:?}, and not f2 to f8, i1 to i8, u1 to u8 or bool: \
                     {}",
                    cure(kind)
                ));
            }
        };
        Ok(Self { form, size, is_big: order == ">" })
    }

    /// The bytes of a value.
    pub(in super::super) const fn size(self) -> usize {
        self.size
    }

    /// True if the values of the type stay different as `f32`, whichever they are.
    pub(in super::super) const fn is_small(self) -> bool {
        self.size <= 2
    }

    /// The value as bits that are different for different values.
    pub(in super::super) fn bits(self, bytes: &[u8]) -> u64 {
        match self.form {
            // Zero has two signs.
            Form::Float => (self.number(bytes) + 0.0).to_bits(),
            Form::Signed | Form::Unsigned => self.read(bytes),
        }
    }

    /// The value as a number.
    pub(in super::super) fn number(self, bytes: &[u8]) -> f64 {
        let bits = self.read(bytes);
        match (self.form, self.size) {
            (Form::Float, 2) => Float16::Half.decode(bits as u16).into(),
            (Form::Float, 4) => f32::from_bits(bits as u32).into(),
            (Form::Float, _) => f64::from_bits(bits),
            (Form::Signed, size) => signed(bits, size) as f64,
            (Form::Unsigned, _) => bits as f64,
        }
    }

    /// The value as a whole number; `None` if it has a fraction or is out of range.
    pub(in super::super) fn whole(self, bytes: &[u8]) -> Option<i64> {
        let bits = self.read(bytes);
        match self.form {
            Form::Signed => Some(signed(bits, self.size)),
            Form::Unsigned => bits.try_into().ok(),
            Form::Float => {
                let number = self.number(bytes);
                // Larger ones have neighbours that are no whole numbers apart.
                let is_whole = number.fract() == 0.0 && number.abs() < MOST_WHOLE;
                is_whole.then_some(number as i64)
            }
        }
    }

    fn read(self, bytes: &[u8]) -> u64 {
        let join = |bits: u64, byte: &u8| bits << 8 | u64::from(*byte);
        match self.is_big {
            true => bytes.iter().fold(0, join),
            false => bytes.iter().rev().fold(0, join),
        }
    }
}

/// From here on, not each whole number is an `f64`.
const MOST_WHOLE: f64 = (1_u64 << 53) as f64;

/// The number of `size` bytes in two's complement.
const fn signed(bits: u64, size: usize) -> i64 {
    let unused = 64 - 8 * size as u32;
    (bits << unused) as i64 >> unused
}

/// The array to save in place of one whose type has no real numbers, such as `c8`.
fn cure(kind: &str) -> &'static str {
    match kind.chars().next() {
        // Neither part is lost.
        Some('c') => "save numpy.hstack([array.real, array.imag]) instead",
        Some('f' | 'g') => "save numpy.float64(array) instead",
        Some('M' | 'm') => "save array.view('int64') instead",
        Some('U' | 'S') => {
            "of labels, save numpy.unique(labels, return_inverse=True)[1] instead; write texts and \
             numbers as a table, pandas.DataFrame(array).to_csv('FILE', index=False), and read \
             csv:FILE"
        }
        // Objects, such as texts among numbers, become numbers by no single call.
        _ => {
            "of labels, save numpy.unique(labels.tolist(), return_inverse=True)[1] instead; write \
             all else as a table, pandas.DataFrame(array).to_csv('FILE', index=False), and read \
             csv:FILE"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_of_bytes_and_all_sizes_have_the_same_values() {
        for (name, bytes, number) in [
            ("<f2", vec![0, 0xc0], -2.0),
            (">f4", (-0.5_f32).to_be_bytes().to_vec(), -0.5),
            ("<f8", 1e300_f64.to_le_bytes().to_vec(), 1e300),
            ("|i1", vec![0x80], -128.0),
            (">i2", (-2_i16).to_be_bytes().to_vec(), -2.0),
            ("<i8", i64::MIN.to_le_bytes().to_vec(), i64::MIN as f64),
            ("|b1", vec![1], 1.0),
            (">u8", u64::MAX.to_be_bytes().to_vec(), u64::MAX as f64),
        ] {
            let kind = Kind::of_numpy(name).unwrap();
            assert_eq!((kind.size(), kind.number(&bytes)), (bytes.len(), number), "{name}");
        }
        let whole = |name: &str, bytes: &[u8]| Kind::of_numpy(name).unwrap().whole(bytes);
        assert_eq!(whole("<i4", &(-7_i32).to_le_bytes()), Some(-7));
        assert_eq!(whole("<u8", &u64::MAX.to_le_bytes()), None);
        assert_eq!(whole("<f4", &3.0_f32.to_le_bytes()), Some(3));
        assert_eq!(whole("<f4", &3.5_f32.to_le_bytes()), None);
        assert_eq!(whole("<f8", &f64::NAN.to_le_bytes()), None);
        assert_eq!(whole("<f8", &1e300_f64.to_le_bytes()), None);
    }

    #[test]
    fn no_type_of_values_is_refused_without_a_call_that_works() {
        for name in ["|O", "<c8", "<U3", "|S1", "<M8[s]", "<f16", "|V4", ""] {
            let told = Kind::of_numpy(name).unwrap_err();
            assert!(told.contains("save ") && !told.contains("astype"), "{told}");
        }
    }
}
