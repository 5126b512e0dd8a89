//! The sizes every store accepts, whatever its engine: what fits one fits all.

use crate::StorageError;

/// The longest key, in bytes: what the strictest of the usual engines takes.
pub const KEY_BYTES_MAX: usize = 64 * 1024 - 1;

/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The largest record, in bytes of its encoding: the longest value and 1 MiB for what the protocol
/// keeps beside it (stamps, dependencies).
pub const RECORD_BYTES_MAX: usize = VALUE_BYTES_MAX + 1024 * 1024;

/// Refuses what is over the limits. Computes the record's encoded length without encoding it.
pub(crate) fn check(key: &[u8], record: &impl prost::Message) -> Result<(), StorageError> {
    if key.len() > KEY_BYTES_MAX {
        return Err(StorageError::KeyTooLong { bytes: key.len() });
    }
    let bytes = record.encoded_len();
    if bytes > RECORD_BYTES_MAX {
        return Err(StorageError::RecordTooLarge { bytes });
    }
    Ok(())
}
