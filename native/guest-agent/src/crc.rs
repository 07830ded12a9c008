//! CRC-32 (IEEE 802.3, as in zlib), eight bytes a step. Written here and not taken from a crate because a crate's `std`
//! feature, once any member of the workspace turns it on, would break this binary's link.

const POLYNOMIAL: u32 = 0xedb8_8320;

const TABLES: [[u32; 256]; 8] = build_tables();

const fn build_tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][i] = crc;
        i += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut i = 0;
        while i < 256 {
            let previous = tables[table - 1][i];
            tables[table][i] = previous >> 8 ^ tables[0][(previous & 255) as usize];
            i += 1;
        }
        table += 1;
    }
    tables
}

static TABLE: [[u32; 256]; 8] = TABLES;

/// Continues `crc` (0 to begin) over `bytes`.
pub fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    let mut state = !crc;
    let chunks = bytes.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        let low = state ^ u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        state = TABLE[7][(low & 255) as usize]
            ^ TABLE[6][(low >> 8 & 255) as usize]
            ^ TABLE[5][(low >> 16 & 255) as usize]
            ^ TABLE[4][(low >> 24) as usize]
            ^ TABLE[3][chunk[4] as usize]
            ^ TABLE[2][chunk[5] as usize]
            ^ TABLE[1][chunk[6] as usize]
            ^ TABLE[0][chunk[7] as usize];
    }
    for byte in rest {
        state = state >> 8 ^ TABLE[0][((state ^ u32::from(*byte)) & 255) as usize];
    }
    !state
}

#[cfg(test)]
mod tests {
    use super::crc32;

    #[test]
    fn matches_the_published_check_value() {
        assert_eq!(crc32(0, b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(0, b""), 0);
    }

    #[test]
    fn goes_on_from_a_part() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for cut in [0, 1, 7, 8, 9, 500, 1000] {
            assert_eq!(crc32(crc32(0, &bytes[..cut]), &bytes[cut..]), crc32(0, &bytes));
        }
    }
}
