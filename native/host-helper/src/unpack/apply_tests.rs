use super::apply::{Applier, Limits, Totals};
use super::failure::{Kind, Outcome};
use super::tar::Source;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

struct Bytes(Vec<u8>, usize);

impl Source for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> Outcome<usize> {
        let count = buffer.len().min(self.0.len() - self.1);
        buffer[..count].copy_from_slice(&self.0[self.1..self.1 + count]);
        self.1 += count;
        Ok(count)
    }
}

struct World {
    outside: PathBuf,
    root: PathBuf,
}

impl World {
    fn new() -> World {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let outside = std::env::temp_dir().join(format!("fluxvm-apply-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
        let root = outside.join("root");
        fs::create_dir_all(&root).unwrap();
        World { outside, root }
    }

    fn apply(&self, layers: &[&[Item]]) -> Outcome<Totals> {
        let root = fs::File::open(&self.root).unwrap();
        let mut applier = Applier::new(root.into(), Limits { max_bytes: 1 << 20, max_files: 1000, keep_owner: false });
        for layer in layers {
            applier.apply_layer(Bytes(archive(layer), 0))?;
        }
        applier.finish()
    }

    fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        collect(&self.root, &self.root, &mut found);
        found.sort();
        found
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.outside);
    }
}

fn collect(root: &Path, at: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        found.push(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            collect(root, &path, found);
        }
    }
}

