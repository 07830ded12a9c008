//! Takes the moment of unpacking out of a new ext4 file system, so that the same inputs give the same bytes.
//!
//! mke2fs copies each file's change and access times from the staging directory, where nobody can set the former. Both
//! become the modification time, and the inode's checksum is made anew. Layout: kernel documentation, ext4 data
//! structures (super block, group descriptors, inode table, inode checksums).
use super::failure::{Failure, Kind, Outcome};
use std::fs::File;
use std::os::unix::fs::FileExt;

const SUPERBLOCK_OFFSET: u64 = 1024;
const BLOCK: u64 = 4096;
const CHECKSUM_LOW: usize = 0x7c;
const CHECKSUM_HIGH: usize = 0x82;
/// Offsets of seconds and, in the extra part, of nanoseconds.
const ACCESS: (usize, usize) = (0x08, 0x8c);
const CHANGE: (usize, usize) = (0x0c, 0x84);
const MODIFICATION: (usize, usize) = (0x10, 0x88);
/// Extra fields up to the access time's.
const NEEDED_EXTRA: u16 = 0x8c + 4 - 0x80;

struct Layout {
    inodes_per_group: u32,
    inode_bytes: usize,
    descriptor_bytes: u64,
    groups: u64,
    seed: u32,
}

/// For a file system just made by our own mke2fs options: 4 KiB blocks, metadata checksums, no meta_bg.
pub fn settle(disk: &File) -> Outcome<()> {
    let layout = read_layout(disk)?;
    for group in 0..layout.groups {
        let mut descriptor = vec![0u8; layout.descriptor_bytes as usize];
        read(disk, &mut descriptor, BLOCK + group * layout.descriptor_bytes)?;
        let table = u64::from(u32_at(&descriptor, 8)) | if descriptor.len() > 0x2c { u64::from(u32_at(&descriptor, 0x28)) << 32 } else { 0 };
        let unused = u32::from(u16_at(&descriptor, 0x1c)) | if descriptor.len() > 0x34 { u32::from(u16_at(&descriptor, 0x32)) << 16 } else { 0 };
        let used = layout.inodes_per_group.saturating_sub(unused);
        settle_table(disk, &layout, Table { at: table * BLOCK, first: group as u32 * layout.inodes_per_group + 1, used })?;
    }
    Ok(())
}

struct Table {
    at: u64,
    first: u32,
    used: u32,
}

fn settle_table(disk: &File, layout: &Layout, table: Table) -> Outcome<()> {
    let mut bytes = vec![0u8; table.used as usize * layout.inode_bytes];
    read(disk, &mut bytes, table.at)?;
    for (index, inode) in bytes.chunks_exact_mut(layout.inode_bytes).enumerate() {
        let is_used = u16_at(inode, 0) != 0;
        if is_used && u16_at(inode, 0x80) >= NEEDED_EXTRA {
            settle_inode(inode, table.first + index as u32, layout.seed);
        }
    }
    disk.write_all_at(&bytes, table.at).map_err(|e| Failure::io("settle times", &e))
}

fn settle_inode(inode: &mut [u8], number: u32, seed: u32) {
    for (seconds, extra) in [ACCESS, CHANGE] {
        inode.copy_within(MODIFICATION.0..MODIFICATION.0 + 4, seconds);
        inode.copy_within(MODIFICATION.1..MODIFICATION.1 + 4, extra);
    }
    inode[CHECKSUM_LOW..CHECKSUM_LOW + 2].fill(0);
    inode[CHECKSUM_HIGH..CHECKSUM_HIGH + 2].fill(0);
    let generation = [inode[0x64], inode[0x65], inode[0x66], inode[0x67]];
    let sum = crc32c(crc32c(crc32c(seed, &number.to_le_bytes()), &generation), inode);
    inode[CHECKSUM_LOW..CHECKSUM_LOW + 2].copy_from_slice(&(sum as u16).to_le_bytes());
    inode[CHECKSUM_HIGH..CHECKSUM_HIGH + 2].copy_from_slice(&((sum >> 16) as u16).to_le_bytes());
}

fn read_layout(disk: &File) -> Outcome<Layout> {
    let mut block = [0u8; 1024];
    read(disk, &mut block, SUPERBLOCK_OFFSET)?;
    let wrong = |what: &str| Failure::new(Kind::System, format!("the new file system has an unexpected {what}"));
    if u16_at(&block, 0x38) != 0xef53 || u32_at(&block, 0x18) != 2 {
        return Err(wrong("block size"));
    }
    let (inodes, inodes_per_group) = (u32_at(&block, 0), u32_at(&block, 0x28));
    let (inode_bytes, descriptor_bytes) = (usize::from(u16_at(&block, 0x58)), u64::from(u16_at(&block, 0xfe)));
    if inodes_per_group == 0
        || inode_bytes != 256
        || !(32..=1024).contains(&descriptor_bytes)
        || u32_at(&block, 0x64) & 0x400 == 0
        || u32_at(&block, 0x60) & 0x10 != 0
    {
        return Err(wrong("layout"));
    }
    Ok(Layout {
        inodes_per_group,
        inode_bytes,
        descriptor_bytes,
        groups: u64::from(inodes.div_ceil(inodes_per_group)),
        seed: crc32c(!0, &block[0x68..0x78]),
    })
}

fn read(disk: &File, buffer: &mut [u8], at: u64) -> Outcome<()> {
    disk.read_exact_at(buffer, at).map_err(|e| Failure::io("read the new file system", &e))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// CRC-32C, reflected, without the final inversion, as ext4 chains it.
fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    bytes.iter().fold(seed, |crc, &byte| (crc >> 8) ^ TABLE[((crc ^ u32::from(byte)) & 255) as usize])
}

const fn table() -> [u32; 256] {
    let mut table = [0u32; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0x82f6_3b78 } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_everybody_means() {
        // The check value of CRC-32C (catalogue of parametrised CRC algorithms).
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
    }

    #[test]
    fn an_inode_gets_its_modification_time_everywhere() {
        let mut inode = vec![0u8; 256];
        inode[0x10..0x14].copy_from_slice(&7u32.to_le_bytes());
        inode[0x88..0x8c].copy_from_slice(&9u32.to_le_bytes());
        inode[0x0c] = 1;
        settle_inode(&mut inode, 12, 0);
        assert_eq!((u32_at(&inode, 0x08), u32_at(&inode, 0x0c), u32_at(&inode, 0x84), u32_at(&inode, 0x8c)), (7, 7, 9, 9));
        let first = inode.clone();
        inode[0x0c] = 99;
        settle_inode(&mut inode, 12, 0);
        assert_eq!(inode, first);
        settle_inode(&mut inode, 13, 0);
        assert_ne!(inode[CHECKSUM_LOW..CHECKSUM_LOW + 2], first[CHECKSUM_LOW..CHECKSUM_LOW + 2]);
    }

    #[test]
    fn what_is_no_file_system_of_ours_is_refused() {
        let path = std::env::temp_dir().join(format!("fluxvm-settle-{}", std::process::id()));
        std::fs::write(&path, vec![0u8; 8192]).unwrap();
        let result = settle(&File::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(result.unwrap_err().kind, Kind::System);
    }
}
