//! Size and making of the ext4 file system: mke2fs, in the cell, copies the staging directory into it.
use super::failure::{Failure, Kind, Outcome};
use super::tree::{Place, is, list, open_beneath, status};
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ffi::CString;

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
const INODE_BYTES: u64 = 256;
/// One inode per this many bytes, as mke2fs has it: groups added when the guest grows the file system get as many.
const BYTES_PER_INODE: u64 = 16 << 10;
/// Chosen by us and not by the host's mke2fs.conf, so that the same inputs give the same file system everywhere.
const FEATURES: &str = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum";

/// What a tree needs in a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    pub inodes: u64,
    pub blocks: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    pub bytes: u64,
    pub inodes: u64,
    pub journal_mib: u64,
}

pub fn plan(content: Content, min_bytes: u64) -> Geometry {
    let journal_mib = if content.blocks * BLOCK < 1024 * MIB { 16 } else { 64 };
    let needed_inodes = content.inodes + content.inodes / 4 + 1024;
    // Blocks hold at most 1/32 of themselves in index blocks; the rest is group descriptors, bitmaps and attributes.
    let fixed = (content.blocks + content.blocks / 32) * BLOCK + needed_inodes * INODE_BYTES + (journal_mib + 24) * MIB;
    let bytes = fixed.max(min_bytes).next_multiple_of(MIB);
    Geometry { bytes, inodes: needed_inodes.max(bytes / BYTES_PER_INODE), journal_mib }
}

/// Counts the tree below `place`, hard links once.
pub fn measure(place: &Place) -> Outcome<Content> {
    let mut seen = HashSet::new();
    let mut content = Content { inodes: 1, blocks: 1 };
    measure_into(place, &mut content, &mut seen)?;
    Ok(content)
}

fn measure_into(place: &Place, content: &mut Content, seen: &mut HashSet<u64>) -> Outcome<()> {
    for name in list(&place.directory)? {
        let Some(stat) = status(&place.directory, &name)? else { continue };
        let is_directory = is(&stat, SFlag::S_IFDIR);
        if !is_directory && stat.st_nlink > 1 && !seen.insert(stat.st_ino) {
            continue;
        }
        content.inodes += 1;
        content.blocks += blocks_of(stat.st_size as u64, stat.st_blocks as u64, is(&stat, SFlag::S_IFREG));
        if is_directory {
            let directory = open_beneath(&place.directory, &name, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())
                .map_err(|e| Failure::errno("open a directory", e))?;
            measure_into(&Place { directory, path: Vec::new() }, content, seen)?;
        }
    }
    Ok(())
}

/// Holes need no blocks. Where the host's file system compresses, `st_blocks` says too little: twice is then taken,
/// and the making is tried again with more room if that was not enough.
fn blocks_of(size: u64, sectors: u64, is_file: bool) -> u64 {
    let whole = size.div_ceil(BLOCK);
    let stored = (sectors * 512).div_ceil(BLOCK);
    if is_file && size > MIB && stored < whole / 2 { (stored * 2 + 1).min(whole) } else { whole.max(u64::from(!is_file)) }
}

pub struct MakeOptions<'a> {
    pub geometry: Geometry,
    pub uuid: &'a str,
    pub hash_seed: &'a str,
    pub epoch: u64,
}

/// Replaces the process by mke2fs; returns only when that fails.
pub fn exec_mke2fs(options: &MakeOptions<'_>) -> i32 {
    let extended = format!("hash_seed={},lazy_itable_init=0,lazy_journal_init=1,nodiscard,root_owner=0:0", options.hash_seed);
    let journal = format!("size={}", options.geometry.journal_mib);
    let inodes = options.geometry.inodes.to_string();
    let args = [
        "mke2fs",
        "-q",
        "-F",
        "-t",
        "ext4",
        "-O",
        FEATURES,
        "-b",
        "4096",
        "-I",
        "256",
        "-m",
        "0",
        "-N",
        &inodes,
        "-J",
        &journal,
        "-U",
        options.uuid,
        "-L",
        "root",
        "-E",
        &extended,
        "-d",
        "/staging",
        "/out/disk",
    ];
    let epoch = options.epoch;
    let env = [
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_string(),
        "LC_ALL=C".into(),
        "MKE2FS_CONFIG=/nonexistent".into(),
        format!("SOURCE_DATE_EPOCH={epoch}"),
        format!("E2FSPROGS_FAKE_TIME={epoch}"),
    ];
    let to_c = |text: &str| CString::new(text).unwrap_or_default();
    let args: Vec<CString> = args.iter().map(|text| to_c(text)).collect();
    let env: Vec<CString> = env.iter().map(|text| to_c(text)).collect();
    let Err(errno) = nix::unistd::execve(c"/tool/mke2fs", &args, &env);
    eprintln!("Cannot start mke2fs: {}", errno.desc());
    127
}

/// Whether mke2fs found the file system, not the host, too small.
pub fn says_too_small(stderr: &str) -> bool {
    stderr.contains("Could not allocate") || stderr.contains("ext2 filesystem too small") || stderr.contains("too small for")
}

pub fn failed(stderr: &str) -> Failure {
    let lower = stderr.to_ascii_lowercase();
    let kind = if lower.contains("no space left on device") || lower.contains("disk quota") { Kind::OutOfSpace } else { Kind::Tool };
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(3)..].join("; ");
    Failure::new(kind, format!("mke2fs failed: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_room_for_its_content() {
        for (inodes, blocks) in [(1, 1), (20_000, 60_000), (1_000_000, 10), (10, 4_000_000)] {
            let geometry = plan(Content { inodes, blocks }, 0);
            assert!(geometry.bytes >= blocks * BLOCK + inodes * INODE_BYTES + geometry.journal_mib * MIB);
            assert!(geometry.inodes > inodes);
            assert_eq!(geometry.bytes % MIB, 0);
        }
        assert_eq!(plan(Content { inodes: 1, blocks: 1 }, 3 << 30).bytes, 3 << 30);
    }

    #[test]
    fn holes_count_for_nothing() {
        assert_eq!(blocks_of(10 << 30, 8, true), 3);
        assert_eq!(blocks_of(10, 8, true), 1);
        assert_eq!(blocks_of(0, 0, true), 0);
        assert_eq!(blocks_of(0, 0, false), 1);
    }

    #[test]
    fn failures_are_told_apart() {
        assert!(says_too_small("__populate_fs: Could not allocate block in ext2 filesystem while writing file"));
        assert_eq!(failed("mke2fs: No space left on device while closing").kind, Kind::OutOfSpace);
        assert_eq!(failed("mke2fs: what").kind, Kind::Tool);
    }
}