enum Item {
    File(&'static str, &'static str),
    Dir(&'static str),
    Link(&'static str, &'static str),
    Hard(&'static str, &'static str),
}
use Item::{Dir, File, Hard, Link};

fn archive(items: &[Item]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for item in items {
        let (name, kind, link, data) = match item {
            File(name, data) => (*name, b'0', "", *data),
            Dir(name) => (*name, b'5', "", ""),
            Link(name, link) => (*name, b'2', *link, ""),
            Hard(name, link) => (*name, b'1', *link, ""),
        };
        let mut block = vec![0u8; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..107].copy_from_slice(b"0000755");
        block[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
        block[136..147].copy_from_slice(b"00000001750");
        block[156] = kind;
        block[157..157 + link.len()].copy_from_slice(link.as_bytes());
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend_from_slice(&block);
        bytes.extend_from_slice(data.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes
}

#[test]
fn whiteouts_hide_lower_layers_only() {
    let world = World::new();
    let lower: &[Item] = &[Dir("d"), File("d/a", "1"), File("d/b", "1"), Dir("e"), File("e/x", "1"), Dir("f"), File("f/old", "1")];
    // An opaque mark and a whiteout after what their own layer brings, and before.
    let upper: &[Item] = &[
        File("d/a", "2"),
        File("d/.wh.a", ""),
        File("d/.wh.b", ""),
        File("e/new", "2"),
        File("e/.wh..wh..opq", ""),
        File("f/.wh..wh..opq", ""),
        File("f/new", "2"),
    ];
    world.apply(&[lower, upper]).unwrap();
    assert_eq!(world.paths(), ["d", "d/a", "e", "e/new", "f", "f/new"]);
    assert_eq!(fs::read_to_string(world.root.join("d/a")).unwrap(), "2");
}

#[test]
fn a_whiteout_takes_a_whole_tree_and_what_is_not_there_is_no_error() {
    let world = World::new();
    world
        .apply(&[&[Dir("a"), Dir("a/b"), File("a/b/c", "1"), Link("l", "a")], &[File(".wh.a", ""), File("no/where/.wh.x", ""), File(".wh.l", "")]])
        .unwrap();
    assert_eq!(world.paths(), [] as [&str; 0]);
}

#[test]
fn kinds_replace_each_other() {
    let world = World::new();
    let lower: &[Item] = &[Dir("d"), File("d/x", "1"), File("f", "1"), Link("l", "f"), Dir("keep"), File("keep/x", "1")];
    world.apply(&[lower, &[File("d", "2"), Dir("f"), File("l", "2"), Dir("keep")]]).unwrap();
    assert_eq!(world.paths(), ["d", "f", "keep", "keep/x", "l"]);
    assert_eq!(fs::read_to_string(world.root.join("l")).unwrap(), "2");
}

#[test]
fn links_inside_the_root_are_followed_as_a_runtime_would() {
    let world = World::new();
    let items: &[Item] = &[Dir("usr/lib"), Link("lib", "usr/lib"), Link("run", "/var/run"), Dir("var/run"), File("lib/a", "1"), File("run/b", "1")];
    world.apply(&[items]).unwrap();
    assert!(world.root.join("usr/lib/a").exists());
    assert!(world.root.join("var/run/b").exists());
}

#[test]
fn nothing_leaves_the_root() {
    let cases: &[&[Item]] = &[
        &[File("../escaped", "1")],
        &[File("/escaped", "1")],
        &[File("a/../../escaped", "1")],
        &[Link("l", ".."), File("l/escaped", "1")],
        &[Dir("a"), Link("a/l", "../.."), File("a/l/escaped", "1")],
        &[Link("l", "../root/.."), File("l/escaped", "1")],
        &[Link("l", "l"), File("l/escaped", "1")],
        &[Hard("h", "../secret")],
        &[Hard("h", "/secret")],
        &[Link("l", ".."), Hard("h", "l/secret")],
        &[Link("l", ".."), File("l/.wh.secret", "")],
        &[File("..wh", "1"), File(".wh...", "")],
    ];
    for (number, case) in cases.iter().enumerate() {
        let world = World::new();
        fs::write(world.outside.join("secret"), "secret").unwrap();
        let failure = world.apply(&[case]).expect_err(&format!("case {number}"));
        assert_eq!(failure.kind, Kind::Unsafe, "case {number}: {}", failure.message);
        assert!(!failure.entry.is_empty(), "case {number}");
        let mut names: Vec<_> = fs::read_dir(&world.outside).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["root", "secret"], "case {number}");
        assert_eq!(fs::metadata(world.outside.join("secret")).unwrap().nlink(), 1, "case {number}");
    }
}

#[test]
fn an_absolute_link_means_the_images_own_root() {
    let world = World::new();
    world.apply(&[&[Link("l", "/etc"), File("l/passwd", "ours")]]).unwrap_or_else(|failure| panic!("{}", failure.message));
    assert_eq!(fs::read_to_string(world.root.join("etc/passwd")).unwrap(), "ours");
}

#[test]
fn hard_links_share_and_may_be_repeated() {
    let world = World::new();
    world.apply(&[&[File("a", "1"), Hard("b", "a"), Hard("b", "a"), Hard("a", "b")]]).unwrap();
    assert_eq!(fs::metadata(world.root.join("a")).unwrap().nlink(), 2);
    for case in [[Hard("x", "missing")].as_slice(), &[Dir("d"), Hard("x", "d")]] {
        assert_eq!(World::new().apply(&[case]).unwrap_err().kind, Kind::Malformed);
    }
}

#[test]
fn limits_hold() {
    let many: Vec<Item> = (0..1001).map(|_| File("same", "")).collect();
    assert_eq!(World::new().apply(&[&many]).unwrap_err().kind, Kind::TooLarge);
    static BIG: &str = include_str!("apply_tests.rs");
    let layers: Vec<Item> = (0..400).map(|_| File("same", BIG)).collect();
    assert_eq!(World::new().apply(&[&layers]).unwrap_err().kind, Kind::TooLarge);
}

#[test]
fn a_directorys_time_survives_what_happens_in_it() {
    let world = World::new();
    world.apply(&[&[Dir("d"), File("d/a", "1")], &[File("d/.wh.a", ""), File("implied/x", "1")]]).unwrap();
    assert_eq!(fs::metadata(world.root.join("d")).unwrap().mtime(), 1000);
    assert_eq!(fs::metadata(world.root.join("implied")).unwrap().mtime(), 0);
}
