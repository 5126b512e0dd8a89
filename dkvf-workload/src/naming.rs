//! The names of keys, equal to those of YCSB.

use bytes::{BufMut, Bytes, BytesMut};

/// Whether neighbours in the order of insertion are neighbours in the key space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertOrder {
    /// The number of a key is hashed.
    Hashed,
    /// It is not.
    Ordered,
}

/// From the index of a record to the name of its key: `user`, then the index or
/// its hash in decimal, padded with zeros on the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyNaming {
    /// Index or hash.
    pub order: InsertOrder,
    /// The least number of digits.
    pub zero_padding: usize,
}

impl KeyNaming {
    /// The name of record `index`.
    pub fn name(&self, index: u64) -> Bytes {
        let mut name = BytesMut::with_capacity(self.name_bytes_max());
        self.write(index, &mut name);
        name.freeze()
    }

    /// The longest name there is.
    pub(crate) fn name_bytes_max(&self) -> usize {
        "user-".len() + DIGITS_MAX.max(self.zero_padding)
    }

    /// Appends the name of record `index` to `out`.
    pub(crate) fn write(&self, index: u64, out: &mut BytesMut) {
        out.put_slice(b"user");
        let number = match self.order {
            InsertOrder::Ordered => index,
            InsertOrder::Hashed => {
                let hash = java_abs(fnv1a_64(index));
                // Java's `abs` leaves the least `long` negative.
                if hash > i64::MAX as u64 {
                    out.put_u8(b'-');
                }
                hash
            }
        };
        let mut digits = [0; DIGITS_MAX];
        let digits = decimal(number, &mut digits);
        out.put_bytes(b'0', self.zero_padding.saturating_sub(digits.len()));
        out.put_slice(digits);
    }
}

const DIGITS_MAX: usize = 20;

/// `number` in decimal, at the end of `buffer`.
fn decimal(mut number: u64, buffer: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut start = DIGITS_MAX;
    loop {
        start -= 1;
        buffer[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[start..];
        }
    }
}

/// FNV-1a over the eight bytes of `number`, least significant first.
pub(crate) fn fnv1a_64(number: u64) -> u64 {
    number
        .to_le_bytes()
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
}

/// The absolute value of `hash` as a signed number.
pub(crate) fn java_abs(hash: u64) -> u64 {
    hash.cast_signed().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(order: InsertOrder, zero_padding: usize, index: u64) -> String {
        let naming = KeyNaming {
            order,
            zero_padding,
        };
        let name = naming.name(index);
        assert!(name.len() <= naming.name_bytes_max());
        String::from_utf8(name.to_vec()).unwrap()
    }

    #[test]
    fn hashed_names_are_those_of_ycsb() {
        for (index, expected) in [
            (0, "user6284781860667377211"),
            (1, "user8517097267634966620"),
            (2, "user1820151046732198393"),
            (3, "user4052466453699787802"),
        ] {
            assert_eq!(name(InsertOrder::Hashed, 1, index), expected);
        }
    }

    #[test]
    fn names_are_padded_to_the_given_width() {
        assert_eq!(name(InsertOrder::Ordered, 1, 0), "user0");
        assert_eq!(name(InsertOrder::Ordered, 1, 1234), "user1234");
        assert_eq!(name(InsertOrder::Ordered, 6, 1234), "user001234");
        assert_eq!(name(InsertOrder::Ordered, 3, 1234), "user1234");
        assert_eq!(
            name(InsertOrder::Hashed, 21, 0),
            "user006284781860667377211"
        );
        assert_eq!(
            name(InsertOrder::Ordered, 0, u64::MAX),
            "user18446744073709551615"
        );
    }

    #[test]
    fn the_hash_is_fnv1a_of_eight_bytes() {
        // The offset basis after eight zero bytes is a published constant of
        // the 64-bit variant multiplied by prime^8.
        let prime: u64 = 0x0000_0100_0000_01b3;
        let expected = (0..8).fold(0xcbf2_9ce4_8422_2325_u64, |h, _| h.wrapping_mul(prime));
        assert_eq!(fnv1a_64(0), expected);
        assert_eq!(java_abs(fnv1a_64(1_000_000)), 1_011_632_231_655_643_464);
        assert_eq!(java_abs(i64::MIN as u64), 1 << 63);
    }
}
